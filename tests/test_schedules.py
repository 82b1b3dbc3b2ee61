"""Schedules: the recorded orders of the frameworks, and laws that hold for every schedule."""

from __future__ import annotations

from itertools import accumulate, groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.longest_path import longest_path
from tests.reference_orders import cells, numbers, recorded, small_first, table
from trainsim.errors import InvalidPlan, UnknownName
from trainsim.schedules import Pair, Work, flat, schedules
from trainsim.schedules.cells import Cell, format_cell, parse_cell, parse_order, schedule
from trainsim.schedules.interleaved import usual_group
from trainsim.schedules.orders import read_order
from trainsim.schedules.pipedream import stashed, versions
from trainsim.schedules.placement import StagePlacement, place_of, stage_of
from trainsim.schedules.slices import SLICES
from trainsim.schedules.untimed import waits_for_ever

COSTS = {
    "": None,
    "u": (1000, 1000, 1000, 1),
    "z": (1000, 1000, 1000, 0),
    "a": (1000, 1200, 800, 100),
    "w": (1000, 1400, 600, 0),
}
"""F, I, W and message that a recorded order was planned with, by the letter that stands for it."""


def shapes(name):
    """(Ranks, microbatches, chunks) that the schedule takes, of those tried."""
    for ranks in (1, 2, 3, 4, 8):
        for microbatches in (1, 2, 3, 4, 7, 8, 16):
            for chunks in (1, 2, 3, 4):
                try:
                    schedules.check(name, ranks, microbatches=microbatches, chunks=chunks)
                except InvalidPlan:
                    continue
                yield ranks, microbatches, chunks


def chain_of(name, ranks, chunks):
    return ranks if schedules.traits(name).placement is StagePlacement.TWO_WAY else ranks * chunks


@pytest.mark.parametrize("file", small_first(recorded(), 2000))
def test_order_is_the_one_that_was_recorded(file):
    name = recorded()[file]["schedule"]
    costs = COSTS[recorded()[file]["costs"]] if schedules.traits(name).planned else None
    assert tuple(map(tuple, schedule(name, **numbers(file), costs=costs))) == cells(file)


def test_recorded_orders_cover_every_schedule_that_somebody_published():
    recorded_ones = {row["schedule"] for row in recorded().values()}
    assert set(schedules) - recorded_ones == {"pipedream-2bw"}  # the order of 1f1b
    assert len(recorded()) == 451


def test_usual_group_is_what_pytorch_picks_wherever_it_accepts_the_numbers():
    for ranks in range(1, 17):
        for microbatches in range(1, 60):
            rounds = max(1, microbatches // ranks)
            if microbatches % rounds == 0:
                assert usual_group(ranks, microbatches) == microbatches // rounds


@pytest.mark.parametrize("name", schedules)
def test_each_microbatch_goes_forward_and_back_once_through_every_stage(name):
    tried = 0
    for ranks, microbatches, chunks in shapes(name):
        slices = SLICES if schedules.traits(name).sliced else 1
        order = read_order(schedule(name, ranks, microbatches, chunks), slices)  # checks all of that
        assert (order.stages, order.microbatches) == (ranks * chunks, microbatches * slices)
        assert order.two_way == (schedules.traits(name).placement is StagePlacement.TWO_WAY)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", schedules)
def test_traits_say_what_the_order_is_like(name):
    facts = schedules.traits(name)
    works = set()
    pairs = 0
    for ranks, microbatches, chunks in shapes(name):
        assert facts.chunks in (None, chunks)
        order = [list(schedules[name](r, ranks, microbatches=microbatches, chunks=chunks)) for r in range(ranks)]
        pairs += sum(isinstance(item, Pair) for row in order for item in row)
        works |= {slot.work for row in order for slot in flat(row)}
        assert {slot.chunk for row in order for slot in flat(row)} == set(range(chunks))
        read = read_order(schedule(name, ranks, microbatches, chunks))
        assert [read.slots(rank) for rank in range(ranks)] == order or facts.placement is not StagePlacement.LOOP
        usual = read.placement
        assert (
            usual is facts.placement
            or ranks == 1
            or {usual, facts.placement} == {StagePlacement.V, StagePlacement.WAVE}
        )
    assert facts.split == (Work.W in works)
    assert facts.paired == (pairs > 0)
    assert facts.source


@pytest.mark.parametrize("name", schedules)
def test_no_deadlock_and_seldom_slower_than_gpipe(name):
    for ranks, microbatches, chunks in shapes(name):
        rows = [list(schedules[name](r, ranks, microbatches=microbatches, chunks=chunks)) for r in range(ranks)]
        assert not waits_for_ever(rows, chunks, schedules.traits(name).placement)
        if name in ("chimera", "hanayo") and microbatches > ranks:
            continue  # made for as many microbatches as ranks
        order = parse_order(schedule(name, ranks, microbatches, chunks))
        chain = chain_of(name, ranks, chunks)
        scale = ranks / chain / (SLICES if schedules.traits(name).sliced else 1)
        spans = longest_path(order, forward=scale, backward=2 * scale, weight=scale, chain=chain)
        whole = max(end for row in spans for _, end in row)
        assert whole <= 3 * (microbatches + ranks - 1) + 1e-9


@pytest.mark.parametrize("name", schedules)
def test_one_rank_has_no_bubble(name):
    for ranks, microbatches, chunks in shapes(name):
        if ranks == 1:
            order = parse_order(schedule(name, ranks, microbatches, chunks))
            spans = longest_path(order, forward=1.0, backward=2.0, weight=1.0)
            passes = microbatches * chunks * (SLICES if schedules.traits(name).sliced else 1)
            assert max(end for row in spans for _, end in row) == 3 * passes


@pytest.mark.parametrize("placement", StagePlacement)
def test_places_are_the_inverse_of_stages(placement):
    for ranks in (1, 2, 3, 4, 8):
        for chunk in range(2 if placement in (StagePlacement.V, StagePlacement.TWO_WAY) else 6):
            for rank in range(ranks):
                assert place_of(placement, stage_of(placement, rank, chunk, ranks), ranks) == (rank, chunk)


def test_a_planned_order_depends_on_its_costs():
    slow = schedule("zb-h2", 4, 12, costs=(1.0, 1.4, 0.6, 0.0))
    assert slow != schedule("zb-h2", 4, 12)
    assert slow == schedule("zb-h2", 4, 12, costs=(1000, 1400, 600, 0))
    with pytest.raises(InvalidPlan, match="takes no costs"):
        schedule("1f1b", 4, 8, costs=(1, 1, 1, 0))
    for wrong in ((1, 1, 1), (0, 1, 1, 0), (1, -1, 1, 0), ("1", 1, 1, 0)):
        with pytest.raises(InvalidPlan, match="costs are the times"):
            schedule("zb-v-greedy", 4, 8, costs=wrong)


times = st.integers(0, 4000)


@pytest.mark.parametrize(("name", "limit"), [("zb-h1", 1), ("zb-h2", 2), ("zb-v-greedy", 2)])
@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(1, 12), st.tuples(st.integers(1, 4000), times, times, times))
def test_plans_for_any_times_are_orders_that_keep_the_memory(name, limit, ranks, microbatches, costs):
    order = read_order(schedule(name, ranks, microbatches, costs=costs))
    rows = [order.slots(rank) for rank in range(ranks)]
    assert not waits_for_ever(rows, order.chunks, schedules.traits(name).placement)
    for row in rows:
        held = list(accumulate({Work.F: 1, Work.W: -1}.get(slot.work, 0) for slot in flat(row)))
        if name != "zb-v-greedy":  # which gives most of a chunk's activations back with the input gradient
            assert max(held) <= limit * ranks


def test_pipedream_versions_are_those_that_its_runtime_uses():
    rows = table("pipedream_versions")
    seen = 0
    for (ranks, minibatches), own in groupby(rows, key=lambda row: (int(row["p"]), int(row["n"]))):
        expected = list(own)
        found = [
            (rank, *version, stashed(rank, ranks))
            for rank in range(ranks)
            for version in versions(rank, ranks, minibatches=minibatches)
        ]
        columns = ("rank", "minibatch", "fwd_version", "bwd_version", "version_after_update", "staleness_updates")
        assert found == [tuple(int(row[c]) for c in (*columns, "stashed_versions_needed")) for row in expected]
        seen += len(found)
    assert seen == len(rows) == 256


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("GPipe", "gpipe"),
        ("1F1B", "1f1b"),
        ("pipedream-flush", "1f1b"),
        ("Interleaved1F1B", "interleaved-1f1b"),
        ("interleaved", "interleaved-1f1b"),
        ("ScheduleLoopedBFS", "looped-bfs"),
        ("InterleavedZeroBubble", "interleaved-zb"),
        ("ZBVZeroBubble", "zb-v"),
        ("DualPipeV", "dualpipev"),
        ("ZB1P", "zb-h1"),
        ("ZB2P", "zb-h2"),
        ("zbv", "zb-v"),
        ("TrainSchedule", "deepspeed"),
        ("PipeOffload", "gis"),
    ],
)
def test_frameworks_spellings_are_aliases(alias, name):
    assert schedules.canonical(alias) == name


@pytest.mark.parametrize(
    ("name", "numbers", "says"),
    [
        ("1f1b", {"ranks": 4, "microbatches": 8, "chunks": 2}, "chunks: 1 works"),
        ("GPipe", {"ranks": 4, "microbatches": 8, "chunks": 2}, "gpipe has one chunk per rank"),
        ("1f1b", {"ranks": 4, "microbatches": 8, "group": 4}, "takes no group"),
        ("interleaved", {"ranks": 4, "microbatches": 8}, "needs 2 or more chunks"),
        (
            "interleaved",
            {"ranks": 4, "microbatches": 10, "chunks": 2, "group": 4},
            "group: 5, 6, 10 would work",
        ),
        ("interleaved", {"ranks": 4, "microbatches": 8, "chunks": 2, "group": 2}, "group: 4, 8 would work"),
        ("interleaved", {"ranks": 4, "microbatches": 8, "chunks": 2, "group": 99}, "group: 4, 8 would work"),
        ("zb-v", {"ranks": 4, "microbatches": 8, "chunks": 1}, "chunks: 2 works"),
        ("dualpipe", {"ranks": 5, "microbatches": 20, "chunks": 2}, "4 or 6 would work"),
        ("dualpipe", {"ranks": 4, "microbatches": 9, "chunks": 2}, "8 or 10 would work"),
        ("dualpipe", {"ranks": 4, "microbatches": 6, "chunks": 2}, "microbatches: 8 works"),
        ("dualpipev", {"ranks": 4, "microbatches": 7, "chunks": 2}, "microbatches: 8 works"),
        ("chimera", {"ranks": 4, "microbatches": 6, "chunks": 2}, "4 or 8 would work"),
        ("hanayo", {"ranks": 4, "microbatches": 4, "chunks": 3}, "4 would work"),
        ("interleaved-zb", {"ranks": 4, "microbatches": 9, "chunks": 2}, "8 or 10 microbatches would work"),
        ("llama3", {"ranks": 8, "microbatches": 10, "chunks": 2, "group": 8}, "group: 9, 10 would work"),
        ("llama3", {"ranks": 4, "microbatches": 8, "chunks": 2, "group": 3}, "group: 4 to 8 would work"),
        ("gis", {"ranks": 4, "microbatches": 8, "chunks": 2, "group": 5}, "1 to 4 work"),
        ("gis", {"ranks": 4, "microbatches": 8}, "2 or more chunks"),
        ("pipedream-2bw", {"ranks": 4, "microbatches": 3}, "microbatches: 4 works"),
        ("seq1f1b", {"ranks": 4, "microbatches": 8, "chunks": 2}, "chunks: 1 works"),
        ("1f1b", {"ranks": 4, "microbatches": 0}, "microbatches, 1 or more, not 0"),
        ("1f1b", {"ranks": -1, "microbatches": 8}, "stages (pp), 1 or more, not -1"),
        ("1f1b", {"ranks": 4, "microbatches": 2.5}, "whole number of microbatches"),
        ("1f1b", {"ranks": 4, "microbatches": True}, "whole number of microbatches"),
    ],
)
def test_refusal_says_what_would_work(name, numbers, says):
    ranks = numbers.pop("ranks")
    with pytest.raises(InvalidPlan) as refusal:
        schedules.check(name, ranks, **numbers)
    assert says in str(refusal.value)


def test_unknown_schedule_is_named():
    with pytest.raises(UnknownName, match="Did you mean '1f1b'"):
        schedule("1f1", 2, 2)


works = st.sampled_from(list(Work))
single = st.builds(Cell, st.integers(0, 999), works, st.integers(0, 9999))


@settings(deadline=None)
@given(single)
def test_a_cell_is_read_as_it_is_written(cell):
    assert parse_cell(str(cell)) == (cell,)


@settings(deadline=None)
@given(single, single)
def test_an_overlapped_pair_is_read_as_it_is_written(one, other):
    pair = (one._replace(work=Work.F), other._replace(work=Work.B))
    assert parse_cell(format_cell(pair)) == pair


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_a_cell_or_is_refused(text):
    try:
        read = parse_cell(text)
    except InvalidPlan:
        with pytest.raises(InvalidPlan, match="is not a cell of a schedule"):
            parse_cell(text)
    else:
        assert parse_cell(format_cell(read)) == read


def test_empty_cells_are_idle_ticks():
    assert parse_order([["0F0", "", " ", "0B0"]]) == [[(Cell(0, Work.F, 0),), (Cell(0, Work.B, 0),)]]
