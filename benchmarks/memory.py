"""
Peak memory that public sources measured, beside what the program predicts. Takes half a minute.

    python -m benchmarks.memory [--all] [SOURCE ...]

Prints errors by source and whether what fits and what does not are told apart; ``--all`` prints every case, SOURCE the
cases whose names start so. A case is a line of ``tests/data/published_memory.csv``.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainsim.errors import TrainsimError
from trainsim.hardware.cluster import load_topology
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.simulate import simulate

DATA = Path(__file__).parents[1] / "tests" / "data" / "published_memory.csv"
GIB = 2**30
MODEL = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab")
LEFT_OUT = {"allocated": ("framework", "slack"), "reserved": ("framework",), "smi": (), "oom": ()}
"""What a measurement does not see, of the categories of a prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case: bytes measured (None: it did not fit) and predicted, and whether the prediction fits the card.

    The allocator's slack need not fit: it is given back before an allocation fails. ``refused`` says why there is no
    prediction.
    """

    name: str
    measures: str
    measured: float | None
    predicted: float = 0.0
    fits: bool = True
    refused: str = ""

    @property
    def group(self) -> str:
        """The source and what it measures."""
        return f"{self.name.rpartition('-')[0] if self.measures != 'reserved' else self.name.split('-')[0]}"

    @property
    def error(self) -> float:
        """Of the prediction, as a part of what was measured."""
        assert self.measured
        return self.predicted / self.measured - 1


def cases(names: Sequence[str] = ()) -> list[dict[str, str]]:
    """The lines of the table, or those whose names start with one of *names*."""
    rows = csv.DictReader(line for line in DATA.read_text().splitlines() if not line.startswith("#"))
    return [row for row in rows if not names or row["case"].startswith(tuple(names))]


def scenario(row: Mapping[str, str]) -> Scenario:
    """The case as a scenario with as many micro-batches as a pipeline needs to be full: more change no peak."""
    number = {key: int(row[key]) for key in ("tp", "pp", "dp", "cp", "chunks", "micro_batch", "global_batch")}
    pp, replica = number["pp"], number["micro_batch"] * number["dp"]
    microbatches = min(number["global_batch"] // replica, pp + 1 if number["chunks"] == 1 else 2 * pp)
    data: dict[str, Any] = {
        "name": row["case"],
        "framework": row["framework"],
        "model": {
            "name": row["model"],
            "family": row["family"],
            "tied_embeddings": row["tied"] == "true",
            "max_positions": int(row["sequence_length"]),
            **{key: int(row[key]) for key in MODEL},
        },
        "cluster": _cluster(row, number["tp"] * pp * number["dp"] * number["cp"]),
        "parallel": {
            **{key: number[key] for key in ("tp", "pp", "dp", "cp")},
            "sequence_parallel": row["sequence_parallel"] == "true",
            **({"context_parallel": row["context_parallel"]} if row["context_parallel"] else {}),
        },
        "sharding": {"strategy": row["strategy"]},
        "training": {
            "sequence_length": int(row["sequence_length"]),
            "micro_batch": number["micro_batch"],
            "global_batch": microbatches * replica,
            "recompute": row["recompute"],
            "precision": row["precision"],
            **({"attention": row["attention"]} if row["attention"] else {}),
        },
    }
    if pp > 1:
        layout = [int(layers) for layers in row["layout"].split()]
        data["pipeline"] = {"chunks": number["chunks"], **({"layout": layout} if layout else {})}
    return Scenario.from_dict(data)


def _cluster(row: Mapping[str, str], ranks: int) -> dict[str, Any]:
    """As many whole nodes as it takes, or smaller ones."""
    usual = load_topology(row["topology"], nodes=1).ranks
    per_node = next(n for n in range(min(usual, ranks), 0, -1) if ranks % n == 0)
    cluster: dict[str, Any] = {"topology": row["topology"], "nodes": ranks // per_node}
    if per_node != usual:
        cluster["gpus_per_node"] = per_node
    return cluster | ({"gpu": row["gpu"]} if row["gpu"] else {})


def predict(row: Mapping[str, str]) -> Outcome:
    """Replay one case; what cannot be said or simulated yet is refused."""
    measured = float(row["bytes"]) if row["bytes"] else None
    try:
        use = Result(simulation=simulate(scenario(row).resolve())).memory
    except TrainsimError as error:
        return Outcome(name=row["case"], measures=row["measures"], measured=measured, refused=str(error))
    stage = use.per_stage[int(row["rank"])] if row["rank"] else use.fullest
    return Outcome(
        name=row["case"],
        measures=row["measures"],
        measured=measured,
        predicted=stage.peak - sum(stage.part(category) for category in LEFT_OUT[row["measures"]]),
        fits=use.peak - use.fullest.part("slack") <= (float(row["capacity"]) if row["capacity"] else use.capacity),
    )


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A line per source and kind of measurement."""
    found = [o for o in outcomes if not o.refused and o.measured]
    yield f"{'source':24} {'measures':10} {'cases':>5} {'median':>7} {'90 %':>6} {'bias':>7} {'worst':>7}"
    for key in dict.fromkeys((o.group, o.measures) for o in found):
        errors = [o.error for o in found if (o.group, o.measures) == key]
        sizes = sorted(map(abs, errors))
        worst = max(errors, key=abs)
        yield (
            f"{key[0]:24} {key[1]:10} {len(errors):5} {statistics.median(sizes):7.1%}"
            f" {sizes[int(0.9 * (len(sizes) - 1))]:6.1%} {statistics.median(errors):+7.1%} {worst:+7.1%}"
        )


def verdicts(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """How well what fits and what does not are told apart."""
    known = [o for o in outcomes if not o.refused]
    ran, failed = ([o for o in known if (o.measured is None) == oom] for oom in (False, True))
    yield f"ran: {len(ran)}, of which {sum(o.fits for o in ran)} are predicted to fit"
    yield f"did not fit: {len(failed)}, of which {sum(not o.fits for o in failed)} are predicted not to"


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description="Peak memory, beside its sources.")
    parser.add_argument("names", nargs="*", help="only cases whose names start so")
    parser.add_argument("--all", action="store_true", help="every case")
    options = parser.parse_args()
    outcomes = [predict(row) for row in cases(options.names)]
    for o in outcomes if options.all else ():
        measured = f"{o.measured / GIB:8.2f}" if o.measured else "     oom"
        said = f"{o.predicted / GIB:8.2f}" + (f" {o.error:+7.1%}" if o.measured else "" if o.fits else "     oom")
        print(f"{o.name:24} {o.measures:10}{measured}{f'  {o.refused}' if o.refused else said}")
    print(*table(outcomes), *verdicts(outcomes), sep="\n")
    print(f"refused: {sum(bool(o.refused) for o in outcomes)}")


if __name__ == "__main__":
    main()
