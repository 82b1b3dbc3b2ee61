"""The layout that a scenario has as it is, and the sequences of a step where it does not say."""

from __future__ import annotations

from trainsim.contracts.job import Job
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


def with_batch(scenario: Scenario) -> tuple[Scenario, str]:
    """*scenario* with the sequences of a step that layouts are compared for, and what was assumed, in words."""
    training = scenario.spec.training
    if training.global_batch is not None or training.gradient_accumulation is not None:
        batch = scenario.resolve().training.global_batch
        return scenario.replace({"training.global_batch": batch, "training.gradient_accumulation": None}), ""
    job = scenario.resolve()
    batch = max(job.parallel.ranks, 1 << max(0, round(TOKENS / job.training.sequence_length).bit_length() - 1))
    tokens = f"{batch} sequences ({batch * job.training.sequence_length:,} tokens)"
    words = f"training.global_batch = {tokens}: not given; about 4M tokens, as Llama 2 was trained"
    return scenario.replace({"training.global_batch": batch}), words
