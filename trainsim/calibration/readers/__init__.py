"""Readers of measurements: one file per kind of input, each registered with ``trainsim.calibration.reader``."""
