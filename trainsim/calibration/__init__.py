"""
From measurements to constants: logs of collectives, traces of a profiler, measured steps, kernels timed on the spot.

A *reader* turns a file into measurements, a *fit* turns measurements into an override of a topology, a framework or a
GPU. What the measurements say nothing of stays as it is.
"""
