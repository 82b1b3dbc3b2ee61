"""
Copies of gradients and parameters that are kept on the host or on drives, as steps of the flights under a pass.

Source: deepspeedai/DeepSpeed runtime/zero (stage_1_and_2.py, stage3.py) and runtime/swap_tensor.
"""

from __future__ import annotations

from trainsim.contracts.groups import ALONE
from trainsim.contracts.job import Job
from trainsim.sharding.flights import FlightStep

FP32 = 4.0


def gradient_steps(
    job: Job, elements: float, *, sharded: bool = False, first: bool = True, last: bool = True
) -> tuple[FlightStep, ...]:
    """Copies that follow the reduction of gradients of which a rank owns *elements*; none if they stay on the GPU.

    *first* and *last* say which of the step's reductions of these gradients it is. Sums of earlier microbatches come
    back to the GPU, where adding is faster; only the last one leaves in fp32. Where parameters are *sharded*, the sum
    goes out and back once more.
    """
    offload, small = job.sharding.offload, float(job.training.number_bytes)
    if offload.optimizer == "none":
        return ()
    if sharded:
        turns = [("host_out", small), ("host_in", small)] if first else [("host_in", small), ("host_out", small)]
        turns += [("host_out", FP32)] * last
    else:
        turns = [("host_in", small)] * (not first) + [("host_out", FP32 if last else small)]
    if last and offload.optimizer == "nvme":
        turns += [("nvme_write", FP32)]
    return tuple(FlightStep(operation, offload.ratio * elements * size, ALONE) for operation, size in turns)


def parameter_steps(job: Job, elements: float) -> tuple[FlightStep, ...]:
    """Copies that precede a gather to which a rank contributes *elements* parameters; none if they are on the GPU."""
    where, nbytes = job.sharding.offload.parameters, elements * job.training.number_bytes
    operations = {"none": (), "cpu": ("host_in",), "nvme": ("nvme_read", "host_in")}[where]
    return tuple(FlightStep(operation, nbytes, ALONE) for operation in operations)
