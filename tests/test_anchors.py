"""Published runs against the replay: what a wrong constant or convention would break."""

from __future__ import annotations

import pytest

from trainsim.scenario.scenario import Scenario
from trainsim.simulate import simulate

KORTHIKANTI = {  # Korthikanti et al. 2022 (arXiv 2205.05198), table 5: seconds per iteration
    "22b_full": 1.42,
    "22b_selective": 1.10,
    "175b_full": 18.13,
    "175b_selective": 13.75,
    "530b_full": 49.05,
    "530b_selective": 37.83,
    "1t_full": 94.42,
    "1t_selective": 71.49,
}
BLOOM = 105.22  # s, BigScience tr11-176B-ml chronicles, iteration 12695
BLOOM_SLOW_NODE = 111.1  # s, the same, iterations 42784 and 45000
QUICK = ("22b_full", "22b_selective", "175b_full", "175b_selective")


def error(name: str, measured: float) -> float:
    return simulate(Scenario.load(name).resolve()).trace.duration / measured - 1


@pytest.mark.parametrize("case", QUICK)
def test_korthikanti_table_5(case: str) -> None:
    assert abs(error(f"korthikanti_{case}", KORTHIKANTI[case])) < 0.05


@pytest.mark.slow
def test_all_of_korthikanti_table_5_on_the_mean() -> None:
    errors = [abs(error(f"korthikanti_{case}", seconds)) for case, seconds in KORTHIKANTI.items()]
    assert max(errors) < 0.05
    assert sum(errors) / len(errors) < 0.03


def test_bloom() -> None:
    assert abs(error("bloom_3d", BLOOM)) < 0.08


def test_one_slow_node_explains_what_bloom_lost() -> None:
    base, slow = (simulate(Scenario.load(name).resolve()) for name in ("bloom_3d", "bloom_slow_node"))
    assert slow.trace.duration / base.trace.duration == pytest.approx(BLOOM_SLOW_NODE / BLOOM, rel=0.005)
    assert slow.trace.classes == 2 * base.trace.classes  # the slow replica's ranks, and all others
