"""Buckets of DDP, DeepSpeed and Megatron-LM: partitions of the tensors, and those of the frameworks themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs import SMALL, small
from tests.tables import rows, tiny_llama
from trainsim.errors import InvalidPlan
from trainsim.models.calls import Modules, modules, ready_order
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import Transformer
from trainsim.program.lower import lower
from trainsim.sharding import tensorwise
from trainsim.sharding.bucketing import BucketCut, ddp_cuts, ipg_cuts
from trainsim.sharding.cutting import ready

QWEN = {"family": "qwen2", "name": "qwen1.5-0.5b", "layers": 24, "hidden": 1024, "heads": 16, "ffn_hidden": 2816}
MODELS: dict[str, Transformer] = {
    "gpt2-xl": load_model("gpt2-xl"),
    "llama2-7b": load_model("llama-2-7b"),
    "llama3-8b": load_model("llama-3-8b"),
    "qwen1.5-0.5b": transformer(QWEN | {"vocab": 151936, "tied_embeddings": True}),
}
BYTES = {"float32": 4, "bfloat16": 2}
MIB = 1 << 20

some_elements = st.lists(st.integers(1, 1000), max_size=60)
sizes = st.integers(1, 3000)


def whole(model: Transformer) -> Modules:
    return modules(model, padded_vocab=model.vocab)


def in_ready_order(model: Modules) -> list[int]:
    return [model.sizes[p] for p in ready_order(model.root)]


def slices(elements: Sequence[int], cuts: Iterable[BucketCut]) -> list[list[int]]:
    """The elements of the tensors in each of the *cuts*."""
    return [list(elements[c.last + 1 - c.tensors : c.last + 1]) for c in cuts]


def partition(elements: list[int], cuts: tuple[BucketCut, ...]) -> list[int]:
    """The elements of each bucket without padding; every tensor is in one bucket, in order."""
    assert [e for part in slices(elements, cuts) for e in part] == elements
    assert sum(c.tensors for c in cuts) == len(elements)
    assert [c.last for c in cuts] == sorted({c.last for c in cuts})
    return [sum(part) for part in slices(elements, cuts)]


@pytest.mark.parametrize("row", rows("ddp_buckets.csv"), ids=lambda r: " ".join(r.values()))
def test_ddp_cuts_as_torch_does(row: dict[str, str]) -> None:
    elements = whole(MODELS[row["model"]]).sizes[::-1]
    default = row["first_mib"] != row["cap_mib"]
    cap = None if default else float(row["cap_mib"]) * MIB
    cuts = ddp_cuts(elements, element_bytes=BYTES[row["dtype"]], cap=cap)
    assert len(cuts) == int(row["buckets"])
    one = cuts[int(row["bucket"])]
    assert (one.tensors, one.elements) == (int(row["tensors"]), int(row["elements"]))


DDP = [r for r in rows("zero3_collectives.csv") if r["collective"] == "ddp_bucket"]
CAPS = {"ddp_cap0.2": 0.2 * MIB, "ddp_default": None, "ddp_view": None}


@pytest.mark.parametrize("row", DDP, ids=lambda r: f"{r['case']} {r['step']}")
def test_ddp_cuts_in_the_order_in_which_gradients_arrive(row: dict[str, str]) -> None:
    cap = math.inf if row["step"] == "0" else CAPS[row["case"]]
    cuts = ddp_cuts(in_ready_order(tiny_llama(4)), element_bytes=4, cap=cap)
    assert [c.elements for c in cuts] == [int(n) for n in row["first"].split()]


REDUCED = [r for r in rows("zero3_collectives.csv") if r["collective"] in ("reduce_scatter_tensor", "all_reduce")]


@pytest.mark.parametrize("row", REDUCED, ids=lambda r: f"{r['case']} {r['step']} {r['phase']}")
def test_deepspeed_reduces_the_buckets_of_its_runs(row: dict[str, str]) -> None:
    bucket = 50_000 if row["calls"] == "6" else 500_000_000
    cuts = ipg_cuts(in_ready_order(tiny_llama(4)), bucket=bucket)
    assert [c.elements for c in cuts] == [int(n) for n in row["first"].split()]


@given(some_elements, sizes, st.sampled_from([2, 4]))
def test_ddp_buckets_close_as_soon_as_they_are_full(elements: list[int], cap: int, element_bytes: int) -> None:
    cuts = ddp_cuts(elements, element_bytes=element_bytes, cap=cap)
    assert partition(elements, cuts) == [c.elements for c in cuts]
    for cut, part in zip(cuts, slices(elements, cuts), strict=True):
        assert sum(part[:-1]) * element_bytes < cap
        assert cut is cuts[-1] or cut.elements * element_bytes >= cap


@given(some_elements, sizes)
def test_deepspeeds_buckets_hold_what_fits(elements: list[int], bucket: int) -> None:
    cuts = ipg_cuts(elements, bucket=bucket)
    assert partition(elements, cuts) == [c.elements for c in cuts]
    for cut in cuts:
        assert cut.elements <= bucket or cut.tensors == 1
        assert cut is cuts[-1] or cut.elements + elements[cut.last + 1] > bucket


@pytest.mark.parametrize(
    "cut",
    [
        lambda: ddp_cuts([1], element_bytes=4, cap=0),
        lambda: ipg_cuts([1], bucket=0),
    ],
)
def test_a_bucket_without_room_is_refused(cut: object) -> None:
    with pytest.raises(InvalidPlan, match="more than 0"):
        cut()  # type: ignore[operator]


def test_nothing_to_cut() -> None:
    assert ddp_cuts([], element_bytes=4) == ipg_cuts([], bucket=1) == ()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt"])
def test_every_part_of_a_chunk_is_cut_into_its_own_tensors(family: str, tied: bool) -> None:
    """Of the head, each layer and the embedding: they sum to the part, in the order of gradients; layers are alike."""
    job = small(
        framework="pytorch-ddp", sharding__strategy="ddp", parallel__tp=1, parallel__pp=1, cluster__nodes=1,
        model={**SMALL["model"], "family": family, "layers": 4, "kv_heads": 16, "tied_embeddings": tied},
    )  # fmt: skip
    parts = lower(job).parts
    chunk = parts.holdings.gradients(parts.of_rank(0)[0])
    tensors = ready(job, chunk)
    assert [part for _, part in tensors] == sorted(part for _, part in tensors)
    of_part = [[n for n, part in tensors if part == k] for k in range(len(chunk.parts))]
    assert [sum(elements) for elements in of_part] == list(chunk.parts)
    head, *layers, embedding = of_part
    assert all(elements == layers[0] for elements in layers)
    assert len(layers[0]) > 6
    assert len(head) == (2 if family == "gpt" else 1) + (0 if tied else 1)  # the last norm, and a matrix of its own
    assert len(embedding) >= 1


@pytest.mark.parametrize("family", ["llama", "gpt", "bloom"])
def test_matrices_are_the_tensors_with_two_sizes(family: str) -> None:
    """Norms and biases have at most a few numbers per hidden one; every matrix has many."""
    job = small(
        framework="deepspeed", sharding__strategy="zero3", parallel__tp=1, parallel__pp=1, cluster__nodes=1,
        model={**SMALL["model"], "family": family, "layers": 2, "kv_heads": 16},
    )  # fmt: skip
    tensors = tensorwise.whole(job)
    hidden = job.model.hidden
    assert list(tensors.matrix) == [size > 8 * hidden for size in tensors.sizes]
    assert {True, False} == set(tensors.matrix)
