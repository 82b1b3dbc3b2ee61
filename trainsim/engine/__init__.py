"""Simulated time: a folded system in, its trace out. The only package with a clock; it knows no schedules or layers."""

from trainsim.engine.machine import run

__all__ = ["run"]
