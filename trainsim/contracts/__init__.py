"""The values that cross the boundaries: job, program, system, trace, and the exact numbers that they are made of."""
