"""``trainsim import``, and files of other tools in the place of a scenario."""

import json
from pathlib import Path

import pytest
import yaml

import trainsim as ts
from tests.test_cli import status
from trainsim.importers.pages import pages

PAGES = Path(__file__).parents[1] / "docs" / "importers"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
MACHINE = ("--set", "cluster.topology=dgx_a100")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (tmp_path / "part.yaml").write_text("cluster: {topology: dgx_a100, nodes: 1}\ntraining: {micro_batch: 2}\n")
    monkeypatch.chdir(tmp_path)
    return "config.json"


def test_import_tells_what_became_of_every_key(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("import", config) == 0
    out, _ = capsys.readouterr()
    assert "cluster.topology: add --set cluster.topology=NAME" in out
    for words in ("hidden_size", "model (llama): 256", "torch_dtype: of the checkpoint"):
        assert words in " ".join(out.split())


def test_import_writes_a_scenario_that_runs(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("import", config, "part.yaml", "--set", "parallel.tp=2", "-o", "mine.yaml") == 0
    assert "Written: mine.yaml" in capsys.readouterr().out
    scenario = ts.Scenario.load("mine.yaml")
    assert scenario.resolve().parallel.tp == 2
    assert scenario.resolve().training.micro_batch == 2
    assert status("run", "mine.yaml", "--no-files") == 0


def test_files_of_other_tools_run_at_once(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", config, "part.yaml", "--json") == 0
    together = json.loads(capsys.readouterr().out)
    assert status("run", f"{config}+part.yaml", "--json") == 0
    joined = json.loads(capsys.readouterr().out)
    assert together["step_time_s"] == joined["step_time_s"]
    assert together["scenario"]["training"]["micro_batch"] == 2


def test_json_has_everything(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("import", config, *MACHINE, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert {"scenario", "used", "ignored", "defaults", "warnings"} <= set(data)
    assert data["scenario"]["model"]["hidden"] == 256
    assert data["used"][0]["place"].startswith("config.json:")


def test_what_is_missing_is_said_with_the_way_out(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", config) == 2
    assert "no file sets cluster.topology" in capsys.readouterr().err


def test_a_change_reaches_what_was_imported(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", config, *MACHINE, "--set", "parallel.tp=3", "--no-files") == 2
    assert "parallel.tp = 3: 4 heads are not divisible by tp=3" in capsys.readouterr().err


def test_what_is_not_modelled_is_told_wherever_the_file_is_used(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(config).write_text(json.dumps(CONFIG | {"hiden_size": 3}))
    assert status("show", "scenario", config, *MACHINE) == 0
    assert "hiden_size: unknown key, ignored; did you mean hidden_size?" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("import", "nowhere.json"), "nowhere.json: cannot be read: No such file"),
        (("import", "config.json", "-o", "x.txt"), "a scenario or a topology is a .yaml file"),
        (("import", "config.json", "--as", "huging-face"), "Did you mean 'hugging-face'"),
        (("run", "broken.json"), "broken.json:1: not valid JSON"),
        (("run", "config.json", "config.json", "nowhere.yaml"), "nowhere.yaml: cannot be read"),
    ],
)
def test_errors_are_words(config: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    Path("broken.json").write_text("{'a': 1}")
    assert status(*words) == 2
    assert message in capsys.readouterr().err


def test_python_has_the_same(config: str) -> None:
    imported = ts.import_config([config, "part.yaml"], {"parallel.tp": 2})
    assert imported.complete.run().step_time > 0
    assert yaml.safe_load(imported.to_yaml()) == imported.scenario


def test_the_pages_of_the_importers_are_those_that_the_code_makes() -> None:
    """``python -m trainsim.importers.pages`` writes them anew."""
    written = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    assert written == pages()
