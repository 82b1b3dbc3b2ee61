"""What the scenario language can say and this version cannot simulate; each refusal says what can be done instead."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.models.layer_kind import counted
from trainsim.models.transformer import Transformer
from trainsim.scenario.checks import Fault
from trainsim.scenario.schema import ScenarioSpec
from trainsim.schedules import schedules

MOST_STEPS = 64
SPREADS = ("1f1b", "gpipe", "interleaved-1f1b")
"""Schedules that can run the head on all pipeline ranks."""


def limits(spec: ScenarioSpec) -> Iterator[Fault]:
    """Everything in *spec* that this version does not simulate."""
    yield from _parallel(spec)
    yield from _vocabulary(spec)
    for k, entry in enumerate(spec.what_if):
        for name in ("jitter", "fail"):
            if name in entry.model_fields_set:
                yield Fault(f"what_if.{k}.{name}", f"{name} is not simulated yet; slow, delay and skip are")
    if spec.simulation.steps > MOST_STEPS:
        yield Fault("simulation.steps", f"more than {MOST_STEPS} steps tell nothing new; the period is the same")


UNSIMULATED = {
    "moe": "mixture of experts",
    "mla": "latent attention",
    "linear_attention": "linear attention",
    "window": "a sliding window",
    "chunk": "attention in parts of the sequence",
    "parallel_residual": "attention beside the MLP",
    "post_norms": "norms after attention and MLP",
    "attention_sinks": "attention sinks",
    "attention_gate": "a gate on attention",
    "attention_softcap": "a softcap of scores",
    "logits_softcap": "a softcap of logits",
    "embedding_size": "an embedding of another width",
    "encoder_layers": "an encoder",
    "mtp_layers": "prediction of further tokens",
}
"""Parts of models whose parameters and FLOPs are counted and whose steps are not simulated yet."""


def model_limits(model: Transformer) -> Iterator[Fault]:
    """Everything in *model* that this version does not simulate."""
    for key, name in UNSIMULATED.items():
        if any(getattr(part, key, None) for part in (model, *counted(model.kinds))):
            yield Fault(f"model.{key}", f"{name} is not simulated yet; leave it out, or take a model without")
    if model.kind.qk_norm != "none":
        yield Fault("model.qk_norm", "norms of queries and keys are not simulated yet; leave it out")


def _vocabulary(spec: ScenarioSpec) -> Iterator[Fault]:
    """A head that is spread over the pipeline: a few orders of passes only, with messages that nobody waits for."""
    pipeline = spec.pipeline
    if not pipeline.vocabulary_parallel:
        return
    schedule = pipeline.schedule or ""
    name = schedules.canonical(schedule) if schedule in schedules else schedule
    key = "pipeline.vocabulary_parallel"
    if name and name not in SPREADS:
        yield Fault(key, f"not simulated yet with {name}; with {', '.join(SPREADS)} it is")
    if pipeline.p2p == "blocking":
        yield Fault(key, "not simulated yet with p2p: blocking; with p2p: async it is")


def _parallel(spec: ScenarioSpec) -> Iterator[Fault]:
    if spec.parallel.cp > 1:
        yield Fault("parallel.cp", "context parallelism is not simulated yet; leave it 1 and use tp or pp")
    if spec.parallel.ep > 1:
        yield Fault("parallel.ep", "expert parallelism is not simulated yet; leave it 1")
    if spec.training.moe is not None or spec.training.moe_overlap:
        yield Fault("training.moe", "mixture of experts is not simulated yet; leave it out")
    if spec.parallel.etp not in (None, 1, spec.parallel.tp):
        yield Fault("parallel.etp", "expert tensor parallelism is not simulated yet; leave it out")
