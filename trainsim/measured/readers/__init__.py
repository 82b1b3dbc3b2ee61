"""Readers of measured traces: a file per format, each registered with ``trainsim.measured.reader``."""
