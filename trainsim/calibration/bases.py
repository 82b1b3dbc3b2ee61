"""What is calibrated: the nearest things that ship, or a scenario."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Catalogue, Spec
from trainsim.errors import ScenarioError, TrainsimError, UnknownName
from trainsim.frameworks import FRAMEWORKS
from trainsim.hardware.devices import device_called
from trainsim.hardware.gpu import GPUS
from trainsim.hardware.topology import TOPOLOGIES
from trainsim.scenario.loading import scenario_names
from trainsim.scenario.scenario import Scenario

TELLING = {"topology": "gpus_per_node", "gpu": "sms", "framework": "host"}
"""A key that every file of a kind has, once its base is read."""
CATALOGUES: dict[str, Catalogue] = {"topology": TOPOLOGIES, "gpu": GPUS, "framework": FRAMEWORKS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases:
    """What is calibrated: the nearest topology, framework and GPU by name, path or not at all, or a whole scenario."""

    topology: str | None = None
    framework: str | None = None
    gpu: str | None = None
    scenario: Scenario | None = None


def bases_of(names: Iterable[str], scenario: Scenario | None = None) -> Bases:
    """Each name, or path, as what it is the name of. Raises UnknownName, and a TrainsimError for a broken file.

    >>> bases = bases_of(["dgx_h100", "torchtitan"])
    >>> bases.topology, bases.framework, bases.gpu
    ('dgx_h100', 'torchtitan', None)
    """
    found: dict[str, str] = {}
    for name in names:
        kind = _kind(name)
        if found.setdefault(kind, name) != name:
            raise ScenarioError(f"--base {found[kind]} and --base {name} are both a {kind}; name one of each kind")
    return Bases(scenario=scenario, **found)


def _kind(name: str) -> str:
    """What *name* is the name of, or what the file there is."""
    if called := next((kind for kind, known in CATALOGUES.items() if known.canonical(name) in known.files), None):
        return called
    faults = []
    for kind, known in CATALOGUES.items():
        try:
            if TELLING[kind] in known.find(name).data:
                return kind
        except UnknownName:
            pass
        except TrainsimError as fault:
            faults.append(fault)
    if faults:
        raise faults[0]
    every = [known_name for known in CATALOGUES.values() for known_name in known.files]
    raise UnknownName("topology, GPU or framework", name, every)


def other_gpus(called: Iterable[str], gpu: str) -> list[str]:
    """What to say where devices that call themselves so are no *gpu*; one that is changed is called after it.

    >>> other_gpus(["NVIDIA H100 80GB HBM3"], "h100-sxm5-80gb, changed")
    []
    """
    meant = gpu.partition(",")[0]
    others = {name: device.gpu for name in called if (device := device_called(name)) and device.gpu != meant}
    return [
        f"{name} is {known}, and what is calibrated has {gpu}; --base names another" for name, known in others.items()
    ]


def written_topology(scenario: Scenario) -> Spec:
    """The topology of a scenario as it can be the base of another; a path from where the scenario lies."""
    given: Spec = scenario.data["cluster"]["topology"]
    here = scenario.origin.folder / given if isinstance(given, str) else None
    return str(here) if here is not None and here.is_file() else given


def scenario_base(scenario: Scenario) -> dict[str, Any]:
    """What another scenario starts from to be this one: its name or its file; all of it where it was changed since."""
    file = Path(scenario.origin.file)
    for spec in [file.stem] * (file.stem in scenario_names()) + [str(file.resolve())] * file.is_file():
        if Scenario.load(spec) == scenario:
            return {"base": spec}
    return scenario.to_dict()
