"""The layout that a scenario has as it is, and the sequences of a step where it does not say."""

from __future__ import annotations

from trainsim.contracts.job import Job
from trainsim.documents.origin import key_of, value_at
from trainsim.errors import InvalidPlan
from trainsim.scenario import layout as layouts_of
from trainsim.scenario.checks import Fault
from trainsim.scenario.scenario import Scenario
from trainsim.schedules.lookup import facts
from trainsim.study.planning.layout import Layout

TOKENS = 1 << 22
"""Tokens of a step where nobody says: 4M, as in the pretraining of Llama 2 (Touvron et al. 2023, arXiv 2307.09288,
section 2.2)."""


def own_layout(scenario: Scenario, job: Job) -> Layout:
    """The layout of *scenario*, whose job is *job*."""
    degrees, pipeline, training = job.parallel, job.pipeline, job.training
    chunks = pipeline.chunks // facts(pipeline.schedule).replicas
    usual = layouts_of.derive(layers=job.model.layers, pp=degrees.pp, chunks=chunks)
    same = not isinstance(usual, Fault) and usual[0] == pipeline.layout
    return Layout(
        tp=degrees.tp,
        pp=degrees.pp,
        dp=degrees.dp,
        cp=degrees.cp,
        ep=degrees.ep,
        etp=scenario.spec.parallel.etp,
        micro_batch=training.micro_batch,
        global_batch=training.global_batch,
        schedule=pipeline.schedule,
        chunks=pipeline.chunks,
        stages=None if same else pipeline.layout,
        recompute=recompute_of(scenario),
        sharding=job.sharding.strategy,
        offload=job.sharding.offload.optimizer,
        sequence_parallel=degrees.sequence_parallel,
    )


def recompute_of(scenario: Scenario) -> object:
    """What is recomputed, as the scenario writes it."""
    return scenario.spec.model_dump(exclude_none=True)["training"]["recompute"]


UNCUT: dict[str, object] = {
    **dict.fromkeys(("parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep", "pipeline.chunks"), 1),
    **dict.fromkeys(("parallel.dp", "parallel.etp", "pipeline.schedule", "pipeline.layout", "pipeline.group")),
    **dict.fromkeys(("training.global_batch", "training.gradient_accumulation", "training.micro_batch")),
    **dict.fromkeys(("parallel.sequence_parallel", "training.moe_overlap"), False),
}
"""A layout that every machine has room for: the whole model on every GPU."""


def any_job(scenario: Scenario) -> tuple[Job, str]:
    """The job of *scenario*; where its own layout does not go with the machine, that of the uncut model, and why.

    Raises what is wrong beside the layout.
    """
    try:
        return scenario.resolve(), ""
    except InvalidPlan as wrong:
        given = scenario.to_dict()
        changes = {path: value for path, value in UNCUT.items() if value_at(given, key_of(path)) not in (None, value)}
        return scenario.replace(changes).resolve(), wrong.reason


def with_batch(scenario: Scenario) -> tuple[Scenario, str]:
    """*scenario* with the sequences of a step that layouts are compared for, and what was assumed, in words."""
    training = scenario.spec.training
    if training.gradient_accumulation is not None:
        batch = scenario.resolve().training.global_batch
        return scenario.replace({"training.global_batch": batch, "training.gradient_accumulation": None}), ""
    if training.global_batch is not None:
        return scenario, ""
    job, _ = any_job(scenario)
    length = job.training.sequence_length
    each = round(TOKENS / (length * job.parallel.ranks))
    batch = job.parallel.ranks << max(0, each.bit_length() - 1)  # every number of replicas divides it
    words = f"training.global_batch = {batch} sequences ({batch * length:,} tokens): not given; about 4M tokens"
    return scenario.replace({"training.global_batch": batch}), f"{words}, as Llama 2 was trained"
