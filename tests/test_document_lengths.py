"""Documents whose lengths follow a distribution: packed into sequences, or padded."""

from __future__ import annotations

import re
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import run_small, same_spans, scenario
from trainsim.errors import TrainsimError
from trainsim.scenario.document_lengths import distributions, draw, packed, padded
from trainsim.scenario.scenario import Scenario

ONE: dict[str, Any] = {
    "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1},
    "parallel": {},
    "training__sequence_length": 8192,
    "training__global_batch": 16,
}
SPREAD = {"mean": 600, "deviation": 300, "distribution": "lognormal"}


@pytest.mark.parametrize("name", distributions)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_drawn_lengths_have_the_mean_and_the_deviation(name: str, share: float) -> None:
    lengths = draw(name, mean=2000, deviation=2000 * share, seed=7, count=100_000)
    assert lengths.mean() == pytest.approx(2000, rel=0.01)
    assert lengths.std() == pytest.approx(2000 * share, rel=0.05, abs=1e-9)


def test_the_seed_says_which_lengths_and_more_of_them_begin_alike() -> None:
    few, many, others = (
        draw("lognormal", mean=9, deviation=9, seed=s, count=n) for s, n in ((1, 10), (1, 99), (2, 99))
    )
    assert np.array_equal(few, many[:10])
    assert not np.array_equal(many, others)


@given(st.integers(1, 1 << 27), st.integers(0, 1 << 27), st.integers(0, 99), st.integers(1, 4096), st.integers(1, 64))
@settings(max_examples=100, deadline=None)
def test_any_mean_and_deviation_are_packed(mean: int, deviation: int, seed: int, sequence: int, sequences: int) -> None:
    lengths = draw("lognormal", mean=mean, deviation=deviation, seed=seed, count=500)
    found = packed(lengths, sequence_length=sequence, sequences=sequences)
    assert 1 <= found.mean <= found.most * (1 + 1e-9) <= sequence * (1 + 1e-9)
    assert 0 <= padded(lengths, micro_batch=5, sequence_length=sequence).padding < 1


def by_hand(lengths: list[int], sequence: int, sequences: int) -> list[float]:
    """Sums of squares over the tokens of each sequence, token by token."""
    owner: list[int] = []
    k = 0
    while len(owner) < sequence * sequences:
        owner += [k] * lengths[k % len(lengths)]
        k += 1
    parts = [owner[i * sequence : (i + 1) * sequence] for i in range(sequences)]
    return [sum(part.count(token) for token in part) / sequence for part in parts]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 30),
    st.integers(1, 6),
)
@settings(max_examples=100, deadline=None)
def test_packing_is_what_it_is_token_by_token(lengths: list[int], sequence: int, sequences: int) -> None:
    found, expected = (
        packed(np.array(lengths), sequence_length=sequence, sequences=sequences),
        by_hand(lengths, sequence, sequences),
    )
    assert found.mean == pytest.approx(sum(expected) / sequences)
    assert found.most == pytest.approx(max(expected))
    assert 1 <= found.mean <= found.most <= sequence


def test_short_documents_cost_the_sum_of_their_squares() -> None:
    """Of documents much shorter than a sequence: mean + variance / mean, as cuts at its ends hardly count."""
    lengths = draw("lognormal", mean=60, deviation=45, seed=0, count=200_000)
    found = packed(lengths, sequence_length=8192, sequences=1000)
    assert found.mean == pytest.approx(60 + 45**2 / 60, rel=0.03)


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_padding_is_to_the_longest_of_a_micro_batch(micro_batch: int) -> None:
    lengths = draw("uniform", mean=500, deviation=100, seed=3, count=40_000)
    found = padded(lengths, micro_batch=micro_batch, sequence_length=4096)
    low, high = 500 - 100 * sqrt(3), 500 + 100 * sqrt(3)
    expected = low + (high - low) * micro_batch / (micro_batch + 1)  # of so many draws from a uniform distribution
    assert found.mean == pytest.approx(expected, rel=0.005)
    assert found.padding == pytest.approx(1 - 500 / expected, abs=0.005)
    assert padded(lengths, micro_batch=micro_batch, sequence_length=4096, whole=True).padding == pytest.approx(
        1 - 500 / 4096, rel=0.01
    )


def seconds(**changes: Any) -> float:
    return scenario(**ONE, **changes).run().step_time


def test_a_distribution_without_deviation_is_a_length() -> None:
    """But for the documents that are cut where a sequence ends: none, if the length divides it."""
    assert seconds(training__documents={"mean": 512}) == seconds(training__documents=512)
    assert seconds(training__documents={"mean": 8192}) == seconds(training__documents=8192) == seconds()


def test_a_wider_distribution_costs_more() -> None:
    times = [seconds(training__documents={"mean": 600, "deviation": d}) for d in (0, 600, 3000)]
    assert times[0] < times[1] < times[2] < seconds()


def test_it_is_told_and_the_seed_matters() -> None:
    def told(seed: int) -> str:
        one = scenario(**ONE, training__documents=SPREAD | {"seed": seed})
        return str(one.resolved["derived"]["training.mask"])

    assert told(0) == told(0) != told(1)
    assert re.search(r"a token's document has \d+ tokens on average, \d+ in the longest", told(0))


def test_padded_sequences_are_as_long_as_they_are_made() -> None:
    longest = scenario(**ONE, training__documents=SPREAD, training__padding="longest")
    job, derived = longest.resolve(), longest.resolved["derived"]
    assert 600 * 0.8 < job.training.sequence_length < 700, "a micro-batch of one is as long as it is"
    assert job.training.document == 0
    assert "0.0% of the positions" in derived["training.padding"]
    short = scenario(**ONE | {"training__sequence_length": job.training.sequence_length})
    assert longest.run().step_time == short.run().step_time
    four = scenario(**ONE, training__documents=SPREAD, training__padding="longest", training__micro_batch=4)
    assert four.resolve().training.sequence_length > job.training.sequence_length


def test_padding_to_the_full_length_costs_what_full_sequences_cost() -> None:
    whole = scenario(**ONE, training__documents=600, training__padding="max")
    assert whole.run().step_time == seconds()
    assert f"{1 - 600 / 8192:.1%} of the positions" in whole.resolved["derived"]["training.padding"]


@pytest.mark.parametrize(
    "words",
    [
        {"training__documents": SPREAD},
        {"training__documents": SPREAD, "training__padding": "longest"},
        {"training__documents": [100, 900], "training__padding": "longest"},
    ],
)
def test_a_resolved_scenario_means_the_same(words: dict[str, Any]) -> None:
    first = scenario(**words)
    again = Scenario.from_dict(first.resolved)
    assert again.resolve().training == first.resolve().training
    assert again.resolved["training"] == first.resolved["training"]


@pytest.mark.parametrize("tp", [2, 4])
def test_padded_sequences_are_cut_and_fold(tp: int) -> None:
    words = {
        "parallel": {"tp": tp, "sequence_parallel": True},
        "training__documents": 333,
        "training__padding": "longest",
    }
    folded, unfolded = (run_small(**words, simulation__fold=fold).trace for fold in (True, False))
    assert same_spans(folded, unfolded)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"training__documents": {"deviation": 4}}, "mean"),
        ({"training__documents": {"mean": 0}}, "mean"),
        ({"training__documents": {"mean": 9, "deviation": -1}}, "deviation"),
        ({"training__documents": {"mean": 9, "devation": 1}}, "deviation"),
        ({"training__documents": {"mean": 9, "distribution": "lognorml"}}, "Did you mean 'lognormal'"),
        ({"training__documents": {"mean": 600, "deviation": 400, "distribution": "normal"}}, "300 or less"),
        ({"training__documents": {"mean": 600, "deviation": 400, "distribution": "uniform"}}, "346 or less"),
        ({"training__padding": "longest"}, "needs documents"),
        ({"training__padding": "longer", "training__documents": 9}, "padding"),
        ({"training__padding": "max", "training__documents": 9, "training__mask": "document"}, "leave mask out"),
    ],
)
def test_bad_words_are_told(words: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainsimError, match=message):
        scenario(**words).resolve()
