"""The pipeline of a published run: its schedule by whatever name, its chunks, and the layers of its stages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trainsim.errors import UnknownName
from trainsim.scenario.checks import Fault
from trainsim.scenario.layout import balanced, derive
from trainsim.schedules import schedules
from trainsim.validation.models import predicts_further
from trainsim.validation.published import PublishedRun, UnreadableCell

OTHER_NAMES = {
    "zb-1p": "zb-h1",  # the automatic schedules of arXiv 2401.10241 under the memory of 1F1B, and under twice as much
    "zb1p": "zb-h1",
    "zb-2p": "zb-h2",
    "zb2p": "zb-h2",
    "zero-bubble": "zb-h1",
    "afab": "gpipe",
    "dapple": "1f1b",
    "pipedream-flush": "1f1b",
    "breadth-first": "looped-bfs",
    "1f1b-i": "interleaved-1f1b",
    "virtual-pipeline": "interleaved-1f1b",
}
"""Names of schedules that others use, and the schedule that each is, or is nearest to."""
USUAL = ("", "none", "nan", "1f1b", "interleaved-1f1b")
LAYERS_PER_CHUNK = 2
"""Of an interleaved pipeline whose chunks the source does not give: a chunk of about so many."""


def pipeline_of(run: PublishedRun, assume: Callable[[str], None]) -> dict[str, Any]:
    """The ``pipeline`` section; *assume* hears what the source leaves open.

    Raises UnreadableCell for an unknown schedule.

    >>> pipeline_of(PublishedRun(line=2, cells={"pp": "4", "layers": "30", "schedule": "ZB-V"}), print)
    {'schedule': 'zb-v', 'chunks': 2}
    """
    stages = run.whole("pp") or 1
    if stages == 1:
        return {}
    named = _schedule(run.text("schedule"))
    layers, chunks = run.wanted("layers"), run.whole("vpp") or 0
    section: dict[str, Any] = {}
    if named not in USUAL:
        section["schedule"] = named
        chunks = max(chunks, schedules.traits(named).chunks or 1)
    elif named == "interleaved-1f1b" and (not chunks or "VP not listed" in run.text("notes")):
        chunks = _chunks(layers, stages)
        assume(f"{chunks} chunks")
    return section | _stages(run, layers, stages, max(chunks, 1), assume)


def _stages(run: PublishedRun, layers: int, stages: int, chunks: int, assume: Callable[[str], None]) -> dict[str, Any]:
    """Chunks, and which layers each stage has where they do not divide."""
    section: dict[str, Any] = {"chunks": chunks} if chunks > 1 else {}
    if told := run.text("layout"):
        section["layout"] = told
    elif stages * chunks > layers:
        return section  # the scenario says what would work
    elif predicts_further(run):
        section["layout"] = _filled(layers, stages * chunks)
        assume("the further layer and the loss on a stage that has fewer others")
    elif isinstance(derive(layers=layers, pp=stages, chunks=chunks), Fault):
        section["layout"] = list(balanced(layers=layers, stages=stages * chunks))
        assume(f"{layers} layers on {stages * chunks} stages")
    return section


def _filled(layers: int, stages: int) -> list[int]:
    """Stages filled one after the other, as in Megatron-Bridge's layouts with an MTP layer (Et*4|(t*4|)*14tmL).

    >>> _filled(61, 16)
    [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1]
    """
    most = -(-layers // stages)
    return [max(0, min(most, layers - stage * most)) for stage in range(stages)]


def _schedule(text: str) -> str:
    """The schedule that *text* names, as the registry has it; one that is interleaved is Megatron-LM's."""
    name = re.sub(r"\(.*?\)", "", text).strip().lower().replace(" ", "-").replace("_", "-")
    if "interleaved" in name and "zero" not in name and "zb" not in name:
        return "interleaved-1f1b"
    name = OTHER_NAMES.get(name, name)
    if name in USUAL:
        return name
    try:
        return schedules.canonical(name)
    except UnknownName as unknown:
        raise UnreadableCell(f"schedule = {text!r}: {unknown}") from None


def _chunks(layers: int, stages: int) -> int:
    """Chunks of about LAYERS_PER_CHUNK layers, if layers divide by the stages."""
    per_stage, rest = divmod(layers, stages)
    if rest:
        return 1
    fitting = [n for n in range(1, per_stage + 1) if per_stage % n == 0]
    return min(fitting, key=lambda n: (abs(per_stage / n - LAYERS_PER_CHUNK), n))
