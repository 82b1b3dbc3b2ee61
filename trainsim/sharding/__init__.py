"""
What replicas exchange, and when: one file per strategy.

A strategy is a pure function of a job and the groups of parameters of one rank. It gives the reductions of each chunk's
gradients, the gathers of its parameters, the flights that run under the passes, and how many ranks share each state.
"""

from __future__ import annotations

from trainsim.registry import Registry
from trainsim.sharding.strategy import Strategy

strategies: Registry[Strategy] = Registry("strategy", __name__)
