"""What a picture of a sweep shows of its points: how it reads, and which end of it is good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainsim.errors import UnknownName
from trainsim.report.style import GIB
from trainsim.study.sweep_summary import SweepGoal
from trainsim.study.trial import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of a point: ``of`` gives it, ``text`` writes it, ``title`` says what it is and in what unit."""

    title: str
    of: Callable[[Measures], float]
    text: Callable[[float], str]
    less_is_better: bool = False


def short(value: float) -> str:
    """A number with three digits, as many as a cell has room for.

    >>> short(103.27), short(9.876), short(0.01234), short(40614.0), short(1234567)
    ('103', '9.88', '0.0123', '40.6k', '1.23M')
    """
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.3g}"
    for scale, prefix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 9.995 * scale or (scale > 1e3 and abs(value) >= scale):
            return f"{value / scale:.3g}{prefix}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{value:.0%}" if value >= 0.0995 else f"{value:.1%}"


QUANTITIES: Mapping[str, Quantity] = {
    "step_time_s": Quantity(title="step time (s)", of=lambda ran: ran.step_time, text=short, less_is_better=True),
    "tokens_per_s": Quantity(title="tokens/s", of=lambda ran: ran.tokens_per_s, text=short),
    "tokens_per_s_per_gpu": Quantity(title="tokens/s per GPU", of=lambda ran: ran.tokens_per_s_per_gpu, text=short),
    "mfu": Quantity(title="MFU", of=lambda ran: ran.mfu, text=_percent),
    "hfu": Quantity(title="HFU", of=lambda ran: ran.hfu, text=_percent),
    "bubble_fraction": Quantity(title="bubble", of=lambda ran: ran.bubble_fraction, text=_percent, less_is_better=True),
    "peak_memory_bytes": Quantity(
        title="peak memory (GiB)", of=lambda ran: ran.peak_memory / GIB, text=short, less_is_better=True
    ),
    "days": Quantity(title="days of training", of=lambda ran: ran.days or 0.0, text=short, less_is_better=True),
    "cost": Quantity(title="cost of the training", of=lambda ran: ran.cost or 0.0, text=short, less_is_better=True),
}
"""By the name of their column."""


def quantity(name: str | None, objective: SweepGoal) -> Quantity:
    """The quantity of that name; None: what the points compare by. Raises UnknownName."""
    if name is not None and name not in QUANTITIES:
        raise UnknownName("quantity of a sweep", str(name), QUANTITIES)
    return QUANTITIES[objective.value if name is None else name]
