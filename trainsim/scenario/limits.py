"""What the scenario language can say and this version cannot simulate; each refusal says what can be done instead."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.scenario.checks import Fault
from trainsim.scenario.schema import ModelSpec, ScenarioSpec
from trainsim.schedules import schedules

MOST_STEPS = 64
SPREADS = ("1f1b", "gpipe", "interleaved-1f1b")
"""Schedules that can run the head on all pipeline ranks."""


def limits(spec: ScenarioSpec) -> Iterator[Fault]:
    """Everything in *spec* that this version does not simulate."""
    yield from _model(spec)
    yield from _parallel(spec)
    yield from _vocabulary(spec)
    for k, entry in enumerate(spec.what_if):
        for name in ("jitter", "fail"):
            if name in entry.model_fields_set:
                yield Fault(f"what_if.{k}.{name}", f"{name} is not simulated yet; slow, delay and skip are")
    if spec.simulation.steps > MOST_STEPS:
        yield Fault("simulation.steps", f"more than {MOST_STEPS} steps tell nothing new; the period is the same")


def _model(spec: ScenarioSpec) -> Iterator[Fault]:
    if not isinstance(spec.model, ModelSpec):
        return
    names = {"moe": "mixture of experts", "mla": "latent attention"}
    for key, name in names.items():
        if getattr(spec.model, key) is not None:
            yield Fault(f"model.{key}", f"{name} is not simulated yet; dense GPT and Llama models are")
    if spec.model.window is not None:
        yield Fault("model.window", "sliding windows are not simulated yet; leave it out")
    if spec.model.encoder_layers:
        yield Fault("model.encoder_layers", "encoders are not simulated yet; leave it 0")


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
