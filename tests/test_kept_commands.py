"""Whole commands with activations on the host, lengths of documents and frozen weights in few bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainsim.cli import main

TEXT = """
name: few
model: {name: tiny, family: llama, layers: 6, hidden: 512, heads: 8, ffn_hidden: 1408, vocab: 2048,
        lora: {rank: 8, base_dtype: nf4}}
cluster: {topology: dgx_a100, nodes: 1, gpus_per_node: 2}
framework: pytorch-fsdp2-bf16
training:
  sequence_length: 1k
  global_batch: 8
  recompute: {mode: full, every: 2}
  activation_offload: cpu
  documents: {mean: 200, deviation: 90}
"""


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "few.yaml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return "few.yaml"


def test_a_run_tells_what_it_made_of_them(few: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", few, "--out", "out") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("in 4.127 bits each", "documents per step", "activation_offload cpu", "host memory"):
        assert words in shown
    result = json.loads(Path("out/result.json").read_text())
    assert result["scenario"]["training"]["recompute"] == {"mode": "full", "every": 2}
    assert result["memory"]["host"]["peak_bytes_per_node"] > 0
    assert result["communication"]["offload"]["bytes_per_rank"] > 0
    assert Path("out/gantt.png").stat().st_size > 0


def test_padded_sequences_by_hand(few: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", few, "--set", "training.padding=longest", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert "of the positions of a step are padding" in result["scenario"]["derived"]["training.padding"]
    assert result["scenario"]["training"]["sequence_length"] == 1024, "what may be, not what it is padded to"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.lora.base_dtype=nf5", "nf4"),
        ("training.activation_offload=gpu", "It can be none, cpu"),
        ("training.documents.distribution=gauss", "lognormal"),
        ("training.recompute.every=0", "every"),
        ("sharding.strategy=zero3", "gathers all parameters in one type"),
    ],
)
def test_mistakes_end_in_a_line(few: str, change: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", few, "--set", change) != 0
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
