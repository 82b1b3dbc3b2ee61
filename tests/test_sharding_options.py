"""Options of strategies: what is filled in, and what each one changes."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.jobs import scenario
from trainsim.cli import app
from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan, ScenarioError
from trainsim.program.offload import sub_groups
from trainsim.program.parts import work_out
from trainsim.program.rank import RankPlan
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.sharding.strategy_options import AUTO

ONE_STAGE = {"parallel__tp": 1, "parallel__pp": 1, "parallel__dp": 16, "training__global_batch": 16}


def sharded(strategy: str, framework: str, **options: object) -> Scenario:
    """The small job without a pipeline, sharded."""
    keys = {f"sharding__{key}": value for key, value in options.items()}
    return scenario(framework=framework, sharding__strategy=strategy, **ONE_STAGE, **keys)


def job(strategy: str, framework: str, **options: object) -> Job:
    return sharded(strategy, framework, **options).resolve()


def run(strategy: str, framework: str, **options: object) -> Result:
    return sharded(strategy, framework, **options).run()


# auto


RULES = {"reduce_bucket": 1024**2, "prefetch_bucket": 0.9 * 1024**2, "persistence_threshold": 10 * 1024}
"""transformers, src/transformers/integrations/deepspeed.py, trainer_config_finalize; the small job's hidden is 1024."""


@pytest.mark.parametrize(
    ("strategy", "option"),
    [(name, o.name) for name in strategies for o in strategies[name].options if o.automatic],
)
def test_auto_is_the_trainers_rule(strategy: str, option: str) -> None:
    automatic = sharded(strategy, "deepspeed", **{option: AUTO})
    assert automatic.resolve().sharding.options[option] == int(RULES[option])
    assert automatic.run().step_time == run(strategy, "deepspeed", **{option: int(RULES[option])}).step_time


def test_auto_is_said_and_written_out_as_a_number() -> None:
    written = sharded("zero3", "deepspeed", **dict.fromkeys(RULES, AUTO)).resolved
    for option, value in RULES.items():
        assert written["sharding"][option] == int(value)
        assert "hidden 1024: Hugging Face's rule for DeepSpeed" in written["derived"][f"sharding.{option}"]


@pytest.mark.parametrize(
    ("value", "words"), [("auot", "or auto"), ("5x", "is not a count"), (-1, "not negative"), (True, "bucket")]
)
def test_what_is_neither_a_number_nor_auto_is_refused(value: object, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        job("zero3", "deepspeed", reduce_bucket=value)


def test_no_rule_no_auto() -> None:
    with pytest.raises(ScenarioError, match="max_live_parameters"):
        job("zero3", "deepspeed", max_live_parameters=AUTO)
    with pytest.raises(InvalidPlan, match="zero3"):
        job("zero2", "deepspeed", prefetch_bucket=AUTO)


# sub_group


@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_an_update_is_of_one_sub_group_at_a_time(parts: int) -> None:
    """The fp32 copy of gradients is of a sub-group, and each agrees on a norm of its own; updates are as before."""
    usual = work_out(job("zero3", "deepspeed"))
    shard = usual.job.model.parameters / 16
    some = job("zero3", "deepspeed", sub_group=1.001 * shard / parts)
    whole, cut = (RankPlan(parts=work_out(one), rank=0) for one in (usual.job, some))
    assert whole.states().step_transient == pytest.approx(4 * shard, rel=1e-3)
    assert cut.states().step_transient == pytest.approx(4 * shard / parts, rel=2e-3)
    assert cut.states().resident == whole.states().resident
    assert (len(whole.sharding.norms), len(cut.sharding.norms)) == (1, parts)


def test_sub_groups_come_from_drives_one_by_one() -> None:
    away = {"offload": {"optimizer": "nvme"}}
    owned = job("zero3", "deepspeed").model.parameters / 16
    for size, parts in ((1e9, 1), (3e6, ceil(owned / 3e6))):
        found = sub_groups(RankPlan(parts=work_out(job("zero3", "deepspeed", sub_group=size, **away)), rank=0))
        assert len(found) == parts
        assert sum(found) == pytest.approx(owned, rel=1e-6)
    apart = {"optimizer": "nvme", "pipeline_read": True, "pipeline_write": True}
    one, many = (run("zero3", "deepspeed", sub_group=size, offload=apart).step_time for size in (1e9, 3e6))
    assert many < one, "of several sub-groups, one is read while another is updated"


@pytest.mark.parametrize("offload", [{}, {"optimizer": "nvme"}])
def test_more_sub_groups_than_a_step_is_made_of_are_refused(offload: dict[str, Any]) -> None:
    with pytest.raises(InvalidPlan, match=r"sub_group = 1: .* sub-groups .*sub_group: \d+ would work") as refused:
        run("zero3", "deepspeed", sub_group=1, offload=offload)
    enough = int(str(refused.value).split("sub_group: ")[1].split()[0])
    few = RankPlan(parts=work_out(job("zero3", "deepspeed", sub_group=enough, offload=offload)), rank=0)
    assert len(few.sharding.norms) <= 10_000


def test_sub_group_is_zero3s() -> None:
    with pytest.raises(InvalidPlan, match="mics, zero3, zeropp support it"):
        job("zero2", "deepspeed", sub_group=1e9)


# parameter_gather_overlap


@pytest.mark.parametrize("parallel", [{"parallel__tp": 1, "parallel__pp": 1}, {}])
def test_gathers_under_the_next_forward_or_in_the_open(parallel: dict[str, object]) -> None:
    """The same bytes either way; in the open a step waits for all of them."""
    under, after = (
        scenario(**parallel, sharding__parameter_gather_overlap=overlapped).run() for overlapped in (True, False)
    )
    usual = scenario(**parallel).run()
    assert under.step_time == usual.step_time < after.step_time, "megatron-core overlaps them"
    sent = {r.communication["dp"].bytes_per_rank for r in (under, after)}
    assert len(sent) == 1
    assert after.communication["dp"].exposed_s > under.communication["dp"].exposed_s
    note = usual.scenario["derived"]["sharding.parameter_gather_overlap"]
    assert note == "true  (as megatron-core does)"


@pytest.mark.parametrize("framework", ["megatron-core", "internevo"])
def test_ranks_that_hold_each_other_s_stages_gather_them_in_one_order(framework: str) -> None:
    """In a two-way pipeline the first rank's second chunk is the last rank's first; both ends differ in size."""
    pipeline = {"schedule": "dualpipe", "chunks": 2}
    for strategy in ({"parameter_gather_overlap": True}, {"parameter_gather_overlap": False}):
        sharding = {"strategy": "zero1", "overlap": True, **strategy}
        result = scenario(framework=framework, pipeline=pipeline, sharding=sharding, model__tied_embeddings=False).run()
        assert result.communication["dp"].bytes_per_rank > 0


def test_gathers_that_nobody_can_overlap_are_refused() -> None:
    with pytest.raises(InvalidPlan, match="overlap: true would work"):
        scenario(sharding__overlap=False, sharding__parameter_gather_overlap=True).resolve()
    with pytest.raises(InvalidPlan, match="DeepSpeed gathers all"):
        scenario(framework="deepspeed", sharding__overlap=True, sharding__parameter_gather_overlap=True).resolve()
    with pytest.raises(InvalidPlan, match="zero1 supports it"):
        scenario(sharding__strategy="ddp", sharding__parameter_gather_overlap=True).resolve()


# whole commands


def test_a_command_with_auto(tmp_path: Path) -> None:
    path = tmp_path / "auto.yaml"
    path.write_text(sharded("zero3", "deepspeed", **dict.fromkeys(RULES, AUTO)).to_yaml())
    result = CliRunner().invoke(app, ["show", "scenario", str(path)])
    assert result.exit_code == 0
    assert "1048576" in result.output
    assert "Hugging" in result.output
