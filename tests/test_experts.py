"""Mixtures of experts: where experts are, what is sent to them, and what it costs when they are not in balance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agreement import assert_same
from trainsim import Scenario
from trainsim.contracts.groups import EXPERT_REPLICAS, EXPERTS
from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError
from trainsim.models.dispatchers import dispatchers, places
from trainsim.models.mixture import Moe
from trainsim.program.experts import loads
from trainsim.program.lower import lower
from trainsim.program.network import Network
from trainsim.program.parts import work_out
from trainsim.scenario.routing import limited, zipf
from trainsim.sharding import strategies
from trainsim.simulate import simulate

MOE: dict[str, Any] = {"experts": 8, "top_k": 2, "expert_ffn_hidden": 1024}
MODEL: dict[str, Any] = {
    "name": "small", "family": "llama", "layers": 4, "hidden": 1024, "heads": 16, "ffn_hidden": 2048, "vocab": 32000,
}  # fmt: skip
TOKENS, HIDDEN, ELEMENT = 2048, 1024, 2
PROMPT: dict[str, Any] = {"base": "megatron-core", "host": {"operations_routed": 0}}
"""A host that does not set the pace of small layers."""
DEGREES: list[dict[str, Any]] = [
    {"ep": 8},
    {"ep": 16},
    {"tp": 2, "ep": 4, "etp": 1, "sequence_parallel": True},
    {"tp": 2, "ep": 2, "etp": 2, "sequence_parallel": True},
    {"ep": 2, "pp": 2},
]


def scenario(moe: dict[str, Any] | None = MOE, /, nodes: int = 1, **sections: Any) -> Scenario:
    """A small model on H100s; sections are laid over the defaults."""
    model = MODEL | ({"moe": moe} if moe else {}) | sections.pop("model", {})
    training = {"sequence_length": TOKENS, "micro_batch": 1, "global_batch": 32} | sections.pop("training", {})
    framework = sections.pop("framework", PROMPT)
    return Scenario.from_dict(
        {"framework": framework, "model": model, "cluster": {"topology": "dgx_h100", "nodes": nodes},
         "training": training, **sections}
    )  # fmt: skip


def job(moe: dict[str, Any] | None = MOE, /, **sections: Any) -> Job:
    return scenario(moe, **sections).resolve()


def exchanged(one: Job, operation: str = "all_to_all") -> list[float]:
    """Bytes of the collectives that a forward through one layer has with other experts' ranks."""
    block = work_out(one).layers[-1]
    return [p.nbytes for p in block.forward if getattr(p, "kind", "") == "ep" and p.operation == operation]


class TestVolume:
    """What is sent to experts follows from tokens, top_k and hidden."""

    @pytest.mark.parametrize("ep", [2, 4, 8])
    def test_all_to_all_is_tokens_top_k_hidden(self, ep: int) -> None:
        """Each direction moves tokens x top_k x hidden, of which (ep - 1) / ep leave the rank."""
        one = job(parallel={"ep": ep})
        assert exchanged(one) == [TOKENS * 2 * HIDDEN * ELEMENT] * 2
        pattern = Network(one).pattern(EXPERTS, "all_to_all")
        assert pattern.factor == pytest.approx((ep - 1) / ep)

    def test_result_counts_them(self) -> None:
        run = scenario(parallel={"ep": 8}).run()
        sent = TOKENS * 2 * HIDDEN * ELEMENT * 7 / 8
        layers, directions, microbatches = 4, 4, 4
        assert run.to_dict()["communication"]["ep"]["bytes_per_rank"] == sent * layers * directions * microbatches

    def test_one_rank_sends_nothing(self) -> None:
        assert exchanged(job(parallel={"ep": 1})) == []

    def test_gathers_bring_every_token_to_every_rank(self) -> None:
        one = job(parallel={"ep": 4}, training={"moe": {"dispatcher": "allgather"}})
        assert exchanged(one, "all_gather") == exchanged(one, "reduce_scatter") == [4 * TOKENS * HIDDEN * ELEMENT]

    def test_relayed_tokens_are_sent_once_per_node_and_rank(self) -> None:
        """Eight ranks of one expert each in two nodes: a token with two experts goes to 2 ranks and 1.57 nodes."""
        one = job(
            nodes=2,
            parallel={"ep": 16},
            training={"moe": {"dispatcher": "deepep"}},
            model={"moe": MOE | {"experts": 16}},
        )
        block = work_out(one).layers[0]
        sent = {p.name: p.nbytes for p in block.forward if getattr(p, "kind", "") == "ep"}
        row = TOKENS * HIDDEN * ELEMENT
        assert sent["dispatch.between nodes"] == pytest.approx(row * places(16, 2, 2))
        assert sent["dispatch.within node"] == pytest.approx(row * 2)
        assert places(16, 2, 2) == pytest.approx(2 * (1 - 8 * 7 / (16 * 15)))

    @given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
    def test_places_by_counting(self, parts: int, each: int, top_k: int) -> None:
        """The mean over all choices, each of them looked at."""
        from itertools import combinations

        experts = parts * each
        if top_k > experts:
            return
        choices = list(combinations(range(experts), top_k))
        assert places(experts, top_k, parts) == pytest.approx(
            sum(len({e // each for e in choice}) for choice in choices) / len(choices)
        )


class TestSharding:
    """Experts are held by fewer ranks than the layers around them."""

    @pytest.mark.parametrize(
        ("ep", "etp", "tp"), [(1, 1, 1), (2, 1, 1), (8, 1, 1), (4, 1, 2), (2, 2, 2), (1, 2, 2), (4, 2, 1)]
    )
    def test_expert_memory_falls_with_ep_and_etp(self, ep: int, etp: int, tp: int) -> None:
        one = job(parallel={"ep": ep, "etp": etp, "tp": tp, "sequence_parallel": tp > 1})
        holdings = work_out(one).holdings
        stage = holdings.stages[0]
        assert holdings.experts(stage).total == 4 * 8 * 3 * HIDDEN * 1024 // (ep * etp)
        if one.experts_apart:
            (group,) = (g for g in holdings.groups(0) if g.name == "experts")
            assert group.replicas == one.parallel.edp == 8 // (ep * etp)
            assert Network(one).size(EXPERT_REPLICAS) == group.replicas
            assert group.tensors is not None
            assert group.tensors.total == group.total

    def test_groups_as_megatron_lays_them(self) -> None:
        """tp 2, ep 2, etp 1 on 8 ranks: tokens go to the neighbour, gradients to every second rank."""
        network = Network(job(parallel={"tp": 2, "ep": 2, "etp": 1, "sequence_parallel": True}))
        assert network.members(EXPERTS).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert network.members(EXPERT_REPLICAS).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]

    @pytest.mark.parametrize("strategy", ["ddp", "zero1"])
    def test_gradients_go_to_those_who_hold_the_same(self, strategy: str) -> None:
        """Dense gradients over all replicas, those of experts over the ranks with the same experts."""
        one = job(nodes=2, parallel={"ep": 8}, sharding={"strategy": strategy, "overlap": False})
        plan = work_out(one).sharding(0)
        sent: dict[str, float] = {}
        for chunk in plan.reductions:
            for bucket in chunk:
                sent[bucket.group] = sent.get(bucket.group, 0.0) + bucket.nbytes
        holdings = work_out(one).holdings
        assert sent["experts"] == 4.0 * holdings.experts(holdings.stages[0]).total
        assert sent["dense"] == 4.0 * holdings.held(holdings.stages[0]).total

    @pytest.mark.parametrize("pp", [1, 2])
    @pytest.mark.parametrize("strategy", [name for name in strategies if strategies[name].experts_apart])
    def test_states_of_all_ranks_add_up(self, strategy: str, pp: int) -> None:
        """Experts or not, every parameter's states are held once between those who share them."""
        framework = "pytorch-fsdp2" if strategy == "fsdp" else PROMPT
        sharding = {"strategy": strategy, "overlap": False}
        one = job(nodes=2, parallel={"ep": 4, "pp": pp}, sharding=sharding, framework=framework)
        parts = work_out(one)
        total = 0.0
        for rank in range(pp):
            for group, shards in parts.sharding(rank).held(parts.holdings.groups(rank)):
                assert shards.optimizer in (1, group.replicas)
                copies = 16 // pp / group.replicas  # groups of ranks that hold different ones
                total += group.total * copies
        assert total == one.model.parameters

    @pytest.mark.parametrize("strategy", ["fsdp"])
    def test_gathers_of_experts_go_to_fewer(self, strategy: str) -> None:
        """FSDP gathers the experts of a layer among the ranks that hold them, the rest of it among all."""
        run = scenario(nodes=2, parallel={"ep": 4}, sharding={"strategy": strategy}, framework="pytorch-fsdp2").run()
        frame = run.timeline()
        names = set(frame[frame["kind"] == "dp"]["name"])
        assert any(name.startswith("gather experts") for name in names)
        assert any(name.startswith("reduce experts") for name in names)
        assert any(name.startswith("gather unit") for name in names)

    def test_all_parameters_are_somewhere(self) -> None:
        one = job(parallel={"ep": 8})
        holdings = work_out(one).holdings
        held, experts = holdings.held(holdings.stages[0]).total, holdings.experts(holdings.stages[0]).total
        assert held + 8 * experts == one.model.parameters


class TestAlike:
    """With one of everything a mixture is the layer that it stands in the place of."""

    def test_one_expert_is_the_mlp(self) -> None:
        """ep=1 and one expert with top_k=1 give the dense step to the bit."""
        one = {"experts": 1, "top_k": 1, "expert_ffn_hidden": 2048}
        assert scenario(one).run().to_dict()["step_time_s"] == scenario(None).run().to_dict()["step_time_s"]

    def test_experts_with_the_layers_ranks_change_nothing_of_sharding(self) -> None:
        """ep=1 and etp=tp: one group of parameters, shared as ever."""
        holdings = work_out(job(parallel={"tp": 2, "sequence_parallel": True})).holdings
        assert [g.name for g in holdings.groups(0)] == ["dense"]


class TestHost:
    """Where no token is dropped the host waits for their number."""

    def test_filled_up_experts_need_no_number(self) -> None:
        waiting = scenario(parallel={"ep": 8}, framework="megatron-core").run()
        full = {"moe": {"capacity_factor": 1.0, "pad_to_capacity": True}}
        filled = scenario(parallel={"ep": 8}, training=full, framework="megatron-core").run()
        graph = {"base": "megatron-core", "host": {"cuda_graph": True}}
        assert filled.step_time < waiting.step_time
        assert scenario(parallel={"ep": 8}, framework=graph).run().step_time < filled.step_time

    def test_a_layer_takes_what_the_host_takes(self) -> None:
        """Small layers: 3 ms forward and 6 ms backward each (Megatron-Bridge's Qwen3-30B, micro-batches of one)."""
        result = scenario(parallel={"ep": 8}, framework="megatron-core").run()
        assert (
            4 * 4 * 9e-3 < result.step_time < 1.5 * 4 * 4 * 9e-3
        )  # layers, micro-batches; the head and the update too


class TestImbalance:
    """The rank that gets most tokens sets the pace."""

    def test_balance_is_the_default(self) -> None:
        level = scenario(parallel={"ep": 8}).run()
        same = scenario(parallel={"ep": 8}, training={"moe": {"imbalance": {"zipf": 0}}}).run()
        assert level.step_time == same.step_time

    def test_monotone_in_imbalance(self) -> None:
        runs = [
            scenario(parallel={"ep": 8}, training={"moe": {"imbalance": {"zipf": power}}}).run().step_time
            for power in (0.0, 0.2, 0.5, 1.0)
        ]
        assert runs == sorted(runs)
        assert runs[-1] > 1.1 * runs[0]

    def test_programs_differ_by_load(self) -> None:
        shares = [3.0, 1, 1, 1, 1, 1, 1, 1]
        one = job(parallel={"ep": 8}, training={"moe": {"imbalance": {"loads": shares}}})
        assert loads(one) == pytest.approx([2.4] + [0.8] * 7)
        system = lower(one).system
        assert len(system.programs) == 2
        assert np.bincount(system.program_of).tolist() == [1, 7]

    @pytest.mark.parametrize("parallel", [{"pp": 1}, {"pp": 2}, {"cp": 2}], ids=str)
    def test_folded_is_unfolded(self, parallel: dict[str, int]) -> None:
        one = scenario(
            nodes=2, parallel={"ep": 4, **parallel}, training={"moe": {"imbalance": {"zipf": 0.7}}},
            simulation={"steps": 2},
        )  # fmt: skip
        folded = simulate(one.resolve())
        flat = simulate(one.replace({"simulation.fold": False}).resolve())
        assert folded.trace.classes < flat.trace.classes == 16
        assert_same(folded.trace, flat.trace)

    def test_capacity_limits_and_fills(self) -> None:
        shares = {"loads": [3.0, 1, 1, 1, 1, 1, 1, 1]}
        dropping = {"capacity_factor": 1.2, "imbalance": shares}
        assert loads(job(parallel={"ep": 8}, training={"moe": dropping})) == pytest.approx([1.2] + [0.8] * 7)
        assert loads(job(parallel={"ep": 8}, training={"moe": dropping | {"pad_to_capacity": True}})) == (1.2,) * 8

    @given(st.integers(1, 16), st.integers(1, 4), st.floats(0, 4), st.integers(0, 5))
    def test_no_expert_gets_a_token_twice(self, experts: int, top_k: int, power: float, seed: int) -> None:
        moe = Moe(experts=experts, top_k=min(top_k, experts), expert_ffn_hidden=8)
        each = zipf(moe, power, seed=seed)
        assert sum(each) == pytest.approx(experts)
        assert max(each) <= experts / moe.top_k * (1 + 1e-9)
        assert limited(each, moe) == pytest.approx(each)


@pytest.mark.parametrize("dispatcher", dispatchers)
@pytest.mark.parametrize("parallel", DEGREES)
def test_every_dispatcher_runs_everywhere(dispatcher: str, parallel: dict[str, Any]) -> None:
    """The parts of the time add up to the step, and tokens take some of it."""
    model = {"moe": MOE | {"experts": 16, "shared_experts": 1}}
    run = (
        scenario(nodes=2, parallel=parallel, model=model, training={"moe": {"dispatcher": dispatcher}}).run().to_dict()
    )
    assert sum(run["breakdown_s"].values()) == pytest.approx(run["step_time_s"])
    assert run["breakdown_s"]["ep"] > 0


def test_shared_experts_under_the_exchange() -> None:
    """What runs while tokens are on their way is hidden, and nothing else changes."""
    model = {"moe": MOE | {"shared_experts": 2}}
    kept = {"parallel": {"ep": 16}, "nodes": 2, "model": model | {"moe": model["moe"] | {"experts": 16}}}
    apart = scenario(**kept).run()
    under = scenario(**kept, training={"moe": {"shared_overlap": True}}).run()
    assert under.step_time < apart.step_time
    assert (
        under.to_dict()["communication"]["ep"]["bytes_per_rank"]
        == apart.to_dict()["communication"]["ep"]["bytes_per_rank"]
    )


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev", "interleaved-1f1b", "zb-h1", "1f1b"])
def test_every_pipeline_carries_experts(schedule: str) -> None:
    """Pairs hide the way of tokens under each other's kernels; the others leave it exposed."""
    pipeline = {"schedule": schedule} | ({"chunks": 2} if schedule == "interleaved-1f1b" else {})
    run = scenario(
        nodes=4, parallel={"ep": 16, "pp": 2}, pipeline=pipeline, model={"layers": 8, "moe": MOE | {"experts": 16}},
        training={"global_batch": 128},
    ).run().to_dict()  # fmt: skip
    tokens = run["communication"]["ep"]
    hidden = 1 - tokens["exposed_s"] / tokens["time_s"]
    assert (hidden > 0.3) == schedule.startswith("dualpipe")
    assert sum(run["breakdown_s"].values()) == pytest.approx(run["step_time_s"])


@pytest.mark.parametrize(
    ("moe", "sections", "message"),
    [
        ({"experts": 0}, {}, "experts"),
        ({"experts": 8, "top_k": 9}, {}, "top_k=8 or less would"),
        ({"experts": 8, "topk": 2}, {}, "top_k"),
        (MOE, {"parallel": {"ep": 3}}, "8 experts are not divisible by ep=3; ep=1, 2, 4, 8 would"),
        (MOE | {"experts": 16}, {"parallel": {"ep": 16}}, "= 8 ranks of a stage are not divisible by ep 16"),
        (None, {"parallel": {"ep": 2}}, "has no experts"),
        (None, {"parallel": {"etp": 4}}, "has no experts"),
        (None, {"parallel": {"ep": 2, "tp": 2}}, "has no experts"),
        (None, {"training": {"moe": {"dispatcher": "deepep"}}}, "has no experts"),
        (MOE, {"training": {"moe": {"dispatcher": "deep_ep"}}}, "Did you mean 'deepep'"),
        (MOE, {"training": {"moe": {"imbalance": {"loads": [1, 2]}}}}, "has 2 shares, and there are 8 experts"),
        (MOE, {"training": {"moe": {"imbalance": {}}}}, "write one of zipf"),
        (MOE, {"training": {"moe": {"imbalance": {"loads": [1e308] * 8}}}}, "finite, not inf"),
        (MOE, {"training": {"moe": {"imbalance": {"loads": [0] * 8}}}}, "must be positive"),
        (MOE, {"training": {"moe": {"pad_to_capacity": True}}}, "needs a capacity_factor"),
        (MOE, {"training": {"moe": {"capacity_factor": 5}}}, "4 or less would work"),
        (MOE, {"parallel": {"tp": 2, "ep": 2}}, "sequence_parallel: true would work"),
        (MOE, {"parallel": {"etp": 3}}, "etp"),
        (MOE | {"first_dense": 4}, {}, "leave no layer of 4 with experts"),
        (MOE, {"parallel": {"ep": 2}, "sharding": {"strategy": "zero3"}}, "zero3"),
    ],
)  # fmt: skip
def test_bad_input_says_what_would_work(moe: dict[str, Any] | None, sections: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidPlan, ScenarioError, TrainsimError)) as caught:
        _ = scenario(moe, **sections).resolve()
    assert message in str(caught.value)
