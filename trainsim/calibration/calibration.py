"""
A calibration: what all fits found, as a value that prints itself and writes overrides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from trainsim.calibration.answer import Compared, FitAnswer, Kind, median_error
from trainsim.documents.catalogue import merged

if TYPE_CHECKING:
    from rich.console import RenderableType


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
