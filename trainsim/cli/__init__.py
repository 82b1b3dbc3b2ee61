"""The command line. Every error that a user can cause is one message on standard error and exit status 2."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import traceback
from io import TextIOWrapper
from typing import Any, NoReturn

import typer

from trainsim.cli.commands import app
from trainsim.cli.run import NO
from trainsim.errors import TrainsimError

DONE, WRONG_INPUT, BUG, INTERRUPTED, TERMINATED = 0, 2, 70, 130, 143
PIPE_CLOSED = 141  # as shells say of a program whose reader went away
WANTED = {"int": "a whole number", "float": "a number", "bool": "true or false"}
MANY = 500_000
"""Objects that may be made before somebody looks for cycles among them."""


def _stop(message: str, status: int) -> NoReturn:
    print(f"trainsim: {message}", file=sys.stderr)
    sys.exit(status)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; every error that a user can cause is one message and exit status 2."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without some letter shows another one instead
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        status = _run_app(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(status)
    except TrainsimError as error:
        _stop(str(error), WRONG_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        _stop(*(("terminated", TERMINATED) if _end.asked else ("interrupted", INTERRUPTED)))
    except BrokenPipeError:  # the reader went away (`| head`): nothing to say, and nowhere to say it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        _stop(f"{error.filename}: {error.strerror}" if error.filename else str(error), WRONG_INPUT)
    except Exception as error:
        if hasattr(error, "format_message"):
            _stop(_usage(error), WRONG_INPUT)
        traceback.print_exc()
        _stop("this is a bug in trainsim, not in your scenario; please report the lines above", BUG)


class _End:
    """SIGTERM ends a command as Ctrl-C does: with what is finished by then, and with no process left behind."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: object) -> None:
        self.asked = True
        raise KeyboardInterrupt


_end = _End()


def _collect_seldom() -> None:
    """Leave most objects unvisited by the garbage collector: what a command makes, it needs until its end, and at its
    end the whole memory goes back at once."""
    gc.set_threshold(MANY)
    atexit.register(gc.freeze)


def _run_app(arguments: list[str] | None) -> int:
    if arguments is None:  # this process is the command
        _collect_seldom()
        signal.signal(signal.SIGTERM, _end)
    try:
        status = app(args=arguments, prog_name="trainsim", standalone_mode=False)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        return status if isinstance(status, int) else DONE
    except SystemExit as ended:  # typer leaves this way when the reader of a pipe went away, or on an interrupt
        raise (BrokenPipeError if ended.code == NO else KeyboardInterrupt) from None


def _usage(error: Any) -> str:
    """What typer says of wrong words, whose exceptions have no public name in all its versions."""
    if wrong := _wrong_value(error):
        return wrong
    message = str(error.format_message()).strip()
    known = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", None)
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        return f"say what to do.\n{error.ctx.get_help()}"
    if known and message.startswith("No such command"):
        message = f"{_sentence(message)} There are: {', '.join(known)}"
    return _sentence(message)


def _wrong_value(error: Any) -> str:
    """What an option wants whose value was checked by pydantic, which speaks of its own types; else nothing."""
    options = getattr(getattr(error, "param", None), "opts", None)
    if not options or not isinstance(error.__cause__, ValueError) or not hasattr(error.__cause__, "errors"):
        return ""
    found = error.__cause__.errors()[0]
    wanted = WANTED.get(str(found["type"]).partition("_")[0])
    return f"{options[0]} {found['input']}: expected {wanted}" if wanted else ""


def _sentence(text: str) -> str:
    """*text* with a full stop, unless it ends a sentence already."""
    text = text.rstrip(".")
    return text if text.endswith("?") else f"{text}."
