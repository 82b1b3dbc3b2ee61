"""
Which layouts there are of a job on its machine: the values of each axis that people choose among.

Axes that somebody gives values for take those; axes that are kept have the scenario's own. Layouts whose degrees do not
multiply out to the GPUs, or whose batches do not divide, are not in the space; what is refused for other reasons is
found out when it is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario import layout as layouts_of
from trainsim.scenario.checks import Fault, divisors
from trainsim.scenario.scenario import Scenario
from trainsim.schedules import schedules
from trainsim.sharding import strategies
from trainsim.study.planning.asked import check_kept, checked_grid
from trainsim.study.planning.layout import Layout
from trainsim.study.planning.own import any_job, recompute_of

Values = Callable[[Scenario, Job], Sequence[Any]]

LONGEST_ALONE = 8192
"""Tokens of a sequence from which on it may be cut over ranks, and that a rank keeps at least half of."""
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
CHUNKS = (2, 3, 4, 5, 6, 7, 8, 10, 12)
"""Chunks per rank that an interleaved schedule is tried with, where layers divide among them."""
SOME = (1, 2, 3, 4, 6, 8)
"""Layers per virtual stage that are recomputed in full, where not all are."""
BY_FAMILY = {
    "megatron": ("ddp", "zero1"),
    "deepspeed": ("zero1", "zero2", "zero3"),
    "pytorch": ("ddp", "fsdp", "hsdp"),
    "any": ("ddp", "zero1", "zero3"),
}
"""Strategies that the software of each family has, and that people choose among."""
ORDERS = {"deepspeed": ("1f1b",)}
USUAL_ORDERS = ("1f1b", "interleaved-1f1b")
"""Orders of passes by family of software: what its trainers offer in production."""


def _tp(scenario: Scenario, job: Job) -> Sequence[int]:
    """Tensor parallelism within the GPUs that NVLink joins, over heads that divide."""
    kinds = job.model.kinds
    return [n for n in divisors(*{kind.heads for kind in kinds}, job.parallel.ranks) if n <= job.cluster.gpus_per_node]


def _cp(scenario: Scenario, job: Job) -> Sequence[int]:
    length = job.training.sequence_length
    most = max(1, 2 * length // LONGEST_ALONE) if length > LONGEST_ALONE else 1
    usual = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    return sorted({*usual, job.parallel.cp})


def _dp(scenario: Scenario, job: Job) -> Sequence[int]:
    return divisors(job.parallel.ranks)


def _ep(scenario: Scenario, job: Job) -> Sequence[int]:
    experts = job.model.experts
    return divisors(experts.experts, job.parallel.ranks) if experts else [1]


def _etp(scenario: Scenario, job: Job) -> Sequence[int | None]:
    """Experts cut like the layers around them, or whole."""
    return list(dict.fromkeys((None, 1, scenario.spec.parallel.etp))) if job.model.has_experts else [None]


def _pp(scenario: Scenario, job: Job) -> Sequence[int]:
    return [n for n in divisors(job.parallel.ranks) if n <= job.model.layers]


def _micro_batch(scenario: Scenario, job: Job) -> Sequence[int]:
    return sorted({*MICRO_BATCHES, job.training.micro_batch})


def _schedule(scenario: Scenario, job: Job) -> Sequence[str]:
    usual = ORDERS.get(job.framework.family, USUAL_ORDERS)
    if scenario.spec.training.moe_overlap:  # it sets the order of passes itself
        return usual
    own = [job.pipeline.schedule] if job.parallel.pp > 1 else []
    return list(dict.fromkeys((*usual, *own)))


def _chunks(scenario: Scenario, job: Job) -> Sequence[int]:
    return sorted({*CHUNKS, job.pipeline.chunks} - {1})


def _recompute(scenario: Scenario, job: Job) -> Sequence[Any]:
    own = recompute_of(scenario)
    return [
        "none",
        "selective",
        "full",
        *({"mode": "full", "layers": n} for n in SOME),
        *([own] if isinstance(own, Mapping) else []),
    ]


def _sharding(scenario: Scenario, job: Job) -> Sequence[str]:
    usual = BY_FAMILY.get(job.framework.family, BY_FAMILY["any"])
    return list(dict.fromkeys((*usual, job.sharding.strategy)))


def _sequence_parallel(scenario: Scenario, job: Job) -> Sequence[bool]:
    """Experts need it, or every rank would route the same tokens."""
    return [True] if job.model.has_experts else [True, False]


def _offload(scenario: Scenario, job: Job) -> Sequence[str]:
    return [job.sharding.offload.optimizer]


AXES: Mapping[str, Values] = {
    "parallel.tp": _tp,
    "parallel.cp": _cp,
    "parallel.pp": _pp,
    "parallel.dp": _dp,
    "parallel.ep": _ep,
    "parallel.etp": _etp,
    "training.micro_batch": _micro_batch,
    "pipeline.schedule": _schedule,
    "pipeline.chunks": _chunks,
    "training.recompute": _recompute,
    "sharding.strategy": _sharding,
    "parallel.sequence_parallel": _sequence_parallel,
    "sharding.offload.optimizer": _offload,
}
"""What is chosen among, and the usual values of each; dp is what the others leave."""
OWN: Mapping[str, Callable[[Job], Any]] = {
    "parallel.tp": lambda job: job.parallel.tp,
    "parallel.cp": lambda job: job.parallel.cp,
    "parallel.pp": lambda job: job.parallel.pp,
    "parallel.dp": lambda job: job.parallel.dp,
    "parallel.ep": lambda job: job.parallel.ep,
    "training.micro_batch": lambda job: job.training.micro_batch,
    "pipeline.schedule": lambda job: job.pipeline.schedule,
    "pipeline.chunks": lambda job: job.pipeline.chunks,
    "sharding.strategy": lambda job: job.sharding.strategy,
    "sharding.offload.optimizer": lambda job: job.sharding.offload.optimizer,
    "parallel.sequence_parallel": lambda job: job.parallel.sequence_parallel,
}
"""What an axis is in the scenario as it is, where its resolved value says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The values of each axis, by dotted path; ``others`` are fields that are no usual axis. Sizes are those of the job
    as it is: GPUs, sequences per step, layers."""

    axes: Mapping[str, Sequence[Any]]
    others: Mapping[str, Sequence[Any]]
    gpus: int
    global_batch: int
    layers: int

    def __iter__(self) -> Iterator[Layout]:
        axes = self.axes
        for tp, cp, pp in product(axes["parallel.tp"], axes["parallel.cp"], axes["parallel.pp"]):
            dp, rest = divmod(self.gpus, tp * cp * pp)
            possible = not rest and dp in axes["parallel.dp"]
            for ep, etp in product(axes["parallel.ep"], self._etp(tp)) if possible else ():
                if (dp * cp * tp) % (ep * (etp or tp)) == 0:
                    degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "ep": ep, "etp": etp}
                    yield from self._of(degrees)

    def _of(self, degrees: Mapping[str, Any]) -> Iterator[Layout]:
        """The layouts of some degrees of parallelism."""
        axes, pp = self.axes, degrees["pp"]
        others = [tuple(zip(self.others, values, strict=True)) for values in product(*self.others.values())]
        choices = product(
            [size for size in axes["training.micro_batch"] if self.global_batch % (degrees["dp"] * size) == 0],
            self._orders(pp),
            axes["training.recompute"],
            self._sharding(pp, degrees["dp"] * degrees["cp"]),
            self._along(degrees["tp"]),
            axes["sharding.offload.optimizer"],
            others,
        )
        for micro_batch, (schedule, chunks, stages), recompute, sharding, along, offload, more in choices:
            if not _all_anyway(recompute, self.layers / (pp * chunks)):
                yield Layout(
                    **degrees, micro_batch=micro_batch, global_batch=self.global_batch, schedule=schedule,
                    chunks=chunks, stages=stages, recompute=recompute, sharding=sharding, sequence_parallel=along,
                    offload=offload, others=more,
                )  # fmt: skip

    def _orders(self, pp: int) -> Iterator[tuple[str, int, tuple[int, ...] | None]]:
        """(Schedule, chunks, layers per stage where the usual layout does not divide) for *pp* pipeline ranks."""
        if pp == 1:
            yield "1f1b", 1, None
            return
        for name in self.axes["pipeline.schedule"]:
            shape = schedules.traits(name)
            for chunks in (shape.chunks,) if shape.chunks else self.axes["pipeline.chunks"]:
                stages, each = pp * chunks // shape.replicas, chunks // shape.replicas
                if not isinstance(layouts_of.derive(layers=self.layers, pp=pp, chunks=each), Fault):
                    yield name, chunks, None
                elif chunks == shape.chunks and stages <= self.layers:
                    yield name, chunks, layouts_of.balanced(layers=self.layers, stages=stages)

    def _sharding(self, pp: int, replicas: int) -> Sequence[str]:
        """Where there are no replicas nobody shares anything; a pipeline's gradients are not shared by DeepSpeed."""
        names = self.axes["sharding.strategy"]
        if replicas == 1 and "ddp" in names:
            return ["ddp"]
        alone = [name for name in names if pp == 1 or not _of_one_stage(name)]
        return alone or names

    def _etp(self, tp: int) -> Sequence[int | None]:
        """Where layers are not cut, experts are not either."""
        values = self.axes["parallel.etp"]
        return values if tp > 1 or len(values) == 1 else values[:1]

    def _along(self, tp: int) -> Sequence[bool]:
        """Without tensor parallelism nothing is cut along the sequence."""
        return self.axes["parallel.sequence_parallel"] if tp > 1 else [False]


def _all_anyway(recompute: Any, layers: float) -> bool:
    """Whether as many layers of a stage are recomputed as it has."""
    some = recompute.get("layers") if isinstance(recompute, Mapping) else None
    return some is not None and some >= layers


def _of_one_stage(name: str) -> bool:
    """Whether a strategy shares gradients as DeepSpeed does, which refuses it in a pipeline."""
    strategy = strategies[name]
    return strategy.framework == "deepspeed" and strategy.every_pass


def space_of(scenario: Scenario, grid: Mapping[str, Sequence[Any]] | None = None, keep: Sequence[str] = ()) -> Space:
    """The layouts of a scenario: the usual values of each axis, those of *grid*, and its own of the axes to *keep*.

    Raises ScenarioError for an axis to keep that is none and for values that it cannot have, and what resolving the
    scenario raises.

    >>> space = space_of(Scenario.load("quickstart"), keep=["training.recompute"])
    >>> space.axes["parallel.tp"], len(list(space)) > 100
    ([1, 2, 4, 8], True)
    """
    check_kept(keep, grid or {}, list(AXES))
    grid = checked_grid(scenario, grid or {}, list(AXES))
    job, _ = any_job(scenario)
    kept = {path: [OWN[path](job)] if path in OWN else usual(scenario, job)[-1:] for path, usual in AXES.items()}
    kept["training.recompute"] = [recompute_of(scenario)]
    kept["parallel.etp"] = [scenario.spec.parallel.etp]
    axes = {
        path: grid.pop(path, ()) or (kept[path] if path in keep else usual(scenario, job))
        for path, usual in AXES.items()
    }
    return Space(
        axes=axes,
        others=grid,
        gpus=job.parallel.ranks,
        global_batch=scenario.spec.training.global_batch or job.training.global_batch,
        layers=job.model.layers,
    )
