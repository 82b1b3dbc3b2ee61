"""A measured step as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainsim.result.measured_result import MeasuredResult


def measured_dict(result: MeasuredResult) -> dict[str, Any]:
    """What ``trainsim show trace --json`` prints; seconds."""
    measured = result.measured
    return {
        "name": result.name,
        "files": list(measured.files),
        "ranks": list(measured.rank_numbers),
        "gpu": measured.gpu,
        "part": measured.part,
        "marked_steps": [step._asdict() for step in measured.marked],
        "step_time_s": result.step_time,
        "steps": result.steps,
        "breakdown_s": result.breakdown,
        "waiting_s": result.waiting,
        "bubble": asdict(result.bubble),
        "critical_path": [cause._asdict() for cause in result.critical_path.causes],
        "gpu_use": [use._asdict() for use in result.gpu_use],
        "clock_shifts_s": list(measured.shifts),
        "warnings": list(result.warnings),
    }
