"""Short names of devices, and how links are written in short."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim.errors import InvalidTopology
from trainsim.hardware.ranges import expand, shorten, stem
from trainsim.hardware.topology import parse_topology

numbers = st.lists(st.integers(0, 300), min_size=1, max_size=20, unique=True)


@given(numbers)
@settings(deadline=None)
def test_short_names_expand_to_what_was_shortened(chosen: list[int]) -> None:
    names = tuple(f"gpu{i}" for i in sorted(chosen))
    assert expand(shorten(names)) == names


@given(st.text(alphabet="gpu[]0123456789-,* ", max_size=14))
@settings(deadline=None)
def test_any_text_is_names_or_a_message(text: str) -> None:
    try:
        names = expand(text, count=4)
    except InvalidTopology as error:
        assert text in str(error)
    else:
        assert len(set(names)) == len(names)
        assert all(stem(name) == stem(text) for name in names)


@pytest.mark.parametrize(
    "text", ["", "0", "gpu[", "gpu[0-]", "gpu[0,,1]", "gpu[0][1]", "gpu 0", "gpu[0-99999999]", "gpu[1,1]"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidTopology):
        expand(text)


def node_with(links: str, **counts: int) -> set[frozenset[str]]:
    devices = ", ".join(f"{kind}: {n}" for kind, n in counts.items() if kind != "gpu")
    text = f"gpu: l40s\ngpus_per_node: {counts['gpu']}\nsource: x\nnode: {{devices: {{{devices}}}, links: [{links}]}}"
    return {frozenset((c.a, c.b)) for c in parse_topology(text).node.cables}


@given(st.integers(1, 6), st.integers(1, 6))
@settings(deadline=None, max_examples=30)
def test_all_joins_everyone_and_blocks_share_out_evenly(few: int, each: int) -> None:
    ends = "from: 'gpu[*]', to: 'host[*]', kind: pcie4"
    joined = node_with(f"{{{ends}}}", gpu=few * each, host=few)
    assert len(joined) == few * each * few
    links = f"{{{ends}, pattern: blocks}}, {{from: 'host[*]', to: nvswitch0, kind: pcie4}}"
    blocks = [pair for pair in node_with(links, gpu=few * each, host=few, nvswitch=1) if "nvswitch0" not in pair]
    assert len(blocks) == few * each
    for gpu in range(few * each):
        assert frozenset((f"gpu{gpu}", f"host{gpu // each}")) in blocks
