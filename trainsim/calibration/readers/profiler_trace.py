"""
Traces of the PyTorch profiler: JSON of Kineto, packed by gzip or not, with or without ``record_shapes``.
"""

from __future__ import annotations

from trainsim.calibration.measurements import Measurements
from trainsim.calibration.reader import MeasuredText, MeasurementReader, register
from trainsim.calibration.trace_host import KERNELS, host_times
from trainsim.calibration.trace_kernels import collectives, products
from trainsim.errors import ScenarioError
from trainsim.measured.file import FileText
from trainsim.measured.trace_events import trace_of


def load(text: MeasuredText) -> Measurements:
    """Times of the host, products and collectives of a trace. Raises ScenarioError for one without any of them."""
    trace = trace_of(text.shown, FileText(text.text, whole=True))
    if trace.fault:
        raise ScenarioError(f"{text.shown}: not valid JSON, is it cut off? Export it again: {trace.fault}")
    host = host_times(trace.events, text.shown)
    kernels = products(trace.events, text.shown)
    sweeps = collectives([(text.shown, trace.events)], trace.gpu)
    warnings = []
    if not any(event.kind in KERNELS for event in trace.events):
        raise ScenarioError(
            f"{text.shown}: the trace has no kernels; profile with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA], on a machine whose driver allows it"
        )
    if host is None:
        warnings.append(f"{text.shown}: too few launches to tell the host's time by")
    if not kernels:
        warnings.append(f"{text.shown}: no products with their shapes; profile with record_shapes=True to have them")
    return Measurements(
        hosts=(host,) if host else (),
        kernels=tuple(kernels),
        sweeps=tuple(sweeps),
        gpus=(trace.gpu,) if trace.gpu else (),
        warnings=tuple(warnings),
    )


def sniff(text: MeasuredText) -> float:
    """Sure where a list of trace events begins."""
    start = text.start.lstrip()
    if start[:1] not in ("{", "["):
        return 0.0
    return 0.9 if '"traceEvents"' in text.text else 0.5 if '"ph"' in start else 0.0


register(MeasurementReader(name="profiler-trace", title="a trace of the PyTorch profiler", sniff=sniff, load=load))
