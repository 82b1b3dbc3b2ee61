"""
ZeRO++ against the network: throughput per GPU of ZeRO-3, of ZeRO++ and of each of its three parts on 384 V100.

    python -m benchmarks.zeropp [--markdown]

Takes about a minute and prints two tables; ``--markdown`` writes them into docs/zeropp.md, and the picture beside it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trainsim as ts

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "zeropp.md", DOCS / "images" / "zeropp.png"
BASE = "zero3_18b_800g"
NICS = (1, 2, 4, 8)
LINE = 100  # Gb/s of a NIC of a DGX-2
TOKENS = (1024, 2048)
TERA = 1e12
HALF_PRECISION = 2  # bytes
HIGHEST = 82  # TFLOP/s, of the picture

# 18B: deepspeedai/DeepSpeed, docs/_tutorials/zeropp.md. 138B: assumed; a width that divides by three, as qgZ needs on
# 384 GPUs (it takes only tensors that divide by twice their number).
MODELS: Mapping[str, Mapping[str, int]] = {
    "18B": {"layers": 40, "hidden": 6144, "heads": 32},
    "138B": {"layers": 76, "hidden": 12288, "heads": 96},
}
VARIANTS: Mapping[str, Mapping[str, object]] = {
    "ZeRO-3": {},
    "qwZ": {"quantized_weights": True},
    "hpZ": {"secondary_partition": 16},
    "qgZ": {"quantized_gradients": True},
    "ZeRO++": {"strategy": "zeropp"},
}
# TFLOP/s per GPU of ZeRO-3 and ZeRO++ with 1 and 8 NICs: Wang et al. 2023 (arXiv 2306.10209), the table of speedups on
# 384 GPUs, from memory. Its largest ratio, 2.16, is that of the abstract.
PAPER: Mapping[tuple[str, int, int], tuple[float, float]] = {
    ("18B", 1024, 1): (14.15, 30.57),
    ("18B", 1024, 8): (31.27, 37.87),
    ("18B", 2048, 1): (25.98, 46.40),
    ("18B", 2048, 8): (47.31, 53.65),
    ("138B", 1024, 1): (11.25, 21.81),
    ("138B", 1024, 8): (34.19, 44.38),
    ("138B", 2048, 1): (19.96, 37.90),
    ("138B", 2048, 8): (47.55, 55.30),
}


class Point(NamedTuple):
    """One run: TFLOP/s per GPU with recomputation, as the paper counts, and what crosses a node's network in models of
    16-bit numbers."""

    tflops: float
    volume: float


def scenario(model: str, tokens: int, nics: int, variant: str) -> ts.Scenario:
    """The scenario of one point."""
    sizes = {f"model.{key}": value for key, value in MODELS[model].items()}
    options = {f"sharding.{key}": value for key, value in VARIANTS[variant].items()}
    batch = {"training.micro_batch": tokens // 1024, "training.global_batch": None}
    return ts.Scenario.load(BASE).replace({**sizes, **options, **batch, "cluster.nics_per_node": nics})


def point(model: str, tokens: int, nics: int, variant: str) -> Point:
    """Run it."""
    result: dict[str, Any] = scenario(model, tokens, nics, variant).run().to_dict()
    cluster = scenario(model, tokens, nics, variant).resolve().cluster
    crossed = result["communication"]["dp"]["bytes_inter_node_per_rank"] * cluster.gpus_per_node
    return Point(
        tflops=result["hardware_flops_per_gpu"] / TERA,
        volume=crossed / (HALF_PRECISION * result["parameters"]["total"]),
    )


Points = Mapping[tuple[str, int, int, str], Point]


def measure() -> Points:
    """All points."""
    keys = [(m, t, n, v) for m in MODELS for t in TOKENS for n in NICS for v in VARIANTS]
    return {key: point(*key) for key in keys}


def row(points: Points, model: str, tokens: int, nics: int) -> str:
    """One line of the table of TFLOP/s."""
    found = [points[model, tokens, nics, variant].tflops for variant in VARIANTS]
    numbers = " | ".join(f"{value:.1f}" for value in found)
    known = PAPER.get((model, tokens, nics))
    paper = f"{known[0]:.1f} → {known[1]:.1f}: {known[1] / known[0]:.2f}" if known else ""
    where = f"{model}, {tokens // 1024}K | {nics * LINE} Gb/s"
    return f"| {where} | {numbers} | {found[-1] / found[0]:.2f} | {paper} |"


def throughput(points: Points) -> Iterator[str]:
    """The table of TFLOP/s, a row per model, batch and network."""
    yield "| model, tokens per GPU | network per node | " + " | ".join(VARIANTS) + " | ZeRO++ / ZeRO-3 | paper |"
    yield "|---|--:|" + "--:|" * (len(VARIANTS) + 2)
    for model in MODELS:
        for tokens in TOKENS:
            yield from (row(points, model, tokens, nics) for nics in NICS)


def volumes(points: Points) -> Iterator[str]:
    """The table of what crosses a node's network."""
    yield "| model | " + " | ".join(VARIANTS) + " |"
    yield "|---|" + "--:|" * len(VARIANTS)
    for model in MODELS:
        found = [points[model, TOKENS[0], NICS[0], variant].volume for variant in VARIANTS]
        yield f"| {model} | " + " | ".join(f"{value:.2f} M" for value in found) + " |"


def draw(points: Points) -> None:
    """Throughput against the network, a panel per model and batch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 2, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
    colours = dict(zip(VARIANTS, ("#444444", "#7fb3d5", "#f5b041", "#af7ac5", "#1e8449"), strict=True))
    for (model, tokens), panel in zip([(m, t) for m in MODELS for t in TOKENS], panels.flat, strict=True):
        for variant, colour in colours.items():
            values = [points[model, tokens, nics, variant].tflops for nics in NICS]
            bold = variant.startswith("ZeRO")
            panel.plot(NICS, values, "o-", color=colour, label=variant, lw=2.2 if bold else 1.2, ms=5 if bold else 3)
        for nics in NICS:
            for value, variant in zip(PAPER.get((model, tokens, nics), ()), ("ZeRO-3", "ZeRO++"), strict=False):
                panel.plot(nics, value, "D", mfc="none", mec=colours[variant], ms=8)
        panel.set_title(f"GPT-{model}, {tokens // 1024}K tokens per GPU")
        panel.set_xscale("log", base=2)
        panel.set_xticks(NICS, [str(nics * LINE) for nics in NICS])
        panel.set_ylim(0, HIGHEST)
        panel.grid(alpha=0.3)
    panels[0, 0].plot([], [], "D", mfc="none", mec="black", ms=8, label="paper")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(VARIANTS) + 1)
    figure.supxlabel("network per node of 16 V100 (Gb/s)")
    figure.supylabel("TFLOP/s per GPU, with recomputation")
    figure.savefig(PICTURE, dpi=90)
    pyplot.close(figure)


def insert(text: str, name: str, rows: Sequence[str]) -> str:
    """*text* with the table called *name* replaced."""
    return re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\1\n{chr(10).join(rows)}\n\n\2", text, flags=re.DOTALL)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zeropp", description=(__doc__ or "").splitlines()[1])
    parser.add_argument("--markdown", action="store_true", help=f"write docs/{PAGE.name} and its picture")
    options = parser.parse_args()
    points = measure()
    tables = {"throughput": [*throughput(points)], "volumes": [*volumes(points)]}
    for rows in tables.values():
        print("\n".join(rows), end="\n\n")
    if options.markdown:
        text = PAGE.read_text(encoding="utf-8")
        for name, rows in tables.items():
            text = insert(text, name, rows)
        PAGE.write_text(text, encoding="utf-8")
        draw(points)
        print(f"Written: docs/{PAGE.name}, docs/images/{PICTURE.name}")


if __name__ == "__main__":
    main()
