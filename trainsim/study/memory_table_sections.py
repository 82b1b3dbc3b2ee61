"""Will it fit, as sections for a terminal or a notebook: rules, every plan on every card, what is best on each."""

from __future__ import annotations

from trainsim.analysis.memory import NEARLY_FULL
from trainsim.hardware.cluster import Cluster
from trainsim.study.memory_rules import deepspeed_estimates, rules
from trainsim.study.memory_table import MemoryTable, PlanOnCard
from trainsim.study.trial import NOT_RUN
from trainsim.tables.blocks import Paragraph, Section
from trainsim.tables.cells import Cell, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_bytes

GIB = 2.0**30
LEFT_OUT = (
    "They count model states alone: no activations, logits, buffers, gathered parameters, fragmentation or context, "
    "which the tables above have."
)


def memory_table_sections(table: MemoryTable) -> list[Section]:
    """Everything that the table has to say."""
    counts = table.counts
    return [
        _rules(table),
        *(_grid(table, gpus) for gpus in counts),
        _best(table),
        *([_refused(table)] if any(fit.problem for fit in table.fits) else []),
        _estimates(table, max(counts), next(iter(table.machines.values())).gpus_per_node),
    ]


def short(card: str, cards: tuple[str, ...]) -> str:
    """A card's name as a heading: what tells it from the others.

    >>> cards = ("a100-sxm4-40gb", "a100-sxm4-80gb", "rtx-4090")
    >>> [short(card, cards) for card in cards]
    ['a100 40gb', 'a100 80gb', 'rtx-4090']
    """
    parts = card.split("-")
    name = f"{parts[0]} {parts[-1]}" if len(parts) > 2 else card
    like = [other for other in cards if other.split("-")[0] == parts[0] and other.split("-")[-1] == parts[-1]]
    return name if len(like) == 1 else card


def _rules(table: MemoryTable) -> Section:
    training = table.base.resolve().training
    found = rules(table.model, sequence_length=training.sequence_length, micro_batch=training.micro_batch)
    rows = tuple((rule.about, rule.nbytes, rule.formula) for rule in found)
    columns = (Column("rule"), Column("gives", Unit.BYTES), Column("from", wraps=True))
    note = (
        f"{table.model.name}, {training.micro_batch} x {training.sequence_length:,} tokens; "
        "bytes per parameter of arXiv 1910.02054, activations of arXiv 2205.05198"
    )
    return Section("Rules of thumb", (Table(columns=columns, rows=rows),), note)


def _grid(table: MemoryTable, gpus: int) -> Section:
    """Rows of plans, columns of cards, GiB in each cell."""
    at = table.at(gpus)
    columns = (
        Column("GiB at the peak", wraps=True),
        *(Column(short(c, table.cards), align="right") for c in table.cards),
    )
    room: tuple[Cell, ...] = ("usable", *(Sign(_room(at, card), "quiet") for card in table.cards))
    rows: list[tuple[Cell, ...]] = [
        (title, *(_cell(fits.get(card)) for card in table.cards)) for title, fits in at.items()
    ]
    note = "in brackets: it does not fit; ~: it just fits; -: it cannot be run, see below"
    title = "On one GPU" if gpus == 1 else f"On {gpus} GPUs, each"
    return Section(title, (Table(columns=columns, rows=(*rows, room)),), note)


def _room(at: dict[str, dict[str, PlanOnCard]], card: str) -> str:
    runs = [fits[card].ran for fits in at.values() if card in fits]
    capacities = [ran.capacity for ran in runs if ran]
    return f"{capacities[0] / GIB:.1f}" if capacities else ""


def _cell(fit: PlanOnCard | None) -> Sign:
    if fit is None or fit.ran is None:
        return Sign("-", "quiet")
    needed = f"{fit.ran.peak_memory / GIB:.1f}"
    if fit.fits:
        return Sign(needed, "good") if fit.ran.full <= NEARLY_FULL else Sign(f"~{needed}", "doubtful")
    return Sign(f"({needed})", "bad") if not fit.ran.gpus_fit else Sign(f"{needed} host", "bad")


def _best(table: MemoryTable) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for gpus in table.counts:
        for card in table.cards:
            best = table.best(card, gpus)
            name = card if gpus == 1 else f"{gpus} x {card}"
            if best and best.ran:
                rows.append((name, best.plan.title, best.ran.peak_memory, Sign(f"{best.ran.tokens_per_s:,.0f}")))
            else:
                rows.append((name, Sign("nothing that was tried fits", "bad"), None, None))
    columns = (
        Column("card"),
        Column("the fastest that fits", wraps=True),
        Column("memory", Unit.BYTES),
        Column("tokens/s", align="right"),
    )
    note = "of plans that train all weights, if one of them fits; else of adapters"
    return Section("What fits", (Table(columns=columns, rows=tuple(rows)), Paragraph(_machines(table), "quiet")), note)


def _machines(table: MemoryTable) -> str:
    """Where each card was tried: what PCIe, NVLink, the network and the host's memory are."""
    words = (f"{card} in {machine.name}{_host(machine)}" for card, machine in table.machines.items())
    return f"Nodes: {'; '.join(words)}. --set cluster.topology=NAME, cluster.gpu and cluster.hosts take others."


def _host(machine: Cluster) -> str:
    """The memory of a node's hosts, if there is one."""
    host = machine.node.host
    return f" ({format_bytes(host.memory * machine.node.count('host'))} of host memory)" if host else ""


def _refused(table: MemoryTable) -> Section:
    """Why some could not be run, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for fit in table.fits:
        if fit.problem and fit.outcome.failure is not NOT_RUN:
            reasons.setdefault(fit.problem, []).append(fit.plan.title)
    rows = tuple((Sign("; ".join(dict.fromkeys(names))), Sign(reason)) for reason, names in reasons.items())
    return Section("Not possible", (Table(columns=(Column(wraps=True), Column(wraps=True)), rows=rows),))


def _estimates(table: MemoryTable, gpus: int, per_node: int) -> Section:
    nodes = -(-gpus // per_node)
    found = deepspeed_estimates(table.model, gpus_per_node=gpus // nodes, nodes=nodes)
    rows = tuple((f"ZeRO-{row.stage}", _gb(row.bytes_per_node), _gb(row.bytes_per_gpu), row.options) for row in found)
    columns = (
        Column(),
        Column("per CPU", align="right"),
        Column("per GPU", align="right"),
        Column("options", wraps=True),
    )
    title = f"What DeepSpeed's estimators print for {gpus} GPU{'s' * (gpus > 1)} on one node"
    return Section(title, (Table(columns=columns, rows=rows), Paragraph(LEFT_OUT, "quiet")), "its GB are GiB")


def _gb(nbytes: int) -> Sign:
    return Sign(f"{nbytes / GIB:.2f}GB")
