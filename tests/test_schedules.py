"""Schedules: the recorded orders of the frameworks, and laws that hold for every schedule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.longest_path import longest_path
from tests.reference_orders import NAMES, cells, recorded
from trainsim.errors import InvalidPlan, UnknownName
from trainsim.schedules import Work, schedules
from trainsim.schedules.cells import Cell, format_cell, parse_cell, parse_order, schedule
from trainsim.schedules.check import check
from trainsim.schedules.interleaved import usual_group

BUILT = [file for file, row in recorded().items() if row["schedule"] in NAMES]


def shapes(name):
    """(ranks, microbatches, chunks) that the schedule takes, of those tried."""
    for ranks in (1, 2, 3, 4, 8):
        for microbatches in (1, 2, 3, 4, 7, 8, 12):
            for chunks in (1, 2, 3):
                try:
                    check(name, ranks, microbatches=microbatches, chunks=chunks)
                except InvalidPlan:
                    continue
                yield ranks, microbatches, chunks


@pytest.mark.parametrize("file", BUILT)
def test_order_is_the_one_that_was_recorded(file):
    row = recorded()[file]
    name, ranks, microbatches, chunks = NAMES[row["schedule"]], int(row["p"]), int(row["m"]), int(row["v"])
    group = int(row["group"]) if row["group"] else None
    order = [
        tuple(
            str(Cell(slot.chunk * ranks + rank, slot.work, slot.microbatch))
            for slot in schedules[name](rank, ranks, microbatches=microbatches, chunks=chunks, group=group)
        )
        for rank in range(ranks)
    ]
    assert tuple(order) == cells(file)


def test_recorded_orders_cover_every_framework():
    assert len(BUILT) == 101
    assert {recorded()[file]["source"].split()[0] for file in BUILT} == {
        "own", "PyTorch", "NVIDIA/Megatron-LM", "sail-sg/zero-bubble-pipeline-parallelism", "DeepSpeed"
    }  # fmt: skip


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
        for row in schedule(name, ranks, microbatches, chunks):
            done = [cell for text in row for cell in parse_cell(text)]
            assert len(set(done)) == len(done)
            place = {cell: k for k, cell in enumerate(done)}
            for cell in done:
                if cell.work in (Work.B, Work.I):
                    assert place[cell._replace(work=Work.F)] < place[cell]
                if cell.work is Work.W:
                    assert place[cell._replace(work=Work.I)] < place[cell]
            forwards = [cell for cell in done if cell.work is Work.F]
            assert len(forwards) == microbatches * chunks
            assert sum(cell.work in (Work.B, Work.W) for cell in done) == len(forwards)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", schedules)
def test_no_deadlock_and_never_slower_than_gpipe(name):
    for ranks, microbatches, chunks in shapes(name):
        order = parse_order(schedule(name, ranks, microbatches, chunks))
        spans = longest_path(order, forward=1 / chunks, backward=2 / chunks)
        whole = max(end for row in spans for _, end in row)
        assert whole <= 3 * (microbatches + ranks - 1) + 1e-9


@pytest.mark.parametrize("name", schedules)
def test_one_rank_has_no_bubble(name):
    for ranks, microbatches, chunks in shapes(name):
        if ranks == 1:
            order = parse_order(schedule(name, ranks, microbatches, chunks))
            spans = longest_path(order, forward=1.0, backward=2.0)
            assert max(end for row in spans for _, end in row) == 3 * microbatches * chunks


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("GPipe", "gpipe"),
        ("1F1B", "1f1b"),
        ("pipedream-flush", "1f1b"),
        ("Interleaved1F1B", "interleaved-1f1b"),
        ("interleaved", "interleaved-1f1b"),
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
        ("1f1b", {"ranks": 4, "microbatches": 0}, "microbatches, 1 or more, not 0"),
        ("1f1b", {"ranks": -1, "microbatches": 8}, "stages (pp), 1 or more, not -1"),
        ("1f1b", {"ranks": 4, "microbatches": 2.5}, "whole number of microbatches"),
        ("1f1b", {"ranks": 4, "microbatches": True}, "whole number of microbatches"),
    ],
)
def test_refusal_says_what_would_work(name, numbers, says):
    ranks = numbers.pop("ranks")
    with pytest.raises(InvalidPlan) as refusal:
        check(name, ranks, **numbers)
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
