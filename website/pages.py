"""The pages of the site that are made from code and data, by their place in the site."""

from __future__ import annotations

from collections.abc import Iterator

from website import command_line, document_keys, python_api, scenario_keys, topology_keys


def generated() -> Iterator[tuple[str, str]]:
    """(Place in the site, Markdown) of each page."""
    yield "reference/scenario-keys.md", scenario_keys.page()
    yield "reference/topology-keys.md", topology_keys.page()
    for name, file in document_keys.FILES.items():
        yield f"reference/{name}.md", document_keys.page(file)
    yield "reference/command-line.md", command_line.page()
    yield "reference/python.md", python_api.page()
