"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from trainsim.cli.commands import app
from trainsim.cli.examples import EXAMPLES
from website.key import cell

INTRO = """# The command line

Every command, with its arguments and options; `trainsim COMMAND --help` prints the same. The exit status is 0 where it
is done, 1 where it ran and the answer is no (`--strict`), 2 for wrong input, 130 after Ctrl-C.
"""
HELP = "--help"


def page() -> str:
    """The page, as Markdown."""
    parts = [INTRO]
    for name, command in commands():
        parts += [f"## trainsim {name}", _about(command), f"```text\ntrainsim {name} {_usage(command)}\n```"]
        rows = [_row(one) for one in command.params if HELP not in one.opts]
        if rows:
            parts.append("\n".join(["| argument, option | default | meaning |", "|---|---|---|", *rows]))
        if name in EXAMPLES:
            parts.append("\n".join(["```sh", *EXAMPLES[name], "```"]))
    return "\n\n".join(parts) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """(Words after ``trainsim``, command) of every command; those of a group behind it."""
    yield from _commands(typer.main.get_command(app), "")


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        full = f"{path} {name}".strip()
        yield full, command
        if hasattr(command, "commands"):
            yield from _commands(command, full)


def _about(command: Any) -> str:
    paragraphs = (command.help or "").replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs)


def _usage(command: Any) -> str:
    words = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    if hasattr(command, "commands"):
        words.append("COMMAND")
    return " ".join([*words, "[OPTION]..."])


def _argument(one: Any) -> str:
    name = (one.metavar or one.name).upper().strip("[]")
    several = f"{name}..." if one.nargs != 1 else name
    return several if one.required else f"[{several}]"


def _row(one: Any) -> str:
    if one.param_type_name == "argument":
        name = f"`{_argument(one)}`"
    else:
        value = "" if one.is_flag else f" {one.metavar or one.type.name.upper()}"
        name = ", ".join(f"`{word}{value}`" for word in [*one.opts, *one.secondary_opts])
    repeated = "none; repeatable" if one.multiple else "needed" if one.required else ""
    default = repeated or _default(one.default)
    return f"| {name} | {default} | {cell(one.help or '')} |"


def _default(value: Any) -> str:
    if value is None or value in (False, [], (), "") or callable(value):
        return "off" if value is False else ""
    return f"`{value}`"
