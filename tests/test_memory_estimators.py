"""The known memory estimators against what the tools and papers say, and the laws that they keep."""

from __future__ import annotations

import csv
import doctest
import subprocess
import sys
from argparse import Namespace
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainsim as ts
from trainsim.errors import InvalidPlan, NotBuilt, TrainsimError, UnknownName
from trainsim.estimators.arguments import KNOWN
from trainsim.memory import (
    deepspeed_zero_estimate,
    differences,
    korthikanti_activations,
    korthikanti_states,
    megatron_theoretical,
    zero_table,
)
from trainsim.models.known import model_names

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data" / "memory"


def rows(name: str) -> list[dict[str, str]]:
    lines = [line for line in (DATA / name).read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


# DeepSpeed

OFFLOADS = [("none", "none"), ("cpu", "none"), ("cpu", "cpu")]
sizes = st.integers(1, 4 * 10**12)
layouts = st.tuples(st.integers(1, 16), st.integers(1, 700))


def zero(stage: int, total: int, largest: int, layout: tuple[int, int], offload: tuple[str, str], **more: Any) -> Any:
    gpus, nodes = layout
    return deepspeed_zero_estimate(
        stage, total, largest_layer_parameters=largest, gpus_per_node=gpus, nodes=nodes,
        offload_optimizer=offload[0], offload_parameters=offload[1], **more,
    )  # fmt: skip


def test_every_published_row_of_deepspeed_to_the_byte() -> None:
    found = rows("deepspeed.csv")
    assert len(found) == 264
    for row in found:
        estimate = zero(
            int(row["stage"]),
            int(row["total_parameters"]),
            int(row["largest_layer_parameters"]),
            (int(row["gpus_per_node"]), int(row["nodes"])),
            (row["offload_optimizer"], row["offload_parameters"]),
            zero_init=row["zero_init"] != "0",
            additional_buffer_factor=float(row["additional_buffer_factor"]),
        )
        assert estimate == (int(row["cpu_bytes_per_node"]), int(row["gpu_bytes_per_gpu"])), row


@given(sizes, sizes, layouts, st.sampled_from(OFFLOADS), st.booleans(), st.floats(0.5, 4))
@settings(deadline=None)
def test_zero3_is_its_law_in_exact_arithmetic(
    total: int, largest: int, layout: tuple[int, int], offload: tuple[str, str], init: bool, factor: float
) -> None:
    gpus, nodes = layout
    per_parameter = {("none", "none"): 18, ("cpu", "none"): 2, ("cpu", "cpu"): 0}[offload]
    loading = Fraction(4 * gpus * (largest if offload[0] == "none" else total))
    held = Fraction({("none", "none"): 0, ("cpu", "none"): 16, ("cpu", "cpu"): 18}[offload] * total, nodes)
    if offload[0] == "none":
        cpu = loading if init else Fraction(4 * gpus * total)
    else:
        cpu = held if init else max(loading, held)
    found = zero(3, total, largest, layout, offload, zero_init=init, additional_buffer_factor=factor)
    assert abs(found.cpu_bytes_per_node - cpu * Fraction(factor)) <= 1 + cpu * Fraction(factor) / 2**49
    gpu = 4 * largest + Fraction(per_parameter * total, gpus * nodes)
    assert abs(found.gpu_bytes_per_gpu - gpu) <= 1 + gpu / 2**50


@given(sizes, layouts, st.booleans(), st.integers(1, 50))
@settings(deadline=None)
def test_zero2_grows_on_the_cpu_with_the_job_only_where_it_offloads(
    total: int, layout: tuple[int, int], offload: bool, more: int
) -> None:
    gpus, nodes = layout
    device = ("cpu" if offload else "none", "none")
    small, large = zero(2, total, 1, layout, device), zero(2, total, 1, (gpus, nodes + more), device)
    assert large.gpu_bytes_per_gpu <= small.gpu_bytes_per_gpu
    if not offload:
        assert small.cpu_bytes_per_node == large.cpu_bytes_per_node == 6 * gpus * total
    else:
        assert small.gpu_bytes_per_gpu == large.gpu_bytes_per_gpu == 2 * total
        assert small.cpu_bytes_per_node <= large.cpu_bytes_per_node
        assert large.cpu_bytes_per_node == pytest.approx(6 * total * max(4, gpus * (nodes + more)), rel=2**-50)


@given(sizes, sizes, layouts, st.sampled_from(OFFLOADS), st.integers(1, 50))
@settings(deadline=None)
def test_zero3_needs_no_more_with_more_nodes(
    total: int, largest: int, layout: tuple[int, int], offload: tuple[str, str], more: int
) -> None:
    for init in (True, False):
        small = zero(3, total, largest, layout, offload, zero_init=init)
        large = zero(3, total, largest, (layout[0], layout[1] + more), offload, zero_init=init)
        assert large.gpu_bytes_per_gpu <= small.gpu_bytes_per_gpu
        assert large.cpu_bytes_per_node <= small.cpu_bytes_per_node


@given(sizes, sizes, layouts, st.sampled_from(OFFLOADS))
@settings(deadline=None)
def test_zero_init_changes_the_cpu_only_where_loading_is_the_most(
    total: int, largest: int, layout: tuple[int, int], offload: tuple[str, str]
) -> None:
    largest, (gpus, nodes) = min(largest, total), layout
    early, late = (zero(3, total, largest, layout, offload, zero_init=init) for init in (True, False))
    assert early.gpu_bytes_per_gpu == late.gpu_bytes_per_gpu
    assert early.cpu_bytes_per_node <= late.cpu_bytes_per_node
    resident = {("cpu", "none"): 16, ("cpu", "cpu"): 18}.get(offload)
    if resident is not None and 4 * gpus * nodes < resident:
        assert abs(early.cpu_bytes_per_node - late.cpu_bytes_per_node) <= 1 + early.cpu_bytes_per_node / 2**50


def test_what_the_tool_does_not_look_at_changes_nothing() -> None:
    assert zero(2, 10**9, 1, (8, 2), ("cpu", "none"), zero_init=False) == zero(2, 10**9, 10**8, (8, 2), OFFLOADS[1])
    assert zero(3, 10**9, 10**8, (8, 2), ("none", "cpu")) == zero(3, 10**9, 10**8, (8, 2), ("none", "none"))
    assert deepspeed_zero_estimate(2, "7.5B") == deepspeed_zero_estimate(2, 7_500_000_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stage": 1}, r"no estimator .*zero_table"),
        ({"stage": 0}, r"baseline"),
        ({"stage": 4}, r"stages 1 to 3"),
        ({"stage": "three"}, r"stage = 'three'"),
        ({"stage": True}, r"stage = True"),
        ({"largest_layer_parameters": None}, r"give largest_layer_parameters"),
        ({"stage": 2, "offload_parameters": "cpu"}, r"needs stage 3"),
        ({"offload_optimizer": "nvme"}, r"can be none or cpu"),
        ({"offload_parameters": "cpuu"}, r"did you mean 'cpu'"),
        ({"total_parameters": 0}, r"total_parameters = 0"),
        ({"total_parameters": -7e9}, r"total_parameters"),
        ({"total_parameters": float("nan")}, r"total_parameters = nan"),
        ({"total_parameters": "7.5 bananas"}, r"bananas"),
        ({"total_parameters": None}, r"total_parameters"),
        ({"total_parameters": 10**5000}, r"too large"),
        ({"nodes": 1.5}, r"nodes = 1.5"),
        ({"gpus_per_node": "many"}, r"gpus_per_node = 'many'"),
        ({"additional_buffer_factor": 0}, r"additional_buffer_factor = 0"),
        ({"additional_buffer_factor": float("inf")}, r"additional_buffer_factor = inf"),
        ({"zero_init": "perhaps"}, r"zero_init = 'perhaps'"),
    ],
)
def test_bad_input_of_deepspeeds_estimator(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"stage": 3, "total_parameters": 7.5e9, "largest_layer_parameters": 205e6}
    with pytest.raises(TrainsimError, match=message):
        deepspeed_zero_estimate(**good | arguments)


# Megatron-LM

PRINTED = ("total_B", "most_loaded_B", "layer_MB", "weight_optimizer_MB", "activation_MB", "total_MB")
GPT: dict[str, Any] = {
    "num_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "padded_vocab_size": 51200,
    "seq_length": 1024,
    "micro_batch_size": 2,
}
FUSED: dict[str, Any] = {"sequence_parallel": True, "recompute_granularity": "selective"}
MIXTURE: dict[str, Any] = GPT | {"num_experts": 8, "swiglu": True, "moe_ffn_hidden_size": 4096}


@pytest.mark.parametrize("row", rows("megatron.csv"), ids=lambda row: row["case"])
def test_megatrons_report_as_printed(row: dict[str, str]) -> None:
    found = megatron_theoretical({k: v for k, v in row.items() if k not in (*PRINTED, "case")})
    mega = 2**20
    printed = (
        f"{found.total_parameters / 1e9:.2f}",
        f"{found.most_loaded_parameters / 1e9:.4f}",
        f"{found.layer_activation / mega:.1f}",
        f"{found.weight_and_optimizer / mega:.2f}",
        f"{found.activation / mega:.2f}",
        f"{found.total / mega:.2f}",
    )
    assert printed == tuple(row[key] for key in PRINTED)
    assert all(text in found.report() for text in printed)


def like_llama(name: str) -> bool:
    model = ts.model(name)
    others = {"moe", "mla", "qk_norm", "encoder_layers", "post_norms", "linear_attention"}
    return model.gated_mlp and model.norm == "rmsnorm" and model.biases == "none" and not others & set(model.to_dict())


@pytest.mark.parametrize("name", [name for name in model_names() if like_llama(name)])
def test_a_model_like_llama_has_all_its_parameters_in_the_report(name: str) -> None:
    model = ts.model(name)
    found = megatron_theoretical(
        {
            "num_layers": model.layers,
            "hidden_size": model.hidden,
            "num_attention_heads": model.heads,
            "num_query_groups": model.kv_heads,
            "kv_channels": model.head_dim,
            "ffn_hidden_size": model.ffn_hidden,
            "padded_vocab_size": model.vocab,
            "seq_length": 4096,
            "micro_batch_size": 1,
            "swiglu": True,
            "untie_embeddings_and_output_weights": not model.tied_embeddings,
        }
    )
    assert found.total_parameters == found.active_parameters == model.parameters


def test_mixtral_has_as_many_parameters_as_hugging_face_transformers_builds() -> None:
    (row,) = (r for r in rows("megatron.csv") if r["case"].startswith("mixtral"))
    found = megatron_theoretical({k: v for k, v in row.items() if k not in (*PRINTED, "case")})
    assert found.total_parameters == 46_702_792_704
    assert found.active_parameters == 12_879_925_248


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 8]), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_stages_add_up_to_the_tied_model(tp: int, pp: int, ep: int, mixture: bool, optimizer: bool) -> None:
    found = megatron_theoretical(
        (MIXTURE if mixture else GPT)
        | {"tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "expert_model_parallel_size": ep}
        | {"data_parallel_size": 8, "use_distributed_optimizer": optimizer, "add_bias_linear": False}
    )
    parts = found.most_loaded_parameters + (pp - 1) * (found.other_parameters or 0)
    whole = 24 * (2 * 2048 * (1 if mixture else 2) + (2048 * 8 if mixture else 0)) + 2048 * (1 if mixture else 2)
    routed = 24 * 3 * 2048 * 4096 * 8 if mixture else 0
    cut = found.total_parameters - whole - routed
    assert parts == pytest.approx(cut / tp + whole + routed / (tp * ep if mixture else 1), rel=1e-12)


def test_experts_are_shared_among_their_own_replicas() -> None:
    def states(**more: Any) -> float:
        return megatron_theoretical(MIXTURE | {"use_distributed_optimizer": True} | more).weight_and_optimizer

    routed = 24 * 3 * 2048 * 4096 * 8
    assert states(data_parallel_size=8) - states(data_parallel_size=8, expert_model_parallel_size=8) == pytest.approx(
        routed * (6 + 12 / 8) - routed / 8 * (6 + 12)
    )


@given(st.integers(1, 512))
@settings(deadline=None)
def test_a_distributed_optimizer_shares_twelve_bytes(replicas: int) -> None:
    shared, whole = (
        megatron_theoretical(GPT | {"data_parallel_size": replicas, "use_distributed_optimizer": on})
        for on in (True, False)
    )
    assert whole.weight_and_optimizer == 18 * whole.most_loaded_parameters
    assert shared.weight_and_optimizer == pytest.approx((6 + 12 / replicas) * shared.most_loaded_parameters)
    assert shared.activation == whole.activation


@given(st.integers(2, 32), st.integers(1, 64))
@settings(deadline=None)
def test_pipelines_in_the_report(pp: int, microbatches: int) -> None:
    more = {"pipeline_model_parallel_size": pp}
    full = megatron_theoretical(GPT | FUSED | more)
    some = megatron_theoretical(GPT | FUSED | more | {"num_microbatches": microbatches})
    assert some.activation == pytest.approx(full.activation * min(1, microbatches / pp))
    assert some.in_flight == min(pp, microbatches)
    assert some == megatron_theoretical(GPT | FUSED | more | {"global_batch_size": 2 * microbatches})
    for chunks in (1, 2, 7):
        cut = megatron_theoretical(GPT | FUSED | more | {"virtual_pipeline_model_parallel_size": chunks})
        assert cut.activation == pytest.approx(full.activation * (1 + (pp - 1) / (pp * chunks)))
        assert cut.in_flight >= pp


@given(st.sampled_from([1, 2, 8]), st.booleans())
@settings(deadline=None)
def test_the_report_is_korthikantis_form_plus_token_numbers(tp: int, pipeline: bool) -> None:
    pp = 4 if pipeline else 1
    more = {"tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp}
    found = megatron_theoretical(GPT | FUSED | more)
    layer = korthikanti_activations(
        1024, 2, hidden=2048, heads=16, tp=tp, sequence_parallel=True, recompute="selective"
    )
    paper = layer.first_stage(24, pp=pp, vocab=51200)
    assert found.layer_activation == layer.layer
    assert found.activation - paper.total == pytest.approx(8 * 1024 * 2 * pp / tp)


def test_every_case_but_one_is_counted_alike() -> None:
    def activation(**more: Any) -> float:
        return megatron_theoretical(GPT | {"tensor_model_parallel_size": 4} | more).activation

    other = activation()
    assert activation(sequence_parallel=True) == other
    assert activation(recompute_granularity="full", sequence_parallel=True) == other
    assert activation(recompute_granularity="selective") == other
    assert activation(ffn_hidden_size=64) == other
    assert activation(**FUSED) < other


def test_latent_attention_and_multi_token_prediction() -> None:
    ranks = {"kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128}
    latent = GPT | ranks | {"multi_latent_attention": True, "normalization": "RMSNorm"}
    plain, low = megatron_theoretical(latent), megatron_theoretical(latent | {"q_lora_rank": 1536})
    heads, h = 16, 2048
    assert low.total_parameters - plain.total_parameters == 24 * (1536 * (h + heads * 192 + 1) - h * heads * 192)
    with_prediction = megatron_theoretical(GPT | {"mtp_num_layers": 2})
    base = megatron_theoretical(GPT)
    assert with_prediction.total_parameters - base.total_parameters == 2 * (12 * h * h + 4 * h)


def test_layers_without_experts_are_dense() -> None:
    dense = megatron_theoretical(MIXTURE | {"moe_layer_freq": [0] * 24})
    assert dense.total_parameters == megatron_theoretical(GPT | {"swiglu": True}).total_parameters
    every = megatron_theoretical(MIXTURE | {"moe_layer_freq": 2})
    listed = megatron_theoretical(MIXTURE | {"moe_layer_freq": [1, 0] * 12})
    assert every == listed
    assert every.total_parameters < megatron_theoretical(MIXTURE).total_parameters


def test_arguments_may_come_from_a_table_or_a_namespace() -> None:
    plain = megatron_theoretical(GPT | FUSED | {"num_query_groups": None})
    assert megatron_theoretical(Namespace(**GPT, **FUSED)) == plain
    table = {name: str(value) for name, value in (GPT | FUSED).items()} | {"num_experts": "", "swiglu": "False"}
    assert megatron_theoretical(table) == plain
    arrays = {name: np.float64(value) for name, value in GPT.items()} | FUSED
    arrays |= {"kv_channels": np.nan, "sequence_parallel": np.bool_(True)}
    assert megatron_theoretical(arrays) == plain
    assert megatron_theoretical(GPT | FUSED | {"num_query_groups": 4, "group_query_attention": False}) == plain
    assert megatron_theoretical(GPT | FUSED | {"context_parallel_size": 2}).unread == ("context_parallel_size",)
    world = GPT | {"use_distributed_optimizer": True}
    assert megatron_theoretical(world | {"world_size": 8}) == megatron_theoretical(world | {"data_parallel_size": 8})
    with pytest.raises(FrozenInstanceError):
        plain.activation = 0.0  # type: ignore[misc]


def test_what_was_filled_in_is_told() -> None:
    assert megatron_theoretical(GPT | {"swiglu": True}).assumed == (
        "kv_channels = 128",
        "ffn_hidden_size = 5440",
        "normalization = RMSNorm",
    )
    told = GPT | {"kv_channels": 128, "ffn_hidden_size": 8192, "normalization": "LayerNorm"}
    assert megatron_theoretical(told).assumed == ()


@pytest.mark.parametrize("missing", GPT)
def test_what_the_report_needs_is_named(missing: str) -> None:
    with pytest.raises(InvalidPlan, match=missing):
        megatron_theoretical({name: value for name, value in GPT.items() if name != missing})


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_misspelled_argument_finds_its_name(name: str) -> None:
    with pytest.raises(UnknownName, match=f"Did you mean '{name}'"):
        megatron_theoretical(GPT | {name + "_": 1})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_layers": 0}, InvalidPlan, "num_layers = 0"),
        ({"hidden_size": 12.5}, InvalidPlan, "hidden_size = 12.5"),
        ({"hidden_size": True}, InvalidPlan, "hidden_size = True"),
        ({"swiglu": "yes?"}, InvalidPlan, "swiglu = 'yes\\?'"),
        ({"recompute_granularity": "selectiv"}, InvalidPlan, "did you mean 'selective'"),
        ({"normalization": "rms"}, InvalidPlan, "LayerNorm or RMSNorm"),
        ({"is_hybrid_model": True}, NotBuilt, "hybrid"),
        ({"multi_latent_attention": True}, InvalidPlan, "needs kv_lora_rank"),
        ({"multi_latent_attention": True, "group_query_attention": True}, InvalidPlan, "exclude each other"),
        ({"group_query_attention": True}, InvalidPlan, "num_query_groups"),
        ({"world_size": 8, "data_parallel_size": 4}, InvalidPlan, "world_size = 8"),
        ({"world_size": 9, "tensor_model_parallel_size": 2}, InvalidPlan, "world_size = 9"),
        ({"num_experts": 8, "expert_model_parallel_size": 8}, InvalidPlan, "1 GPUs are not divisible"),
        ({"num_experts": 8, "moe_layer_freq": [1, 0]}, InvalidPlan, "2 entries for num_layers = 24"),
        ({"global_batch_size": 7}, InvalidPlan, "global_batch_size = 7"),
    ],
)
def test_bad_arguments_of_the_report(arguments: dict[str, Any], error: type[TrainsimError], message: str) -> None:
    with pytest.raises(error, match=message):
        megatron_theoretical(GPT | arguments)


def test_arguments_that_are_no_mapping() -> None:
    with pytest.raises(InvalidPlan, match="not a mapping"):
        megatron_theoretical([1, 2])  # type: ignore[arg-type]


# the papers

shapes = st.fixed_dictionaries(
    {
        "sequence_length": st.integers(1, 1 << 17),
        "microbatch": st.integers(1, 64),
        "hidden": st.integers(1, 1 << 15),
        "heads": st.integers(1, 256),
    }
)


@pytest.mark.parametrize("row", rows("zero_table.csv"), ids=lambda row: f"{row['parameters']}-{row['replicas']}")
def test_the_zero_papers_table(row: dict[str, str]) -> None:
    found = zero_table(row["parameters"], int(row["replicas"]))
    assert {name: f"{nbytes / 1e9:.4g}" for name, nbytes in found._asdict().items()} == {
        name: row[name] for name in found._fields
    }


@given(sizes, st.integers(1, 1 << 20))
@settings(deadline=None)
def test_each_partitioning_of_zero_takes_its_bytes_away(parameters: int, replicas: int) -> None:
    found, saved = zero_table(parameters, replicas), Fraction(replicas - 1, replicas) * parameters
    levels = [Fraction(nbytes) for nbytes in found]
    for before, after, nbytes in zip(levels, levels[1:], (12, 2, 2), strict=False):
        assert float(before - after) == pytest.approx(float(nbytes * saved), rel=1e-9, abs=1e-2)


@pytest.mark.parametrize("row", rows("korthikanti.csv"), ids=lambda r: f"{r['model']}-{r['recompute']}-{r['quantity']}")
def test_korthikantis_figures(row: dict[str, str]) -> None:
    layers, hidden, pp = (int(row[key]) for key in ("layers", "hidden", "pp"))
    shape = {"hidden": hidden, "heads": int(row["heads"]), "tp": 8}
    found = korthikanti_activations(
        2048,
        int(row["microbatch"]),
        recompute=row["recompute"],
        sequence_parallel=row["sequence_parallel"] == "1",
        **shape,
    )
    if row["quantity"] == "states_GiB":
        assert korthikanti_states(layers, hidden, tp=8, pp=pp) / 2**30 == float(row["value"])
    elif row["quantity"] == "activations_GiB":
        assert found.first_stage(layers, pp=pp).layers / 2**30 == pytest.approx(float(row["value"]), rel=1e-12)
    else:
        baseline = korthikanti_activations(2048, int(row["microbatch"]), **shape)
        assert 100 * found.layer / baseline.layer == pytest.approx(float(row["value"]), abs=0.15)


def test_the_often_quoted_28_5_gib() -> None:
    found = korthikanti_activations(2048, 1, hidden=4096, heads=32)
    assert f"{found.first_stage(32).layers / 2**30:.4f}" == "28.5000"


@given(shapes, st.sampled_from([1, 2, 4, 8]), st.booleans())
@settings(deadline=None)
def test_recompute_and_sequence_parallelism_only_take_away(
    shape: dict[str, int], tp: int, sequence_parallel: bool
) -> None:
    def layer(recompute: str, **more: Any) -> float:
        return korthikanti_activations(**shape, recompute=recompute, **more).layer

    s, h, a = shape["sequence_length"], shape["hidden"], shape["heads"]
    cases = [layer(mode, tp=tp, sequence_parallel=sequence_parallel) for mode in ("none", "selective", "full")]
    assert cases == sorted(cases, reverse=True)
    elements = s * shape["microbatch"] * h
    assert cases[0] - cases[1] == pytest.approx(elements * 5 * a * s / h / tp, rel=1e-9)
    assert layer("selective", tp=tp, sequence_parallel=True) == pytest.approx(34 * elements / tp)
    assert layer("selective", tp=1) == 34 * elements


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 128))
@settings(deadline=None)
def test_the_first_stage_over_schedules(pp: int, chunks: int, microbatches: int) -> None:
    layer = korthikanti_activations(1024, 1, hidden=1024, heads=16, tp=2, sequence_parallel=True)
    full = layer.first_stage(pp * 4, pp=pp, vocab=32000)
    assert full.layers == pytest.approx(layer.layer * pp * 4)
    assert full.embedding == 1024 * 1024 * pp / 2
    assert (full.output > 0) == (pp == 1)
    few = layer.first_stage(pp * 4, pp=pp, microbatches=microbatches)
    assert few.layers == pytest.approx(full.layers * min(pp, microbatches) / pp)
    interleaved = layer.first_stage(pp * 4, pp=pp, chunks=chunks)
    extra = (pp - 1) / (pp * chunks) if chunks > 1 else 0
    assert interleaved.layers == pytest.approx(full.layers * (1 + extra))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zero_table(0, 8), "parameters = 0"),
        (lambda: zero_table(7e9, 0), "replicas = 0"),
        (lambda: korthikanti_activations(2048, 1, hidden=0, heads=32), "hidden = 0"),
        (lambda: korthikanti_activations(2048, 1, hidden=64, heads=2, recompute="ful"), "did you mean 'full'"),
        (lambda: korthikanti_activations(2048, 1, hidden=64, heads=2).first_stage(8, pp=0), "pp = 0"),
        (lambda: korthikanti_states(0, 64), "layers = 0"),
        (lambda: differences("zero_tabel"), "Did you mean 'zero_table'"),
    ],
)
def test_bad_input_of_the_papers_forms(call: Any, message: str) -> None:
    with pytest.raises(TrainsimError, match=message):
        call()


# the module and its page


def test_differences_speak_of_every_estimator() -> None:
    named = {d.estimator for d in differences()}
    assert named <= set(ts.memory.__all__)
    assert named == {"deepspeed_zero_estimate", "megatron_theoretical", "zero_table", "korthikanti_activations"}
    assert sum(len(differences(name)) for name in named) == len(differences())


def test_the_estimators_are_imported_when_they_are_used() -> None:
    code = (
        "import sys, trainsim as ts; before = 'trainsim.memory' in sys.modules; ts.memory.zero_table(1, 1);"
        "print(before, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_page_about_memory_says_what_happens() -> None:
    text = (ROOT / "docs" / "memory.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "memory.md", "docs/memory.md", 0)
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
    assert result.attempted > 8
    assert not result.failed
