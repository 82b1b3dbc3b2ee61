"""What kernels, collectives and copies are called in a trace, as libraries call theirs: ``kernel_names.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from trainsim.documents.catalogue import shipped

TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "tf32": "fp32", "fp8": "bf16"}
"""What is named in each training precision; fp8 and less keep 16-bit copies around their products."""


class NumberType(NamedTuple):
    """A type of number as a record of a collective says it, and its bytes."""

    record: str
    nbytes: int


@cache
def _names() -> Mapping[str, Any]:
    return shipped("report", "kernel_names").data


def number_type(precision: str, nbytes: float | None = None) -> tuple[str, NumberType]:
    """(Name, type) of numbers in a training *precision*, or of those that are *nbytes* long.

    >>> number_type("bf16"), number_type("bf16", 4.0)[0]
    (('bf16', NumberType(record='BFloat16', nbytes=2)), 'fp32')
    """
    types, name = _names()["types"], TYPES.get(precision, "bf16")
    if nbytes is not None and types[name]["bytes"] != nbytes:
        name = next((other for other, words in types.items() if words["bytes"] == nbytes), name)
    return name, NumberType(types[name]["record"], types[name]["bytes"])


@cache
def compute_name(operation: str, kind: str, kernels: str, number: str) -> str:
    """The kernel of an *operation* of some *kind* on a GPU whose constants are *kernels*, of a type of *number*.

    >>> compute_name("fc1 dgrad", "backward", "ampere", "bf16")
    'ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x4_nn'
    """
    names = _names()
    if kind == "optimizer":
        return str(names["update"])
    way = "backward" if kind == "backward" else "forward"
    found = next((row[way] for row in names["operations"] if re.search(row["pattern"], operation)), "product tn")
    words = names["types"][number]
    if not found.startswith("product "):
        return str(found).format(**words)
    products = names["products"]
    chip = max((name for name in products if kernels.startswith(name)), key=len, default="generic")
    return str(products[chip]).format(layout=found.removeprefix("product "), **words)


@cache
def collective_name(operation: str, number: str) -> str:
    """The kernel of NCCL that does a collective *operation*, or sends a message, of a type of *number*.

    >>> collective_name("all_reduce", "bf16")
    'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)'
    """
    names = _names()
    kernel = names["collectives"].get(operation, names["collectives"]["send"])["kernel"]
    return str(names["communication"]).format(kernel=kernel.format(**names["types"][number]))


def recorded_name(operation: str) -> str:
    """What torch.distributed calls an *operation* in its records.

    >>> recorded_name("all_gather")
    '_allgather_base'
    """
    collectives = _names()["collectives"]
    return str(collectives.get(operation, collectives["send"])["record"])


def copy_name(operation: str) -> str | None:
    """What the driver calls an *operation* that is a copy between a GPU and memory; None if it is none."""
    name = _names()["copies"].get(operation)
    return None if name is None else str(name)
