"""
Run ``trainsim`` as its command line does and write how long each phase took, in seconds of user CPU.

    python -P benchmarks/watched.py PHASES.json run quickstart

Nothing of this package is imported, so that the ``trainsim`` that is found may be another checkout's. What is imported
while a phase goes on counts to it, except for what every run needs, which is imported first.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

NEEDED = (
    "trainsim.cli.commands",
    "trainsim.scenario.scenario",
    "trainsim.simulate",
    "trainsim.result.result",
    "trainsim.report.text",
    "trainsim.report.resolved",
    "trainsim.report.progress",
    "rich.console",
)
"""What every ``trainsim run`` imports."""
PHASES = ("start, imports", "scenario", "lower, estimate", "prune, fold", "engine", "analysis, text", "charts", "trace",
          "page")  # fmt: skip
START, SCENARIO, LOWER, FOLD, ENGINE, ANALYSIS, CHARTS, TRACE, PAGE = PHASES
WORDS = {"planning": LOWER, "folding": FOLD, "simulating": ENGINE}
"""What the program says of its progress."""
PARTS = (
    ("trainsim.result.result", "Result", "gantt", CHARTS),
    ("trainsim.report.files", "", "save_pictures", CHARTS),
    ("trainsim.result.result", "Result", "to_chrome", TRACE),
    ("trainsim.report.html", "", "page", PAGE),
)
"""(Module, class, function, phase) of what is done once the step is over; everything else is analysis."""


class Watch:
    """Sums user CPU by phase; ``now`` is the phase that goes on."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.now, self._since = START, 0.0

    def turn(self, phase: str) -> None:
        """From here on it is *phase*."""
        used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        self.seconds[self.now] += used - self._since
        self.now, self._since = phase, used

    def around(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """*function*, whose time counts to *phase*."""

        def watched(*args: Any, **options: Any) -> Any:
            before = self.now
            self.turn(phase)
            try:
                return function(*args, **options)
            finally:
                self.turn(before)

        return watched

    @contextmanager
    def working(self, title: str, why: object = None) -> Iterator[Callable[[str], None]]:
        """In the place of what shows progress."""
        yield lambda word: self.turn(WORDS.get(word, ANALYSIS))
        self.turn(ANALYSIS)


def main(out: str, words: list[str]) -> None:
    """Run the command *words* and write the phases to *out*."""
    watch = Watch()
    for name in NEEDED:
        with suppress(ModuleNotFoundError):  # an older checkout may not have it
            import_module(name)
    for module, owner, name, phase in PARTS:
        home: Any = import_module(module)
        home = getattr(home, owner) if owner else home
        setattr(home, name, watch.around(getattr(home, name), phase))
    vars(import_module("trainsim.report.progress"))["working"] = watch.working
    watch.turn(SCENARIO)
    sys.argv = ["trainsim", *words]
    try:
        import_module("trainsim.cli").main()
    finally:
        watch.turn("")
        Path(out).write_text(json.dumps(watch.seconds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
