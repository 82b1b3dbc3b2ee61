"""
Each layout of a space with the time and the memory that it takes at least; nothing is run.

One scenario is resolved for all layouts that differ in the pipeline, the replicas, the micro-batch and what is
recomputed (a root); of those that run their layers alike one is worked out, and the others are that job on another
pipeline. So what layouts share is done once, and a layout costs a millisecond or two. Those that may be best are
resolved as scenarios of their own before they are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan, TrainsimError
from trainsim.garbage import no_search_for_cycles
from trainsim.program.least_memory import least_bytes, least_states
from trainsim.program.least_time import least_seconds
from trainsim.program.parts import Parts, work_out
from trainsim.program.rearranged import Rearranging, Shapes
from trainsim.scenario import layout as layouts_of
from trainsim.scenario.checks import Fault
from trainsim.scenario.scenario import Scenario
from trainsim.schedules.lookup import check_numbers, facts
from trainsim.sharding import strategies
from trainsim.study.attempt import failed
from trainsim.study.planning.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A layout, and seconds and bytes that it takes at least; ``seconds`` is 0 where the memory is too small anyway,
    and both are where it is ``refused``, for which reason. ``sharing`` is the strategy that its own amounts to."""

    layout: Layout
    seconds: float = 0.0
    nbytes: float = 0.0
    capacity: float = 0.0
    refused: str = ""
    sharing: str = ""

    @property
    def fits(self) -> bool:
        """Whether it may fit."""
        return not self.refused and self.nbytes <= self.capacity


def roots(layouts: Iterable[Layout]) -> list[list[Layout]]:
    """*layouts* that one resolved scenario stands for, together; those that run their layers alike side by side."""
    out: dict[object, list[Layout]] = {}
    for layout in layouts:
        out.setdefault(_root(layout), []).append(layout)
    return [sorted(some, key=_family) for some in out.values()]


def _root(layout: Layout) -> object:
    """What the layouts of one resolved scenario have in common: all that decides what is derived and refused."""
    brings = next(strategies[layout.sharding].brings({}, 1), None) is not None
    ends = layout.pp == 1, layout.dp * layout.cp == 1, layout.dp if brings else 0
    mode = "" if _simple(layout.recompute) else layout.recompute
    common = replace(layout, pp=1, dp=1, schedule="", chunks=1, stages=None, micro_batch=1, recompute=mode)
    own = (layout.pp, layout.schedule, layout.chunks, layout.microbatches) if _brings_pipeline(layout) else ()
    return repr(common), facts(layout.schedule).split, ends, own


def _brings_pipeline(layout: Layout) -> bool:
    """Whether somebody gives fields of the pipeline, which are then those of the resolved scenario."""
    return any(path.partition(".")[0] == "pipeline" for path, _ in layout.others)


def _simple(recompute: Any) -> bool:
    """Whether it is a mode, of all layers or of so many."""
    return isinstance(recompute, str) or set(recompute) <= {"mode", "layers"}


def _family(layout: Layout) -> int:
    """What layouts of one root that run their layers alike have in common, but for what is recomputed."""
    return layout.micro_batch


def bounded(base: Scenario, root: Sequence[Layout], advance: Callable[[], None] = lambda: None) -> list[Bounded]:
    """What each layout of one of ``roots`` takes at least, in their order; *advance* is called once for each."""
    out, known = [], _Known(base)
    with no_search_for_cycles():
        refused = known.refusal(root)
        for layout in root:
            out.append(Bounded(layout=layout, refused=refused) if refused else _bounded(known, layout))
            advance()
    return out


class _Known:
    """The job of a root, what its families share, and shapes of the pipeline whose states alone are too large."""

    def __init__(self, base: Scenario):
        self.base = base
        self.too_large: dict[object, float] = {}
        self._job: Job | None = None
        self._shapes = Shapes()
        self._families: dict[int, Rearranging] = {}

    def refusal(self, root: Sequence[Layout]) -> str:
        """Why nothing of *root* can be resolved: the reason that its first, middle and last layout share. Nothing where
        one of them can, or reasons differ."""
        reasons = set()
        for layout in (root[0], root[len(root) // 2], root[-1]):
            try:
                self._resolve(layout)
                return ""
            except TrainsimError as error:
                reasons.add(failed(error).reason)
        return reasons.pop() if len(reasons) == 1 else ""

    def _resolve(self, layout: Layout) -> Job:
        """The job of the root, from its first layout that can be resolved."""
        if self._job is None:
            self._job = self.base.replace(layout.changes(self.base)).resolve()
        return self._job

    def parts(self, layout: Layout) -> Parts:
        """The parts of *layout*. Raises what resolving it raises, where no other has been resolved yet."""
        job, family = job_of(self._resolve(layout), layout), _family(layout)
        if family not in self._families:
            parts = work_out(job, plans=False)
            self._families[family] = Rearranging(parts, self._shapes)
            return parts
        return self._families[family].parts(job)


def _bounded(known: _Known, layout: Layout) -> Bounded:
    shape = layout.pp, layout.dp, layout.schedule, layout.chunks, layout.stages, layout.microbatches == 1
    try:
        if shape in known.too_large:
            return Bounded(layout=layout, nbytes=known.too_large[shape])
        parts = known.parts(layout)
        capacity = parts.job.cluster.memory_per_gpu
        nbytes = least_bytes(parts, enough=capacity)
        if nbytes > capacity and (states := least_states(parts)) > capacity:
            known.too_large[shape] = states
        seconds = least_seconds(parts) if nbytes <= capacity else 0.0
    except TrainsimError as error:
        return Bounded(layout=layout, refused=failed(error).reason)
    sharing = strategies[layout.sharding].amounts_to(parts.job) or layout.sharding
    return Bounded(layout=layout, seconds=seconds, nbytes=nbytes, capacity=capacity, sharing=sharing)


def job_of(job: Job, layout: Layout) -> Job:
    """The job of *layout*, whose root *job* is of: what resolving its scenario gives.

    Raises InvalidPlan for numbers that the schedule or the strategy cannot have.
    """
    microbatches, pipeline = layout.microbatches, job.pipeline
    check_numbers(layout.schedule, layout.pp, microbatches=microbatches, chunks=layout.chunks)
    if not _brings_pipeline(layout):
        stages = layout.stages or _usual(job, layout)
        pipeline = replace(pipeline, schedule=layout.schedule, chunks=layout.chunks, layout=stages, group=None)
    training = replace(job.training, micro_batch=layout.micro_batch, microbatches=microbatches)
    made = replace(
        job,
        parallel=replace(job.parallel, pp=layout.pp, dp=layout.dp),
        pipeline=pipeline,
        training=replace(training, **_recompute(layout)),
    )
    for key, reason in strategies[layout.sharding].refuses(made):
        raise InvalidPlan(f"sharding.{key}: {reason}")
    return made


def _recompute(layout: Layout) -> dict[str, Any]:
    """The values of a job's training that say what is recomputed; {} where the root says it."""
    given = layout.recompute
    if not _simple(given):
        return {}
    if isinstance(given, str):
        return {"recompute": given, "recompute_layers": None}
    return {"recompute": given["mode"], "recompute_layers": given.get("layers")}


def _usual(job: Job, layout: Layout) -> tuple[int, ...]:
    chunks = layout.chunks // facts(layout.schedule).replicas
    found = layouts_of.derive(layers=job.model.layers, pp=layout.pp, chunks=chunks)
    assert not isinstance(found, Fault)
    return found[0]
