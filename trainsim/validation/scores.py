"""What came of one published run: seconds and bytes predicted beside those measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trainsim.validation.published import PublishedRun

COLUMNS = (
    "id", "source_id", "published_s", "predicted_s", "error", "memory_published", "memory_predicted", "memory_error",
    "fits", "reason", "software", "assumed",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScore:
    """One published run: seconds and bytes, ``reason`` why it could not run, ``assumed`` what its source leaves
    open, ``parts`` the weights of the parts of its error."""

    run: PublishedRun = field(repr=False)
    published: float | None
    predicted: float | None = None
    memory_published: float | None = None
    memory_predicted: float | None = None
    fits: bool | None = None
    reason: str = ""
    software: str = ""
    parts: tuple[tuple[str, float], ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def error(self) -> float | None:
        """Predicted over published, less 1."""
        return self.predicted / self.published - 1 if self.predicted and self.published else None

    @property
    def memory_error(self) -> float | None:
        """The same of the peak."""
        known = self.memory_predicted and self.memory_published
        return self.memory_predicted / self.memory_published - 1 if known else None  # type: ignore[operator]

    @property
    def ran_out(self) -> bool | None:
        """Whether the run was out of memory; None where its table does not say."""
        told = self.run.flag("oom")
        return self.run.text("status").upper() == "OOM" or None if told is None else told

    def to_dict(self) -> dict[str, Any]:
        """A row of the table that is written."""
        values = (
            self.run.id, self.run.source, self.published, self.predicted, self.error, self.memory_published,
            self.memory_predicted, self.memory_error, self.fits, self.reason, self.software, "; ".join(self.assumed),
        )  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))


def by_source(scores: Iterable[RunScore]) -> dict[str, list[RunScore]]:
    """Scores by source, in the order of the rows."""
    found: dict[str, list[RunScore]] = {}
    for score in scores:
        found.setdefault(score.run.source, []).append(score)
    return found


def errors_of(scores: Iterable[RunScore]) -> Iterator[float]:
    """The errors of those that have one."""
    return (error for score in scores if (error := score.error) is not None)
