"""ZeRO-3's coordinator: what DeepSpeed did in runs, and what holds for any model and any options."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import rows, tiny_llama
from trainsim.errors import InvalidPlan
from trainsim.models.calls import Call, Module, calls, modules
from trainsim.models.reading import load_model
from trainsim.sharding.coordinator import Coordination, Gather, Limits, coordinate

NONE = Limits(persistence_threshold=0)


@pytest.mark.parametrize("row", rows("zero3_parameters.csv"), ids=lambda r: r["case"])
def test_live_parameters_of_deepspeeds_runs(row: dict[str, str]) -> None:
    model = tiny_llama(8)
    options = {key: int(row[key]) for key in ("prefetch_bucket", "max_live", "max_reuse_distance")}
    one = coordinate(calls(model.root), model.sizes, limits=Limits(persistence_threshold=0, **options))
    assert (one.peak_forward, one.peak_backward) == (int(row["peak_forward"]), int(row["peak_backward"]))
    for name, gathers in (("forward", one.forward_gathers), ("backward", one.backward_gathers)):
        assert len(gathers) == int(row[f"{name}_calls"])
        assert f"{total(gathers) / sum(model.sizes):.3f}" == row[f"{name}_share"]


RUNS = {  # DeepSpeed's defaults, and the options under which the other runs gathered what they did
    "z3_default": Limits(),
    "z3_noreuse": Limits(prefetch_bucket=20_000, max_live=40_000, max_reuse_distance=0, persistence_threshold=0),
    "z3_persist": Limits(prefetch_bucket=0, max_reuse_distance=0, persistence_threshold=1000),
    "z3_reduce_scatter=false": NONE,
}
GATHERS = [r for r in rows("zero3_collectives.csv") if r["collective"].startswith("all_gather")]
PASSES = {(r["case"], r["step"], r["phase"]): r for r in GATHERS}


def total(gathers: tuple[Gather, ...]) -> int:
    return sum(g.elements for g in gathers)


MICROBATCHES = {"z3_default": 2, "z3_noreuse": 2, "z3_persist": 1, "z3_reduce_scatter=false": 1}


@pytest.mark.parametrize("step", ["0", "2"])
@pytest.mark.parametrize(("case", "microbatch"), [(c, f"mb{k}") for c, n in MICROBATCHES.items() for k in range(n)])
def test_gathers_of_deepspeeds_runs(case: str, microbatch: str, step: str) -> None:
    """Number, elements and first sizes; what the table does not list did not happen."""
    model, limits = tiny_llama(4), RUNS[case]
    trace, first = calls(model.root), (step, microbatch) == ("0", "mb0")
    if first:
        serial = Limits(prefetch_bucket=0, max_reuse_distance=0, persistence_threshold=0)
        one = coordinate(trace, model.sizes, limits=serial, available=())  # each module gathers its own
    else:  # after the first pass only the embedding is left, if it is persistent
        left = [0] if step == "0" and limits.persistence_threshold else None
        one = coordinate(trace, model.sizes, limits=limits, available=left)
    for phase, gathers in (("fwd", one.forward_gathers), ("bwd", one.backward_gathers)):
        row = PASSES.get((case, step, f"{phase} {microbatch}"), {"calls": "0", "elements": "0", "first": ""})
        assert (len(gathers), total(gathers)) == (int(row["calls"]), int(row["elements"]))
        shown = [int(n) for n in row["first"].split()]
        assert [g.elements for g in gathers][: len(shown)] == shown


@pytest.mark.parametrize("case", ["z3_default", "z3_persist"])
def test_persistent_parameters_are_those_gathered_after_the_update(case: str) -> None:
    model = tiny_llama(4)
    one = coordinate(calls(model.root), model.sizes, limits=RUNS[case])
    last = "mb1" if case == "z3_default" else "mb0"
    assert one.persistent == int(PASSES[case, "2", f"step {last} (boundary)"]["elements"])


@st.composite
def models(draw: st.DrawFn) -> tuple[tuple[Call, ...], list[int]]:
    """A tree of containers, and leaves that own some parameters; a few are shared."""
    sizes = draw(st.lists(st.integers(1, 50), min_size=1, max_size=12))
    owned = [tuple(sorted(draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3)))) for _ in range(len(sizes))]
    leaves = [Module("leaf", parameters) for parameters in owned]
    cut = draw(st.integers(0, len(leaves)))
    root = Module("root", (), (Module("layer", (), tuple(leaves[:cut])), *leaves[cut:]))
    return calls(root, recompute=draw(st.booleans())), sizes


options = st.builds(
    Limits,
    prefetch_bucket=st.integers(0, 120),
    max_live=st.integers(0, 300),
    max_reuse_distance=st.integers(0, 500),
    persistence_threshold=st.integers(0, 20),
)


def replay(trace: tuple[Call, ...], sizes: list[int], limits: Limits, one: Coordination) -> tuple[list[int], set[int]]:
    """Elements there at each call, and what is left, by the gathers and releases alone; each must make sense."""
    there = {p for p, size in enumerate(sizes) if size <= limits.persistence_threshold}
    start, live = sum(sizes[p] for p in there), []
    for step, call in enumerate(trace):
        for gather in (g for g in one.gathers if g.issued == step):
            assert not there & set(gather.parameters)
            assert gather.elements == sum(sizes[p] for p in gather.parameters)
            there |= set(gather.parameters)
        assert set(call.parameters) <= there, "used before it is gathered"
        live.append(sum(sizes[p] for p in there) - start)
        for release in (r for r in one.releases if r.after == step):
            assert set(release.parameters) <= there
            there -= set(release.parameters)
    return live, there


@settings(max_examples=200)
@given(models(), options)
def test_what_is_needed_is_there_and_nothing_is_left(model: tuple[tuple[Call, ...], list[int]], limits: Limits) -> None:
    trace, sizes = model
    one = coordinate(trace, sizes, limits=limits)
    live, left = replay(trace, sizes, limits, one)
    assert left == {p for p, size in enumerate(sizes) if size <= limits.persistence_threshold}
    assert one.persistent == sum(sizes[p] for p in left)
    assert max(live[: one.backward]) == one.peak_forward <= sum(sizes) - one.persistent
    assert max(live[one.backward :]) == one.peak_backward <= sum(sizes) - one.persistent


@settings(max_examples=200)
@given(models(), options)
def test_gathering_ahead_stops_at_the_limits(model: tuple[tuple[Call, ...], list[int]], limits: Limits) -> None:
    trace, sizes = model
    one = coordinate(trace, sizes, limits=limits)
    live, _ = replay(trace, sizes, limits, one)
    for gather in one.gathers:
        uses = [k for k in range(gather.issued, len(trace)) if set(trace[k].parameters) & set(gather.parameters)]
        assert gather.needed == uses[0]
        if gather.needed > gather.issued:  # ahead: the last tensor alone may pass a limit
            before = gather.elements - sizes[gather.parameters[-1]]
            assert before < limits.prefetch_bucket
            assert live[gather.issued] - sizes[gather.parameters[-1]] < limits.max_live


@settings(max_examples=200)
@given(models(), options)
def test_what_is_used_again_soon_is_not_released(model: tuple[tuple[Call, ...], list[int]], limits: Limits) -> None:
    trace, sizes = model
    traversed = list(accumulate((sum(sizes[p] for p in call.parameters) for call in trace), initial=0))
    for release in coordinate(trace, sizes, limits=limits).releases:
        for p in release.parameters:
            again = [k for k in range(release.after + 1, len(trace)) if p in trace[k].parameters]
            assert sizes[p] > limits.persistence_threshold
            assert not again or traversed[again[0]] - traversed[release.after + 1] >= limits.max_reuse_distance


def test_a_use_at_the_very_next_call_does_not_count_as_gathered_ahead() -> None:
    """DeepSpeed keeps what gathering ahead has passed only if its use comes after the next call."""
    limits = Limits(max_reuse_distance=0, persistence_threshold=0)
    uses = (Call("once", (0,), True), Call("again", (0,), False))
    assert [g.issued for g in coordinate(uses, [7], limits=limits).gathers] == [0, 1]
    between = (uses[0], Call("container", (), False), uses[1])
    assert [g.issued for g in coordinate(between, [7], limits=limits).gathers] == [0]


@pytest.mark.parametrize(("distance", "times"), [(0, 3), (10**9, 1)])
def test_recomputation_uses_the_layers_once_more(distance: int, times: int) -> None:
    model = tiny_llama(4)
    trace = calls(model.root, recompute=True)
    limits = Limits(prefetch_bucket=0, max_reuse_distance=distance, persistence_threshold=0)
    one = coordinate(trace, model.sizes, limits=limits)
    layers, ends = 4 * 53_376, 2 * 32_768 + 64
    assert total(one.gathers) == times * layers + min(times, 2) * ends


def test_a_large_model_keeps_less_than_it_may() -> None:
    """DeepSpeed's defaults on 70 billion parameters: at most 1e9 ahead, then one more tensor; two gathers of most."""
    model = modules(load_model("llama-3-70b"), padded_vocab=128_256)
    one = coordinate(calls(model.root), model.sizes, limits=Limits())
    assert one.persistent == 161 * 8192
    largest = max(model.sizes)
    for peak in (one.peak_forward, one.peak_backward):
        assert 1_000_000_000 <= peak < 1_000_000_000 + largest
    rest = sum(model.sizes) - one.persistent
    assert rest <= total(one.forward_gathers) <= rest + 2_000_000_000
    assert rest - 3_000_000_000 < total(one.backward_gathers) < rest


def test_negative_options_are_refused() -> None:
    with pytest.raises(InvalidPlan, match="max_live is -1"):
        Limits(max_live=-1)
