"""
What a calibration answers: the constants that moved, those that stayed, and what was measured beside what is simulated
before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Literal

from trainsim.documents.catalogue import Spec, merged
from trainsim.scenario.scenario import Scenario

if TYPE_CHECKING:
    from rich.console import RenderableType

Kind = Literal["topology", "framework", "gpu", "scenario"]
"""What an override is of; a scenario names each of the first three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases:
    """What is calibrated: the nearest topology, framework and GPU by name, path or not at all, or a whole scenario."""

    topology: str | None = None
    framework: str | None = None
    gpu: str | None = None
    scenario: Scenario | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant that moved: where it stands in the override, its value there before and after, and its unit."""

    key: str
    before: float
    after: float
    unit: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As a mapping, for JSON."""
        return {"value": self.after, "before": self.before, "unit": self.unit}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measured number (s) beside the same as simulated ``before`` and ``after``; ``left_out`` is what is simulated
    where everything but this number was fitted. ``counts``: it had a part in the fit."""

    what: str
    measured: float
    before: float
    after: float
    nbytes: float | None = None
    left_out: float | None = None
    counts: bool = True

    def error(self, predicted: float) -> float:
        """*predicted* over measured, less 1."""
        return predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """What one fit found. ``kept`` says of each constant that stayed why it did; ``documents`` are the overrides."""

    constants: tuple[Constant, ...] = ()
    compared: tuple[Compared, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    facts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    documents: Mapping[Kind, Mapping[str, Any]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class Calibration(FitAnswer):
    """What all files say together; it prints itself, and `to_yaml` is the override."""

    def __repr__(self) -> str:
        return f"<Calibration of {len(self.constants)} constants on {len(self.compared)} measurements>"

    def to_dict(self) -> dict[str, Any]:
        """As a mapping, for JSON: ``fitted``, ``before``, ``after``, ``kept``, ``warnings``; times in seconds."""
        return {
            "fitted": {constant.key: constant.to_dict() for constant in self.constants},
            "before": _side(self.compared, "before"),
            "after": _side(self.compared, "after"),
            "kept": [{"name": name, "reason": reason} for name, reason in self.kept],
            "warnings": [*self.facts, *self.warnings],
        }

    def to_yaml(self, kind: Kind) -> str:
        """The override of one kind as a file. Raises KeyError where nothing of that kind was fitted."""
        import yaml

        document = dict(self.documents[kind])
        links = document.get("node", {}).pop("links", None) if isinstance(document.get("node"), dict) else None
        text = str(
            yaml.safe_dump({k: v for k, v in document.items() if v}, sort_keys=False, allow_unicode=True, width=120)
        )
        if links:
            rows = (
                yaml.safe_dump(link, default_flow_style=True, sort_keys=False, width=1000).strip() for link in links
            )
            text += "\n".join(["node:", "  links:", *(f"    - {row}" for row in rows)]) + "\n"
        return text

    def __rich__(self) -> RenderableType:
        from trainsim.calibration.sections import sections_of
        from trainsim.tables.terminal import rich_sections

        return rich_sections(sections_of(self))

    def _repr_html_(self) -> str:
        from trainsim.calibration.sections import sections_of
        from trainsim.tables.page import card

        return card(sections_of(self))


def written_topology(scenario: Scenario) -> Spec:
    """The topology of a scenario as it can be the base of another; a path from where the scenario lies."""
    given: Spec = scenario.data["cluster"]["topology"]
    here = scenario.origin.folder / given if isinstance(given, str) else None
    return str(here) if here is not None and here.is_file() else given


def joined(parts: Iterable[FitAnswer]) -> Calibration:
    """What several fits found; a GPU's override goes into the topology's where there is one."""
    parts = list(parts)
    documents: dict[Kind, Any] = {}
    for part in parts:
        for kind, document in part.documents.items():
            documents[kind] = merged(documents.get(kind, {}), document)
    if "topology" in documents and "gpu" in documents:
        documents["topology"] = merged(documents["topology"], {"gpu": documents.pop("gpu")})
    names = ("constants", "compared", "kept", "facts", "warnings")
    return Calibration(**{n: tuple(x for p in parts for x in getattr(p, n)) for n in names}, documents=documents)


def median_error(compared: Iterable[Compared], side: str) -> float | None:
    """The median of how far a side (``before``, ``after``, ``left_out``) is from what was measured."""
    errors = [abs(row.error(value)) for row in compared if row.counts and (value := getattr(row, side)) is not None]
    return median(errors) if errors else None


def _side(compared: tuple[Compared, ...], side: str) -> dict[str, Any]:
    rows = [
        {"what": row.what, "nbytes": row.nbytes, "measured_s": row.measured, "predicted_s": getattr(row, side),
         "error": row.error(getattr(row, side))} | _left_out(row, side)
        for row in compared
    ]  # fmt: skip
    errors = sorted(abs(row.error(getattr(row, side))) for row in compared if row.counts)
    worst = quantiles(errors, n=10)[-1] if len(errors) > 1 else next(iter(errors), None)
    return {"median_error": median_error(compared, side), "p90_error": worst, "rows": rows}


def _left_out(row: Compared, side: str) -> dict[str, float]:
    """What a row says of the fit without it, on the side of what is new."""
    if side != "after" or row.left_out is None:
        return {}
    return {"left_out_s": row.left_out, "left_out_error": row.error(row.left_out)}
