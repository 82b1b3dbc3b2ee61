"""Every importer over its cases: what files say, whatever is wrong with them, and that every key is told."""

import time

import pytest

from tests.importing import Case, cases, mutations, said, sources_of, survives
from trainsim.errors import ScenarioError
from trainsim.importers.combining import combined
from trainsim.importers.findings import Fact, Findings
from trainsim.importers.importer import Effect, importers
from trainsim.importers.importing import import_config, import_sources, importer_of
from trainsim.importers.reader import leaves
from trainsim.importers.source import Source

CASES = cases()
KINDS = ("used", "ignored", "warnings", "defaults")
EACH = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.mark.parametrize("name", importers)
def test_every_importer_has_a_case_and_tells_its_keys(name: str) -> None:
    assert any(case.importer == name for case in CASES)
    importer = importers[name]
    names = [key.name for key in importer.keys]
    assert len(names) == len(set(names)), [key for key in names if names.count(key) > 1]
    assert all((importer.title, importer.about, importer.leaves_open))
    assert all(key.words for key in importer.keys)


@EACH
def test_files_say_what_is_expected(case: Case) -> None:
    assert said(case.imported()) == case.expected


@EACH
def test_the_first_file_of_a_case_is_recognised(case: Case) -> None:
    assert case.importer in {importer_of(source).name for source in sources_of(case)}


@EACH
def test_every_key_of_a_file_is_told(case: Case) -> None:
    """Used, without effect, or not modelled: nothing is passed over in silence."""
    imported = case.imported()
    told = {remark.key for kind in KINDS for remark in getattr(imported, kind)}
    for source, findings in zip(sources_of(case), imported.findings, strict=False):
        if findings.importer == "trainsim" or not source.data:
            continue
        for key, _ in leaves(source.data):
            assert any(f"{key}.".startswith(f"{known}.") or f"{known}.".startswith(f"{key}.") for known in told), key


@EACH
def test_a_mutated_file_is_read_or_refused_in_words(case: Case) -> None:
    sources = sources_of(case)
    for k, source in enumerate(sources):
        others = sources[:k] + sources[k + 1 :]
        for text in mutations(source.text, 40, seed=k):
            assert survives(source, text, others)


@EACH
@pytest.mark.slow
def test_many_mutated_files_are_read_or_refused_in_words(case: Case) -> None:
    sources = sources_of(case)
    for k, source in enumerate(sources):
        others = sources[:k] + sources[k + 1 :]
        for text in mutations(source.text, 1000, seed=1000 + k):
            assert survives(source, text, others)


@EACH
def test_a_key_that_is_read_takes_no_nonsense(case: Case) -> None:
    """A value of the wrong kind is refused, or told as not modelled: never taken for something else in silence."""
    sources = sources_of(case)
    for k, source in enumerate(sources):
        if not source.data:
            continue
        importer = importer_of(source)
        plain = said(case.imported())
        for key in (key for key in importer.keys if key.effect is Effect.READ and "*" not in key.name):
            text = replaced(source, key.name)
            if text is None:
                continue
            try:
                changed = Source(shown=f"{source.folder}/{source.name}.json", text=text, folder=source.folder)
                result = import_sources([*sources[:k], changed, *sources[k + 1 :]])
            except Exception as error:
                assert isinstance(error, ScenarioError) or type(error).__module__ == "trainsim.errors", key.name
                continue
            told = {remark.key for remark in (*result.warnings, *result.ignored, *result.defaults)}
            same = said(result)["scenario"] == plain["scenario"]
            assert any(name.startswith(key.name) for name in told) or not same, key.name


def replaced(source: Source, key: str) -> str | None:
    """*source* as JSON with nonsense at *key*; None if it is not there."""
    import json
    from copy import deepcopy

    data = deepcopy(dict(source.data))
    *above, last = key.split(".")
    here = data
    for part in above:
        here = here.get(part) if isinstance(here, dict) else None
        if here is None:
            return None
    if not isinstance(here, dict) or last not in here or isinstance(here[last], dict):
        return None
    here[last] = {"nonsense": ["é", 3]}
    return json.dumps(data)


def test_an_unknown_file_is_refused_with_what_is_known(tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"zzz": 1}')
    with pytest.raises(ScenarioError, match=r"no importer knows this file. Known: .*hugging-face"):
        import_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ('{"a": 1,}', "x.json:1: not valid JSON.*comma"),
        ('{\n"a": 1 // comment\n}', "x.json:2: not valid JSON"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("[1]", "holds a list"),
        ('{"a": NaN}', "NaN is not a JSON number"),
    ],
)
def test_a_broken_file_gives_file_line_and_reason(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        import_config(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", "{" + ",".join(f'"k{k}": 1' for k in range(60_000)) + "}", "no importer knows this file"),
        ("x.toml", "a = 1\n" + ".".join("k" * 40_000) + " = 1", "x.toml:2: not valid TOML: a key of too many parts"),
        ("x.toml", ".".join(['"k"'] * 40_000) + " = 1", "a key of too many parts"),
        ("x.yaml", "a: &a {" + "k: 1}\nb: {" + ", ".join(["<<: *a"] * 1000) + "}", "x.yaml:2: << is already given"),
    ],
)
def test_files_that_take_their_square_are_read_or_refused_soon(tmp_path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    start = time.process_time()
    with pytest.raises(ScenarioError, match=message):
        import_config(path)
    assert time.process_time() - start < 4.0


def findings(file: str, **facts) -> Findings:
    made = tuple(Fact(key=k, value=v, place=f"{file}:1", source=k) for k, v in facts.items())
    return Findings(importer="test", file=file, facts=made)


def test_files_that_contradict_each_other_are_refused_unless_the_user_decides() -> None:
    both = [findings("a", **{"parallel.tp": 4}), findings("b", **{"parallel.tp": 8})]
    with pytest.raises(ScenarioError, match=r"a:1: parallel.tp: parallel.tp is 4, but b:1: parallel.tp makes it 8"):
        combined(both)
    assert combined(both, {"parallel.tp": 2}).scenario["parallel"]["tp"] == 2


def test_what_a_tool_assumes_yields_to_what_another_file_says() -> None:
    weak = Findings(
        importer="test", file="a", facts=(Fact(key="training.micro_batch", value=1, source="a's default", weak=True),)
    )
    strong = findings("b", **{"training.micro_batch": 4})
    assert combined([weak, strong]).scenario["training"]["micro_batch"] == 4
    assert combined([weak]).defaults[0].words == "1: a's default"
    assert not combined([weak, strong]).defaults


def test_an_incomplete_scenario_says_what_is_missing() -> None:
    with pytest.raises(ScenarioError, match=r"no file sets cluster.topology: add --set cluster.topology=NAME"):
        _ = combined([findings("a", model="llama-2-7b")]).complete


def test_how_many_gpus_is_asked_only_where_no_file_says_it() -> None:
    assert "cluster.gpus=N" in combined([findings("a")]).missing["cluster.topology"]
    assert "cluster.gpus=N" not in combined([findings("a", **{"cluster.gpus": 32})]).missing["cluster.topology"]


def test_errors_of_a_scenario_name_the_key_of_the_users_own_file() -> None:
    said_by = [findings("a.json", model="llama-2-7b", **{"parallel.tp": 3})]
    imported = combined(said_by, {"cluster.topology": "dgx_a100"})
    with pytest.raises(Exception, match=r"a.json:1: parallel.tp"):
        imported.complete.resolve()
