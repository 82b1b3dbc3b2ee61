"""
Replay a distributed training step without a GPU: its time, its bubble, its memory, and where they go.

>>> import trainsim as ts
>>> base = ts.Scenario.load("quickstart")
>>> base.replace({"parallel.tp": 1}) == base
False

Everything public is found here and imported when it is first used, so that ``import trainsim`` costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainsim.errors import TrainsimError

if TYPE_CHECKING:
    from trainsim import memory as memory
    from trainsim.calibration.calibrating import calibrate as calibrate
    from trainsim.collectives.pattern import collective_time as collective_time
    from trainsim.costs.kernels import kernel_time as kernel_time
    from trainsim.diagnosis.diagnosing import diagnose as diagnose
    from trainsim.importers.importing import import_config as import_config
    from trainsim.importers.topology.reading import topology as topology
    from trainsim.jobs.running import run_jobs as run_jobs
    from trainsim.measured.reading import read_trace as read_trace
    from trainsim.models.reading import load_model as model
    from trainsim.replaying import replay as replay
    from trainsim.replaying import schedule as schedule
    from trainsim.result.result import Result as Result
    from trainsim.scenario.scenario import Scenario as Scenario
    from trainsim.study.compare import compare as compare
    from trainsim.study.designs.grid import grid as grid
    from trainsim.study.designs.samples import samples as samples
    from trainsim.study.designs.zipped import zipped as zipped
    from trainsim.study.explain import explain as explain
    from trainsim.study.planning.picture import plan_chart as plan_chart
    from trainsim.study.planning.plan import plan as plan
    from trainsim.study.sweep import sweep as sweep
    from trainsim.study.sweep import sweep_summary as sweep_summary
    from trainsim.study.sweep_plot import sweep_plot as sweep_plot
    from trainsim.study.what_fits import what_fits as what_fits
    from trainsim.validation.scoring import validate as validate

__version__ = "0.1.0"

_HOME = {
    "Scenario": "trainsim.scenario.scenario:Scenario",
    "Result": "trainsim.result.result:Result",
    "topology": "trainsim.importers.topology.reading:topology",
    "validate": "trainsim.validation.scoring:validate",
    "collective_time": "trainsim.collectives.pattern:collective_time",
    "kernel_time": "trainsim.costs.kernels:kernel_time",
    "calibrate": "trainsim.calibration.calibrating:calibrate",
    "diagnose": "trainsim.diagnosis.diagnosing:diagnose",
    "import_config": "trainsim.importers.importing:import_config",
    "schedule": "trainsim.replaying:schedule",
    "compare": "trainsim.study.compare:compare",
    "what_fits": "trainsim.study.what_fits:what_fits",
    "explain": "trainsim.study.explain:explain",
    "model": "trainsim.models.reading:load_model",
    "plan": "trainsim.study.planning.plan:plan",
    "plan_chart": "trainsim.study.planning.picture:plan_chart",
    "read_trace": "trainsim.measured.reading:read_trace",
    "replay": "trainsim.replaying:replay",
    "run_jobs": "trainsim.jobs.running:run_jobs",
    "sweep": "trainsim.study.sweep:sweep",
    "sweep_plot": "trainsim.study.sweep_plot:sweep_plot",
    "sweep_summary": "trainsim.study.sweep:sweep_summary",
    "grid": "trainsim.study.designs.grid:grid",
    "zipped": "trainsim.study.designs.zipped:zipped",
    "samples": "trainsim.study.designs.samples:samples",
}
_MODULES = {"memory"}

__all__ = [
    "Result",
    "Scenario",
    "TrainsimError",
    "calibrate",
    "collective_time",
    "compare",
    "diagnose",
    "explain",
    "grid",
    "import_config",
    "kernel_time",
    "memory",
    "model",
    "plan",
    "plan_chart",
    "read_trace",
    "replay",
    "run_jobs",
    "samples",
    "schedule",
    "sweep",
    "sweep_plot",
    "sweep_summary",
    "topology",
    "validate",
    "what_fits",
    "zipped",
]


def _find(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return globals().setdefault(name, _find(_HOME[name]))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


if "IPython" in sys.modules:
    import_module(f"{__name__}.notebook").register()


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
