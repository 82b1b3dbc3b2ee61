"""
Scenarios of our own beside files of others: what they say counts as any other file's word.
"""

from __future__ import annotations

from trainsim.importers.combining import leaves_of
from trainsim.importers.findings import Fact, Findings
from trainsim.importers.importer import Importer, read, register
from trainsim.importers.source import Source

SECTIONS = ("model", "cluster", "parallel", "pipeline", "sharding", "training", "network", "what_if", "simulation")


def sniff(source: Source) -> float:
    """Sure where a topology is named; unsure of single sections, whose names others use as well."""
    if "topology" in source.section("cluster"):
        return 1.0
    keys = {"name", "framework", "description", "source", "base", "derived", *SECTIONS}
    if not source.data or set(source.data) - keys:
        return 0.0
    return 0.3 if source.has(*SECTIONS) else 0.0


def load(source: Source) -> Findings:
    """Every value as it stands."""
    document = source.document
    for key, line in document.repeated.items():
        raise document.fail(key, f"{key[-1]} is already given in line {line}; keep one")
    facts = [
        Fact(key=key, value=value, place=document.origin.place(tuple(key.split("."))).removesuffix(": "), source=key)
        for key, value in leaves_of(document.data)
        if not key.startswith("derived.")
    ]
    return Findings(importer="trainsim", file=source.shown, facts=tuple(facts))


register(
    Importer(
        name="trainsim",
        title="a scenario of trainsim",
        about="A scenario file, or a part of one, that adds to what files of other tools say.",
        leaves_open="What it does not say.",
        keys=tuple(read(f"{section}.**", f"{section}, as it stands") for section in SECTIONS),
        sniff=sniff,
        load=load,
    )
)
