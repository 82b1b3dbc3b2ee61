"""What a notebook shows for every value that ``ts.*`` gives: a card, readable on dark paper too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import trainsim as ts
from trainsim import notebook
from trainsim.tables.page import card_css

TINY = {
    "model": {"name": "tiny", "layers": 4, "hidden": 256, "heads": 4, "vocab": 1000, "max_positions": 512},
    "cluster": {"topology": "dgx_a100", "nodes": 1},
    "parallel": {"pp": 2},
    "training": {"sequence_length": 256, "global_batch": 64},
    "simulation": {"detail": "block"},
}


def tiny() -> ts.Scenario:
    return ts.Scenario.from_dict(TINY)


def imported(folder: Path) -> Any:
    path = folder / "config.json"
    path.write_text(
        '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2, '
        '"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 1000}'
    )
    return ts.import_config(path)


VALUES = {
    "scenario": lambda folder: tiny(),
    "result": lambda folder: tiny().run(),
    "difference": lambda folder: tiny().replace({"parallel.pp": 1}).run() - tiny().run(),
    "side by side": lambda folder: ts.compare([tiny(), tiny().replace({"parallel.pp": 1})]),
    "explanation": lambda folder: ts.explain(tiny(), progress=False),
    "sweep": lambda folder: ts.sweep(tiny(), {"parallel.pp": [1, 2]}, progress=False),
    "summary": lambda folder: ts.sweep_summary(ts.sweep(tiny(), {"parallel.pp": [1, 2]}, progress=False)),
    "plan": lambda folder: ts.plan(tiny(), top=2, progress=False),
    "what fits": lambda folder: ts.what_fits(tiny(), progress=False),
    "jobs": lambda folder: ts.run_jobs(
        {
            "cluster": {"topology": "dgx_a100", "nodes": 2},
            "jobs": [{"name": name, "nodes": 1, "scenario": TINY} for name in "ab"],
        }
    ),
    "order": lambda folder: ts.schedule("zb-h1", stages=4, microbatches=8),
    "replay": lambda folder: ts.replay(ts.schedule("zb-h1", stages=4, microbatches=8), p2p=0),
    "model": lambda folder: ts.model("mixtral-8x7b"),
    "machine": lambda folder: ts.topology("dgx_h100", nodes=4),
    "import": imported,
}


@pytest.fixture(scope="module")
def shell() -> Any:
    found = InteractiveShell.instance()
    notebook.register()
    yield found
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("name", VALUES)
def test_every_value_has_a_card(name: str, shell: Any, tmp_path: Path) -> None:
    data, _ = shell.display_formatter.format(VALUES[name](tmp_path))
    html = data["text/html"]
    assert re.search(r"<table|<pre|class=\"tile", html), html[-300:]
    assert "<script" not in html
    assert "<pre>&lt;" not in html, "it could not be drawn"
    assert len(html) < 600_000


def test_a_card_that_cannot_be_drawn_shows_the_value(shell: Any) -> None:
    shown = notebook._never_raises(notebook.order_card)
    assert shown([["1F0"]]).startswith("<pre>[[")


def test_importing_in_a_notebook_costs_nothing(shell: Any) -> None:
    """Classes are named, not imported."""
    formatter = shell.display_formatter.formatters["text/html"]
    known = set(formatter.deferred_printers) | {(t.__module__, t.__name__) for t in formatter.type_printers}
    assert set(notebook.CARDS) <= known


def test_dark_themes_change_every_colour() -> None:
    """All colours are variables, and each has a value for light paper and one for dark."""
    light, dark = card_css().split("[data-jp-theme-light", 1)
    names = set(re.findall(r"(--[\w-]+):", light))
    assert names == set(re.findall(r"(--[\w-]+):", dark))
    assert names >= set(re.findall(r"var\((--[\w-]+)\)", light))
    rules = re.sub(r"\.trainsim \{[^}]*\}", "", light, count=1)
    assert not re.findall(r"#[0-9a-f]{3,6}\b", rules), "a colour that is no variable stays light on dark paper"
