"""Print the table of docs/frameworks.md that says which profile stands for which software."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.frameworks.software import softwares


def table() -> Iterator[str]:
    """The rows in their order, as Markdown."""
    yield "| software | sharding | profile | if it stands in: what is assumed |"
    yield "|---|---|---|---|"
    for row in softwares():
        sharding = ", ".join(row.sharding) or "any"
        yield f"| {row.software} | {sharding} | `{row.profile}` | {row.assumed} |"


if __name__ == "__main__":
    print("\n".join(table()))
