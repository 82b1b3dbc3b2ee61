"""
Replay a distributed training step without a GPU: its time, its bubble, its memory, and where they go.

>>> import trainsim as ts
>>> base = ts.Scenario.load("quickstart")
>>> base.replace({"parallel.tp": 1}) == base
False

Everything public is found here and imported when it is first used, so that ``import trainsim`` costs nothing.
Some parts are called like the package that holds them (``ts.model``): such a package can be called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainsim.errors import TrainsimError

if TYPE_CHECKING:
    from inspect import Signature

    from trainsim import memory as memory
    from trainsim.collectives.pattern import collective_time as collective_time
    from trainsim.costs.kernels import kernel_time as kernel_time
    from trainsim.explain.explanation import explain as explain
    from trainsim.fitting.search import what_fits as what_fits
    from trainsim.hardware.cluster import load_topology as topology
    from trainsim.model.transformer import load_model as model
    from trainsim.replay import replay as replay
    from trainsim.replay import schedule as schedule
    from trainsim.result import Result as Result
    from trainsim.scenario.scenario import Scenario as Scenario
    from trainsim.side_by_side import compare as compare
    from trainsim.sweep.grid import sweep as sweep

__version__ = "0.1.0"

_HOME = {
    "Scenario": "trainsim.scenario.scenario:Scenario",
    "Result": "trainsim.result:Result",
    "topology": "trainsim.hardware.cluster:load_topology",
    "collective_time": "trainsim.collectives.pattern:collective_time",
    "kernel_time": "trainsim.costs.kernels:kernel_time",
    "schedule": "trainsim.replay:schedule",
    "compare": "trainsim.side_by_side:compare",
    "what_fits": "trainsim.fitting.search:what_fits",
}
_MODULES = {"memory"}
_CALLABLE = {
    "explain": "trainsim.explain.explanation:explain",
    "model": "trainsim.model.transformer:load_model",
    "replay": "trainsim.replay:replay",
    "sweep": "trainsim.sweep.grid:sweep",
}

__all__ = [
    "Result",
    "Scenario",
    "TrainsimError",
    "collective_time",
    "compare",
    "explain",
    "kernel_time",
    "memory",
    "model",
    "replay",
    "schedule",
    "sweep",
    "topology",
    "what_fits",
]


def _find(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def __getattr__(name: str) -> Any:
    if name in _CALLABLE or name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return globals().setdefault(name, _find(_HOME[name]))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _CallableModule(ModuleType):
    """A package that stands for its main function too."""

    @property
    def __signature__(self) -> Signature:
        from inspect import signature

        return signature(_find(_CALLABLE[self.__name__.rpartition(".")[2]]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _find(_CALLABLE[self.__name__.rpartition(".")[2]])(*args, **kwargs)


class _Package(ModuleType):
    """Makes the modules in ``_CALLABLE`` callable when the import system hangs them in here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CALLABLE and isinstance(value, ModuleType):
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
