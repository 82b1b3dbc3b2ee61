"""
Models as other tools name them: on the Hugging Face Hub, or a folder with its ``config.json``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import yaml

from trainsim.importers.reader import Reader

NAMES = Path(__file__).with_name("hub_names.yaml")


@lru_cache(maxsize=1)
def _names() -> tuple[dict[str, str], tuple[str, ...]]:
    data = yaml.safe_load(NAMES.read_text(encoding="utf-8"))
    known = {name.casefold(): model for model, names in data["models"].items() for name in names}
    return known, tuple(data["suffixes"])


def catalogue_name(name: str) -> str | None:
    """The model of the catalogue that a repository or folder called *name* holds, as far as names tell.

    >>> catalogue_name("meta-llama/Llama-2-7b-hf"), catalogue_name("unsloth/llama-3-8b-bnb-4bit"), catalogue_name("x/y")
    ('llama-2-7b', 'llama-3-8b', None)
    """
    known, suffixes = _names()
    last = name.rstrip("/\\").replace("\\", "/").rpartition("/")[2].casefold()
    for ending in ("", *suffixes):
        if last.endswith(ending) and (found := known.get(last.removesuffix(ending))):
            return found
    return None


def say_model(reader: Reader, key: str) -> str | None:
    """The scenario's model is the one that the file's *key* names; its name in the catalogue, if it has one.

    A ``config.json`` in the folder that is named decides; names that nobody knows are told with what is needed.
    """
    name = reader.text(key)
    if not name:
        return None
    for config in (Path(name) / "config.json", Path(Path(name).name) / "config.json"):
        if reader.finds(config):
            reader.refer_to(config, key, "the model")
            reader.use(key, f"model: {config}")
            return None
    known = catalogue_name(name)
    if known:
        reader.say("model", known, key)
        return known
    reader.refer_to(Path(name) / "config.json", key, "the sizes of a model that is not in the catalogue")
    return None
