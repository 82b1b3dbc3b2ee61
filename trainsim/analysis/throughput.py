"""Speed: tokens and samples per second, and the share of the GPU's peak that the model's FLOPs use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainsim.contracts.job import Job
from trainsim.models.layers import megatron_flops
from trainsim.program.stages import recompute_modes, virtual_stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Rates of the whole job and of one GPU. FLOP/s count the model's FLOPs by the Megatron-LM formula
    (Narayanan et al. 2021): ``model`` without recomputation (MFU), ``hardware`` with it (HFU); ``peak`` is
    the datasheet's."""

    tokens_per_s: float
    tokens_per_s_per_gpu: float
    samples_per_s: float
    model_flops_per_gpu: float
    hardware_flops_per_gpu: float
    peak_flops_per_gpu: float

    @property
    def mfu(self) -> float:
        return self.model_flops_per_gpu / self.peak_flops_per_gpu

    @property
    def hfu(self) -> float:
        return self.hardware_flops_per_gpu / self.peak_flops_per_gpu


def throughput(job: Job, step: float) -> Throughput:
    """Rates of a step that takes *step* seconds."""
    training, ranks = job.training, job.parallel.ranks
    size = {"sequence_length": training.sequence_length, "batch": training.global_batch, "document": training.document}
    size |= {"decoder_length": training.decoder_length} if training.decoder_length else {}
    samples = training.global_batch / step
    tokens = samples * (training.sequence_length + (training.decoder_length or 0))
    return Throughput(
        tokens_per_s=tokens,
        tokens_per_s_per_gpu=tokens / ranks,
        samples_per_s=samples,
        model_flops_per_gpu=megatron_flops(job.model, recompute="none", **size) / step / ranks,
        hardware_flops_per_gpu=_with_repeated(job, size) / step / ranks,
        peak_flops_per_gpu=job.cluster.gpu.flops[training.precision],
    )


def _with_repeated(job: Job, size: Mapping[str, Any]) -> float:
    """FLOP of a step with those that are computed again; of some layers as many as their part of all."""
    once = megatron_flops(job.model, recompute="none", **size)
    mode = _repeated(job)
    if mode == "none":
        return once
    modes = recompute_modes(job, virtual_stages(job))
    share = sum(of_layer != "none" for of_layer in modes) / len(modes)
    return once + share * (megatron_flops(job.model, recompute=mode, **size) - once)


def _repeated(job: Job) -> str:
    """What is really computed again: a fused attention keeps no scores that selective recomputation could drop."""
    training = job.training
    modules = training.recompute_modules or ("core_attn",)
    scores = training.attention == "eager" and "core_attn" in modules
    return "none" if training.recompute == "selective" and not scores else training.recompute
