"""Bash scripts: words of commands as bash makes them, without running anything; bounds; whatever text."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim.errors import ScenarioError
from trainsim.importers.shell import Script, read_script
from trainsim.importers.shell_tests import holds
from trainsim.importers.shell_text import said, split

BASH = shutil.which("bash")
SCRIPTS = (
    "A=1; B=2\nprog --x $A$B --y ${A}3 '$A' \"$A b\" \\$A",
    "prog --x ${NOT:-5} --y ${NOT:=6} --z $NOT ${NOT:+7} ${NOT-8} ${EMPTY+9}",
    'A=(--a 1 "b c")\nA+=(--d)\nprog --x "${A[@]}" ${A[2]} ${#A[@]} ${#A} ${A[*]}',
    "prog --x $((2*(3+4))) $((7/2)) $(( 8 > 1 ? 5 : 6 )) $((0x10 % 5))",
    "N=8\nG=4\nprog --x $(($N*$G)) $((N*G)) $((N**2))",
    "prog --x \\\n  1 \\\n  2\nother --y",
    "ARGS=\" \\\n  --a 1 \\\n  --b 'two words' \\\n\"\nprog --x $ARGS",
    "if [ 3 -gt 2 ] && [ a = a ]; then X=yes; else X=no; fi\nprog --x $X",
    "if [ -z \"$X\" ]; then X=none; elif [ 1 -eq 1 ]; then X=one; fi\nprog --x $X",
    "if [[ abc == a* && ! x == y ]]; then X=1; fi\nprog --x $X",
    "V=b\ncase $V in a) X=1;; b|c) X=2;; *) X=3;; esac\nprog --x $X",
    "V=zz\ncase \"$V\" in a) X=1;; *) X=3 ;; esac\nprog --x $X",
    "for i in 1 2 3; do A=\"$A --k$i $i\"; done\nprog --x $A",
    "f() { Y=$1; }\nf 7\nprog --x $Y",
    "function g { Y=$2; }\ng 7 8\nprog --x $Y",
    "[ 1 = 2 ] && X=a || X=b\nprog --x $X",
    "X=1; { X=2; }; prog --x $X",
    "prog --x a#b #comment --no\nprog --y '#c'",
    "X='a  b'\nprog --x $X \"$X\" pre$X",
    "P=/a/b/c.json\nprog --x ${P##*/} ${P%/*} ${P%.json} ${P/b/z} ${P#/a}",
    "X=Abc\nprog --x ${X,,} ${X^^}",
    "set -- one two three\nshift\nprog --x $1 $2 \"$@\" $*",
    "export A=5 B=\"x y\"\ndeclare C=3\nprog --x $A \"$B\" $C",
    "X=1 prog --x $X",
    "eval prog --x '$((1+1))'",
    "A=\"prog --x 1\"\n$A --y 2",
    "bash -c 'prog --x $((3*3))'",
    "X=1\nwhile false; do X=2; done\nprog --x $X",
    "if ! [ 1 -eq 2 ]; then X=1; fi; prog --x $X",
    "X=(a b c)\nX[1]=z\nprog --x ${X[@]}",
    "unset A\nA+=1\nA+=2\nprog --x $A",
    "A=;B=\"\"\nprog --x $A \"$B\" '' x",
    "prog --x $'a b' \"a\\\"b\" 'it'\\''s'",
    "cat <<EOF > /dev/null\nprog --no $X\nEOF\nprog --x 1",
    "cat <<'EOF' >/dev/null\n$((1/0)) ' \" `\nEOF\nprog --x 1",
    "(( 3 > 2 )) && prog --x 1",
    "A=4; B=$((A > 2)); if [ $B -eq 1 ]; then prog --x 1; fi",
    "prog --x 1 2>&1 | tee -a /dev/null",
    "other --x 1 >/dev/null 2>&1 &\nprog --y 2",
    "false || prog --x 1\ntrue && prog --y 2",
    "if [ a != b ] -a [ 1 ]; then :; fi\nprog --x 1",
    "if [ a != b -a 1 -lt 2 ]; then prog --x 1; fi",
    "X=5\nif [ $X -ge 5 ] && [[ $X -le 5 ]]; then prog --x $X; fi",
    "N=0\nfor ((i=0;i<0;i++)); do N=9; done\nprog --x $N",
    "A=\"a b\"\nB=($A c)\nprog --x ${B[1]} ${#B[@]}",
    "X=${Y:-${Z:-deep}}\nprog --x $X",
    "X=\"${Y:-\"q u\"}\"\nprog --x \"$X\"",
)  # fmt: skip
"""Scripts whose commands ``prog`` bash can show us."""


def words(script: Script) -> list[list[str]]:
    return [[word.shown for word in launch.words] for launch in script.launches]


def by_bash(scripts: tuple[str, ...]) -> list[list[list[str]]]:
    """What bash itself makes of the commands ``prog`` of *scripts*."""
    show = 'prog() { printf "prog\\x1f"; printf "%s\\x1f" "$@"; printf "\\x1e"; }; export -f prog; other() { :; }\n'
    joined = "".join(f"(\n{show}{script}\n)\nprintf '\\x1d'\n" for script in scripts)
    done = subprocess.run([BASH or "", "--norc"], input=joined, capture_output=True, text=True, timeout=60, check=False)
    return [
        [run.split("\x1f")[:-1] for run in part.split("\x1e")[:-1]]
        for part in done.stdout.split("\x1d")[: len(scripts)]
    ]


@pytest.mark.skipif(BASH is None, reason="no bash to compare with")
def test_words_are_those_that_bash_makes() -> None:
    for script, theirs in zip(SCRIPTS, by_bash(SCRIPTS), strict=True):
        ours = [launch for launch in words(read_script(script)) if launch[0] == "prog"]
        assert ours == [launch for launch in theirs if any(word.startswith("--") for word in launch)], script


PIECES = ["$A:", "${A}", '"$A"', "'$A'", "x", "\\ x", '"a b"', "${N:-d}", "$((1+2))", "${B[@]}", '"${B[@]}"', "-"]
word = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)


@pytest.mark.skipif(BASH is None, reason="no bash to compare with")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(word, max_size=4), min_size=4, max_size=12))
def test_words_of_any_pieces_are_those_that_bash_makes(commands: list[list[list[str]]]) -> None:
    lines = tuple(
        f"A='p q'\nB=(one 'two three')\nprog --x {' '.join(''.join(word) for word in command)}" for command in commands
    )
    for line, theirs in zip(lines, by_bash(lines), strict=True):
        assert words(read_script(line)) == theirs, line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("prog --x $1 ${2} ${HOME}", ["$1", "$2", "$HOME"]),
        ("X=$(date)\nprog --x $X", ["$(date)"]),
        ("X=`nproc`\nprog --x $((X*2))", ["$((X*2))"]),
        ("prog --x ${WORLD_SIZE:-8}", ["8"]),
        ("D=$(cd \"$(dirname \"$0\")\" && pwd)\nprog --x $D/a", ["./a"]),
        ("prog --x `pwd`/a $PWD/b", ["./a", "./b"]),
        ("prog --x $UNSET_BY_US$(hostname)", ["$UNSET_BY_US$(hostname)"]),
    ],
)  # fmt: skip
def test_what_only_the_job_knows_stays_unknown(text: str, shown: list[str]) -> None:
    found = [word.replace("\u00a0", " ") for word in words(read_script(text))[0][2:]]
    assert found == shown


def test_a_name_that_the_script_assigns_elsewhere_is_empty_before() -> None:
    script = read_script('if [ "$MODE" = fast ]; then EXTRA="--fast"; fi\nprog --x 1 $EXTRA $MORE')
    assert words(script) == [["prog", "--x", "1", "$MORE"]]
    assert script.remarks == [(1, "it is not known whether $MODE = fast; taken not to be so")]


def test_every_word_knows_its_line() -> None:
    script = read_script('A="\\\n  --layers 4 \\\n  --width 8"\nB=(\n  --heads 2\n)\nprog $A ${B[@]}')
    lines = {word.shown: word.line for word in script.launches[0].words}
    assert lines == {"prog": 7, "--layers": 2, "4": 2, "--width": 3, "8": 3, "--heads": 5, "2": 5}


def test_directives_of_the_scheduler_set_its_variables() -> None:
    script = read_script(
        "#!/bin/bash\n#SBATCH --nodes=24   # many\n#SBATCH --gres=gpu:a100:8\n#SBATCH --ntasks-per-node 1\n"
        "prog --n $SLURM_NNODES ${SLURM_JOB_NUM_NODES} --g $SLURM_GPUS_ON_NODE --t $SLURM_NTASKS"
    )
    assert words(script)[0] == ["prog", "--n", "24", "24", "--g", "8", "--t", "24"]


def test_a_file_that_is_sourced_is_read_and_one_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "sizes.sh").write_text("LAYERS=12\n")
    script = read_script("source sizes.sh\n. `pwd`/more.sh\nprog --layers $LAYERS", folder=tmp_path)
    assert words(script) == [["prog", "--layers", "12"]]
    assert script.sourced == ["sizes.sh"]
    assert script.absent == [(2, "./more.sh")]


def test_a_script_that_sources_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("source a.sh\nprog --x\n")
    assert len(words(read_script((tmp_path / "a.sh").read_text(), folder=tmp_path))) < 64


def test_a_script_that_sources_a_long_file_again_and_again_ends(tmp_path: Path) -> None:
    (tmp_path / "long.sh").write_text("#" + "x" * 1_000_000)
    with pytest.raises(ScenarioError, match="too much text"):
        read_script("source long.sh\n" * 1000, folder=tmp_path)


@pytest.mark.parametrize(("count", "truth"), [(3000, True), (3001, False)])
def test_any_number_of_negations_is_read(count: int, truth: bool) -> None:
    assert holds(split(said("! " * count + "x", 1))) is truth


def test_replacing_in_a_variable() -> None:
    script = read_script("A=a/b/c\nB=${A/a/x}\nprog --one ${B/\\//_} --all ${A//b/yy} --none ${A//q/z}\n")
    assert words(script) == [["prog", "--one", "x/b/c", "--all", "a/yy/c", "--none", "a/b/c"]]


def test_a_shell_inside_is_followed() -> None:
    script = read_script("L='torchrun --nnodes 2'\nC='run.py --layers 4'\nexport L C\nsrun -N 2 bash -c '$L $C'")
    assert words(script) == [["srun", "-N", "2", "torchrun", "--nnodes", "2", "run.py", "--layers", "4"]]


def test_a_job_in_a_here_document_is_followed() -> None:
    script = read_script(
        "N=3\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=$N\nsrun python run.py --layers 4 \\$X\nEOF\n"
    )
    assert words(script) == [["srun", "python", "run.py", "--layers", "4", "$X"]]
    assert script.directives["nodes"].chars == "3"


def test_files_that_a_script_writes_are_kept() -> None:
    script = read_script('F=ds.json\ncat <<EOT > $F\n{"a": $((2*3))}\nEOT\n')
    assert script.written["ds.json"].chars == '{"a": 6}\n'


def test_a_comment_after_a_backslash_does_not_end_the_line_and_is_told() -> None:
    script = read_script("prog --a 1 \\  # first\n  --b 2 \\ \n  --c 3\n")
    assert words(script) == [["prog", "--a", "1", "--b", "2", "--c", "3"]]
    assert [line for line, _ in script.remarks] == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nX='b", r"x.sh:2: the script cannot be read: a quote ' that is not closed"),
        ('X="b', 'a quote " that is not closed'),
        ("if [ 1 ]; then\nprog", r"x.sh:2: .* if needs 'fi'"),
        ("A=(1 2", "the array A is not closed"),
        ("case x in\n a) prog", "esac"),
        ("X=${", "without a name"),
        ("f() { f; }\nf", "f calls itself"),
        ("A=x\n" + "A=$A$A\n" * 60, "grow without bound"),
        ("(" * 100, "too deep"),
        ('"$(' * 5 + "${x:-" * 100, "closed|too deep"),
        ("for a in 1 2 3 4 5 6 7 8 9 0; do " * 12 + ":; " + "done; " * 12, "too many commands"),
        ("A=" + "a" * 100_000 + "\n" + "A=${A//a/aa}\n" * 9, "x.sh:6: .*grow without bound"),
        ("A=" + "a" * 300_000 + "\nA=${A//a/$A}\n", "x.sh:2: .*grow without bound"),
    ],
)
def test_what_bash_could_not_read_is_refused_with_its_line(text: str, message: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ScenarioError, match=message):
        read_script(text, shown="x.sh")
    assert time.perf_counter() - start < 2.0


FRAGMENTS = [
    *["if [ ", "]; then", "fi", "else", "case $x in", "esac", "a)", ";;", "for i in ", "do", "done", "while", "f() {"],
    *["}", "$(", ")", "`", '"', "'", "\\", "\n", " ", "${", "$((", "))", "A=", "A=(", "A+=", "$A", "<<EOF", "EOF", "#"],
    *["|", "&&", "||", ">", "2>&1", "--num-layers", "8", "*", "[[", "]]", "source x", "eval", "set --", "!", "\t", "é"],
    *["\ue000", "[0]", "bash -c", ":-", ":=", "%", "//", "@", "$1", "exit"],
]


@settings(max_examples=300, deadline=2000)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40), st.booleans())
def test_any_text_is_read_or_refused_in_words(fragments: list[str], spaced: bool) -> None:
    try:
        read_script((" " if spaced else "").join(fragments), shown="x.sh")
    except ScenarioError as error:
        assert str(error).startswith("x.sh")


@settings(max_examples=100, deadline=2000)
@given(st.text(max_size=200))
def test_any_letters_are_read_or_refused_in_words(text: str) -> None:
    try:
        read_script(text, shown="x.sh")
    except ScenarioError as error:
        assert str(error).startswith("x.sh")
