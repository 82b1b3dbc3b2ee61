"""
Slurm's ``topology.conf``: which nodes hang on which switch, and which switches on which.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainsim.errors import ScenarioError, shorten
from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.source import Source
from trainsim.importers.topology.fabric_facts import FabricParts, say_fabric
from trainsim.importers.topology.hostlists import hosts
from trainsim.importers.topology.matrix import JoinedNames
from trainsim.importers.topology.notebook import Notebook

LINE = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)
WORD = re.compile(r"(\w+)\s*=\s*(\S+)")
KNOWN = ("switchname", "nodes", "switches", "linkspeed", "blockname", "blocksizes")
MOST_LEVELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfLine:
    """A line of the file: its words by name in lower case."""

    words: Mapping[str, str]
    line: int


def sniff(source: Source) -> float:
    """Sure of lines that begin with a switch or a block."""
    return 0.95 if LINE.search(source.text[:100_000]) else 0.0


def load(source: Source) -> Findings:
    """The leaves, how many nodes are on each, and what joins leaves."""
    book = Notebook(source)
    rows = list(_rows(book, source.text))
    blocks = [row for row in rows if "blockname" in row.words]
    switches = [row for row in rows if "switchname" in row.words]
    if blocks and switches:
        raise book.fail(
            "has switches (SwitchName) and blocks (BlockName); one plugin reads one of them", blocks[0].line
        )
    if blocks:
        _blocks(book, blocks, rows)
    elif switches:
        _tree(book, switches)
    else:
        raise book.fail("no SwitchName= and no BlockName= is in it")
    return book.findings("slurm")


def _rows(book: Notebook, text: str) -> Iterator[ConfLine]:
    """The lines that say something, those joined by a backslash as one."""
    held, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        first = first or number
        bare = line.partition("#")[0].rstrip()
        if bare.endswith("\\"):
            held += bare[:-1] + " "
            continue
        whole, held, start, first = held + bare, "", first, 0
        if not whole.strip():
            continue
        words = {match[1].lower(): match[2] for match in WORD.finditer(whole)}
        if rest := WORD.sub("", whole).strip():
            raise book.fail(f"{shorten(rest)} is not a word such as SwitchName=s1 or Nodes=n[1-8]", start)
        for name in words:
            if name not in KNOWN:
                book.warn(name, "unknown word, ignored", start)
        yield ConfLine(words=words, line=start)


def _named(book: Notebook, row: ConfLine, key: str) -> list[str]:
    """The hosts or switches under *key* of a row."""
    try:
        return hosts(row.words[key]) if key in row.words else []
    except ScenarioError as error:
        raise book.fail(str(error), row.line) from None


def _blocks(book: Notebook, rows: list[ConfLine], everything: list[ConfLine]) -> None:
    sizes: list[int] = []
    for row in rows:
        names = _named(book, row, "nodes")
        if not names:
            raise book.fail(f"block {row.words['blockname']} has no Nodes=", row.line)
        sizes.append(len(names))
    for row in everything:
        if "blocksizes" in row.words:
            words = "sizes of jobs; says nothing about how nodes are connected"
            book.ignore("BlockSizes", f"{row.words['blocksizes']}: {words}", row.line)
    book.use("BlockName", f"{len(sizes)} blocks of nodes: a leaf each", rows[0].line)
    words = "a block is the nodes of one leaf; one that is an NVLink domain of several trays is one node here"
    book.note("BlockName", f"{words}: --set cluster.topology.base=gb200_nvl72")
    say_fabric(book, FabricParts(leaves=tuple(sizes)), "BlockName")


def _tree(book: Notebook, rows: list[ConfLine]) -> None:
    under: dict[str, list[str]] = {}
    nodes: dict[str, list[str]] = {}
    leaf_of: dict[str, str] = {}
    for row in rows:
        name = row.words["switchname"]
        if name in under:
            raise book.fail(f"switch {shorten(name)} stands twice; keep one line", row.line)
        under[name] = _named(book, row, "switches")
        mine = [node for node in _named(book, row, "nodes") if leaf_of.setdefault(node, name) == name]
        lost = len(_named(book, row, "nodes")) - len(mine)
        if lost:
            words = f"not modelled: {lost} nodes of {name} hang on another switch too; rails are beyond this file"
            book.warn("Nodes", words, row.line)
        if mine:
            nodes[name] = list(dict.fromkeys(mine))
        if "linkspeed" in row.words:
            book.ignore("LinkSpeed", "Slurm itself makes nothing of it, and it has no unit", row.line)
    if lost_switches := sorted({one for some in under.values() for one in some} - set(under)):
        book.warn("Switches", f"not modelled: {', '.join(lost_switches[:8])}: named, and no line says what they are")
    if not nodes:
        raise book.fail("no switch has Nodes=: leaves cannot be identified")
    book.use("SwitchName", f"{len(nodes)} leaves, {len(under) - len(nodes)} switches above", rows[0].line)
    say_fabric(book, FabricParts(leaves=tuple(map(len, nodes.values())), pods=_pods(book, under, nodes)), "SwitchName")


def _pods(book: Notebook, under: Mapping[str, list[str]], nodes: Mapping[str, list[str]]) -> tuple[int, ...]:
    """Nodes of each group of leaves that share a switch, where groups are joined above; none where all share one."""
    parents: dict[str, list[str]] = defaultdict(list)
    for name, below in under.items():
        for one in below:
            parents[one].append(name)
    groups = JoinedNames([*nodes, *(name for name in under if name not in nodes)])
    for leaf in nodes:
        for parent in parents[leaf]:
            groups.join(leaf, parent)
    pods = [[name for name in group if name in nodes] for group in groups.all()]
    pods = [pod for pod in pods if pod]
    levels = _levels(book, under, parents)
    if levels > MOST_LEVELS:
        book.warn("Switches", f"not modelled: {levels} levels of switches; those above the third never block")
    if len(pods) > 1 and levels < MOST_LEVELS:
        book.note("Switches", f"{len(pods)} groups of leaves that no switch joins: as if one did that never blocks")
    return tuple(sum(len(nodes[leaf]) for leaf in pod) for pod in pods) if len(pods) > 1 else ()


def _levels(book: Notebook, under: Mapping[str, list[str]], parents: Mapping[str, list[str]]) -> int:
    """Levels of switches above nodes. Raises ScenarioError for switches that stand above themselves."""
    waits = {name: sum(one in under for one in below) for name, below in under.items()}
    level = {name: 1 for name, count in waits.items() if not count}
    ready = list(level)
    while ready:
        name = ready.pop()
        for parent in parents.get(name, []):
            level[parent] = max(level.get(parent, 0), level[name] + 1)
            waits[parent] -= 1
            if not waits[parent]:
                ready.append(parent)
    circle = sorted(name for name, count in waits.items() if count)
    if circle:
        raise book.fail(f"switches stand above themselves: {', '.join(circle[:4])}")
    return max(level.values())


KEYS = (
    read("SwitchName", "a leaf where it has Nodes, else a switch above"),
    read("Nodes", "nodes of a leaf, and nodes in all: fabric.nodes_per_leaf and nodes"),
    read("Switches", "which leaves stand together: fabric.nodes_per_pod, with three levels"),
    read("BlockName", "a leaf of its Nodes"),
    *no_effect("which sizes jobs are given", "BlockSizes"),
    *no_effect("Slurm itself makes nothing of it", "LinkSpeed"),
    *not_modelled("levels above the third never block", "more than three levels"),
)

register(
    Importer(
        name="slurm",
        title="Slurm's topology.conf",
        about="The `topology.conf` of Slurm's plugins `tree` (SwitchName) and `block` (BlockName).",
        leaves_open="The node; all rates, so that leaves are taken not to block; rails, which it cannot say.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "Leaves of unequal size are reported: the small one is the last, or the mean is used for all; where one is "
            "more than twice as large as the mean, you decide (`--set cluster.nodes_per_leaf=N`).",
            "It combines with a file of a node, or with a built-in machine: `--set cluster.topology.base=dgx_h100`.",
        ),
    )
)
