"""Symmetry: which ranks, groups and resources behave alike for all time, and which resources never matter."""

from trainsim.fold.prune import prune
from trainsim.fold.quotient import GroupClass, Loads, Quotient, fold, unfolded

__all__ = ["GroupClass", "Loads", "Quotient", "fold", "prune", "unfolded"]
