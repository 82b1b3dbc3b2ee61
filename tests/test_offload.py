"""States off the GPU: copies over links that others use, the host's step, drives, and what is held where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.jobs import same_spans
from trainsim.collectives.host_copies import offload_pattern
from trainsim.contracts.groups import ALONE, REPLICAS, Queue
from trainsim.contracts.instructions import Meet
from trainsim.contracts.job import Job
from trainsim.errors import TrainsimError
from trainsim.hardware.cluster import Cluster, load_topology, topology_names
from trainsim.hardware.storage import storage_latency
from trainsim.hardware.storage_ways import OFFLOADS
from trainsim.hardware.topology import parse_topology
from trainsim.program import offload
from trainsim.program.beside import cuts, tasks
from trainsim.program.lower import lower
from trainsim.program.parts import work_out
from trainsim.program.rank import RankPlan
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.sharding.flights import Flight, FlightStep, PassFlights, PassMoment, Role
from trainsim.sharding.gradient_copies import gradient_steps, parameter_steps
from trainsim.simulate import simulate

MODEL = {"family": "llama", "layers": 6, "hidden": 1024, "heads": 16, "ffn_hidden": 2816, "vocab": 32000}
BASE: dict[str, Any] = {
    "framework": "neutral",
    "model": MODEL,
    "cluster": {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 4},
    "sharding": {"strategy": "zero1", "overlap": False, "offload": {"optimizer": "cpu"}},
    "training": {"sequence_length": 512, "micro_batch": 1, "global_batch": 4},
}
BOTH = {"optimizer": "cpu", "parameters": "cpu"}
NAMES = topology_names()


def scenario(**changes: Any) -> Scenario:
    return Scenario.from_dict(BASE).replace({k.replace("__", "."): v for k, v in changes.items()})


def run(**changes: Any) -> Result:
    return scenario(**changes).run()


def spans(result: Result, name: str, rank: int = 0) -> list[tuple[float, float]]:
    """Start and end of every span of *rank* with that name."""
    frame = result.timeline([rank])
    rows = frame[frame["name"] == name]
    return list(zip(rows["start"], rows["end"], strict=True))


def pieces(result: Result, name: str) -> list[float]:
    return [end - start for start, end in spans(result, name)]


def cluster(name: str, **overrides: Any) -> Cluster:
    return load_topology(name, nodes=1, overrides=overrides)


# the machine


def drives(one: Cluster) -> bool:
    return one.node.drive is not None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operation", OFFLOADS)
def test_ways_lead_from_the_gpu_to_the_memory_and_carry_every_byte(name: str, operation: str) -> None:
    one = cluster(name)
    if operation.startswith("nvme") and not drives(one):
        with pytest.raises(TrainsimError, match="no NVMe drive"):
            one.storage(operation, np.arange(1))
        return
    rank, link, share, _ = one.storage(operation, np.arange(one.ranks))
    ends = [one.local_links[k] for k in link.tolist()]
    for r in range(one.ranks):
        mine = [(ends[k], share[k]) for k in np.flatnonzero(rank == r)]
        assert sum(part for e, part in mine if e.family == "memory") == 1.0
        assert {e.family for e, _ in mine} <= {"pcie", "c2c", "socket", "memory", "flash"}
        if operation in ("host_out", "host_in"):
            here = f"gpu{r}"
            assert sum(part for e, part in mine if here == (e.src if operation == "host_out" else e.dst)) == 1.0
        if operation == "nvme_read":
            assert sum(part for e, part in mine if e.family == "flash") == pytest.approx(1.0)
            assert sum(part for e, part in mine if e.src.startswith("nvme") and e.dst != "flash") == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_ways_out_and_in_are_the_same_cables(name: str) -> None:
    one = cluster(name)
    there, back = (
        sorted(tuple(sorted((e.src, e.dst))) for e in (one.local_links[k] for k in one.storage(way, np.arange(1))[1]))
        for way in ("host_out", "host_in")
    )
    assert there == back


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_alone_goes_as_fast_as_its_narrowest_link(name: str) -> None:
    one = cluster(name)
    assert one.node.host is not None
    link = one.storage("host_out", np.arange(1))[1]
    narrowest = min(*one.bandwidth[link], one.node.host.alone)
    copy = offload_pattern(one, "host_out", np.arange(1))
    assert copy.seconds(0, 1e9)[0] == pytest.approx(storage_latency("copy") + 1e9 / narrowest)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_of_a_host_share_its_memory_and_no_more_than_that(ranks: int) -> None:
    one = cluster("dgx_h100")
    assert one.node.host is not None
    work = offload_pattern(one, "host_step", np.arange(ranks))
    asked = np.bincount(work.use_resource, work.use_amount, one.links)
    memory = one.find_links("node0.host0>memory")[0]
    assert asked[memory] == min(ranks, 4)  # GPUs 0 to 3 are nearest to host 0
    assert work.bandwidth[0] == one.node.host.reached


def test_one_rank_reaches_one_numa_domain() -> None:
    whole, cut = (cluster("dgx_h100", hosts={"numa_domains": n}) for n in (1, 4))
    rates = [offload_pattern(one, "host_step", np.arange(8)).bandwidth[0] for one in (whole, cut)]
    assert rates[0] == 4 * rates[1]
    crowd = offload_pattern(cut, "host_step", np.arange(8))
    assert np.bincount(crowd.use_resource, crowd.use_amount).max() == 1.0


def test_copies_share_links_with_what_goes_to_nics() -> None:
    job = scenario(cluster={"topology": "dgx_h100", "nodes": 2}, training__global_batch=16).resolve()
    plan = lower(job)
    lane = job.cluster.find_links("node0.gpu0>pcie0")[0]
    users = {
        name for name, c in plan.system.communicators.items() for p in c.patterns.values() if lane in p.use_resource
    }
    assert {ALONE, REPLICAS} <= users
    nothing = lower(replace(job, sharding=replace(job.sharding, offload=type(job.sharding.offload)())))
    assert all(lane not in p.use_resource for c in nothing.system.communicators.values() for p in c.patterns.values())


def test_a_drive_does_one_thing_at_a_time() -> None:
    one = cluster("dgx_h100", nvme={"read": "2GB/s", "write": "1GB/s"})
    both = [offload_pattern(one, way, np.arange(1)) for way in ("nvme_read", "nvme_write")]
    assert both[0].bandwidth[0] == 2 * both[1].bandwidth[0] == pytest.approx(8 * 2e9)
    flash = one.find_links("node0.nvme0>flash")[0]
    assert [p.use_amount[p.use_resource == flash][0] for p in both] == pytest.approx([1.0, 1.0])


def test_zero_infinity_reaches_of_a_dgx2_what_its_paper_says() -> None:
    """3 GB/s to the CPU and 1.6 GB/s to NVMe for each of 16 GPUs at once (arXiv 2104.07857, figure 2, from memory)."""
    one = cluster("dgx2_v100")
    for operation, published in (("host_out", 3.0e9), ("nvme_read", 1.6e9)):
        p = offload_pattern(one, operation, np.arange(16))
        together = p.bandwidth[0] / np.bincount(p.use_resource, p.use_amount).max()
        assert together == pytest.approx(published, rel=0.1)


TABLE_4 = {1e9: 0.22, 4e9: 1.03, 10e9: 2.57}


def test_cpu_adam_takes_what_the_zero_offload_paper_measured() -> None:
    """Seconds of CPU Adam on the Xeon 8168 of a DGX-2 by number of parameters (arXiv 2101.06840, table 4,
    from memory)."""
    work = offload_pattern(cluster("dgx2_v100"), "host_step", np.arange(1))
    ratios = {n: work.seconds(0, offload.ADAM * n)[0] / seconds for n, seconds in TABLE_4.items()}
    assert all(0.95 < ratio < 1.25 for ratio in ratios.values()), ratios


TEXT = """
name: small
source: a test
gpu: l40s
gpus_per_node: 2
node:
  devices: {pcie: 1, host: 1, nvme: 2}
  links:
    - {from: "gpu[*]", to: pcie0, kind: pcie4}
    - {from: pcie0, to: host0, kind: pcie4}
    - {from: "nvme[*]", to: pcie0, kind: pcie3, lanes: 4}
"""


def test_what_a_topology_does_not_say_follows_from_its_links() -> None:
    node = parse_topology(TEXT).node
    assert node.host is not None
    assert node.drive is not None
    assert (node.host.bandwidth, node.drive.read) == (204.8e9, 3.2e9)
    said = parse_topology(TEXT + "hosts: {memory: 64GB, memory_bandwidth: 50GB/s}\nnvme: {kind: gen5}\n").node
    assert said.host is not None
    assert said.drive is not None
    assert (said.host.memory, said.host.bandwidth, said.drive.read) == (64e9, 50e9, 6e9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hosts: {processor: epyc-7743}", "epyc-7742"),
        ("hosts: {memory_bandwith: 1GB/s}", "memory_bandwidth"),
        ("hosts: {memory: 0}", "out of range"),
        ("nvme: {kind: gen6}", "gen5"),
        ("nvme: {read: fast}", "nvme.read"),
    ],
)
def test_wrong_storage_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(TrainsimError, match=words) as error:
        parse_topology(TEXT + text + "\n", file="t.yaml")
    assert "t.yaml:12" in str(error.value)


def test_storage_needs_devices() -> None:
    bare = TEXT.replace(", nvme: 2", "").replace('    - {from: "nvme[*]", to: pcie0, kind: pcie3, lanes: 4}\n', "")
    with pytest.raises(TrainsimError, match="the node has no nvme"):
        parse_topology(bare + "nvme: {kind: gen4}\n")


# the step


def computed(result: Result) -> float:
    """Parameters that the mean rank computes with, however few of them it keeps."""
    simulation = result.simulation
    return float(np.mean([simulation.programs[k].parameters for k in simulation.program_of]))


def owned(result: Result) -> float:
    """Parameters of one rank's partition."""
    return computed(result) / result.job.parallel.dp


def test_one_gpu_alone_pays_bytes_over_bandwidth() -> None:
    result = run(cluster={"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 1}, training__global_batch=1)
    one, parameters = result.job.cluster, owned(result)
    assert one.node.host is not None
    pcie = one.bandwidth[one.find_links("node0.gpu0>pcie0")[0]]
    assert sum(pieces(result, "gradients")) == pytest.approx(1e-5 + 4 * parameters / pcie)
    assert pieces(result, "CPU Adam") == pytest.approx([1e-5 + 28 * parameters / one.node.host.alone])
    assert pieces(result, "parameters") == pytest.approx([1e-5 + 2 * parameters / pcie])


def test_two_gpus_behind_one_switch_take_twice_as_long_to_copy() -> None:
    result = run()  # four GPUs on two switches of one host; each memory domain is big enough for one
    one, parameters = result.job.cluster, owned(result)
    assert one.node.host is not None
    uplink = one.bandwidth[one.find_links("node0.pcie0>host0")[0]]
    assert pieces(result, "parameters") == pytest.approx([2 * 2 * parameters / uplink], rel=5e-3)
    assert pieces(result, "CPU Adam") == pytest.approx([1e-5 + 28 * parameters / one.node.host.alone])


def test_four_gpus_of_a_host_take_four_times_as_long_for_adam() -> None:
    lengths = [
        pieces(
            run(cluster={"topology": "dgx_h100", "nodes": 1, "gpus_per_node": n}, training__global_batch=n), "CPU Adam"
        )
        for n in (1, 2, 4, 8)
    ]
    work = [length[0] - 1e-5 for length in lengths]  # n ranks of a host have 1/n of the parameters and of the memory
    assert work[0] == pytest.approx(work[1], rel=1e-3)
    assert work[1] == pytest.approx(work[2], rel=1e-3)
    assert work[3] == pytest.approx(work[2] / 2, rel=1e-3)  # two hosts


def test_nothing_of_the_step_overlaps() -> None:
    result = run()
    order = ("scale gradients", "CPU Adam", "cast parameters", "parameters")
    ends = [spans(result, name)[0] for name in order]
    gathers = spans(result, "gather 0.0")
    backward = result.timeline([0])
    last = backward[backward["kind"] == "backward"]["end"].max()
    assert last <= ends[0][0]
    assert all(a[1] <= b[0] for a, b in zip(ends, [*ends[1:], *gathers], strict=True))


def test_copies_of_gradients_hide_under_the_backward_pass() -> None:
    after, under = (run(sharding__overlap=overlap, sharding__reduce_bucket=5e6) for overlap in (False, True))
    assert len(pieces(under, "gradients")) > 3
    assert sum(pieces(under, "gradients")) > 0
    assert under.step_time < after.step_time
    assert under.communication["offload"].bytes_per_rank == pytest.approx(after.communication["offload"].bytes_per_rank)


MODES: dict[str, dict[str, Any]] = {
    "cpu": {},
    "under backward": {"sharding__overlap": True, "sharding__reduce_bucket": 5e6},
    "twin flow": {"sharding__offload__ratio": 0.4},
    "delayed": {"sharding__offload__delayed_update": True, "simulation__steps": 3},
    "delayed, one step": {"sharding__offload__delayed_update": True, "training__sequence_length": 64},
    "nvme": {"sharding__offload__optimizer": "nvme"},
    "nvme pipelined": {
        "sharding__offload__optimizer": "nvme",
        "sharding__offload__pipeline_read": True,
        "sharding__offload__pipeline_write": True,
        "simulation__steps": 2,
    },
    "ddp": {"sharding__strategy": "ddp"},
    "pipeline and tensor": {"parallel": {"tp": 2, "pp": 2}, "cluster": {"topology": "dgx_a100", "nodes": 1}},
    "straggling host": {
        "cluster": {"topology": "meta_h100_roce", "nodes": 2},
        "training__global_batch": 16,
        "what_if": [{"slow": {"link": "node1.host0", "factor": 0.5}}],
    },
    "fp32": {"training__precision": "fp32"},
}


@pytest.mark.parametrize("mode", MODES)
def test_folded_is_unfolded(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SUB_GROUP", 6e6)
    job = scenario(**MODES[mode]).resolve()
    assert same_spans(simulate(job).trace, simulate(replace(job, fold=False)).trace)


@pytest.mark.parametrize("mode", MODES)
def test_the_closed_form_agrees(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SUB_GROUP", 6e6)
    result = run(**MODES[mode])
    slow = bool(result.job.what_if)
    assert result.estimate.seconds == pytest.approx(result.step_time, rel=0.6 if slow else 0.12)


@pytest.mark.parametrize("mode", MODES)
def test_every_byte_is_accounted_for(mode: str) -> None:
    result = run(**MODES[mode])
    plan, small = result.job.sharding.offload, 4 if result.job.training.precision == "fp32" else 2
    shard = result.job.parallel.dp if result.job.sharding.strategy == "zero1" else 1
    parameters = plan.ratio * computed(result) / shard
    drives = 4 + 16 + 12 if plan.optimizer == "nvme" else 0
    assert result.communication["offload"].bytes_per_rank == pytest.approx(parameters * (4 + small + drives))


def test_the_breakdown_counts_every_second_once() -> None:
    result = run()
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time)
    lengths = [
        sum(pieces(result, n)) for n in ("gradients", "scale gradients", "CPU Adam", "cast parameters", "parameters")
    ]
    assert result.breakdown["offload"] == pytest.approx(sum(lengths), rel=1e-6)
    assert result.breakdown["optimizer"] == 0.0


def test_a_part_of_the_optimizer_on_the_gpu_saves_that_part_of_the_copies() -> None:
    whole, half = run(), run(sharding__offload__ratio=0.5)
    assert half.communication["offload"].time_s == pytest.approx(whole.communication["offload"].time_s / 2, rel=0.02)
    assert 0 < half.breakdown["optimizer"] < run(sharding__offload__optimizer="none").breakdown["optimizer"]


def test_a_delayed_update_runs_under_the_next_passes() -> None:
    long = {"training__sequence_length": 4096, "training__micro_batch": 4, "training__global_batch": 64}
    plain = run(**long)
    delayed = run(**long, sharding__offload__delayed_update=True, simulation__steps=3)
    host = sum(sum(pieces(plain, n)) for n in ("scale gradients", "CPU Adam", "cast parameters", "parameters"))
    assert plain.step_time - delayed.period == pytest.approx(host, rel=0.02)
    single = run(**long, sharding__offload__delayed_update=True)
    assert single.step_time == pytest.approx(delayed.period, rel=1e-6)  # one step looks like any but the first


def test_a_host_that_is_slower_than_the_passes_sets_the_pace() -> None:
    delayed = run(sharding__offload__delayed_update=True, simulation__steps=3)
    host = sum(pieces(delayed, n)[0] for n in ("scale gradients", "CPU Adam", "cast parameters", "parameters"))
    assert delayed.period >= host * (1 - 1e-12)
    assert delayed.period == pytest.approx(host, rel=0.25)  # and the collectives that both wait for


def test_drives_that_run_ahead_and_behind_save_time_but_not_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SUB_GROUP", 3e6)
    nvme = {"sharding__offload__optimizer": "nvme"}
    plain = run(**nvme)
    read = run(**nvme, sharding__offload__pipeline_read=True)
    both = run(**nvme, sharding__offload__pipeline_read=True, sharding__offload__pipeline_write=True)
    assert both.step_time < read.step_time < plain.step_time
    assert {r.communication["offload"].bytes_per_rank for r in (plain, read, both)} == {
        plain.communication["offload"].bytes_per_rank
    }
    one = both.job.cluster
    assert one.node.drive is not None
    seconds = 4 * owned(both) * (16 / one.node.drive.read + 12 / one.node.drive.write) / one.node.count("nvme")
    assert both.breakdown["offload"] > seconds


def test_a_sub_group_is_read_before_it_is_updated_and_updated_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offload, "SUB_GROUP", 3e6)
    piped = {"sharding__offload__pipeline_read": True, "sharding__offload__pipeline_write": True}
    result = run(sharding__offload__optimizer="nvme", **piped)
    adam = spans(result, "CPU Adam")
    assert len(adam) > 3
    for k, (start, end) in enumerate(adam):
        (read,), (write,) = spans(result, f"read states {k}"), spans(result, f"write states {k}")
        assert read[1] <= start
        assert end <= write[0]


# what each reduction sends


def rank_of(job: Job, **shards: int) -> RankPlan:
    """Pipeline rank 0 of *job*, with states shared otherwise."""
    mine = RankPlan(parts=work_out(job), rank=0)
    mine.__dict__["held"] = tuple(held._replace(shards=held.shards._replace(**shards)) for held in mine.held)
    return mine


@pytest.mark.parametrize(
    ("sharded", "microbatches", "out", "back"),
    [
        (False, 1, 4, 0),
        (False, 2, 2 + 4, 2),
        (False, 4, 3 * 2 + 4, 3 * 2),
        (True, 1, 2 + 4, 2),
        (True, 2, 2 + 2 + 4, 2 + 2),
    ],
)
@pytest.mark.parametrize("ratio", [1.0, 0.25])
def test_gradients_travel_as_in_deepspeed(sharded: bool, microbatches: int, out: int, back: int, ratio: float) -> None:
    """Bytes per parameter of a step: one reduction per microbatch; ZeRO-3 sends sums out and back once more."""
    job = scenario(sharding__offload__ratio=ratio).resolve()
    sums = {"host_out": 0.0, "host_in": 0.0}
    for k in range(microbatches):
        for step in gradient_steps(job, 1e6, sharded=sharded, first=k == 0, last=k == microbatches - 1):
            sums[step.operation] += step.nbytes
    assert sums == {"host_out": out * ratio * 1e6, "host_in": back * ratio * 1e6}


@pytest.mark.parametrize(
    ("device", "operations"), [("none", []), ("cpu", ["host_in"]), ("nvme", ["nvme_read", "host_in"])]
)
def test_a_gather_begins_with_the_ranks_own_shard(device: str, operations: list[str]) -> None:
    job = scenario(sharding__offload__optimizer="none").resolve()
    job = replace(job, sharding=replace(job.sharding, offload=replace(job.sharding.offload, parameters=device)))
    steps = parameter_steps(job, 1e6)
    assert [s.operation for s in steps] == operations
    assert all(s.nbytes == 2e6 for s in steps)


@pytest.mark.parametrize("chain", [Queue.DATA, Queue.GATHER, Queue.REPLICAS, Queue.COMPUTE])
def test_copies_of_a_flight_go_by_the_chain_that_carries_them_out(chain: Queue) -> None:
    """The strategies that exchange beside every pass put these steps into their flights."""
    job = scenario().resolve()
    steps = (FlightStep("reduce_scatter", 8e6), *gradient_steps(job, 1e6, first=False))
    flight = Flight("reduce", steps, PassMoment(1, after=True), chain=chain)
    beside, role, blocks = PassFlights((flight,)), Role("B", True, True), work_out(job).blocks
    inline = [p for cut in cuts(beside, role, blocks).values() for p in (*cut.before, *cut.after)]
    pieces = [i for t in tasks(beside, role, blocks).values() for i in t.instructions] if flight.beside else inline
    copies = [p for p in pieces if isinstance(p, Meet) and p.kind == "offload"]
    assert [c.operation for c in copies] == ["host_in", "host_out"]
    assert {c.communicator for c in copies} == {ALONE.on(chain)}


def test_new_parameters_go_to_where_parameters_lie() -> None:
    job = scenario().resolve()
    for device, last in (("none", "host_in"), ("cpu", "host_step"), ("nvme", "nvme_write")):
        there = replace(job.sharding, offload=replace(job.sharding.offload, parameters=device))
        step = offload.optimizer_step(rank_of(replace(job, sharding=there), weights=4), 0)
        assert isinstance(step[-1], Meet)
        assert step[-1].operation == last


# memory


def test_states_that_moved_are_on_the_host() -> None:
    none, cpu = run(sharding__offload__optimizer="none"), run()
    parameters = owned(cpu)
    before, after = none.memory.fullest, cpu.memory.fullest
    assert before.part("optimizer") > 0
    assert after.part("optimizer") == 0
    assert after.part("weights") == before.part("weights")
    assert cpu.memory.host.peak_per_node == pytest.approx(4 * parameters * (12 + 4 + 2))
    assert cpu.memory.nvme.peak_per_node == 0
    assert none.memory.host.peak_per_node == 0
    data = cpu.to_dict()["memory"]["host"]
    assert data == {"peak_bytes_per_node": cpu.memory.host.peak_per_node, "capacity_bytes": 2e12, "fits": True}


def test_fsdp_keeps_on_the_host_what_it_would_keep_on_the_gpu() -> None:
    """fp32 parameters, gradients and two states, 16 bytes per parameter: nothing in 16 bits, and no buffer beside."""
    fsdp = {"framework": "pytorch-fsdp2", "sharding__strategy": "fsdp", "sharding__offload": BOTH}
    here, away = run(**{**fsdp, "sharding__offload": {}}), run(**fsdp)
    assert away.memory.host.peak_per_node == pytest.approx(4 * 16 * owned(away))
    before, after = (one.simulation.programs[0].memory for one in (here, away))
    assert before.total - after.total == pytest.approx(16 * owned(away))
    assert not spans(away, "cast parameters")


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_adapters_need_no_buffer_of_a_whole_matrix(strategy: str) -> None:
    adapters = {"model": {**MODEL, "lora": {"rank": 8, "targets": ["q", "v"]}}, "sharding__strategy": strategy}
    here, away = run(**adapters, sharding__offload={}), run(**adapters)
    before, after = (one.simulation.programs[0].memory.buffers for one in (here, away))
    assert after - before == 2 * 8 * 1024


def test_states_on_drives_need_buffers_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SUB_GROUP", 6e6)
    result = run(sharding__offload__optimizer="nvme", sharding__offload__buffer_count=5)
    parameters = owned(result)
    assert result.memory.nvme.peak_per_node == pytest.approx(4 * 16 * parameters)
    assert result.memory.host.peak_per_node == pytest.approx(4 * (5 * 6e6 * 4 + 2 * parameters))


@pytest.mark.parametrize(
    ("store", "changes"),
    [
        ("host", {"cluster__hosts": {"memory": "100MB"}}),
        ("nvme", {"cluster__nvme": {"capacity": "10MB"}, "sharding__offload__optimizer": "nvme"}),
    ],
)
def test_a_host_or_a_drive_that_is_too_small_is_an_answer(store: str, changes: dict[str, Any]) -> None:
    result = run(**changes)
    assert not result.memory.fits
    assert result.memory.gpus_fit
    assert not getattr(result.memory, store).fits
    assert any("of a node would hold" in warning for warning in result.warnings)


# the scenario


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sharding__offload": {"ratio": 0.5}}, "no effect with optimizer: none"),
        ({"sharding__offload__pipeline_read": True}, "no effect with optimizer: cpu"),
        ({"sharding__offload__parameters": "cpu"}, "zero1 keeps all parameters on every GPU"),
        ({"sharding__strategy": "fsdp"}, "fsdp moves parameters, gradients and optimizer together"),
        ({"sharding__strategy": "mics"}, "MiCS offloads nothing"),
        ({"framework": "megatron-deepspeed-2022", "sharding__offload__delayed_update": True}, "2101.06840"),
        ({"framework": None, "sharding__strategy": "zero2", "sharding__offload__delayed_update": True}, "2101.06840"),
        ({"sharding__offload": {"optimizer": "nvme", "delayed_update": True}}, "cpu would work"),
        ({"sharding__strategy": "fsdp", "sharding__offload": {**BOTH, "ratio": 0.5}}, "fsdp has no such option"),
        ({"sharding__strategy": "hsdp", "sharding__offload": {**BOTH, "delayed_update": True}}, "no such option"),
        ({"cluster": {"topology": "jean_zay_v100", "nodes": 1}, "training__precision": "fp16",
          "sharding__offload__optimizer": "nvme"}, "no NVMe"),
        ({"pipeline__schedule": "pipedream", "parallel__pp": 2, "sharding__strategy": "ddp"}, "inside a step"),
        ({"sharding__offload__ratio": 0.0}, "ratio"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainsimError, match=words):
        scenario(**changes).resolve()


# published runs

SMALL_QWEN = {  # Qwen2.5-1.5B
    "family": "llama", "layers": 28, "hidden": 1536, "heads": 12, "kv_heads": 2, "ffn_hidden": 8960, "vocab": 151936,
    "tied_embeddings": True,
}  # fmt: skip


def test_offload_adds_to_a_step_what_deepspeed_measured() -> None:
    """Two GPUs of a DGX A100: 240 ms without, 1365 with offload (deepspeedai/DeepSpeed blogs/zenflow-corebinding)."""
    two = {"topology": "dgx_a100", "nodes": 1, "gpus_per_node": 2}
    changes = {"model": SMALL_QWEN, "cluster": two, "training__micro_batch": 4, "training__global_batch": 8}
    added = run(**changes).step_time - run(**changes, sharding__offload__optimizer="none").step_time
    assert added == pytest.approx(1.365 - 0.240, rel=0.25)


def test_the_gpu_waits_for_the_cpu_as_zenflow_found() -> None:
    """Llama-2-7B on four A100: the CPU's path is longer than the backward pass, and the GPU waits for more than 60 % of
    the step (deepspeedai/DeepSpeed blogs/deepspeed-zenflow)."""
    result = run(model="llama-2-7b", framework="megatron-deepspeed-2022", training__recompute="full")
    frame = result.timeline([0])
    backward = frame[frame["kind"].isin(["backward", "recompute"])]
    path = sum(sum(pieces(result, n)) for n in ("scale gradients", "CPU Adam", "cast parameters", "parameters"))
    assert path > (backward["end"] - backward["start"]).sum()
    assert result.breakdown["offload"] > 0.6 * result.step_time
