"""
What would make a step fit in memory: one function per change that people make, each of them tried out.

A way is a pure function of a scenario and its job. It gives the changes of the scenario that could take less memory; it
need not know whether they go together with the rest, for the scenario itself says so when it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainsim.contracts.job import Job
from trainsim.registry import Registry
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial

Way = Callable[[Scenario, Job], Iterator[Trial]]

ways: Registry[Way] = Registry("way to save memory", __name__)
