"""Several jobs on one machine: files, laws of their times, who disturbs whom, and background traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainsim as ts
from tests.jobs import SMALL, scenario
from tests.test_cli import status
from trainsim.errors import ScenarioError, TrainsimError, UnknownName
from trainsim.jobs.outcome import JobsResult

MACHINE = {"topology": "dgx_a100", "nodes": 6, "fabric": "fat_tree", "nodes_per_leaf": 2, "oversubscription": 8}
TRAINING = {key: value for key, value in SMALL.items() if key not in ("name", "cluster")}
REPLICAS = {**TRAINING, "parallel": {"tp": 8}, "training": {**TRAINING["training"], "global_batch": 8}}


def file_of(*jobs: dict[str, Any], **machine: Any) -> dict[str, Any]:
    return {"name": "several", "cluster": {**MACHINE, **machine}, "jobs": list(jobs)}


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "scenario": REPLICAS, "nodes": 2, **more}


@pytest.fixture(scope="module")
def crossing() -> JobsResult:
    """Two jobs that both go from leaf to leaf, and one that stays below a leaf."""
    spread = {"placement": "spread"}
    return ts.run_jobs(file_of(job("left", **spread), job("right", **spread), job("apart", nodes=[4, 5])))


# -- laws of the times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["packed", "spread", {"random": 3}, ["node4", "node1"]], ids=str)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_job_alone_takes_exactly_what_its_scenario_takes(placement: Any, steps: int) -> None:
    nodes = {} if isinstance(placement, list) else {"nodes": 2}
    of_file = {"name": "one", "scenario": REPLICAS, **nodes, "placement": placement, "steps": steps}
    (one,) = ts.run_jobs(file_of(of_file)).jobs
    on = {} if isinstance(placement, list) else {"on_nodes": 2}
    cluster = {**MACHINE, **on, "placement": placement}
    as_scenario = ts.Scenario.from_dict({**REPLICAS, "cluster": cluster, "simulation": {"steps": steps}}).run()
    assert one.alone_s == one.together_s == pytest.approx(as_scenario.step_time, abs=1e-12)
    assert one.together.step_time == one.alone.step_time == as_scenario.step_time
    assert one.together.breakdown == as_scenario.breakdown
    assert one.slowdown == 1.0


def test_jobs_on_links_of_their_own_do_not_change_each_other(crossing: JobsResult) -> None:
    apart = crossing["apart"]
    assert apart.together_s == apart.alone_s
    assert not any("apart" in (pair.first, pair.second) for pair in crossing.disturbances)
    near = ts.run_jobs(file_of(job("a", nodes=[0, 1]), job("b", nodes=[2, 3], start="7ms"), job("c", start=0.002)))
    assert [one.slowdown for one in near.jobs] == [1.0, 1.0, 1.0]
    assert near.disturbances == ()


def test_jobs_that_share_uplinks_take_longer_and_say_why(crossing: JobsResult) -> None:
    left, right = crossing["left"], crossing["right"]
    assert left.nodes == (0, 2)
    assert right.nodes == (1, 3)
    assert 1.02 < left.slowdown < 2
    assert 1.02 < right.slowdown < 2
    (pair,) = crossing.disturbances
    assert (pair.first, pair.second) == ("left", "right")
    assert 0 < pair.full_s <= pair.shared_s <= crossing.duration
    assert {link.name for link in pair.links} == {"leaf0>spine", "spine>leaf0", "leaf1>spine", "spine>leaf1"}
    assert pair.traffic[0][:2] == ("dp", "dp")
    # What a full link costs is at most the time in which it was full.
    assert left.together_s - left.alone_s <= pair.full_s


def test_two_equal_jobs_on_shared_uplinks_each_have_half_of_them() -> None:
    """At one time they take what one of them takes alone on uplinks of half the rate."""
    both = [job("left", nodes=[0, 2]), job("right", nodes=[1, 3])]
    together, narrow = ts.run_jobs(file_of(*both)), ts.run_jobs(file_of(*both[:1], oversubscription=16))
    assert [one.together_s for one in together.jobs] == pytest.approx([narrow["left"].alone_s] * 2, rel=1e-6)


def test_everybody_goes_on_until_the_last_is_through(crossing: JobsResult) -> None:
    short, long = job("short", placement="spread"), job("long", placement="spread", steps=4)
    both = ts.run_jobs(file_of(short, long))
    assert both["long"].together.job.steps == 4
    assert both["short"].steps == 1
    assert both["short"].together.job.steps >= 4
    for one in both.jobs:
        assert one.start_s + one.together.duration >= both.duration
    assert both["short"].together_s == both["short"].together.step_ends[0]
    assert both["long"].slowdown == pytest.approx(crossing["left"].slowdown, rel=0.2)


def test_a_slow_link_is_slow_for_everybody() -> None:
    slow = {**REPLICAS, "what_if": [{"slow": {"link": "leaf1>spine", "factor": 0.25}}]}
    usual, told = job("usual", placement="spread"), job("told", placement="spread", scenario=slow)
    one = ts.run_jobs(file_of(usual, told))
    quick = ts.run_jobs(file_of(usual, job("told", placement="spread")))
    assert one["usual"].alone_s > quick["usual"].alone_s
    assert one["usual"].alone_s == one["told"].alone_s


# -- background ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["uplinks", "nics", "leaf0", "node2.nic0", "leaf1>spine"])
@pytest.mark.parametrize("layout", [{"tp": 8}, {"tp": 2, "pp": 4}], ids=str)
def test_traffic_of_others_takes_its_part(on: str, layout: dict[str, int]) -> None:
    """None changes nothing, and more is never faster."""
    spread = {**MACHINE, "on_nodes": 2, "placement": "spread"}
    usual = scenario(cluster=spread, parallel=layout).run()
    times = []
    for load in (0.0, 0.2, 0.5, 0.9):
        busy = scenario(cluster={**spread, "background": {"load": load, "on": on}}, parallel=layout).run()
        times.append(busy.step_time)
        if not load:
            assert busy.breakdown == usual.breakdown
    assert times[0] == usual.step_time
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_half_a_link_is_a_link_of_half_the_rate() -> None:
    spread = {**MACHINE, "on_nodes": 2, "placement": "spread"}
    busy = scenario(cluster={**spread, "background": {"load": 0.5}}, parallel={"tp": 8}).run()
    slow = [{"slow": {"link": f"leaf{k}", "factor": 0.5}} for k in range(3)]  # its NIC cables too, which do not bind
    links = [{"slow": {"link": name, "factor": 0.5}} for k in range(3) for name in (f"leaf{k}>spine", f"spine>leaf{k}")]
    halved = scenario(cluster=spread, parallel={"tp": 8}, what_if=links).run()
    assert busy.step_time == halved.step_time
    assert scenario(cluster=spread, parallel={"tp": 8}, what_if=slow).run().step_time >= busy.step_time


def test_all_jobs_of_a_machine_see_its_background() -> None:
    jobs = [job("left", placement="spread"), job("right", placement="spread")]
    quiet, busy = ts.run_jobs(file_of(*jobs)), ts.run_jobs(file_of(*jobs, background={"load": 0.5}))
    for name in ("left", "right"):
        assert busy[name].alone_s > quiet[name].alone_s
        assert busy[name].together_s > quiet[name].together_s


@pytest.mark.parametrize(
    ("background", "says"),
    [
        ({"load": 1.0}, "must be at most 0.99"),
        ({"load": -0.1}, "must be at least 0"),
        ({"load": 0.3, "on": "uplink"}, r"cluster.background.on = 'uplink': No link or device is called 'uplink'"),
        ({"load": 0.3, "of": "nics"}, "did you mean 'on'|known here: load, on"),
        ({"on": "nics"}, "cluster.background.load: is missing"),
        (0.3, "expected a mapping"),
    ],
    ids=str,
)
def test_a_background_that_cannot_be_is_refused(background: Any, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        scenario(cluster={**MACHINE, "on_nodes": 2, "background": background}).resolve()


def test_a_machine_without_uplinks_has_no_traffic_on_them() -> None:
    with pytest.raises(ScenarioError, match=r"cluster.background.on.*Known: nics"):
        scenario(
            cluster={"topology": "dgx_a100", "nodes": 2, "fabric": "single_switch", "background": {"load": 0.3}}
        ).resolve()


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "replicas.yaml").write_text(yaml.safe_dump({**REPLICAS, "cluster": {"topology": "dgx_a100"}}))
    (tmp_path / "hosts").write_text("node5\nnode2\n")
    jobs = [job("left", scenario="replicas.yaml"), {"name": "right", "scenario": "replicas.yaml", "placement": "hosts"}]
    (tmp_path / "several.yaml").write_text(yaml.safe_dump(file_of(*jobs)))
    monkeypatch.chdir(tmp_path)
    return "several.yaml"


def test_run_prints_the_table_and_writes_the_files(files: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", files) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(word in out for word in ("left", "right", "alone", "together", "x1.000", "5, 2"))
    names = {str(file.relative_to("out/several")) for file in Path("out/several").rglob("*") if file.is_file()}
    own = {"result.json", "gantt.png", "trace.json.gz", "report.html"}
    assert names == {"jobs.json", "gantt.png"} | {f"{job}/{file}" for job in ("1_left", "2_right") for file in own}


def test_json_is_what_python_gives(files: str, capsys: pytest.CaptureFixture[str]) -> None:
    change = "jobs.left.nodes=[0,3]"
    assert status("run", files, "--json", "--set", change) == 0
    said = json.loads(capsys.readouterr().out)
    result = ts.run_jobs(files, {"jobs.left.nodes": [0, 3]})
    assert said == json.loads(json.dumps(result.to_dict()))
    assert said["jobs"][0]["nodes"] == [0, 3]
    assert said["disturbances"][0]["jobs"] == ["left", "right"]
    assert not Path("out").exists()
    unfolded = ts.run_jobs(files, {"jobs.left.nodes": [0, 3]}, fold=False)
    assert unfolded.to_dict()["jobs"][0]["step_together_s"] == said["jobs"][0]["step_together_s"]


def test_a_field_of_one_job_or_of_the_machine_is_changed(files: str) -> None:
    quick = ts.run_jobs(files, {"cluster.nic_bandwidth": "400Gbps"})
    slow = ts.run_jobs(files, {"jobs.1.scenario.training.recompute": "full", "jobs.right.start": "1ms"})
    usual = ts.run_jobs(files)
    assert quick["right"].alone_s < usual["right"].alone_s < slow["right"].alone_s
    assert slow["left"].alone_s == usual["left"].alone_s
    with pytest.raises(UnknownName, match="No job is called 'middle'"):
        usual["middle"]


@pytest.mark.parametrize(
    "command", [["sweep", "--grid", "parallel.tp=1,2"], ["plan"], ["explain"], ["show", "scenario"]]
)
def test_other_commands_want_a_scenario(files: str, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = [*command[:2], files] if command[0] == "show" else [command[0], files, *command[1:]]
    assert status(*words) == 2
    assert "describes several jobs on one machine, which only `trainsim run` can run" in capsys.readouterr().err


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a node twice": ({"jobs": [job("left", nodes=[1, 0]), job("right", nodes=[4, 1])]},
                     "jobs.1.nodes: node 1 already belongs to job left"),
    "too many": ({"jobs.left.nodes": 5}, "cluster.on_nodes = 5: 4 of 6 nodes are free; ask for 1 to 4"),
    "no such node": ({"jobs.right": job("right", nodes=[9, 8])}, "there is no node 9; the nodes are 0 to 5"),
    "a host list": ({"jobs.left.nodes": [2, 3]}, "jobs.1.placement: node 2 already belongs to job left"),
    "unknown key": ({"jobs.left.node": 2}, "unknown key 'node'. Did you mean 'nodes'?"),
    "unknown section": ({"job": 1}, "unknown key 'job'. Did you mean 'jobs'?"),
    "unknown field": ({"cluster.nodez": 2}, "unknown key; did you mean 'nodes'"),
    "a scenario's field": ({"cluster.on_nodes": [0]}, "every job has its own nodes; give it as `nodes` under jobs"),
    "unknown scenario": ({"jobs.left.scenario": "bloom_4d"}, "No scenario is called 'bloom_4d'. Did you mean"),
    "itself": ({"jobs.left.scenario": "several.yaml"}, "is a file of several jobs; name the scenario of one"),
    "one name": ({"jobs.left.name": "right"}, "two jobs are called 'right'"),
    "start": ({"jobs.left.start": "-1s"}, "jobs.0.start: '-1s' is not a time"),
    "steps": ({"jobs.left.steps": 0}, "out of range"),
    "nodes": ({"jobs.left.nodes": "two"}, "expected how many nodes, 4, or which"),
    "no jobs": ({"jobs": []}, "expected a list of jobs"),
    "no machine": ({"cluster": {"nodes": 4}}, "expected the machine of all jobs"),
    "the scenario": ({"jobs.left.scenario.parallel.tp": 3}, "are not divisible by tp=3"),
    "flaps": ({"jobs.left.scenario.what_if": [{"flap": {"link": "leaf0", "from": 0, "until": 1, "factor": 0.5}}]},
              "what_if.flap is not simulated yet with several jobs"),
    "two machines": ({"jobs.left.scenario.what_if": [{"fail": {"nic": "node0.nic0"}}]}, "see different machines"),
    "nodes of all": ({"jobs.right": job("right", nodes=3), "jobs.left.nodes": 4},
                     "jobs.1.nodes: job right asks for 3 nodes, and 2 of 6 are free, job left has 4"),
    "no node": ({"jobs.left.nodes": 0}, "jobs.0.nodes: job left: expected how many nodes, 4, or which"),
    "the job": ({"jobs.left.scenario.training.global_batch": 7}, "job left: "),
    "a field of scenarios": ({"simulation.detail": "block"},
                             "simulation.detail: each job has a scenario of its own; set "
                             "jobs.left.scenario.simulation.detail, jobs.right.scenario.simulation.detail"),
    "no job": ({"jobs.middle.nodes": 2}, "No job is called 'middle'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_in_words(case: str, files: str) -> None:
    changes, says = WRONG[case]
    with pytest.raises(TrainsimError) as refused:
        ts.run_jobs(files, changes)
    assert says in str(refused.value)


def test_a_cost_is_of_one_scenario(files: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", files, "--tokens", "1T") == 2
    assert "several jobs are run here" in capsys.readouterr().err


def test_a_scenario_is_no_file_of_jobs() -> None:
    with pytest.raises(ScenarioError, match="has no list of jobs"):
        ts.run_jobs("quickstart")


def test_a_job_that_would_go_on_for_ever_is_refused() -> None:
    tiny = {
        **REPLICAS,
        "model": {**REPLICAS["model"], "layers": 1},
        "training": {"sequence_length": 64, "global_batch": 2},
    }
    with pytest.raises(TrainsimError, match="more than 1,000"):
        ts.run_jobs(file_of(job("tiny", scenario=tiny), job("late", start=1e4)))


# -- what ships ------------------------------------------------------------------------------------------------------


def test_two_bloom_jobs_disturb_each_other() -> None:
    """At a small size: an eighth of the batch, blocks in the place of kernels."""
    small: dict[str, Any] = {f"jobs.{name}.scenario.training.global_batch": 16 for name in ("left", "right")}
    small |= {f"jobs.{name}.scenario.simulation.detail": "block" for name in ("left", "right")}
    spread = ts.run_jobs("two_bloom_jobs", small)
    packed = ts.run_jobs("two_bloom_jobs", small | {f"jobs.{name}.placement": "packed" for name in ("left", "right")})
    assert all(one.slowdown > 1.01 for one in spread.jobs)
    assert all(one.slowdown == 1.0 for one in packed.jobs)
    assert packed.disturbances == ()
    assert all(p.alone_s < s.alone_s for p, s in zip(packed.jobs, spread.jobs, strict=True))
    figure = spread.gantt()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[0].startswith("left: ")
    assert titles[1].startswith("right: ")
    assert titles[2] == "links that jobs share"
    assert "left" in spread._repr_html_()
