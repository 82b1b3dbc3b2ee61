"""
What a trace says of the host: how long a thread takes from one launch to the next, where nothing holds it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from trainsim.calibration.measurements import HostTimes
from trainsim.measured.trace_events import Event

RUNTIME = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
KERNELS = ("kernel",)
LAUNCHES = (
    "LaunchKernel",
    "LaunchKernelEx",
    "LaunchCooperativeKernel",
    "ModuleLaunchKernel",
    "MemcpyAsync",
    "MemsetAsync",
)
GRAPHS = ("GraphLaunch",)
WAITS = ("Synchronize", "cudaMemcpy", "hipMemcpy")
AT_ONCE = 30e-6
"""Seconds: a kernel that begins so soon after its launch found an idle GPU."""
FEW = 20
"""Launches that say too little."""
ATTENTION = (
    ("flash3", ("flash3", "hopper::flash", "FlashAttnFwdSm90")),
    ("flash2", ("flash_fwd", "flash_bwd", "pytorch_flash")),
    ("cudnn", ("cudnn_generated_fort_native_sdpa", "cudnn_flash", "sdpa_sm")),
    ("xformers", ("fmha_cutlass", "AttentionKernel")),
)
"""Attention by words in the names of its kernels; the first that is found."""


def host_times(events: Sequence[Event], file: str) -> HostTimes | None:
    """The host's times in the steps that the trace marks, or in all of it; None where it launches next to nothing."""
    steps = [event for event in events if event.name.startswith("ProfilerStep") and event.kind == "user_annotation"]
    inside = [e for e in events if _within(e, steps)]
    launches = [e for e in inside if e.kind in RUNTIME and _is(e, LAUNCHES)]
    kernels = [e for e in inside if e.kind in KERNELS]
    graphs = sum(e.kind in RUNTIME and _is(e, GRAPHS) for e in inside)
    gaps = _gaps([e for e in inside if e.kind in RUNTIME])
    if len(gaps) < FEW:
        return None
    begun = {e.link: e.begin for e in launches if e.link >= 0}
    delays = [e.begin - begun[e.link] for e in kernels if e.link in begun]
    waiting = [delay for delay in delays if 0 <= delay <= AT_ONCE]
    return HostTimes(
        file=file,
        seconds_per_launch=median(gaps),
        launches=len(gaps),
        delay=median(waiting) if waiting else 0.0,
        waiting=len(waiting) / len(delays) if delays else 0.0,
        steps=tuple(step.seconds for step in steps),
        kernels=len(kernels) / max(len(steps), 1),
        busy=_covered(kernels) / _span(steps or inside),
        blocking=_blocking(inside, len(launches)),
        graph=graphs > 0 and graphs * FEW > len(launches),
        attention=_attention(kernels),
    )


def _within(event: Event, steps: Sequence[Event]) -> bool:
    return not steps or any(step.begin <= event.begin < step.end for step in steps)


def _is(event: Event, words: Sequence[str]) -> bool:
    return any(word in event.name for word in words)


def _gaps(calls: Sequence[Event]) -> list[float]:
    """Seconds from one launch to the next of a thread, where it waits for nothing in between."""
    gaps: list[float] = []
    last: dict[tuple[str, str], float] = {}
    for call in calls:
        if _is(call, LAUNCHES):
            if call.thread in last:
                gaps.append(call.begin - last[call.thread])
            last[call.thread] = call.begin
        elif _is(call, WAITS) and not call.name.endswith("Async"):
            last.pop(call.thread, None)
    return gaps


def _blocking(events: Sequence[Event], launches: int) -> bool:
    """Whether launches wait for their kernels, as with CUDA_LAUNCH_BLOCKING: each is followed by a wait."""
    waits = sum(event.kind in RUNTIME and event.name.endswith("Synchronize") for event in events)
    return launches > FEW and waits > 0.8 * launches


def _covered(kernels: Sequence[Event]) -> float:
    """Seconds in which some kernel ran."""
    total, until = 0.0, float("-inf")
    for kernel in sorted(kernels, key=lambda kernel: kernel.begin):
        total += max(0.0, kernel.end - max(kernel.begin, until))
        until = max(until, kernel.end)
    return total


def _span(events: Sequence[Event]) -> float:
    return max(max(e.end for e in events) - min(e.begin for e in events), 1e-9)


def _attention(kernels: Sequence[Event]) -> str:
    """The attention kernel that runs, as profiles call it; nothing where none is known by its name."""
    names = {kernel.name for kernel in kernels}
    return next((kind for kind, words in ATTENTION if any(w in name for name in names for w in words)), "")
