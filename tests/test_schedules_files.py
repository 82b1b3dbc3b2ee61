"""Schedule files: what is written is read, both meanings of B, communication left out, and what is refused where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference_orders import cells, recorded, small_first
from trainsim.errors import InvalidPlan
from trainsim.replaying import replay
from trainsim.schedules import schedules
from trainsim.schedules.cells import schedule
from trainsim.schedules.csv_files import read_schedule, write_schedule
from trainsim.schedules.orders import Order
from trainsim.schedules.placement import StagePlacement


@pytest.mark.parametrize("file", small_first(recorded(), 64))
def test_recorded_orders_are_read_as_they_are_written(file, tmp_path):
    write_schedule(cells(file), tmp_path / "order.csv", torch=False)
    read = read_schedule(tmp_path / "order.csv")
    assert read.texts == cells(file)
    assert read.two_way == (recorded()[file]["schedule"] in ("dualpipe", "chimera"))


def test_a_file_is_an_order_that_can_be_replayed(tmp_path):
    write_schedule(schedule("zb-v", 4, 8), tmp_path / "zbv.csv")
    order = read_schedule(tmp_path / "zbv.csv")
    assert order.placement is StagePlacement.V
    assert [list(map(str, order.slots(rank))) for rank in range(4)] == [
        list(map(str, schedules["zb-v"](rank, 4, microbatches=8))) for rank in range(4)
    ]
    assert replay(order.texts, p2p=0).makespan == replay(schedule("zb-v", 4, 8), p2p=0).makespan


def written(tmp_path, text):
    (tmp_path / "order.csv").write_text(text)
    return read_schedule(tmp_path / "order.csv")


def test_idle_ticks_and_communication_are_left_out(tmp_path):
    text = (
        "0UNSHARD,0F0,0SEND_F0, ,0F1,0SEND_F1,,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n\n"
    )
    assert list(map(list, written(tmp_path, text).texts)) == schedule("1f1b", 2, 2)


def test_b_is_the_input_gradient_where_weight_gradients_are_alone(tmp_path):
    assert written(tmp_path, "0F0,0B0,0W0,0F1,0B1\n").texts == (("0F0", "0I0", "0W0", "0F1", "0B1"),)
    assert written(tmp_path, "0F0,0I0,0W0,0F1,0B1\n").texts == (("0F0", "0I0", "0W0", "0F1", "0B1"),)
    order = written(tmp_path, "0F0,0F1,0B0,(0F2;0B1)OVERLAP_F_B,0B2\n")
    assert order.texts == (("0F0", "0F1", "0B0", "(0F2;0B1)OVERLAP_F_B", "0B2"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("\n,,\n", "is empty"),
        ("0F0,0B0\n1F0,1X0\n", "order.csv, line 2, cell 2: '1X0' is not a cell"),
        ("0F0,0B0\n1F0,1B0,1F0\n", "order.csv, line 2, cell 1: cell 1F0 is twice"),
        ("0F0,0B0\n0F1,0B1\n", "order.csv, line 2, cell 1: cell 0F1 is on rank 1"),
        ("0F0,0B0,0F1\n", "with nothing; it needs 0B1"),
        ("0B0,0F0\n", "line 1, cell 1: cell 0B0 comes before 0F0"),
        ("0F0,0B0\n2F0,2B0\n", "no rank has stage 1"),
    ],
)
def test_refusals_name_the_line_and_the_cell(text, says, tmp_path):
    with pytest.raises(InvalidPlan) as refusal:
        written(tmp_path, text)
    assert says in str(refusal.value)


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(InvalidPlan, match="cannot be read"):
        read_schedule(tmp_path / "missing.csv")
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(InvalidPlan, match="cannot be read"):
        read_schedule(tmp_path / "picture.csv")
    with pytest.raises(InvalidPlan, match="two-way"):
        write_schedule(schedule("dualpipe", 2, 4), tmp_path / "two.csv")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(["0F0", "0B0", "0I0", "0W0", "1F0", "1B0", "", "0SEND_F0", "x", "(0F0;0B0)"])))
)
def test_any_file_is_an_order_or_is_refused(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("files") / "order.csv"
    path.write_text("\n".join(",".join(row) for row in rows))
    try:
        order = read_schedule(path)
    except InvalidPlan as refusal:
        assert str(path) in str(refusal)
    else:
        assert isinstance(order, Order)
