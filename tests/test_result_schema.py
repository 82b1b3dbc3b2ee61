"""``result.json``: every key that is produced is documented, and every documented key is produced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import trainsim as ts
from trainsim.report.result_page import keys, page, schema

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "pipeline": ("quickstart", {}),
    "steps": ("quickstart", {"simulation.steps": 3, "simulation.detail": "block"}),
    "one stage": ("quickstart", {"parallel.pp": 1, "sharding.strategy": "fsdp", "simulation.detail": "block"}),
    "offload": ("quickstart", {"sharding.offload": {"optimizer": "cpu"}, "simulation.detail": "block"}),
    "rollout": (
        "quickstart",
        {"training.rollout": {"prompt_length": 64, "response_length": 64}, "simulation.detail": "block"},
    ),
    "whole training": ("quickstart", {"training.tokens": "1T", "cluster.price_per_gpu_hour": 2}),
    "network faults": ("failed_uplink", {"simulation.detail": "block"}),
    "does not fit": ("quickstart", {"model": "llama-3-70b", "simulation.detail": "block"}),
}


@pytest.fixture(scope="module", params=RUNS)
def data(request: pytest.FixtureRequest) -> dict[str, Any]:
    name, changes = RUNS[request.param]
    result = ts.Scenario.load(name).replace(changes).run()
    parsed: dict[str, Any] = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    return parsed


def test_results_are_what_the_schema_says(data: dict[str, Any]) -> None:
    """With ``additionalProperties: false`` and all keys required, this holds both ways."""
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(data, schema(), cls=jsonschema.Draft202012Validator)


def test_every_documented_key_is_produced(data: dict[str, Any]) -> None:
    absent = {part for part in ("rollout", "training_cost", "network_faults") if data[part] is None}
    every = [(path, part) for path, part in keys(schema()) if path.partition(".")[0] not in absent or path in absent]
    lists = {path for path, part in every if part.get("type") == "array"}
    empty = {path for path in lists if not _at(data, path.removesuffix("[]"))}
    for path, _ in every:
        if not any(path.startswith(f"{above}.") for above in empty):
            _at(data, path)


def test_the_schema_is_closed_and_every_key_has_a_meaning_and_a_unit() -> None:
    for path, part in keys(schema()):
        assert part.get("description"), path
        inner = part.get("items", part)
        kinds = inner["type"] if isinstance(inner["type"], list) else [inner["type"]]
        if "number" in kinds:
            assert "unit" in inner, path
        if "properties" in inner:
            assert inner["required"] == list(inner["properties"]), path
            assert inner["additionalProperties"] is False, path
        if path.endswith("_s") and not path.endswith("_per_s"):
            assert inner.get("unit", "s") == "s", path
        if path.endswith("_bytes"):
            assert inner["unit"] == "bytes", path


def test_the_keys_of_the_interface_are_there() -> None:
    """Names that others rely on; none may go."""
    top = [path for path, _ in keys(schema()) if "." not in path]
    assert {path.removesuffix("[]") for path in top} >= {
        "scenario", "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "model_flops_per_gpu",
        "hardware_flops_per_gpu", "mfu", "hfu", "bubble", "breakdown_s", "memory", "communication", "critical_path",
        "parameters", "simulation", "warnings",
    }  # fmt: skip


def test_the_page_is_made_from_the_schema() -> None:
    assert (Path(__file__).parents[1] / "docs" / "result.md").read_text(encoding="utf-8") == page()


def _at(data: Any, path: str) -> Any:
    """The value under a path; ``[]`` is the first of a list."""
    for name in path.split("."):
        data = data[name.removesuffix("[]")]
        if name.endswith("[]") and not path.endswith(name):
            data = data[0]
    return data
