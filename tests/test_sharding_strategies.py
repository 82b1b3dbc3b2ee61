"""A strategy is one file: what everything else asks of it, it asks of its traits."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import scenario as small_scenario
from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, TrainsimError
from trainsim.program.lower import lower
from trainsim.program.verify import verify
from trainsim.scenario.scenario import Scenario
from trainsim.schedules import schedules
from trainsim.schedules.lookup import facts
from trainsim.sharding import strategies
from trainsim.sharding.cutting import reductions
from trainsim.sharding.parameter_groups import ParameterGroup, Shards
from trainsim.sharding.plan import ShardingPlan
from trainsim.sharding.replicas import replicas
from trainsim.sharding.strategy import STATES, Refusal, Strategy
from trainsim.sharding.strategy_options import ACCEPTED, Option
from trainsim.study.what_fits import what_fits

BASE: dict[str, Any] = {
    "model": {"family": "llama", "layers": 4, "hidden": 512, "heads": 8, "ffn_hidden": 1408, "vocab": 8192},
    "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 4},
    "training": {"sequence_length": 512, "global_batch": 8},
}

WIRE = Option("wire", "full", ("full", "half"), "what is sent of each gradient")


def plan(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """All states of the optimizer on half of the replicas; gradients are sent whole or in half the bytes."""
    sent = 0.5 if WIRE.of(job) == "half" else 1.0
    (group,) = groups
    whole = (reductions(job, stage, c, group, operation="reduce_scatter") for c in range(len(group.chunks)))
    return ShardingPlan(
        reductions=tuple(tuple(b._replace(nbytes=sent * b.nbytes) for b in buckets) for buckets in whole),
        shards={group.name: Shards(optimizer=replicas(job) // 2)},
    )


def refuses(job: Job) -> Iterator[Refusal]:
    if replicas(job) % 2:
        yield Refusal("strategy", "half of the replicas is not a whole number; an even dp would work")


TOY = Strategy(
    plan=plan,
    title="Toy",
    shares=frozenset({"optimizer"}),
    saves_more_than=frozenset({"ddp"}),
    options=(WIRE,),
    refuses=refuses,
)


@pytest.fixture
def toy() -> Iterator[str]:
    """A strategy of a user's own, registered while a test runs."""
    strategies.register("toy")(TOY)
    yield "toy"
    del strategies._items["toy"]


def scenario(strategy: str, **options: Any) -> Scenario:
    return Scenario.from_dict(BASE | {"sharding": {"strategy": strategy, **options}})


def test_a_strategy_of_ones_own_runs(toy: str) -> None:
    """It sends what its plan says, holds what it shares, and its option reads back from the resolved scenario."""
    runs = {wire: scenario(toy, wire=wire).run() for wire in ("full", "half")}
    sent = {wire: run.to_dict()["communication"]["dp"]["bytes_per_rank"] for wire, run in runs.items()}
    loss = 2 * 3 / 4 * 4.0  # an all-reduce of one number over 4 ranks
    assert sent["full"] - loss == pytest.approx(2 * (sent["half"] - loss))
    ddp = scenario("ddp").run().memory.fullest
    assert runs["full"].memory.fullest.part("optimizer") == ddp.part("optimizer") / 2
    again = scenario(toy, wire="half").resolved
    assert again["sharding"]["wire"] == "half"
    assert Scenario.from_dict(again).run().step_time == runs["half"].step_time
    assert pickle.loads(pickle.dumps(scenario(toy, wire="half").spec)).sharding.options == {"wire": "half"}


def test_its_words_are_checked_as_those_of_others_are(toy: str) -> None:
    for options, words in (
        ({"wire": "hal"}, ["sharding.wire = 'hal'", "did you mean 'half'"]),
        ({"wires": "half"}, ["sharding.wires", "did you mean 'wire'"]),
        ({"instances": 2}, ["sharding.instances = 2", "toy does not use it", "zero1 supports it"]),
        ({"offload": {"optimizer": "cpu", "parameters": "cpu"}}, ["toy keeps all parameters on every GPU", "zero3"]),
    ):
        with pytest.raises(TrainsimError) as caught:
            scenario(toy, **options).resolve()
        assert all(word in str(caught.value) for word in words), caught.value
    with pytest.raises(InvalidPlan, match="an even dp would work"):
        scenario(toy).replace({"cluster.gpus_per_node": 3, "training.global_batch": 6}).resolve()
    with pytest.raises(InvalidPlan, match="ddp would work"):
        scenario(toy).replace({"pipeline.schedule": "pipedream", "parallel.pp": 2}).resolve()
    with pytest.raises(ScenarioError, match="wire"):
        scenario("ddp", wires="half")
    with pytest.raises(InvalidPlan, match="toy supports it"):
        scenario("ddp", wire="half").resolve()


def test_it_is_among_what_fits(toy: str) -> None:
    tried = {row["change"] for row in what_fits(scenario("ddp")).to_dict("records")}
    assert "Toy" in tried
    assert "Toy" not in {row["change"] for row in what_fits(scenario("zero1")).to_dict("records")}


def test_nothing_is_left_of_it() -> None:
    with pytest.raises(ScenarioError, match="zero1"):
        scenario("toy")


@pytest.mark.parametrize("name", strategies)
def test_traits_are_told_completely(name: str) -> None:
    """A title, options with words, others by their names; who shares more saves more."""
    strategy = strategies[name]
    assert strategy.title
    assert strategy.saves_more_than <= set(strategies)
    assert all(option.doc and option.wanted for option in strategy.options)
    assert strategy.shares == frozenset(STATES[: len(strategy.shares)]), "gradients go with the optimizer's states"
    for other in strategy.saves_more_than:
        assert strategies[other].shares <= strategy.shares
    if strategy.moves_together:
        assert strategy.offloads == {"optimizer", "parameters"}


def test_an_option_means_one_thing() -> None:
    known: dict[str, Option[Any]] = {}
    for strategy in strategies.values():
        for option in strategy.options:
            assert known.setdefault(option.name, option) == option
    with pytest.raises(ValueError, match="count"):
        Option("size", 1, "anything", "")
    assert all(ACCEPTED.values())


@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize("schedule", schedules)
@pytest.mark.parametrize("strategy", strategies)
def test_it_is_refused_in_words_or_its_program_is_legal(strategy: str, schedule: str, pp: int) -> None:
    """Passes that are cut into chunks without a pipeline once waited for gathers that nobody issued."""
    chunks = facts(schedule).chunks or 2
    changes = {"parallel.pp": pp, "pipeline.schedule": schedule, "pipeline.chunks": chunks}
    base = scenario(strategy).replace(changes | {"training.global_batch": 32})
    try:
        job = base.resolve()
    except (InvalidPlan, NotBuilt) as refused:
        assert any(word in str(refused) for word in (" would", " are", " is")), refused
        return
    verify(lower(job).system)


# docs/sharding.md


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def strategy_row(name: str) -> str:
    """A line of the table of traits."""
    strategy = strategies[name]
    shared, away = ([state for state in STATES if state in states] for states in (strategy.shares, strategy.offloads))
    cells = (
        f"`{name}`, {strategy.title}",
        ", ".join(shared) or "nothing",
        "every pass" if strategy.every_pass else "step",
        listed(sorted(strategy.saves_more_than)),
        (", ".join(away) or "nothing") + (", together" if strategy.moves_together else ""),
        f"`{strategy.framework}`",
    )
    return f"| {' | '.join(cells)} |"


def option_rows() -> Iterator[str]:
    """Lines of the table of options."""
    known = {option.name: option for strategy in strategies.values() for option in strategy.options}
    for option in known.values():
        users = listed(name for name in strategies if option in strategies[name].options)
        yield f"| `{option.name}` | {option.wanted} | {users} | {option.doc} |"


@pytest.mark.parametrize("row", [*map(strategy_row, strategies), *option_rows()], ids=lambda row: row.split("`")[1])
def test_the_page_has_the_traits_as_they_are(row: str) -> None:
    page = Path(__file__).parents[1] / "docs" / "sharding.md"
    assert row in page.read_text().splitlines()


def test_the_strategy_on_the_page_works() -> None:
    text = (Path(__file__).parents[1] / "docs" / "sharding.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    (code,) = (block for block in blocks if "strategies.register" in block)
    exec(code, {})
    try:
        half, full = (scenario("mine", wire=wire).run().to_dict()["communication"]["dp"] for wire in ("half", "full"))
        assert half["bytes_per_rank"] < 0.51 * full["bytes_per_rank"]
    finally:
        del strategies._items["mine"]


@pytest.mark.parametrize("replicas", [2, 4])
def test_one_group_of_all_replicas_is_told(replicas: int) -> None:
    """MiCS with a group as large as all replicas is ZeRO-3, which a reader should hear."""
    resolved = small_scenario(
        framework="deepspeed", parallel__tp=1, parallel__pp=1, cluster__nodes=1, cluster__gpus_per_node=replicas,
        sharding={"strategy": "mics", "shard_size": replicas}, training__global_batch=replicas,
    ).resolved  # fmt: skip
    assert "nothing differs from zero3" in resolved["derived"]["sharding.shard_size"]
