"""
Numbers from a simulation: pure functions, no simulator and no drawing.

Everything works on the rows and runs of the folded trace and weighs each class by its number of ranks, so
that the cost does not grow with the cluster.
"""
