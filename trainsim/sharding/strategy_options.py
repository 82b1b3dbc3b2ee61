"""
The options of the scenario's ``sharding`` section: each is declared once, here or in the file of the strategy whose it
is, and a strategy lists those that it understands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from trainsim.contracts.job import Job

T = TypeVar("T")

ACCEPTED = {
    "count": "a number of elements above 0 (500M)",
    "count or 0": "a number of elements, or 0",
    "degree": "a number of groups",
    "group": "a number of ranks that divides the replicas",
    "flag": "true or false",
    "flag or group": "true, false or a number of ranks",
    "flag or units": "true, false or a number of units",
    "prefetch": "pre, post, none or a number of units",
    "units": "layers, layers_and_embeddings, model or a number of layers",
}
"""What an option can accept, beside a tuple of words, and what that means to a reader."""


AUTO = "auto"
"""Written for an option that has a rule."""


class Automatic(NamedTuple):
    """What ``auto`` means: a number that follows from the width of the model, and its rule in words."""

    of_hidden: Callable[[int], int]
    rule: str


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """A key of the scenario's ``sharding`` section, with its default and what is said of it.

    ``accepts`` is a key of ``ACCEPTED``, or the words that can be written. Raises ValueError for anything else.
    ``automatic`` is what ``auto`` stands for; none: it cannot be written.

    >>> Option("sync", None, ("every", "last"), "when gradients are reduced").wanted
    'every or last'
    """

    name: str
    default: T
    accepts: str | tuple[str, ...]
    doc: str
    automatic: Automatic | None = None

    def __post_init__(self) -> None:
        if isinstance(self.accepts, str) and self.accepts not in ACCEPTED:
            raise ValueError(f"option {self.name} accepts {self.accepts!r}; it can be {', '.join(ACCEPTED)}")

    @property
    def wanted(self) -> str:
        """What can be written, in words."""
        if isinstance(self.accepts, str):
            return ACCEPTED[self.accepts] + (f", or {AUTO} ({self.automatic.rule})" if self.automatic else "")
        return " or ".join((", ".join(self.accepts[:-1]), self.accepts[-1]))

    def of(self, job: Job) -> T:
        """The value that *job* has, or the default."""
        value: T | None = job.sharding.options.get(self.name)
        return self.default if value is None else value


# The rules of huggingface/transformers 5, src/transformers/integrations/deepspeed.py (trainer_config_finalize).
REDUCE_BUCKET: Option[float | None] = Option(
    "reduce_bucket",
    None,
    "count",
    "gradient elements that are reduced together; default: the framework's",
    Automatic(lambda hidden: hidden**2, "hidden^2"),
)
SHARD_SIZE: Option[int | None] = Option(
    "shard_size", None, "group", "ranks that shard states among themselves; default: the replicas of a node"
)
