"""
Record what a commit says of all scenarios and of random jobs, and compare two records to the last bit.

    python -m tests.tools.same_steps record before.json              # 25 scenarios and 300 random jobs
    python -m tests.tools.same_steps record after.json --random 300 --no-large
    python -m tests.tools.same_steps compare before.json after.json

Only public names are used (``Scenario.from_dict``, ``run``, ``to_dict``, ``timeline``), so that one script runs on
commits whose insides differ. A record has, per case, every number of ``result.json`` written as exact hexadecimal,
and a hash of the spans of two ranks; or the class of the error with which the case was refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import trainsim as ts

ROOT = Path(__file__).parents[2]
SKIPPED = ("scenario", "simulation.wall_s", "simulation.events")
"""Keys that say how a number was come by, not what it is."""
TEXTS = ("warnings", "estimate.explanation", "memory.not_counted")
"""Keys that hold sentences; ``--texts`` compares them too."""
LARGE = 2_000_000
"""Spans of two ranks above which only their number is recorded."""

TOPOLOGIES = (
    "dgx_a100",
    "dgx_h100",
    "dgx1_v100",
    "dgx2_v100",
    "dgx_b200",
    "jean_zay_a100",
    "meta_h100_roce",
    "pcie_box",
)
SCHEDULES = (
    ("gpipe", 1),
    ("1f1b", 1),
    ("1f1b", 1),
    ("eager-1f1b", 1),
    ("interleaved-1f1b", 2),
    ("interleaved-1f1b", 2),
    ("looped-bfs", 2),
    ("zb-h1", 1),
    ("zb-h2", 1),
    ("zb-v", 2),
    ("v-half", 2),
    ("v-min", 2),
    ("1f1b-v", 2),
    ("dualpipe", 2),
    ("dualpipev", 2),
    ("chimera", 2),
    ("hanayo", 2),
    ("pipedream", 1),
    ("pipedream-2bw", 1),
    ("seq1f1b", 1),
    ("llama3", 2),
    ("deepspeed", 1),
)
REPLICATED = ("zero2", "zero3", "zeropp", "mics", "hsdp", "fsdp")
MODELS: tuple[Any, ...] = (
    {"family": "gpt", "layers": 8, "hidden": 1024, "heads": 16, "vocab": 50257, "max_positions": 2048},
    {"family": "llama", "layers": 8, "hidden": 1024, "heads": 16, "kv_heads": 8, "ffn_hidden": 2816, "vocab": 32000},
    {"family": "bloom", "layers": 12, "hidden": 2048, "heads": 16, "vocab": 250880},
    {"family": "llama", "layers": 16, "hidden": 2048, "heads": 16, "kv_heads": 4, "ffn_hidden": 8192, "vocab": 128256},
    "gpt2-xl",
)


def random_document(seed: int) -> dict[str, Any]:
    """A scenario that is legal more often than not; the same for the same seed, on every commit."""
    rng = random.Random(seed)
    sharded = rng.random() < 0.4
    tp = rng.choice((1, 1, 2, 4))
    pp = 1 if sharded else rng.choice((1, 2, 2, 4, 4))
    schedule, chunks = rng.choice(SCHEDULES) if pp > 1 else ("1f1b", 1)
    training: dict[str, Any] = {
        "sequence_length": rng.choice((512, 1024, 2048)),
        "micro_batch": rng.choice((1, 1, 2)),
        "recompute": rng.choice(("none", "none", "selective", "full")),
    }
    training["global_batch"] = rng.choice((32, 64)) * training["micro_batch"]
    if rng.random() < 0.2:
        training["tp_overlap"] = rng.choice(("wgrad", "userbuffers"))
    if rng.random() < 0.2:
        training["precision"] = rng.choice(("fp16", "fp32"))
    sharding: dict[str, Any] = {"strategy": rng.choice(REPLICATED) if sharded else rng.choice(("ddp", "zero1"))}
    if rng.random() < 0.3:
        sharding["overlap"] = rng.random() < 0.5
    if rng.random() < 0.15 and sharding["strategy"] in ("zero1", "zero2", "zero3"):
        sharding["offload"] = {"optimizer": "cpu"}
    if sharding["strategy"] in ("hsdp", "mics"):
        sharding["shard_size"] = 2
    out: dict[str, Any] = {
        "name": f"random {seed}",
        "model": rng.choice(MODELS),
        "cluster": {"topology": rng.choice(TOPOLOGIES), "nodes": rng.choice((1, 2, 2))},
        "parallel": {"tp": tp, "pp": pp, "sequence_parallel": tp > 1 and rng.random() < 0.4},
        "pipeline": {"schedule": schedule, "chunks": chunks},
        "sharding": sharding,
        "training": training,
        "simulation": {"detail": rng.choice(("op", "op", "layer", "block")), "steps": rng.choice((1, 1, 1, 2))},
    }
    if rng.random() < 0.25:
        out["what_if"] = [_trouble(rng)]
    return out


def _trouble(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            {"slow": {"gpu": 1, "factor": 1.3}},
            {"slow": {"node": 0, "factor": 1.1}},
            {"delay": {"rank": 1, "at": rng.choice(("forward", "backward", "optimizer")), "seconds": 0.01}},
        )
    )


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(Dotted key, leaf) of nested data; floats as exact text."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for k, inner in enumerate(value):
            yield from numbers(inner, f"{path}[{k}]")
    else:
        yield path, value.hex() if isinstance(value, float) else value


def record(load: Callable[[], ts.Scenario]) -> dict[str, Any]:
    """What one case says, or with which error it is refused."""
    try:
        result = load().run()
    except ts.TrainsimError as error:
        return {"refused": type(error).__name__, "why": str(error)[:200]}
    out = {k: v for k, v in numbers(result.to_dict()) if not k.startswith(SKIPPED)}
    ranks = sorted({0, result.to_dict()["simulation"]["ranks"] - 1})
    if result.trace.operations / result.trace.classes < LARGE:
        out["timeline"] = _spans(result, ranks)
    return out


def _spans(result: Any, ranks: list[int]) -> str:
    frame = result.timeline(ranks=ranks)
    frame = frame[[c for c in ("rank", "stream", "name", "kind", "microbatch", "layer", "start", "end") if c in frame]]
    frame = frame.sort_values(["rank", "start", "end", "stream", "name", "microbatch", "layer"], kind="stable")
    text = frame.to_csv(index=False, float_format="%.17g")
    return hashlib.sha256(text.encode()).hexdigest()


def cases(*, randoms: int, large: bool) -> Iterator[tuple[str, Callable[[], ts.Scenario]]]:
    """All scenarios that ship, the quick ones first, then random jobs."""
    slow = ("korthikanti_530b", "korthikanti_1t", "scale_", "llama3_405b", "bloom_", "zeropp_18b", "zero3_18b")
    names = sorted(p.stem for p in (ROOT / "scenarios").glob("*.yaml"))
    for name in sorted(names, key=lambda n: n.startswith(slow)):
        if large or not name.startswith(slow):
            yield name, partial(ts.Scenario.load, name)
    for seed in range(randoms):
        yield f"random-{seed}", partial(ts.Scenario.from_dict, random_document(seed))


def record_all(path: Path, *, randoms: int, large: bool) -> None:
    """Write the record of this commit to *path*."""
    out: dict[str, Any] = {}
    for name, load in cases(randoms=randoms, large=large):
        began = time.perf_counter()
        out[name] = record(load)
        if not name.startswith("random") and sys.stderr.isatty():
            print(f"{name} {time.perf_counter() - began:.1f} s", file=sys.stderr)
    path.write_text(json.dumps(out))
    refused = Counter(v["refused"] for v in out.values() if "refused" in v)
    print(f"{len(out)} cases, refused: {dict(refused)}")


def differences(before: dict[str, Any], after: dict[str, Any], *, texts: bool) -> Iterator[tuple[str, str, Any, Any]]:
    """(Case, key, before, after) of everything that both have and that is not the same."""
    for name in before:
        old, new = before[name], after.get(name)
        if new is None:
            continue
        if ("refused" in old) != ("refused" in new):
            yield name, "refused", old.get("refused"), new.get("refused", "runs now")
            continue
        for key in old:
            if key == "why" or (not texts and key.partition("[")[0] in TEXTS):
                continue
            if key in new and old[key] != new[key]:
                yield name, key, old[key], new[key]


def compare(before: Path, after: Path, *, texts: bool) -> int:
    """Print what differs; the exit status is 1 where anything does."""
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    found = list(differences(old, new, texts=texts))
    for key, count in Counter(key.partition("[")[0] for _, key, _, _ in found).most_common():
        cases_of = sorted({name for name, other, _, _ in found if other.partition("[")[0] == key})
        print(f"{count:5d} {key}: {', '.join(cases_of[:8])}{' ...' if len(cases_of) > 8 else ''}")
        name, full, a, b = next(f for f in found if f[1].partition("[")[0] == key)
        print(f"      {name} {full}: {_plain(a)} -> {_plain(b)}")
    gone = {k for n in old if n in new and "refused" not in new[n] for k in old[n] if k not in new[n]}
    print(f"{len(set(old) & set(new))} cases compared, {len(found)} values differ, {len(gone)} keys are gone")
    print("".join(f"  gone: {key}\n" for key in sorted(gone)[:20]), end="")
    return 1 if found else 0


def _plain(value: Any) -> Any:
    return float.fromhex(value) if isinstance(value, str) and "0x" in value else value


def main() -> int:
    """The two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("path", type=Path)
    one.add_argument("--random", type=int, default=300)
    one.add_argument("--no-large", action="store_true")
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--texts", action="store_true")
    given = parser.parse_args()
    if given.command == "record":
        record_all(given.path, randoms=given.random, large=not given.no_large)
        return 0
    return compare(given.before, given.after, texts=given.texts)


if __name__ == "__main__":
    raise SystemExit(main())
