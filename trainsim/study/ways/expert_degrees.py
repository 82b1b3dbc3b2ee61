"""Experts dealt to more or fewer ranks, and another way to send them tokens."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.models.dispatchers import dispatchers
from trainsim.scenario.scenario import Scenario
from trainsim.schedules.lookup import facts
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way

EXPERTS = "experts"


@way("experts on more ranks", MEMORY, TIME)
def more_expert_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Each expert on half as many ranks: less memory, and tokens go further."""
    if job.model.has_experts and job.parallel.edp % 2 == 0:
        ep = 2 * job.parallel.ep
        yield Change(kind=EXPERTS, title=f"ep {ep}", values={"parallel.ep": ep})


@way("experts on fewer ranks", TIME)
def less_expert_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Each expert on twice as many ranks: tokens go less far, and more gradients are reduced."""
    if job.parallel.ep % 2 == 0:
        ep = job.parallel.ep // 2
        yield Change(kind=EXPERTS, title=f"ep {ep}", values={"parallel.ep": ep})


@way("another dispatcher", TIME)
def other_dispatcher(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Tokens sent to their experts in another way."""
    if job.parallel.ep == 1:
        return
    for name in dispatchers:
        if dispatchers[name] is not dispatchers[job.training.routing.dispatcher]:
            yield Change(kind=EXPERTS, title=f"dispatcher {name}", values={"training.moe.dispatcher": name})


@way("shared experts under the exchange", TIME)
def shared_overlap(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Shared experts run while tokens are on their way."""
    shared = any(kind.moe is not None and kind.moe.shared_ffn_hidden for kind in job.model.kinds)
    if job.parallel.ep > 1 and shared and not job.training.routing.shared_overlap:
        yield Change(kind=EXPERTS, title="shared experts overlap", values={"training.moe.shared_overlap": True})


@way("experts under another micro-batch", TIME)
def overlapped_microbatches(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Tokens travel while another micro-batch computes; in a pipeline with chunks only."""
    if job.parallel.ep == 1 or facts(job.pipeline.schedule).paired:
        return
    values: dict[str, object] = {"training.moe_overlap": True}
    if scenario.spec.pipeline.schedule is not None:
        values["pipeline.schedule"] = None
    words = ""
    if job.parallel.pp > 1 and job.pipeline.chunks == 1:
        values["pipeline.chunks"], words = 2, ", 2 chunks"
        if scenario.spec.pipeline.layout is not None:
            values["pipeline.layout"] = None
    yield Change(kind=EXPERTS, title=f"moe_overlap{words}", values=values)
