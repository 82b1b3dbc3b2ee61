"""
Collectives: rates, latencies and ramps of a topology from sweeps over sizes.

The time is the one that a simulated step takes (``collectives.pattern``), so whatever that model reads can be fitted: a
handful of factors on rates and constants, each of them written only if the sweeps tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainsim.calibration.answer import Compared, FitAnswer
from trainsim.calibration.bases import Bases, other_gpus, written_topology
from trainsim.calibration.fit import ConstantFit, register
from trainsim.calibration.fits.adjusted import Adjusted
from trainsim.calibration.fits.least_squares import Floats, solve
from trainsim.calibration.fits.placing import Placed, place_sweeps
from trainsim.calibration.fits.topology_override import UNKNOWNS, constants_of, override
from trainsim.calibration.measurements import CollectiveSweep, Measurements
from trainsim.calibration.priors import priors
from trainsim.collectives.pattern import pattern
from trainsim.documents.catalogue import Spec
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.hardware.devices import Device, device_called
from trainsim.hardware.topology import find_topology, topology_names

LAUNCHES = 4.0
"""Where one thread launches on all GPUs, what takes less than so many times the shortest time is the thread's pace."""
MUCH_NEARER = 0.7
"""Another machine than the usual one with a GPU is taken if its error is less than this part of the usual one's."""
FAR_OFF = 0.2
"""What is further off after a fit was not described by it."""
LATENCIES = ("latency", "network_latency")
LARGE = 2.0**20
"""Bytes from which on a buffer counts in full: training waits for those."""
BINDING = {"network_rate": -0.7, "tree_rate": 0.4}
"""Logarithms of factors with which the network is narrower than a node, and trees are quicker than rings."""
NOTHING = 0.02
"""An unknown of which no more than this is told has no part in what was measured."""
NO_PART, NOT_TOLD = "no group in the logs depends on it", "the sizes and groups do not tell it from the others"
WORDS = {
    "local_rate": "the rate of links within a node",
    "network_rate": "the rate of the network",
    "nvls_rate": "the rate of multicast (nvls_rate)",
    "tree_rate": "the rate of trees (tree_rate)",
    "latency": "latencies (latency_scale)",
    "network_latency": "latencies of the network (network_hop, ring_network_step)",
    "ramp": "how rates rise with size within a node (ramp)",
    "ramp_gather": "how they rise for gathers and scatters (ramp_gather)",
    "nvls_ramp": "how they rise with multicast (nvls_ramp)",
    "ramp_network": "how they rise over the network (ramp_network)",
}


@dataclass(frozen=True)
class Point:
    """One size of one sweep; ``counts`` in the fit."""

    sweep: int
    nbytes: float
    seconds: float
    counts: bool


def fit(measured: Measurements, bases: Bases, phase: Callable[[str], None]) -> FitAnswer:
    """An override of the topology that *bases* names, or of the nearest one with the GPU in the logs."""
    phase("placing the groups on the machine")
    base, warnings = _topology(measured, bases)
    placed, left = place_sweeps(measured.sweeps, base)
    points = _all_points(placed)
    phase("fitting collectives")
    factors, idle = _solve(placed, points)
    now, then = _seconds(placed, points, {}), _seconds(placed, points, factors)
    compared = tuple(
        Compared(what=placed[p.sweep].title, measured=p.seconds, before=b, after=a, nbytes=p.nbytes, counts=p.counts)
        for p, b, a in zip(points, now, then, strict=True)
    )
    source = f"trainsim calibrate: {'; '.join(dict.fromkeys(group.title for group in placed))}"
    document, constants = override(base, placed[0].cluster, _as_ratios(factors), source=source)
    return FitAnswer(
        constants=constants,
        compared=compared,
        kept=tuple((WORDS[name], NO_PART if name in idle else NOT_TOLD) for name in UNKNOWNS if name not in factors),
        warnings=(*warnings, *left, *_remarks(placed, points, then)),
        documents={"topology": document},
    )


def _topology(measured: Measurements, bases: Bases) -> tuple[Spec, list[str]]:
    """The topology to start from, and what to say about the choice. Raises ScenarioError where nothing tells."""
    if bases.topology:
        return bases.topology, []
    if bases.scenario is not None:
        return written_topology(bases.scenario), []
    called = next((sweep.gpu for sweep in measured.sweeps if sweep.gpu), "")
    device = device_called(called)
    if device is None:
        what = f"its GPUs call themselves {called!r}, which is not known" if called else "it does not name its GPUs"
        raise ScenarioError(
            f"{measured.sweeps[0].file}: {what}; name the nearest machine with --base dgx_h100 or the like "
            "(`trainsim list topologies`)"
        )
    base = _nearest(measured.sweeps, device)
    return base, [f"base {base}, the nearest machine with these GPUs ({called}); --base names another"]


def _nearest(sweeps: Sequence[CollectiveSweep], device: Device) -> str:
    """The topology with the GPU of *device* that is nearest as it ships; the usual one, unless another is nearer."""
    others = [name for name in topology_names() if find_topology(name).data.get("gpu") == device.gpu]
    away = {name: _away(sweeps, name) for name in dict.fromkeys([device.topology, *others])}
    nearest = min(away, key=lambda name: away[name])
    return nearest if away[nearest] < MUCH_NEARER * away[device.topology] else device.topology


def _away(sweeps: Sequence[CollectiveSweep], name: str) -> float:
    """How far the times of large buffers on a topology are from those measured: the median of the logarithms."""
    try:
        placed, left = place_sweeps(sweeps, name)
        points = [point for point in _all_points(placed) if point.counts and point.nbytes >= LARGE]
        gaps = np.abs(np.log(_seconds(placed, points, {}) / np.array([point.seconds for point in points])))
    except TrainsimError:
        return float("inf")
    return float(np.median(gaps)) if len(gaps) and not left else float("inf")


def _all_points(placed: Sequence[Placed]) -> list[Point]:
    return [point for number, group in enumerate(placed) for point in _points(number, group.sweep)]


def _points(number: int, sweep: CollectiveSweep) -> list[Point]:
    shortest = min(sweep.seconds)
    return [
        Point(number, nbytes, seconds, not sweep.one_launcher or seconds >= LAUNCHES * shortest)
        for nbytes, seconds in sorted(zip(sweep.nbytes, sweep.seconds, strict=True))
    ]


def _solve(placed: Sequence[Placed], points: Sequence[Point]) -> tuple[dict[str, float], frozenset[str]]:
    """The logarithms of the factors that the points tell, and the unknowns that do not matter to any of them.

    Of unknowns that could stand in for each other the one that is told least stays as it is, until all are told.
    """
    prior = priors("collectives")
    used = [point for point in points if point.counts]
    measured = np.log([point.seconds for point in used])
    noise = np.array([prior["noise" if point.nbytes >= LARGE else "noise_small"] for point in used])
    paced = all(group.sweep.one_launcher for group in placed)
    names, idle = [name for name in UNKNOWNS if not (paced and name in LATENCIES)], frozenset[str]()
    starts = _starts(names, placed)
    while names:

        def residuals(at: Floats, names: list[str] = names) -> Floats:
            return np.log(_seconds(placed, used, dict(zip(names, at, strict=True)))) - measured

        spreads = np.array([prior[name] for name in names])
        found = min((solve(residuals, spreads, noise, start) for start in starts), key=lambda s: s.cost)
        told = dict(zip(names, found.told, strict=True))
        idle |= {name for name in names if told[name] < NOTHING}
        least = min(told, key=lambda name: told[name])
        if told[least] >= prior["told"]:
            return dict(zip(names, map(float, found.at), strict=True)), idle
        at = dict(zip(names, found.at, strict=True))
        names = [name for name in names if name not in idle and name != least]
        starts = [np.array([at[name] for name in names])]
    return {}, idle


def _starts(names: Sequence[str], placed: Sequence[Placed]) -> list[Floats]:
    """Where to begin: at what is usual, and where each rate that may bind or be chosen does so for sure, since one that
    does not has no slope."""
    wanted = {"network_rate": any(group.nodes > 1 for group in placed), "tree_rate": _are_two_nodes(placed)}
    usual = np.zeros(len(names))
    others = [np.where(np.array(names) == name, BINDING[name], 0.0) for name in names if wanted.get(name)]
    return [usual, *others]


def _are_two_nodes(placed: Sequence[Placed]) -> bool:
    return any(group.nodes == 2 for group in placed)


def _seconds(placed: Sequence[Placed], points: Sequence[Point], logarithms: Mapping[str, float]) -> Floats:
    """Seconds of each point with the factors whose *logarithms* are given."""
    factors = _as_ratios(logarithms)
    patterns = [
        pattern(_machine(group, factors), group.sweep.operation, group.members, algorithm=group.algorithm)
        for group in placed
    ]
    return np.array([patterns[point.sweep].seconds(0, point.nbytes)[0] for point in points])


def _as_ratios(logarithms: Mapping[str, float]) -> dict[str, float]:
    return {name: float(np.exp(np.clip(value, -7.0, 7.0))) for name, value in logarithms.items()}


def _machine(group: Placed, factors: Mapping[str, float]) -> Adjusted:
    local, network = factors.get("local_rate", 1.0), factors.get("network_rate", 1.0)
    return Adjusted(group.cluster, local, network, constants_of(group.cluster, factors))


def _remarks(placed: Sequence[Placed], points: Sequence[Point], then: Floats) -> list[str]:
    """What somebody who uses the override should know."""
    out = []
    if len(gpus := dict.fromkeys(group.sweep.gpu for group in placed if group.sweep.gpu)) > 1:
        out.append(f"logs of different GPUs are fitted as one machine: {', '.join(gpus)}")
    out += other_gpus(gpus, placed[0].cluster.gpu.name)
    if any(not point.counts for point in points):
        out.append(
            "one thread launched on all GPUs (-g): short times are its pace and were left out; run one process per GPU "
            "to have latencies"
        )
    reduces = [group for group in placed if group.sweep.operation == "all_reduce" and group.nodes > 1]
    if reduces and all(group.nodes == 2 for group in reduces):
        out.append(
            "two nodes only: NCCL reduces over two nodes by a tree of its own, which says little about rings over "
            "more; add a log of four or more"
        )
    for number, group in enumerate(placed):
        pairs = zip(points, then, strict=True)
        large = [a / p.seconds for p, a in pairs if p.sweep == number and p.counts and p.nbytes >= LARGE]
        if large and abs(np.log(np.median(large))) > np.log1p(FAR_OFF):
            out.append(
                f"{group.title}: still {np.median(large) - 1:+.0%} off in the middle; is {group.cluster.name} the "
                "machine? --base names another"
            )
    return out


register(ConstantFit(name="collectives", applies=lambda measured: bool(measured.sweeps), run=fit))
