"""What the scenario language can say and this version cannot simulate; each refusal says what can be done instead."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.models.layer_kind import counted
from trainsim.models.transformer import Transformer
from trainsim.scenario.checks import Fault
from trainsim.scenario.schema import ScenarioSpec
from trainsim.schedules import schedules
from trainsim.schedules.lookup import slices_of

MOST_STEPS = 64
SPREADS = ("1f1b", "gpipe", "interleaved-1f1b")
"""Schedules that can run the head on all pipeline ranks."""


def limits(spec: ScenarioSpec) -> Iterator[Fault]:
    """Everything in *spec* that this version does not simulate."""
    yield from _vocabulary(spec)
    for k, entry in enumerate(spec.what_if):
        if "jitter" in entry.model_fields_set:
            yield Fault(
                f"what_if.{k}.jitter", "not simulated for a single device; simulation.jitter = 0.015 varies all GPUs"
            )
    if spec.simulation.steps > MOST_STEPS:
        yield Fault("simulation.steps", f"more than {MOST_STEPS} steps would add nothing; every period is the same")


UNSIMULATED = {
    "linear_attention": "linear attention",
    "attention_gate": "a gate on attention",
}
"""Parts of models whose parameters and FLOPs are counted and whose steps are not simulated yet."""


def model_limits(model: Transformer, spec: ScenarioSpec) -> Iterator[Fault]:
    """Everything in *model* that this version does not simulate, or not as *spec* cuts it."""
    for key, name in UNSIMULATED.items():
        if any(getattr(part, key, None) for part in (model, *counted(model.kinds))):
            yield Fault(f"model.{key}", f"{name} is not simulated yet; leave it out, or choose a model without it")
    yield from _encoder(model, spec)
    ends = {"mtp_layers": model.mtp_layers, "embedding_size": model.embedding_size, "final_norm": not model.final_norm}
    for key, given in ends.items():
        if given and spec.pipeline.vocabulary_parallel:
            yield Fault("pipeline.vocabulary_parallel", f"not simulated with the model's {key}; leave it out")


def _encoder(model: Transformer, spec: ScenarioSpec) -> Iterator[Fault]:
    """An encoder, or a sequence in parts that look at themselves only, where they cannot be cut yet."""
    encoder, schedule = bool(model.encoder_layers), spec.pipeline.schedule or ""
    parts = {
        "an encoder": encoder,
        "attention in documents": spec.training.documents is not None
        and spec.training.mask != "causal"
        and spec.training.padding == "none",
        "attention in chunks of the sequence": any(kind.chunk is not None for kind in model.kinds),
    }
    sliced = schedule in schedules and slices_of(schedule, spec.pipeline.group) > 1
    for name in (name for name, given in parts.items() if given and sliced):
        yield Fault("pipeline.schedule", f"{name} is not simulated with slices of a sequence; 1f1b works")
    for axis in ("pp", "cp"):
        if encoder and getattr(spec.parallel, axis) > 1:
            yield Fault(f"parallel.{axis}", "not simulated with an encoder yet; leave it at 1 and use tp or dp")


def _vocabulary(spec: ScenarioSpec) -> Iterator[Fault]:
    """A head that is spread over the pipeline: a few orders of passes only, with messages that nobody waits for."""
    pipeline = spec.pipeline
    if not pipeline.vocabulary_parallel:
        return
    schedule = pipeline.schedule or ""
    name = schedules.canonical(schedule) if schedule in schedules else schedule
    key = "pipeline.vocabulary_parallel"
    if name and name not in SPREADS:
        yield Fault(key, f"not simulated yet with {name}; {', '.join(SPREADS)} would work")
    if pipeline.p2p == "blocking":
        yield Fault(key, "not simulated yet with p2p: blocking; p2p: async would work")
