"""
The one way in which a row of published runs becomes a scenario.

Model, machine, degrees and batches come from their columns; what the software does from its name and year
(``trainsim.frameworks.software``) and from remarks about what was on or off. Nothing depends on who published a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainsim.frameworks import load_framework
from trainsim.validation.machines import machine_of
from trainsim.validation.models import is_taken_for_a_gpt, model_of
from trainsim.validation.published import PublishedRun
from trainsim.validation.software import SoftwareOfRun, software_of
from trainsim.validation.training import sections_of

DETAIL = "block"
"""Steps are compared, not timelines: an interval per pass is enough, and quick."""


class MappedRun(NamedTuple):
    """A row as a scenario, and in words what was assumed where the source says nothing."""

    scenario: dict[str, Any]
    software: SoftwareOfRun
    assumed: tuple[str, ...]


def scenario_of(run: PublishedRun) -> MappedRun:
    """The scenario of *run*. Raises UnreadableCell for cells that are no values of their columns.

    >>> from trainsim.validation.published import read_runs
    >>> run = next(run for run in read_runs() if run.id == "S4-004")
    >>> scenario_of(run).scenario["parallel"]
    {'tp': 8, 'pp': 8, 'sequence_parallel': True}
    """
    software = software_of(run)
    machine = machine_of(run)
    sections = sections_of(run, family=software.family)
    data: dict[str, Any] = {
        "name": run.text("model_name") or run.id,
        "framework": software.profile,
        "model": model_of(run),
        "cluster": dict(machine.cluster),
        **{key: dict(section) for key, section in sections.data.items()},
        "simulation": {"detail": DETAIL},
    }
    family = ("a GPT, for family and gated_mlp are blank",) * is_taken_for_a_gpt(run)
    assumed = (*software.assumed, *family, *machine.assumed, *sections.assumed)
    return MappedRun(_remarked(data, run), software, assumed)


def _remarked(data: dict[str, Any], run: PublishedRun) -> dict[str, Any]:
    """*data* with what remarks say was on or off."""
    flags, training = run.text("overlap_flags"), data["training"]
    words = "; ".join((run.remarks, run.text("zero_note"), run.text("framework")))
    if (overlap := _tensor_overlap(flags, words, data)) is not None:
        training["tp_overlap"] = overlap
    if re.search(r"full CUDA graph|cuda_graph=(local|full_iteration)", flags, re.I):
        training["cuda_graphs"] = True
    if (compiled := _compiled(words, data["framework"])) is not None:
        data["framework"] = {"base": data["framework"], "compiled": compiled}
    if re.search(r"CUDA_LAUNCH_BLOCKING", run.text("notes")):
        data["framework"] = {"base": data["framework"], "host": {"blocking": True}}
    if "PURE" in run.text("zero_note"):  # Composer's name for FSDP that reduces in 16 bits too
        training["gradient_dtype"] = "bf16"
    return data


def _compiled(words: str, framework: str) -> bool | None:
    """Whether torch.compile was used, where that is said and is not what the profile has; Megatron's is neither.

    >>> _compiled("torch.compile on", "pytorch-ddp"), _compiled("not compiled", "torchtitan")
    (True, False)
    """
    usual = load_framework(framework).compiled
    if usual is None or not re.search(r"\bcompile[d]?\b|torch\.compile", words, re.I):
        return None
    off = re.search(r"(not|no|without|un-?)\W{0,2}(torch\.)?compile|compile[d]? (off|false|disabled)", words, re.I)
    said = off is None
    return said if said != usual else None


def _tensor_overlap(flags: str, words: str, data: Mapping[str, Any]) -> str | None:
    """What of tensor parallelism was overlapped, where it is said. Megatron-LM's switch for its user buffers: off still
    leaves the reductions of the backward under weight gradients."""
    sharded = data["parallel"].get("sequence_parallel") if "parallel" in data else False
    if sharded and re.search(r"async(hronous)?[- ]?(TP|tensor)", words, re.I):
        return "async"
    if re.search(r"TP[^;]*overlap off|TP_COMM_OVERLAP off|no TP[^;]*overlap", flags, re.I):
        return "wgrad" if sharded else None
    if sharded and re.search(r"TP_COMM_OVERLAP on|TP overlap|tp-comm-overlap", flags, re.I):
        return "userbuffers"
    return None
