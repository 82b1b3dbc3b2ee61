"""
Arguments of Megatron-LM out of whatever holds them: a script, a YAML or JSON file, a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.errors import ScenarioError
from trainsim.importers.findings import Findings, Remark
from trainsim.importers.formats.megatron_keys import KEYS
from trainsim.importers.importer import Effect, Key
from trainsim.importers.matching import match
from trainsim.importers.reader import Reader
from trainsim.importers.shell_script import Launch, Script
from trainsim.importers.shell_text import CLOSE, Text, split

OPTION = re.compile(r"--[A-Za-z][\w-]*")
SECTION = "MODEL_ARGS"
KNOWN = frozenset(key.name for key in KEYS if key.name.startswith("--"))
EXPORTED = re.compile(r"(?:CUDA|NCCL|NVTE|TORCH|PYTORCH|OMP|NVSHMEM|CUBLAS|UB)_\w+")
"""Variables of the environment that programs of this kind look at."""
PATHS = ("--vocab-file", "--tokenizer-model", "--tokenizer-name-or-path", "--deepspeed_config")
TEST = (
    *("TEST_TYPE", "LAUNCHER", "METRICS", "MODE", "BEFORE_SCRIPT", "AFTER_SCRIPT", "SKIP_PYTEST", "N_REPEAT"),
    *("MODEL_ARGS_2.**", "THROUGHPUT_TEST_PARAMS.**"),
)
"""What stands in the file of one of Megatron's own tests beside its arguments."""
LAUNCHERS = ("nnodes", "nproc_per_node", "num_nodes", "num_gpus", "nodes", "gpus-per-node", "ntasks-per-node")


@lru_cache(maxsize=4096)
def meaning(name: str) -> Key | None:
    """What is known of the argument *name*.

    >>> meaning("--num-layers").words, meaning("--wandb-project").words, meaning("--num-leyers")
    ('model.layers', 'what is logged', None)
    """
    return match(name, KEYS)


@dataclass(frozen=True, slots=True)
class Argued:
    """Arguments as a document, with the section that they stand in, and what is not known of their values.

    ``unknown`` are keys with what they need, ``remarks`` (place, words) about how they were found, ``absent`` what
    would have to be there (place, words), ``written`` files that the script makes itself.
    """

    document: Document
    section: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[tuple[str, str]] = ()
    absent: Sequence[tuple[str, str]] = ()
    program: str = ""
    written: Mapping[str, str] = field(default_factory=dict)


class Arguments(Reader):
    """Typed access to arguments by their names without dashes; those of a section stand below it."""

    whose = "Megatron-LM's default"
    hybrid = False
    """Whether full sharding is within groups of replicas alone."""

    def __init__(self, argued: Argued):
        self.argued = argued
        spelled = _spellings(argued)
        self._spelled = spelled
        known = {actual: meaning(name) for name, actual in spelled.items()}
        own = [replace(key, name=actual) for actual, key in known.items() if key and actual != key.name]
        super().__init__(argued.document, (*own, *_rest(argued), *KEYS))

    def key(self, name: str) -> str:
        """The dotted key of the argument *name* in this file."""
        return self._spelled.get(f"--{name}", f"--{name}" if "." not in name else name)

    def given(self, *names: str) -> list[str]:
        """The keys of those of the arguments *names* that are there."""
        return [self.key(name) for name in names if self.has(self.key(name))]

    def on(self, name: str) -> bool:
        """Whether the switch *name* is on."""
        key = self.key(name)
        return bool(self.flag(key))

    def count(self, name: str, *, low: int = 1, besides: Sequence[str] = ()) -> Any:
        """The whole number that the argument *name* has, or one of the words *besides*."""
        return self.whole(self._valued(name), low=low, besides=besides)

    def amount(self, name: str, *, high: float = float("inf")) -> Any:
        """The number that the argument *name* has."""
        return self.number(self._valued(name), high=high)

    def name(self, name: str) -> str | None:
        """The text that the argument *name* has."""
        key = self._valued(name)
        value = self.raw(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        return self.text(key)

    def choice(self, name: str, known: Iterable[str]) -> str | None:
        """One of the words *known*."""
        return self.word(self._valued(name), known)

    def words(self, name: str) -> list[str]:
        """All words of an argument that may have several."""
        key = self._valued(name)
        value = self.raw(key)
        if isinstance(value, Mapping):
            raise self.fail(key, "expected words or numbers, found a mapping")
        if isinstance(value, list):
            return [str(item) for item in value]
        return str(value).strip("[]").replace(",", " ").split() if value is not None else []

    def told(self) -> Findings:
        """All that was said, with what is assumed or missing of the script around the arguments."""
        found = self.findings("megatron")
        defaults = [Remark(key="script", words=words, place=place) for place, words in self.argued.remarks]
        absent = [Remark(key="script", words=words, place=place) for place, words in self.argued.absent]
        return replace(found, defaults=(*found.defaults, *defaults), warnings=(*found.warnings, *absent))

    def _valued(self, name: str) -> str:
        key = self.key(name)
        if self.raw(key) is True:
            raise self.fail(key, f"no value follows it{self._why()}")
        return key

    def _why(self) -> str:
        """What is not known of a script in which a value is missing."""
        asked = [words for _, words in self.argued.remarks if "not known" in words]
        names = list(dict.fromkeys(name for words in asked for name in re.findall(r"\$\w+", words)))
        if not names:
            return ""
        way = "say what they are before the script's other lines: set -- A B C, or NAME=value"
        return f"; the script asks for {', '.join(names[:8])}, which are not known: {way}"


def _spellings(argued: Argued) -> dict[str, str]:
    """The key of each argument in the document, by its name on a command line."""
    data = argued.document.data
    held = data.get(argued.section, {}) if argued.section else data
    prefix = f"{argued.section}." if argued.section else ""
    out: dict[str, str] = {}
    for key in held:
        name = str(key)
        if "." not in name:
            out[name if name.startswith("--") else f"--{name.replace('_', '-')}"] = f"{prefix}{name}"
    return out


def _rest(argued: Argued) -> tuple[Key, ...]:
    """Keys of a test's file beside its arguments."""
    if argued.section != SECTION:
        return ()
    none = Effect.NONE
    keys = [Key(name, none, "of the test") for name in TEST]
    return (*(Key(f"ENV_VARS.{k.name[12:]}", k.effect, k.words, k.harmless) for k in KEYS
              if k.name.startswith("environment.")), *keys)  # fmt: skip


def of_mapping(document: Document) -> Argued:
    """The arguments of a YAML or JSON file: below MODEL_ARGS, or at its root."""
    section = document.data.get(SECTION)
    if section is not None and not isinstance(section, Mapping):
        raise document.fail((SECTION,), "expected a mapping (--argument: value)")
    return Argued(document, SECTION if section else "", {})


def of_script(script: Script, shown: str) -> Argued:
    """The arguments that a script starts a program with; of several programs the one with most that are known."""
    found = _launch(script)
    words, first = (found.words, _program(found.words)) if found else (_loose(script), -1)
    if not words:
        raise ScenarioError(f"{shown}: {_nothing(script)}")
    lines: dict[tuple[str | int, ...], int] = {}
    unknown: dict[str, str] = {}
    data = _parsed(words[first + 1 :], (), lines, unknown)
    data["launch"] = _launcher(words[:first] if first >= 0 else (), lines)
    data["sbatch"] = _plain("sbatch", {f"--{k}": v for k, v in script.directives.items()}, lines)
    exported = found.environment if found else script.exported
    data["environment"] = _plain("environment", {k: v for k, v in exported.items() if EXPORTED.fullmatch(k)}, lines)
    data = {key: value for key, value in data.items() if value != {}}
    document = Document(shown, data, Origin(file=shown, lines=lines), ScenarioError)
    remarks = [(f"{shown}:{line}", text) for line, text in script.remarks]
    rest = [launch for launch in script.launches if launch is not found] if found else []
    others = [launch.line for launch in rest if _known(launch.words) > 2 and not _orphan(launch)]
    remarks += [(f"{shown}:{line}", "another training program is started here; it is left out") for line in others[:4]]
    absent = [(f"{shown}:{line}", f"{path} is not there, so what it sets is not known") for line, path in script.absent]
    lost = [launch for launch in rest if _orphan(launch)]
    absent += [
        (f"{shown}:{launch.line}", f"{launch.words[0].shown} stands after the end of the command") for launch in lost
    ]
    program = words[first].shown.rpartition("/")[2] if first >= 0 else ""
    written = {name: text.chars for name, text in script.written.items()}
    return Argued(document, "", unknown, remarks, absent, program, written)


def _launch(script: Script) -> Launch | None:
    ranked = sorted(
        (launch for launch in script.launches if not _orphan(launch)), key=lambda launch: -_known(launch.words)
    )
    return ranked[0] if ranked and _known(ranked[0].words) > 1 else None


def _known(words: Sequence[Text]) -> int:
    return sum(word.chars.partition("=")[0] in KNOWN for word in words)


def _program(words: Sequence[Text]) -> int:
    """The place of the program among the words of a command; before its first option if it has no name."""
    for k, word in enumerate(words):
        if word.chars.endswith(".py") or (k and words[k - 1].chars == "-m" and "distributed" not in word.chars):
            return k
    return next((k for k, word in enumerate(words) if word.chars.startswith("--")), len(words)) - 1


def _loose(script: Script) -> tuple[Text, ...]:
    """Arguments that variables hold, of a script that starts nothing."""
    orphans = tuple(word for launch in script.launches if _orphan(launch) for word in launch.words)
    if _known(orphans) > 1:
        return orphans
    values = script.variables
    held = [[text] for text in values.scalars.values()] + list(values.arrays.values())
    lists = [[word for item in items for word in split(item)] for items in held]
    ranked = sorted(lists, key=_known, reverse=True)
    taken: list[Text] = []
    for words in ranked:
        names = {word.chars for word in taken}
        fresh = [word for word in words if word.chars in KNOWN and word.chars not in names]
        if fresh and len(fresh) == _known(words):
            taken += words[next(k for k, word in enumerate(words) if word.chars.startswith("--")) :]
    return tuple(taken) if any(word.chars == "--num-layers" for word in taken) else ()


def _orphan(launch: Launch) -> bool:
    """Whether a line has options and no command."""
    return bool(launch.words) and launch.words[0].chars.startswith("--")


def _nothing(script: Script) -> str:
    if script.absent:
        names = " and ".join(dict.fromkeys(path for _, path in script.absent))
        return f"starts no training program by itself: {names}, which it reads, would; put it beside this file"
    return "no training program is started here, and no variable holds its arguments"


def _parsed(
    words: Sequence[Text], prefix: tuple[str, ...], lines: dict[tuple[str | int, ...], int], unknown: dict[str, str]
) -> dict[str, Any]:
    """Options with their values: true for none, a list for several; the last one of each counts."""
    data: dict[str, Any] = {}
    name = ""
    for word in words:
        head, sign, value = word.chars.partition("=")
        if OPTION.fullmatch(head):
            name = head
            data[name] = value if sign else True
            lines[(*prefix, name)] = word.line
            unknown.pop(name, None)
            if sign and word.unknown:
                _leave_open(name, word, data, unknown)
        elif name and not word.unknown:
            before = data[name]
            if isinstance(before, list):
                before.append(word.chars)
            else:
                data[name] = word.chars if before is True else [before, word.chars]
        elif name and data[name] is True:
            _leave_open(name, word, data, unknown)
    return data


def _leave_open(name: str, word: Text, data: dict[str, Any], unknown: dict[str, str]) -> None:
    """A value that is not known: none, where it would be read; of a path its end is enough."""
    key, shown = meaning(name), word.shown.replace("\u00a0", " ")
    if key is None or key.effect is Effect.NONE or (name in PATHS and word.chars[-1:] != CLOSE):
        data[name] = shown
    else:
        data[name] = None
        unknown[name] = shown


def _launcher(words: Sequence[Text], lines: dict[tuple[str | int, ...], int]) -> dict[str, Any]:
    """Options of torchrun, deepspeed, srun that say how many processes there are."""
    data: dict[str, Any] = {}
    short = {"-N": "--nodes", "--nproc-per-node": "--nproc_per_node"}
    for k, word in enumerate(words):
        head, sign, value = word.chars.partition("=")
        name = short.get(head, head)
        if name.removeprefix("--") not in LAUNCHERS:
            continue
        text = value if sign else words[k + 1].chars if k + 1 < len(words) else ""
        count = re.fullmatch(r"(?:gpu:(?:\w+:)?)?(\d{1,7})", text)
        if count:
            data[name] = int(count[1])
            lines[("launch", name)] = word.line
    return data


def _plain(section: str, texts: Mapping[str, Text], lines: dict[tuple[str | int, ...], int]) -> dict[str, Any]:
    """Texts of a section, whole numbers as such."""
    out: dict[str, Any] = {}
    for name, text in texts.items():
        if "." in name:
            continue
        plain = text.shown.replace("\u00a0", " ")
        out[name] = int(plain) if plain.isdecimal() and len(plain) < 8 else plain
        lines[(section, name)] = text.line
    return out
