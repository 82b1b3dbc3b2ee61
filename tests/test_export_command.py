"""``trainsim export``, whole."""

import json

from typer.testing import CliRunner

from trainsim.cli.commands import app

RUN = CliRunner()


def test_the_file_goes_to_standard_output_and_what_is_left_out_beside_it() -> None:
    result = RUN.invoke(app, ["export", "quickstart", "--to", "torchtitan"])
    assert result.exit_code == 0
    assert "[parallelism]" in result.stdout
    assert "left out: cluster.topology: the machine" in result.stderr


def test_a_file_that_was_written_is_read_again(tmp_path) -> None:
    file = tmp_path / "train.toml"
    result = RUN.invoke(app, ["export", "quickstart", "--to", "torchtitan", "-o", str(file)])
    assert result.exit_code == 0
    assert result.stdout == ""
    again = RUN.invoke(app, ["import", str(file), "--json"])
    assert again.exit_code == 0
    assert json.loads(again.stdout)["scenario"]["parallel"]["tp"] == 2


def test_everything_as_one_object() -> None:
    result = RUN.invoke(app, ["export", "quickstart", "--to", "torchtitan", "--json"])
    answer = json.loads(result.stdout)
    assert set(answer) == {"exporter", "text", "written", "left_out"}
    assert result.stderr == ""


def test_an_unknown_format_is_refused() -> None:
    result = RUN.invoke(app, ["export", "quickstart", "--to", "yaml"])
    assert result.exit_code != 0


def test_a_script_and_a_configuration_are_read_again(tmp_path) -> None:
    for kind, name in (("megatron", "train.sh"), ("deepspeed", "ds.json")):
        file = tmp_path / name
        assert RUN.invoke(app, ["export", "quickstart", "--to", kind, "-o", str(file)]).exit_code == 0
        again = RUN.invoke(app, ["import", str(file), "--json"])
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["scenario"]["training"]["micro_batch"] == 1
