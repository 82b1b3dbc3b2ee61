"""Tables and sections as HTML, by jinja2: the templates beside this module hold all the markup."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from trainsim.tables.blocks import Section
from trainsim.tables.cells import Bar, Sign
from trainsim.tables.table import Table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def environment() -> Environment:
    """The templates of pages; everything that they put in is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("trainsim.tables", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    env.tests["bar"] = lambda cell: isinstance(cell, Bar)
    env.tests["sign"] = lambda cell: isinstance(cell, Sign)
    env.filters["kind"] = lambda block: type(block).__name__
    env.filters["json"] = json_text
    return env


def json_text(data: Mapping[str, Any]) -> Markup:
    """*data* as JSON that may stand in a page: nothing in it ends a script or begins a tag.

    >>> print(json_text({"name": "</script>&"}))
    {"name":"\\u003c/script\\u003e\\u0026"}
    """
    from markupsafe import Markup

    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def css() -> str:
    """The style of pages and cards."""
    return (files("trainsim.tables") / "templates" / "page.css").read_text()


@cache
def card_css() -> str:
    """The style of cards: that of pages, on paper of their own, and dark where the notebook's theme is."""
    return css() + (files("trainsim.tables") / "templates" / "card.css").read_text()


def fragment(table: Table) -> str:
    """A table as a piece of HTML with its style: what a notebook shows."""
    return card([Section(table.title, (table,))])


def card(sections: Iterable[Section], title: str = "") -> str:
    """Sections as a piece of HTML with its style: what a notebook shows."""
    return environment().get_template("card.html").render(title=title, sections=tuple(sections), css=card_css())


def page(sections: Iterable[Section], title: str, *, script: str = "", style: str = "") -> str:
    """Sections as a page that needs nothing else and may load nothing. *script* shows what is interactive, *style* is
    laid over that of cards."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        environment()
        .get_template("page.html")
        .render(title=title, sections=tuple(sections), css=css() + style, script=script, digest=digest)
    )
