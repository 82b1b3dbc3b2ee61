"""What is kept of a result, as text and back, exactly: floats to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from json import dumps, loads
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from trainsim.errors import ScenarioError
from trainsim.study.trial import Failure

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How what a function keeps is written: its ``name``, and the ``adapter`` of the type that it returns."""

    name: str
    adapter: TypeAdapter[T]

    def written(self, value: T) -> str | None:
        """*value* as JSON; None for one that would not come back as it is."""
        text = self._dumped(value)
        return text if self._dumped(self.read(text)) == text else None

    def _dumped(self, value: T) -> str:
        return dumps(self.adapter.dump_python(value, warnings=False), default=_plain)

    def read(self, text: str) -> T:
        """The value that was written. Raises ValueError for text that is none."""
        return self.adapter.validate_python(loads(text))


def form_of(keep: Callable[..., T]) -> Form[T]:
    """The form of what *keep*, a function of trainsim itself, returns. Raises ScenarioError for any other function: a
    change of its code would go unseen.

    >>> from trainsim.study.trial import measures
    >>> form_of(measures).name
    'trainsim.study.trial.measures'
    """
    name = name_of(keep)
    if name is None:
        raise ScenarioError(f"store: {keep!r} is not a function of trainsim, and what it keeps cannot be stored")
    return _form(keep, name)


@lru_cache(maxsize=16)
def _form(keep: Callable[..., Any], name: str) -> Form[Any]:
    from pydantic import TypeAdapter

    try:
        return Form(name, TypeAdapter(get_type_hints(keep)["return"]))
    except Exception as error:  # of pydantic, for types that are more than data
        raise ScenarioError(f"store: what {name} keeps cannot be stored ({type(error).__name__})") from None


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item()


def name_of(function: object) -> str | None:
    """Module and name of a function of trainsim, under which any process finds the same one; with what it holds, of a
    frozen value that is called. None for others.

    >>> name_of(name_of), name_of(lambda: 0), name_of(print)
    ('trainsim.study.kept.name_of', None, None)
    """
    if is_dataclass(function) and not isinstance(function, type):
        kind = name_of(type(function))
        return kind and f"{kind}: {function!r}"
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if not isinstance(module, str) or module.partition(".")[0] != "trainsim" or "<" in name:
        return None
    return f"{module}.{name}"


def failure_text(failure: Failure, place: str) -> str:
    """A failure as text. *place* is where its words hold: they name files and lines."""
    return dumps([failure.message, failure.reason, place])


def failure_of(text: str, place: str) -> Failure | None:
    """The failure of a text; None where its words were of another *place*.

    >>> failure_of(failure_text(Failure("a.yaml:3: no", "no"), "here"), "here")
    Failure(message='a.yaml:3: no', reason='no', of_the_moment=False)
    """
    message, reason, whose = loads(text)
    return Failure(message, reason) if whose == place else None
