"""Generations of NVIDIA's software: what a release fuses, captures and sends, and that a newer one is never slower."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainsim import Scenario, kernel_time
from trainsim.contracts.job import Job
from trainsim.costs.kernels import alone
from trainsim.errors import NotBuilt, ScenarioError
from trainsim.frameworks import load_framework
from trainsim.frameworks.software import profile_for
from trainsim.hardware.gpu import load_gpu
from trainsim.models.expert_operations import mixture
from trainsim.models.layers import head_operations, layer_operations
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Gemm, MemoryBound, Operation, works
from trainsim.models.shapes import style_of
from trainsim.program.experts import expert_shape
from trainsim.program.network import Network
from trainsim.sharding.launches import shape_of
from trainsim.validation.mapping import scenario_of
from trainsim.validation.published import PublishedRun

MODEL: dict[str, Any] = {
    "name": "small", "family": "qwen3", "layers": 4, "hidden": 2048, "heads": 32, "kv_heads": 4, "ffn_hidden": 6144,
    "vocab": 151936, "moe": {"experts": 32, "top_k": 4, "expert_ffn_hidden": 768},
}  # fmt: skip
GENERATIONS = ("nemo-2024", "nemo", "megatron-bridge", "megatron-bridge-2026")


def scenario(framework: Any, precision: str = "mxfp8", **training: Any) -> Scenario:
    given = {"sequence_length": 4096, "micro_batch": 4, "global_batch": 32, "precision": precision, **training}
    return Scenario.from_dict(
        {"framework": framework, "model": MODEL, "cluster": {"topology": "gb200_nvl72", "gpus": 8},
         "parallel": {"ep": 8}, "training": given, "simulation": {"detail": "block"}}
    )  # fmt: skip


def experts(job: Job) -> dict[str, Operation]:
    """The operations of a layer's experts on a rank of *job*."""
    shape = replace(shape_of(job), experts=expert_shape(job, Network(job)))
    return {o.name: o for o in mixture(LocalLayer(job.model.kind, shape, style_of(job.framework, "cudnn")))}


def kernels(operation: Operation) -> list[str]:
    steps = (*operation.forward, *operation.input_gradient, *operation.weight_gradient)
    return [w.name for w in works(steps)]


def test_fused_experts_leave_the_casts_of_tokens_and_of_their_gradients() -> None:
    grouped, fused = (experts(scenario(name).resolve()) for name in ("megatron-bridge", "megatron-bridge-2026"))
    assert kernels(fused["expert fc1"]) == ["expert fc1 cast", "expert fc1", "expert fc1 dgrad", "expert fc1 wgrad"]
    assert kernels(fused["expert fc2"]) == ["expert fc2", "expert fc2 cast", "expert fc2 dgrad", "expert fc2 wgrad"]
    assert kernels(fused["swiglu"]) == []
    assert len(kernels(grouped["expert fc2"])) == len(kernels(fused["expert fc2"])) + 1
    for name in ("expert fc1", "expert fc2"):
        one, other = ([w.flops for w in works(o[name].forward) if isinstance(w, Gemm)] for o in (grouped, fused))
        assert one == other
        assert grouped[name].saved == fused[name].saved


def test_experts_are_fused_in_low_precision_only() -> None:
    same = [experts(scenario(name, "bf16").resolve()) for name in ("megatron-bridge", "megatron-bridge-2026")]
    assert same[0] == same[1]


def test_no_generation_is_slower_than_the_one_before() -> None:
    steps = [scenario(name).run().step_time for name in GENERATIONS]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 0.8 * steps[-2]


def test_the_loss_moves_what_its_kernels_read_and_write() -> None:
    def loss(name: str) -> float:
        job = scenario(name).resolve()
        operations = head_operations(job.model, shape_of(job), style_of(job.framework, "cudnn"))
        steps = [w for o in operations if o.name == "loss" for w in works((*o.forward, *o.input_gradient))]
        return sum(w.nbytes for w in steps if isinstance(w, MemoryBound)) / (4 * 4096 * job.padded_vocab)

    assert loss("nemo-2024") == pytest.approx(40)
    assert loss("nemo") == loss("megatron-bridge") == pytest.approx(10)


@pytest.mark.parametrize(
    ("framework", "moe", "dispatcher"),
    [
        ("megatron-core", None, "alltoall"),
        ("megatron-bridge", None, "hybridep"),
        ("megatron-bridge", {"dispatcher": "allgather"}, "allgather"),
        ("megatron-bridge", {"capacity_factor": 1.0, "pad_to_capacity": True}, "alltoall"),
        ({"base": "megatron-core", "communication": {"token_dispatcher": "deepep"}}, None, "deepep"),
    ],
)
def test_who_sends_tokens_where_nobody_says(framework: Any, moe: Any, dispatcher: str) -> None:
    assert scenario(framework, moe=moe).resolve().training.routing.dispatcher == dispatcher


def test_graphs_of_a_step_need_a_host_that_does_not_wait() -> None:
    with pytest.raises(NotBuilt, match="waits for the number of tokens"):
        scenario("megatron-bridge", cuda_graphs=True).resolve()
    assert scenario("megatron-bridge-2026", cuda_graphs=True).resolve().framework.host.cuda_graph


@pytest.mark.parametrize(
    ("software", "year", "profile"),
    [
        ("NeMo 24.07 (Megatron-Core)", 2024, "nemo-2024"),
        ("NeMo 25.04 (Megatron-Core)", 2025, "nemo"),
        ("NeMo", 2023, "nemo-2024"),
        ("NeMo", None, "nemo"),
        ("Megatron-Bridge (Megatron-Core) 25.09", 2025, "megatron-bridge"),
        ("Megatron-Bridge (Megatron-Core) 26.04.01", 2026, "megatron-bridge"),
        ("Megatron-Bridge (Megatron-Core) 26.06", 2026, "megatron-bridge-2026"),
        ("Megatron-Bridge 26.11", 2026, "megatron-bridge-2026"),
    ],
)
def test_a_release_has_its_profile(software: str, year: int | None, profile: str) -> None:
    assert profile_for(software, year=year).profile == profile


ROW = {
    "id": "X-1", "source_id": "X", "framework": "Megatron-Bridge (Megatron-Core)", "year": "2026",
    "model_name": "qwen3-30b-a3b", "layers": "48", "hidden": "2048", "heads": "32", "num_experts": "128", "top_k": "8",
    "seq_len": "4096", "gpu": "GB200-NVL72-186GB", "num_gpus": "8", "gpus_per_node": "8", "dp": "8", "tp": "1",
    "pp": "1", "cp": "1", "ep": "8", "zero_stage": "1", "micro_batch": "4", "global_batch": "512",
    "precision": "mxfp8", "step_time_s": "6.5", "notes": "NeMo container 26.06; dropless",
}  # fmt: skip


def test_recipes_of_a_release_stand_in_for_what_a_row_does_not_say() -> None:
    def training(**cells: str) -> Any:
        return scenario_of(PublishedRun(line=2, cells=ROW | cells)).scenario["training"]

    assert training()["moe_overlap"]
    assert training(gpu="GB300-NVL72-279GB", model_name="deepseek-v3")["attention"] == "cudnn-fp8"
    for cells in (
        {"notes": "NeMo container 26.04; dropless"},
        {"overlap_flags": "dispatcher=hybridep"},
        {"precision": "bf16"},
        {"pp": "2", "dp": "4", "vpp": "1"},
    ):
        assert "moe_overlap" not in training(**cells)
    modules = training(notes="NeMo container 26.02; recompute modules mla_up_proj/mlp; more", recompute="selective")
    assert modules["recompute"] == {"mode": "selective", "modules": ["mla_up_proj", "mlp"]}
    assert training(overlap_flags="cuda_graph=local")["cuda_graphs"]


def test_a_model_that_predicts_further_leaves_its_last_stage_room() -> None:
    cells = ROW | {"model_name": "deepseek-v3", "layers": "61", "pp": "4", "vpp": "4", "dp": "2", "ep": "2"}
    one, other = (
        scenario_of(PublishedRun(line=2, cells=cells | {"notes": f"NeMo container 26.04; {note}"})).scenario
        for note in ("model FLOPs may include one MTP layer", "without MTP")
    )
    assert (one["model"]["mtp_layers"], one["pipeline"]["layout"]) == (1, [4] * 15 + [1])
    assert "mtp_layers" not in other["model"]
    assert sum(other["pipeline"]["layout"]) == 61


def test_eight_bits_are_twice_as_fast_as_sixteen_on_a_gb200() -> None:
    """Large products: the datasheet's ratio."""
    shape = {"m": 16384, "n": 16384, "k": 16384}
    bf16, fp8 = (kernel_time("gb200", "gemm", dtype=dtype, **shape) for dtype in ("bf16", "fp8"))
    assert bf16 / fp8 == pytest.approx(2, rel=0.02)


CASTS = {  # bytes per element on H100 and B200, as docs/frameworks.md has them
    ("fp8", "delayed"): (4, 3),
    ("fp8", "tensorwise"): (6, 5),
    ("fp8", "blockwise"): (4.0625, 4.0625),
    ("mxfp8", None): (None, 4.0625),
    ("nvfp4", None): (None, 5.125),
}


def product(topology: str, precision: str, recipe: str | None) -> tuple[Operation, Job]:
    """The first linear layer of the MLP of a dense Llama on one GPU."""
    model = {key: value for key, value in MODEL.items() if key != "moe"} | {"family": "llama"}
    training = {"sequence_length": 4096, "micro_batch": 1, "global_batch": 8, "precision": precision}
    training |= {"fp8_recipe": recipe} if recipe else {}
    given = {"framework": "megatron-core", "model": model, "cluster": {"topology": topology}, "training": training}
    job = Scenario.from_dict(given).resolve()
    operations = layer_operations(job.model.kind, shape_of(job), style_of(job.framework))
    return next(o for o in operations if o.name == "fc1"), job


@pytest.mark.parametrize(("precision", "recipe"), CASTS)
@pytest.mark.parametrize(("number", "topology"), tuple(enumerate(("dgx_h100", "dgx_b200"))))
def test_a_cast_moves_what_its_recipe_reads_and_writes(
    precision: str, recipe: str | None, number: int, topology: str
) -> None:
    bytes_each = CASTS[precision, recipe][number]
    if bytes_each is None:
        return
    operation, _ = product(topology, precision, recipe)
    gemm = next(w for w in works(operation.forward) if isinstance(w, Gemm))
    casts = [w for steps in (operation.forward, operation.input_gradient) for w in works(steps) if "cast" in w.name]
    assert [w.nbytes for w in casts if isinstance(w, MemoryBound)] == [
        pytest.approx(bytes_each * gemm.m * gemm.k),
        pytest.approx(bytes_each * gemm.m * gemm.n),
    ]


def test_sixteen_bits_need_no_cast() -> None:
    operation, job = product("dgx_h100", "bf16", None)
    assert job.training.fp8_recipe is None
    assert not [w for w in works((*operation.forward, *operation.input_gradient)) if "cast" in w.name]


def test_deepgemm_on_an_h800() -> None:
    """4,096 x 7,168 x 16,384 with scales per block: 708 us (deepseek-ai/DeepGEMM README)."""
    seconds = alone(Gemm("", 4096, 7168, 16384), load_gpu("h800-sxm5-80gb"), "blockwise").seconds
    assert seconds == pytest.approx(708e-6, rel=0.1)


@pytest.mark.parametrize(
    ("framework", "recipe"), [("megatron-core", "delayed"), ("megatron-bridge", "tensorwise"), ("mlperf", "delayed")]
)
def test_who_makes_eight_bits_how_where_nobody_says(framework: str, recipe: str) -> None:
    assert scenario(framework, "fp8").resolve().training.fp8_recipe == recipe
    assert scenario(framework, "fp8", fp8_recipe="blockwise").resolve().training.fp8_recipe == "blockwise"
    assert scenario(framework, "mxfp8").resolve().training.fp8_recipe == "mxfp8"


@pytest.mark.parametrize(("precision", "recipe", "says"), [
    ("bf16", "delayed", "belongs to training.precision: fp8, and this is bf16"),
    ("fp8", "mxfp8", "write that, or one of delayed, tensorwise, blockwise"),
])  # fmt: skip
def test_a_recipe_of_another_precision_is_refused(precision: str, recipe: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        scenario("megatron-core", precision, fp8_recipe=recipe).resolve()


@pytest.mark.parametrize(
    ("notes", "recipe"),
    [("fp8 recipe FP8-CS", "tensorwise"), ("delayed scaling", "delayed"), ("subchannel scaling", "blockwise")],
)
def test_notes_name_the_recipe(notes: str, recipe: str) -> None:
    row = PublishedRun(line=2, cells=ROW | {"precision": "fp8", "notes": notes, "gpu": "H100-SXM5-80GB"})
    assert scenario_of(row).scenario["training"]["fp8_recipe"] == recipe
    assert "fp8_recipe" not in scenario_of(PublishedRun(line=2, cells=ROW | {"notes": notes})).scenario["training"]


@pytest.mark.parametrize(("experts", "dp", "ep"), [("128", "64", 64), ("32", "8", 8), ("", "8", None)])
def test_a_dispatcher_between_ranks_needs_experts_on_them(experts: str, dp: str, ep: int | None) -> None:
    """NVIDIA-NeMo/Automodel examples/llm_benchmark/gpt_oss: ep_size 64 and 8."""
    cells = ROW | {
        "model_name": "gpt-oss",
        "num_experts": experts,
        "dp": dp,
        "num_gpus": dp,
        "ep": "1",
        "vocab": "201088",
    }
    one = scenario_of(PublishedRun(line=2, cells=cells | {"notes": "TE + DeepEP", "precision": "bf16"})).scenario
    assert one.get("parallel", {}).get("ep") == ep


def test_products_of_2025_are_faster_in_sixteen_bits_only() -> None:
    speeds = [load_framework("nemo", precision).kernels.speeds.gemm for precision in ("bf16", "fp8", "mxfp8")]
    assert speeds == [1.06, 1.0, 1.0]
    assert load_framework("nemo-2024", "bf16").kernels.speeds.gemm == 1.0
