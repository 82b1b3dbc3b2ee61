"""
What each sharding strategy keeps and sends, measured on one model: Llama-2-7B on 64 A100.

    python -m benchmarks.sharding [--markdown]

Prints a table; ``--markdown`` writes it into docs/sharding.md, and the pictures of the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import trainsim as ts
from benchmarks.zeropp import insert
from trainsim.program.rank import RankPlan

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "sharding.md"
GIB = 2.0**30
ACCUMULATED = 4  # micro-batches

BASE: Mapping[str, Any] = {
    "model": "llama-2-7b",
    "cluster": {"topology": "dgx_a100", "nodes": 8},
    "training": {"sequence_length": 4096, "micro_batch": 1, "global_batch": 64, "recompute": "full"},
}
CASES: tuple[tuple[str, str, Mapping[str, object]], ...] = (
    ("ddp", "pytorch-ddp", {}),
    ("ddp", "megatron-core", {}),
    ("zero1", "megatron-core", {}),
    ("zero1", "megatron-core", {"instances": 8}),
    ("zero1", "deepspeed", {}),
    ("zero2", "deepspeed", {}),
    ("zero3", "deepspeed", {}),
    ("zeropp", "deepspeed", {}),
    ("mics", "deepspeed", {}),
    ("fsdp", "pytorch-fsdp1", {}),
    ("fsdp", "pytorch-fsdp2", {}),
    ("fsdp", "pytorch-fsdp2", {"reshard_after_forward": False}),
    ("fsdp", "pytorch-fsdp2", {"sync": "last"}),
    ("hsdp", "pytorch-fsdp2", {}),
)
UNITS: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("pytorch-fsdp2", {}),
    ("pytorch-fsdp2", {"units": "layers_and_embeddings"}),
    ("pytorch-fsdp2", {"units": 4}),
    ("pytorch-fsdp2", {"units": "model"}),
    ("pytorch-fsdp2", {"backward_prefetch": 4}),
    ("pytorch-fsdp1", {}),
    ("pytorch-fsdp1", {"limit_all_gathers": False}),
)
STATES = ("weights", "gradients", "optimizer")
PICTURES: Mapping[str, tuple[str, tuple[float, float]]] = {
    "sharding_zero3": ("ds_zero3", (0.355, 0.435)),
    "sharding_fsdp": ("fsdp_llama", (0.690, 0.770)),
    "sharding_zero2": ("ds_zero2", (0.400, 0.510)),
}


def result(strategy: str, framework: str, options: Mapping[str, object], microbatches: int) -> ts.Result:
    """A step of so many micro-batches."""
    training = {**BASE["training"], "global_batch": BASE["training"]["global_batch"] * microbatches}
    sharding = {"strategy": strategy, **options}
    return ts.Scenario.from_dict({**BASE, "framework": framework, "sharding": sharding, "training": training}).run()


def row(strategy: str, framework: str, options: Mapping[str, object]) -> str:
    """One line of the table."""
    once = result(strategy, framework, options, 1)
    often = result(strategy, framework, options, ACCUMULATED)
    parameters = float(once.parameters["total"])
    memory, fresh = (
        once.simulation.programs[0].memory,
        RankPlan(parts=once.simulation.plan.parts, rank=0).fresh_gradients,
    )
    held = replace(memory, gradients=memory.gradients + fresh)
    states = " | ".join(f"{getattr(held, part) / parameters:.2f}" for part in STATES)
    name = strategy + "".join(f", {key} {str(value).lower()}" for key, value in options.items())
    data = [each.to_dict()["communication"]["dp"] for each in (once, often)]
    sent = " | ".join(f"{each['bytes_per_rank'] / parameters:.1f}" for each in data)
    beyond = data[0]["bytes_inter_node_per_rank"] * 8 / parameters
    peak, hidden = once.memory.peak / GIB, 1 - data[0]["exposed_s"] / data[0]["time_s"]
    return f"| {name} | {framework} | {states} | {peak:.0f} GiB | {sent} | {beyond:.1f} | {hidden:.0%} |"


def table() -> Iterator[str]:
    """All of it."""
    yield (
        "| strategy | framework | weights | gradients | optimizer | peak | sent, 1 micro-batch | 4 | between nodes "
        "| hidden |"
    )
    yield "|---|---|" + "--:|" * 8
    for case in CASES:
        yield row(*case)


def units_table() -> Iterator[str]:
    """What units and gathers ahead take."""
    yield "| options | framework | step | peak | sent | hidden |"
    yield "|---|---|--:|--:|--:|--:|"
    for framework, options in UNITS:
        one = result("fsdp", framework, options, 1)
        data, parameters = one.to_dict()["communication"]["dp"], float(one.parameters["total"])
        name = ", ".join(f"{key} {str(value).lower()}" for key, value in options.items()) or "none"
        hidden, sent = 1 - data["exposed_s"] / data["time_s"], data["bytes_per_rank"] / parameters
        peak = one.memory.peak / GIB
        yield f"| {name} | {framework} | {one.step_time:.3f} s | {peak:.1f} GiB | {sent:.1f} | {hidden:.0%} |"


def draw() -> None:
    """Narrow windows of three steps."""
    for name, (scenario, window) in PICTURES.items():
        figure = ts.Scenario.load(scenario).run().gantt(ranks=[0], window=window)
        figure.savefig(DOCS / "images" / f"{name}.png", dpi=80)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharding", description="What strategies keep and send.")
    parser.add_argument("--markdown", action="store_true", help=f"write docs/{PAGE.name} and its pictures")
    options = parser.parse_args()
    tables = {"table": [*table()], "units": [*units_table()]}
    for rows in tables.values():
        print("\n".join(rows), end="\n\n")
    if options.markdown:
        text = PAGE.read_text(encoding="utf-8")
        for name, rows in tables.items():
            text = insert(text, name, rows)
        PAGE.write_text(text, encoding="utf-8")
        draw()
        print(f"Written: docs/{PAGE.name} and {len(PICTURES)} pictures")


if __name__ == "__main__":
    main()
