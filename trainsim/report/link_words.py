"""What is said of the busiest links, in pictures and reports."""

from __future__ import annotations

from trainsim.analysis.links import NEARLY_FULL, LinkUse

NOTABLE = 0.2
"""Of a step: a link of the network that is nearly full for so long is worth a line."""


def alike(row: LinkUse) -> str:
    """The name of a link, and how many have the same traffic."""
    return row.name + (f" and {row.equal - 1:,} others" if row.equal > 1 else "")


def fullness(row: LinkUse, step: float) -> str:
    """How full it is on average, at most, and for how long it is nearly full."""
    words = f"mean {row.mean:.1%}, peak {row.peak:.0%}"
    return words + (
        f", above {NEARLY_FULL:.0%} for {row.nearly_full_s / step:.1%} of the step" if row.nearly_full_s else ""
    )


def shares(row: LinkUse) -> str:
    """Whose bytes they are, the most first."""
    whole = sum(row.by_kind.values())
    some = sorted(((part / whole, kind) for kind, part in row.by_kind.items()), reverse=True)
    return ", ".join(f"{kind} {part:.0%}" for part, kind in some if part >= 0.005)
