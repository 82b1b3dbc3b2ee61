"""The gallery: every scenario that ships, run, with its chart and its most important numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

import trainsim as ts
from trainsim.scenario.loading import of_several_jobs
from trainsim.study.code import code_digest
from trainsim.units import format_bytes, format_time
from website.links import ROOT

PAGE = "gallery.md"
FOLDER = "gallery"
KEPT = ROOT / "out" / "gallery"
"""Where what was run is kept, under the digest of the code and of the scenario: the second build takes no time."""
DOTS_PER_INCH = 80
INTRO = """# Gallery

Every scenario that ships, run with its own settings. `trainsim run NAME` prints the same numbers and draws the same
chart; each is a short file to start from. [How to read a chart](pictures.md).
"""
COMMENT = re.compile(r"^# ?(.*)$")


def pages() -> Iterator[tuple[str, str | bytes]]:
    """(Place in the site, content) of the page and of its pictures."""
    shown = {path.stem: shown_scenario(path) for path in scenario_files()}
    yield PAGE, page({name: facts for name, (facts, _) in shown.items()})
    yield from ((f"{FOLDER}/{name}.png", picture) for name, (_, picture) in shown.items())


def scenario_files() -> list[Path]:
    """All scenarios that ship, in order."""
    return sorted((ROOT / "scenarios").glob("*.yaml"))


def page(shown: Mapping[str, Mapping[str, str]]) -> str:
    """The page, as Markdown, from the figures of each scenario by its name."""
    heads = list(dict.fromkeys(head for facts in shown.values() for head in facts))
    lines = [f"| scenario | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| [{n}](#{n}) | {' | '.join(f.get(head, '') for head in heads)} |" for n, f in shown.items()]
    parts = [INTRO, "\n".join(lines)]
    for name, facts in shown.items():
        text = (ROOT / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
        figures = ", ".join(f"{head} **{value}**" for head, value in facts.items() if value)
        parts += [
            f"## {name}",
            f"**{yaml.safe_load(text).get('name', name)}.** {' '.join(comment(text))}",
            f"```sh\ntrainsim run {name}\n```",
            f"{figures[:1].upper()}{figures[1:]}. [The file](../scenarios/{name}.yaml)",
            f"![Gantt chart of {name}]({FOLDER}/{name}.png){{ loading=lazy }}",
        ]
    return "\n\n".join(parts) + "\n"


def comment(text: str) -> list[str]:
    """The lines of the comment that a file begins with.

    >>> comment("# One\\n# two.\\n\\nname: x  # not this\\n")
    ['One', 'two.']
    """
    found = []
    for line in text.splitlines():
        if not (match := COMMENT.match(line)):
            break
        found.append(match[1].replace("<", "&lt;"))
    return found


def shown_scenario(path: Path) -> tuple[Mapping[str, str], bytes]:
    """The figures of a scenario and its chart (PNG), from before if nothing has changed since."""
    text = path.read_bytes()
    kept = KEPT / f"{path.stem}-{sha256(code_digest().encode() + text).hexdigest()[:16]}"
    facts, picture = kept.with_suffix(".json"), kept.with_suffix(".png")
    if not (facts.is_file() and picture.is_file()):
        found, drawn = _several(path) if of_several_jobs(yaml.safe_load(text)) else _one(path)
        KEPT.mkdir(parents=True, exist_ok=True)
        for old in KEPT.glob(f"{path.stem}-*"):
            old.unlink()
        picture.write_bytes(drawn)
        facts.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(facts.read_text(encoding="utf-8")), picture.read_bytes()


def _one(path: Path) -> tuple[dict[str, str], bytes]:
    result = ts.Scenario.load(path).run()
    use = result.memory
    figures = {
        "GPUs": f"{result.lanes.ranks:,}",
        "step": format_time(result.step_time),
        "MFU": f"{result.mfu:.1%}",
        "bubble": f"{result.bubble.fraction:.1%}" if len(result.bubble.per_stage) > 1 else "none",
        "memory": f"{format_bytes(use.peak)} of {format_bytes(use.capacity)}{'' if use.fits else ': does not fit'}",
    }
    return figures, _drawn(result)


def _several(path: Path) -> tuple[dict[str, str], bytes]:
    result = ts.run_jobs(path)
    gpus = sum(job.together.lanes.ranks for job in result.jobs)
    steps = ", ".join(f"{job.name} {job.slowdown:.3f} x" for job in result.jobs)
    return {"GPUs": f"{gpus:,}", "step": f"{steps} of what it takes alone"}, _drawn(result)


def _drawn(result: Any) -> bytes:
    import matplotlib.pyplot as plt

    out, figure = BytesIO(), result.gantt()
    figure.savefig(out, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
    plt.close(figure)
    return out.getvalue()
