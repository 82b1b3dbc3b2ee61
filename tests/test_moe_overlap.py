"""Tokens on their way to experts while another microbatch computes (combined 1F1B)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.agreement import assert_same
from tests.test_experts import MOE
from tests.test_experts import scenario as mixture
from trainsim import Scenario
from trainsim.cli import main
from trainsim.engine import run
from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError
from trainsim.fold import fold, prune, unfolded
from trainsim.program.lower import lower
from trainsim.report.drawn_ranks import drawn_ranks
from trainsim.report.named_windows import named_window
from trainsim.report.scene import scene
from trainsim.report.side_lanes import EDGE
from trainsim.schedules import Pair, schedules

OVERLAP = "interleaved-1f1b-overlap"
EXPERTS = MOE | {"experts": 16, "shared_experts": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "accumulation": {"parallel": {"ep": 16}},
    "two stages": {"parallel": {"ep": 8, "pp": 2}, "pipeline": {"chunks": 2}},
    "tensor parallel": {
        "parallel": {"tp": 2, "ep": 4, "etp": 1, "pp": 2, "sequence_parallel": True}, "pipeline": {"chunks": 2},
    },
}  # fmt: skip


def scenario(shape: str = "accumulation", /, **sections: Any) -> Scenario:
    """A small mixture on two nodes, with the overlap unless ``training`` says otherwise."""
    training = {"moe_overlap": True, "global_batch": 128} | sections.pop("training", {})
    return mixture(EXPERTS, nodes=2, **SHAPES[shape], training=training, **sections)


def numbers(one: Scenario) -> dict[str, Any]:
    return one.run().to_dict()


class TestSchedule:
    """Which schedule it is, and what it is like. The orders are compared with recorded ones in test_schedules."""

    @pytest.mark.parametrize("shape", SHAPES)
    def test_overlap_takes_the_place_of_the_schedule(self, shape: str) -> None:
        one = scenario(shape)
        usual = scenario(shape, training={"moe_overlap": False}).resolve().pipeline.schedule
        assert one.resolve().pipeline.schedule == OVERLAP
        assert f"instead of {usual}" in one.resolved["derived"]["pipeline.schedule"]

    def test_naming_it_is_the_same(self) -> None:
        named = scenario("two stages", training={"moe_overlap": False}).replace({"pipeline.schedule": "combined-1f1b"})
        assert named.run().step_time == scenario("two stages").run().step_time

    def test_microbatches_of_gradient_accumulation_pair_up(self) -> None:
        first, *pairs, last = schedules[OVERLAP](0, 1, microbatches=5)
        assert str(first), str(last) == ("F0", "B4")
        assert all(isinstance(item, Pair) for item in pairs)
        assert [(item.forward.microbatch, item.backward.microbatch) for item in pairs] == [(b + 1, b) for b in range(4)]

    @pytest.mark.parametrize("microbatches", [1, 2])
    def test_few_microbatches(self, microbatches: int) -> None:
        one = numbers(scenario(training={"global_batch": 16 * microbatches}))
        plain = numbers(scenario(training={"global_batch": 16 * microbatches, "moe_overlap": False}))
        assert (one["step_time_s"] == plain["step_time_s"]) == (microbatches == 1)


class TestLaws:
    """What the overlap may change, and what not."""

    @pytest.mark.parametrize("dispatcher", ["alltoall", "deepep", "hybridep"])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_less_is_exposed_and_the_same_is_sent(self, shape: str, dispatcher: str) -> None:
        apart, pairs, late = (
            numbers(scenario(shape, training={"moe": {"dispatcher": dispatcher}} | changes))
            for changes in ({"moe_overlap": False}, {}, {"delay_wgrad": True})
        )
        for one in (apart, pairs, late):
            assert sum(one["breakdown_s"].values()) == pytest.approx(one["step_time_s"])
            assert one["communication"]["ep"]["bytes_per_rank"] == apart["communication"]["ep"]["bytes_per_rank"]
            assert one["breakdown_s"]["compute"] >= apart["breakdown_s"]["compute"] * (1 - 1e-9)
        exposed = [one["communication"]["ep"]["exposed_s"] for one in (apart, pairs, late)]
        assert exposed[1] < 0.8 * exposed[0]
        assert exposed[2] < exposed[1]
        assert pairs["step_time_s"] < apart["step_time_s"]

    def test_without_a_way_to_hide_a_pair_is_its_passes(self) -> None:
        """With experts all on one rank nothing waits, and pairs are the passes one after the other."""
        alone = {"parallel": {"ep": 1}, "nodes": 1, "training": {"global_batch": 64}}
        plain = mixture(EXPERTS, **alone).run()
        pairs = mixture(EXPERTS, **alone, pipeline={"schedule": OVERLAP}).run()
        assert pairs.step_time == pytest.approx(plain.step_time, rel=1e-9)

    def test_a_fast_network_leaves_the_plain_step(self) -> None:
        """The shorter the ways of tokens, the nearer is the step to that of the interleaved order."""
        gaps = []
        for layer in (1, 100):
            cluster = {
                "topology": "dgx_h100",
                "nic_bandwidth": f"{400 * layer}Gbps",
                "nvlink_bandwidth": f"{450 * layer}GB/s",
            }
            both = [
                scenario("two stages", training={"moe_overlap": on, "tp_overlap": "none"})
                .replace({"cluster": cluster | {"nodes": 2}})
                .run()
                for on in (False, True)
            ]
            gaps.append(abs(both[1].step_time / both[0].step_time - 1))
        assert gaps[1] < 0.5 * gaps[0]

    def test_hidden_no_more_than_there_is_to_compute(self) -> None:
        """The ways of a pair are one after the other on their lane, and its kernels on theirs."""
        one = scenario().run()
        spans = one.trace.spans(0, "ep")
        assert all(end <= start for (_, end), (start, _) in pairwise(zip(spans.start, spans.end, strict=True)))
        assert one.breakdown["compute"] + one.to_dict()["communication"]["ep"]["exposed_s"] <= one.step_time

    def test_the_closed_form_knows_of_it(self) -> None:
        for shape in SHAPES:
            one = scenario(shape, training={"moe": {"dispatcher": "deepep"}}).run()
            assert one.step_time == pytest.approx(one.estimate.seconds, rel=0.25)

    def test_a_pair_keeps_what_a_pass_keeps(self) -> None:
        """One chunk more is in flight, but the backward of a pair gives back layers while its forward keeps others:
        at most one layer more is kept than in the interleaved order, whose stages keep 5 and 3 chunks of one layer."""
        plain, pairs = (
            [stage.most_activations for stage in one.run().memory.per_stage]
            for one in (scenario("two stages", training={"moe_overlap": on}) for on in (False, True))
        )
        for stage, (kept, more) in enumerate(zip(plain, pairs, strict=True)):
            assert kept <= more <= kept * (1 + 1 / (5 - 2 * stage)) * (1 + 1e-9)


class TestOrderInAPair:
    """The order of Megatron-LM and DualPipe: each way under the kernels that come next of the other pass."""

    def test_backward_begins_and_passes_take_turns(self) -> None:
        one = scenario(training={"moe": {"dispatcher": "deepep"}}).run()
        names = [label.name.partition(".")[0] for label in _labels(one, "ep")]
        ways = [name for name, before in zip(names, [None, *names], strict=False) if name != before]
        assert {ways[k : k + 4] == ways[:4] for k in range(0, len(ways) - 3, 4)} == {True}
        assert ways[:4] == ["combine gradient", "dispatch", "dispatch gradient", "combine"]

    def test_experts_run_beside_the_other_ones_dispatch(self) -> None:
        """While tokens are dispatched, experts of the other pass compute; results come back under attention."""
        one = scenario().run()
        table = one.timeline([0])
        compute, sent = table[table["stream"] == "compute"], table[table["stream"] == "ep"]
        for way, kernels in (("dispatch", "expert"), ("combine gradient", "attention")):
            some = sent[sent["name"].astype(str).str.startswith(f"{way}.")].iloc[len(sent) // 16]
            beside = compute[(compute["start"] < some["end"]) & (compute["end"] > some["start"])]
            other = beside[beside["microbatch"] != some["microbatch"]]
            assert other["name"].astype(str).str.contains(kernels).any(), (way, list(other["name"]))


@pytest.fixture(scope="module")
def one() -> Any:
    return scenario(training={"moe": {"dispatcher": "deepep"}}).run()


class TestPicture:
    """A layer of a pair, kernel by kernel."""

    def test_a_layer_is_found_by_name(self, one: Any) -> None:
        ranks, start, end = named_window(one, "F4/2")
        table = one.timeline(ranks)
        layer = table[(table["microbatch"] == 4) & (table["layer"] == 2) & (table["kind"] == "forward")]
        assert start < layer["start"].min() < layer["end"].max() < end
        assert end - start == pytest.approx(1.08 * (layer["end"].max() - layer["start"].min()), rel=0.02)

    def test_passes_and_times_are_found_too(self, one: Any) -> None:
        assert named_window(one, "1.5ms-2ms") == (None, 1.5e-3, 2e-3)
        whole, layer = named_window(one, "B3"), named_window(one, "B3/0")
        assert whole.start < layer.start < layer.end < whole.end

    @pytest.mark.parametrize("words", ["F99", "F4/99", "F4.1", "tomorrow", "", "F", "2ms"])
    def test_what_is_not_there_is_refused(self, one: Any, words: str) -> None:
        with pytest.raises(InvalidPlan, match="would work"):
            one.gantt(window=words)

    def test_it_says_whose_turn_it_is_and_what_is_sent(self, one: Any) -> None:
        ranks, start, end = named_window(one, "F4/2")
        drawn = scene(one, drawn_ranks(one, ranks), (start, end), detailed=True)
        texts = [note.text for note in drawn.notes]
        assert {"F4 dispatch", "F4 combine", "B3 combine gradient", "B3 dispatch gradient"} <= set(texts)
        titles = [note for note in sorted(drawn.notes) if note.kind == "pass"]
        assert [note.shorter[0] for note in titles] == [("F4", "B3")[k % 2] for k in range(len(titles))]
        assert drawn.turns
        edges = {look: drawn.beside[look] for look in ("forward", "backward")}
        sent = drawn.beside["ep"]
        assert sum(boxes.area for boxes in edges.values()) / sent.area == pytest.approx(EDGE / (1 - EDGE))

    def test_waits_say_what_for(self) -> None:
        one = scenario().run()
        ranks, start, end = named_window(one, "F4/2")
        drawn = scene(one, drawn_ranks(one, ranks), (start, end), detailed=True)
        waits = [note.text for note in drawn.notes if note.kind == "bubble"]
        assert any(text.startswith(("waits for combine", "waits for dispatch")) for text in waits)

    def test_show_step_writes_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["show", "step", "quickstart", "F1/3", "--out", str(tmp_path / "layer.png")])
        assert ended.value.code == 0
        assert (tmp_path / "layer.png").read_bytes().startswith(b"\x89PNG")
        with pytest.raises(SystemExit) as ended:
            main(["show", "step", "quickstart", "F999", "--out", str(tmp_path / "none.png")])
        assert (ended.value.code, "would work" in capsys.readouterr().err) == (2, True)

    def test_the_figure_can_be_drawn(self, one: Any) -> None:
        figure = one.gantt(window="F4/2")
        assert any("whose turn" in text.get_text() for text in figure.texts)


def _labels(one: Any, chain: str) -> list[Any]:
    return [one.trace.labels[k] for k in one.trace.spans(0, chain).label.tolist()]


@pytest.mark.parametrize("shape", SHAPES)
def test_folded_is_unfolded_and_nothing_is_saved_at_the_cost_of_a_bit(shape: str) -> None:
    one = scenario(shape, training={"delay_wgrad": True, "global_batch": 96, "moe": {"dispatcher": "deepep"}})
    system = lower(one.resolve()).system
    folded = run(fold(prune(system)))
    assert_same(folded, run(unfolded(system)))
    assert_same(folded, run(unfolded(system), merge=False))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"training": {"recompute": "full"}}, "recompute: selective or none would work"),
        ({"training": {"moe": {"shared_overlap": True}}}, "leave training.moe.shared_overlap out"),
        ({"training": {"moe": {"dispatcher": "allgather"}}}, "alltoall, deepep and hybridep would work"),
        ({"training": {"precision": "tf32"}}, "precision: bf16 would work"),
        ({"parallel": {"ep": 1}}, "every rank has all experts"),
        ({"parallel": {"ep": 8, "pp": 2}}, "pipeline.chunks: 2 or more would work"),
        ({"parallel": {"ep": 8, "pp": 2}, "pipeline": {"schedule": "zb-h1"}}, "leave pipeline.schedule out"),
        ({"training": {"moe_overlap": False, "delay_wgrad": True}}, "belongs to training.moe_overlap"),
        ({**SHAPES["two stages"], "pipeline": {"chunks": 2, "vocabulary_parallel": True}}, "leave one of the two"),
        ({"sharding": {"strategy": "zero2"}}, "training.moe_overlap"),
    ],
)  # fmt: skip
def test_refused_with_a_way_out(sections: dict[str, Any], message: str) -> None:
    training = {"moe_overlap": True} | sections.pop("training", {})
    with pytest.raises((InvalidPlan, ScenarioError, TrainsimError)) as caught:
        mixture(EXPERTS, nodes=2, training=training, **{"parallel": {"ep": 16}} | sections).resolve()
    assert message in str(caught.value)


def test_a_model_without_experts_has_nothing_to_overlap() -> None:
    with pytest.raises(InvalidPlan, match="has no experts"):
        mixture(None, training={"moe_overlap": True}).resolve()


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev"])
def test_without_effect_where_passes_are_paired_anyway(schedule: str) -> None:
    shape = {"nodes": 2, "parallel": {"ep": 8, "pp": 2}, "pipeline": {"schedule": schedule}}
    one, plain = (mixture(EXPERTS, **shape, training={"global_batch": 64, "moe_overlap": on}) for on in (True, False))
    assert "without effect" in one.resolved["derived"]["training.moe_overlap"]
    assert one.run().step_time == plain.run().step_time
