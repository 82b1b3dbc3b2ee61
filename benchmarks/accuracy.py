"""
How right it is: published runs replayed, with all that is known and with each source left out. Takes a quarter of an
hour on two cores.

    python -m benchmarks.accuracy [--write]

Prints errors by source, rankings, and how often ranges hold. ``--write`` makes anew what follows from them: the
deviations that ranges are made of, the errors that a test holds each source to, and the tables and the picture of
docs/accuracy.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.accuracy_page import blocks, picture, replaced
from trainsim.validation.ranking import ranking
from trainsim.validation.scores import RunScore, by_source, errors_of
from trainsim.validation.scoring import validate
from trainsim.validation.summary import errors, overall
from trainsim.validation.uncertainty import checked_of, coverage, document, fit
from trainsim.validation.uncertainty import errors_of as parts_of_errors

ROOT = Path(__file__).parents[1]
RANGES = ROOT / "trainsim" / "analysis" / "uncertainty.yaml"
EXPECTED = ROOT / "tests" / "data" / "validation.yaml"
PAGE, PICTURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "images" / "accuracy.png"


def main() -> None:
    """Replay, print, and write where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="Published runs, replayed.")
    parser.add_argument("--write", action="store_true", help="write what follows from the scores")
    options = parser.parse_args()
    tell(
        {"all": validate().scores, "left out": validate(left_out=True).scores, "nanotron": validate("nanotron").scores},
        write=options.write,
    )


def tell(tables: Mapping[str, Sequence[RunScore]], *, write: bool) -> None:
    """Print what follows from the scores of all *tables*, and write it."""
    for name, scores in tables.items():
        print(f"\n{name}: {overall(scores)}")
        print(*_lines(scores), sep="\n")
    parts = parts_of_errors(tables["all"], tables["left out"])
    ranges, within = fit(parts), coverage(parts)
    print("\nranges", dict(ranges.deviation), ranges.quantiles)
    print("coverage", {source: round(part, 2) for source, part in within.items()})
    if write:
        RANGES.write_text(document(ranges, checked_of(tables["all"])), encoding="utf-8")
        EXPECTED.write_text(expected(tables["all"]), encoding="utf-8")
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), blocks(tables, within)), encoding="utf-8")
        picture(tables).savefig(PICTURE, dpi=110)


def _lines(scores: Sequence[RunScore]) -> list[str]:
    lines = []
    for source, some in by_source(scores).items():
        if found := errors(errors_of(some)):
            lines.append(
                f"{source:10} {found.runs:4} median {found.median:6.1%} 90 % {found.ninety:6.1%} "
                f"bias {found.bias:+6.1%}"
            )
    if ranked := ranking(scores):
        lines.append(f"ranking: {ranked}")
    return lines


def expected(scores: Sequence[RunScore]) -> str:
    """What the test of each source holds it to."""
    found: dict[str, Any] = {}
    for source, some in by_source(scores).items():
        if summary := errors(errors_of(some)):
            found[source] = {
                "runs": summary.runs,
                "median": round(summary.median, 4),
                "ninety": round(summary.ninety, 4),
                "bias": round(summary.bias, 4),
            }
    head = "# Errors of step times by source, made by `python -m benchmarks.accuracy --write`.\n"
    return head + yaml.safe_dump(found, sort_keys=False)


if __name__ == "__main__":
    main()
