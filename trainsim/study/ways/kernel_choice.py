"""Kernels and optimizers that keep less or are faster."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.models.shapes import LOW_PRECISION
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way


@way("attention that stores no scores", MEMORY)
def fused_attention(scenario: Scenario, job: Job) -> Iterator[Change]:
    """A fused kernel, where scores are kept."""
    if job.training.attention == "eager":
        yield _attention(job.cluster.gpu.kernels.attention.usual)


@way("attention kernel", TIME)
def attention_kernel(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Every kernel that runs on this GPU and has curves of its own, but the job's; one in fp8 only for a job in fp8 or
    less."""
    constants = job.cluster.gpu.kernels.attention
    for kernel in constants.named or (constants.usual,):
        quantized = kernel.endswith("fp8") and job.training.precision not in LOW_PRECISION
        if kernel != job.training.attention and not quantized:
            yield _attention(kernel)


@way("parallel loss", MEMORY, TIME)
def cut_loss(scenario: Scenario, job: Job) -> Iterator[Change]:
    """A loss over the cut vocabulary, where logits are gathered before it."""
    if job.parallel.tp > 1 and not job.training.loss_parallel:
        yield Change(kind="kernels", title="parallel loss", values={"training.loss_parallel": True})


@way("compiled model", MEMORY, TIME)
def compiled(scenario: Scenario, job: Job) -> Iterator[Change]:
    """torch.compile, where the framework runs a model operator by operator."""
    if job.framework.compiled is False:
        named = scenario.spec.framework is not None
        over = {"framework.compiled": True} if named else {"framework": {"base": job.framework.name, "compiled": True}}
        yield Change(kind="kernels", title="compiled model", values=over)


@way("8-bit optimizer", MEMORY)
def small_optimizer(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Adam with moments of one byte."""
    if job.training.optimizer.name in ("adam", "adamw"):
        yield Change(kind="optimizer", title="8-bit Adam", values={"training.optimizer": "adam8bit"})


def _attention(kernel: str) -> Change:
    return Change(kind="kernels", title=f"{kernel} attention", values={"training.attention": kernel})
