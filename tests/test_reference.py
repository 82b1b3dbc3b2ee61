"""The reference pages: every key is described where it is defined, and its example is read as a file would be."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

import trainsim
from trainsim.cli.commands import app
from trainsim.hardware.topology import OVERRIDES
from trainsim.scenario.schema import ScenarioSpec
from trainsim.scenario.sharding_section import ShardingSpec, sharding_section
from website import command_line, document_keys, python_api, scenario_keys, topology_keys
from website.key import Key
from website.scenario_keys import EXAMPLES
from website.words import section_in

SCENARIO = {key.path: (kind, key) for _, kind, keys in scenario_keys.sections() for key in keys}


def described(keys: list[Key]) -> list[str]:
    return [key.path for key in keys if not key.meaning]


def test_every_key_of_a_scenario_is_described() -> None:
    missing = [path for path, (_, key) in SCENARIO.items() if not key.meaning]
    assert not missing, (
        f"say what these are, in a comment behind the field or a docstring below it: {', '.join(missing)}"
    )
    assert len(SCENARIO) > 180


def test_every_key_of_a_scenario_has_an_example() -> None:
    missing = [path for path, (_, key) in SCENARIO.items() if not key.example]
    assert not missing, f"add a value to website/examples.yaml for each of {', '.join(missing)}"


def test_there_are_no_examples_of_other_keys() -> None:
    assert set(EXAMPLES) - set(SCENARIO) == set()


@pytest.mark.parametrize(
    "path", [p for p in SCENARIO if not p.startswith("cluster.") or p.split(".")[1] not in OVERRIDES]
)
def test_an_example_is_read(path: str) -> None:
    """Alone, by the type of its key: what goes together is another matter."""
    kind, key = SCENARIO[path]
    (value,) = yaml.safe_load(key.example.split("`")[1]).values()
    name = next(n for n, f in kind.model_fields.items() if (f.alias or n) == path.rpartition(".")[2].removesuffix("[]"))
    field = kind.model_fields[name]
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation(), config=None)
    adapter.validate_python(value)


def test_all_sections_of_the_schema_are_found() -> None:
    """A walk of its own over the classes of the schema."""

    def below(kind: type[BaseModel]) -> set[str]:
        kind = sharding_section() if kind is ShardingSpec else kind
        found = {kind.__name__}
        for field in kind.model_fields.values():
            inner = section_in(field.rebuild_annotation())
            found |= below(inner) if inner else set()
        return found

    assert {kind.__name__ for _, kind, _ in scenario_keys.sections()} == below(ScenarioSpec)


@pytest.mark.parametrize("name", document_keys.FILES)
def test_every_key_of_a_data_file_is_described(name: str) -> None:
    missing = [p for _, _, keys in document_keys.sections(document_keys.FILES[name]) for p in described(keys)]
    assert not missing, f"say what these are, in a comment behind the field: {', '.join(missing)}"


@pytest.mark.parametrize("name", document_keys.FILES)
def test_every_key_of_a_data_file_that_ships_is_there(name: str) -> None:
    file = document_keys.FILES[name]
    known = {key.path for _, _, keys in document_keys.sections(file) for key in keys}
    known |= {key.path for key in document_keys.COMMON} | {"name", "compiled", "family", "precisions"}
    used = {key for one in file.catalogue.names() for key in file.catalogue.find(one).data}
    assert used - {path.partition(".")[0] for path in known} == set()


def test_every_key_of_a_topology_is_described() -> None:
    said = {path: {key.path.rpartition(".")[2] for key in keys} for path, keys in topology_keys.sections()}
    assert said == {path: set(keys) for path, keys in topology_keys.READ.items()}, "website/topology_keys.yaml"
    assert not [p for _, keys in topology_keys.sections() for p in described(keys)]
    targets = {".".join(map(str, place)) for place in OVERRIDES.values()}
    assert targets <= {key.path for _, keys in topology_keys.sections() for key in keys}


def test_every_command_and_option_is_there() -> None:
    page = command_line.page()
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert len(names) > 10
    for name in names:
        assert f"\n## trainsim {name}\n" in page
    for _, command in command_line.commands():
        for one in command.params:
            assert one.help or "--help" in one.opts, f"{command.name}: {one.name} has no help"
            assert all(word in page for word in one.opts if word.startswith("--") and word != "--help")


@pytest.mark.parametrize("name", trainsim.__all__)
def test_every_public_name_has_a_docstring_and_an_entry(name: str) -> None:
    entry = pages()["python"].split(f"\n## ts.{name}\n")[1].split("\n## ")[0]
    assert len(entry.split()) > 5


@cache
def pages() -> dict[str, str]:
    files = {name: document_keys.page(file) for name, file in document_keys.FILES.items()}
    return {
        **files,
        "scenario": scenario_keys.page(),
        "topology": topology_keys.page(),
        "commands": command_line.page(),
        "python": python_api.page(),
    }


@pytest.mark.parametrize("name", ["scenario", "topology", "commands", "python", *document_keys.FILES])
def test_tables_are_whole(name: str) -> None:
    """As many cells in every row as its head has, and nothing of reStructuredText."""
    page = pages()[name]
    assert "``" not in re.sub(r"```", "", page)
    width = 0
    for line in page.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = width or cells
        assert cells == width, line
