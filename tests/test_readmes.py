"""README.md and README.zh-CN.md say the same: commands, code, numbers of tables, links."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+#\s.*$")
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
INLINE = re.compile(r"`([^`\n]+)`")
TARGET = re.compile(r"\]\(([^)\s]+)\)")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_lines(text: str) -> list[str]:
    """The lines of all blocks without their comments, which are translated."""
    return [
        bare
        for _, block in BLOCK.findall(text)
        for line in block.splitlines()
        if (bare := COMMENT.sub("", line).rstrip())
    ]


def numbers_of_tables(text: str) -> list[list[str]]:
    """The numbers of every row of every table."""
    return [NUMBER.findall(line) for line in text.splitlines() if line.startswith("|")]


def without_code(text: str) -> str:
    return BLOCK.sub("", text)


def links(text: str) -> Counter[str]:
    """How often each place is linked to; each page links to the other one."""
    return Counter(target for target in TARGET.findall(without_code(text)) if target not in (ENGLISH, CHINESE))


def headings(text: str) -> list[int]:
    return [len(level) for level in re.findall(r"^(#+) ", without_code(text), re.MULTILINE)]


def inline_code(text: str) -> Counter[str]:
    return Counter(INLINE.findall(without_code(text)))


def difference(english: Counter[str], chinese: Counter[str]) -> str:
    """What one has and the other has not, in words; nothing if they are alike."""
    parts = []
    if lacks := english - chinese:
        parts.append(f"{CHINESE} lacks {', '.join(lacks.elements())}")
    if more := chinese - english:
        parts.append(f"{CHINESE} has what {ENGLISH} has not: {', '.join(more.elements())}")
    return "; ".join(parts)


def test_both_have_the_same_commands_and_code() -> None:
    english, chinese = code_lines(read(ENGLISH)), code_lines(read(CHINESE))
    assert len(english) > 50
    told = difference(Counter(english), Counter(chinese))
    assert not told, f"code blocks differ: {told}"
    first = next((one for one, two in zip(english, chinese, strict=True) if one != two), None)
    assert english == chinese, f"code blocks have another order, from {first!r} on"


def test_both_have_the_same_numbers_in_their_tables() -> None:
    english, chinese = numbers_of_tables(read(ENGLISH)), numbers_of_tables(read(CHINESE))
    assert len(english) == len(chinese), f"{ENGLISH} has {len(english)} rows of tables, {CHINESE} {len(chinese)}"
    for one, two in zip(english, chinese, strict=True):
        assert sorted(one) == sorted(two), f"a row of {ENGLISH} has the numbers {one}, that of {CHINESE} {two}"


def test_both_link_to_the_same_places() -> None:
    told = difference(links(read(ENGLISH)), links(read(CHINESE)))
    assert not told, f"links differ: {told}"


def test_both_name_the_same_keys_and_options() -> None:
    told = difference(inline_code(read(ENGLISH)), inline_code(read(CHINESE)))
    assert not told, f"what stands in backticks differs: {told}"


def test_both_have_the_same_headings() -> None:
    assert headings(read(ENGLISH)) == headings(read(CHINESE)), "a section is missing, or of another level"


@pytest.mark.parametrize(("one", "other"), [(ENGLISH, CHINESE), (CHINESE, ENGLISH)])
def test_each_links_to_the_other_at_its_top(one: str, other: str) -> None:
    assert f"]({other})" in "\n".join(read(one).splitlines()[:5])


def test_a_difference_is_told() -> None:
    """Every one of these comparisons sees what changes."""
    text = read(ENGLISH)
    assert code_lines(text.replace("trainsim plan bloom_3d ", "trainsim plan bloom ", 1)) != code_lines(text)
    assert numbers_of_tables(text.replace("105.2 s", "105.3 s", 1)) != numbers_of_tables(text)
    assert difference(links(text), links(text.replace("docs/plan.md", "docs/plans.md", 1))) == (
        f"{CHINESE} lacks docs/plan.md; {CHINESE} has what {ENGLISH} has not: docs/plans.md"
    )
    assert headings(text.replace("## Plan", "### Plan")) != headings(text)
    assert difference(inline_code(text), inline_code(text.replace("`--csv`", "`--cvs`", 1)))
