"""The command line: it reads words, calls the library and prints; nothing is worked out here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trainsim.errors import ScenarioError, TrainsimError, UnknownName

if TYPE_CHECKING:
    from pandas import DataFrame

    from trainsim.scenario.scenario import Scenario

DONE, NO, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="trainsim",
    help="Replay a distributed training step without a GPU: its time, its bubble, its memory, and where they go.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of one that ships.")]
Sets = Annotated[
    list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change a field, such as parallel.tp=8; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]


@app.command()
def run(
    scenario: Name,
    changes: Sets = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Default: out/<scenario>/.")] = None,
    as_json: Json = False,
    no_fold: Annotated[bool, typer.Option("--no-fold", help="Simulate every rank: slow, the same numbers.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if it does not fit in memory.")] = False,
) -> None:
    """Simulate one step; print it and write result.json, Gantt charts, a trace and a page."""
    base = _load(scenario, changes)
    if no_fold:
        base = base.replace({"simulation.fold": False})
    folder = _folder(out or Path("out") / _slug(base))
    if not as_json:
        from trainsim.report.resolved import resolved_lines

        _print(resolved_lines(base.resolved))
    result = base.run()
    if as_json:
        _print_json(result.to_dict())
    else:
        from trainsim.report.text import summary

        _render(summary(result))
    files = result.save(folder)
    print(f"Written: {', '.join(str(file) for file in files)}", file=sys.stderr if as_json else sys.stdout)
    if strict and not result.memory.fits:
        raise typer.Exit(NO)


@app.command()
def sweep(
    scenario: Name,
    grid: Annotated[
        list[str], typer.Option("--grid", metavar="PATH=V1,V2,...", help="Values to try; every combination is run.")
    ],
    changes: Sets = [],  # noqa: B006
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table here.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", help="Processes; default: cores.")] = None,
    as_json: Json = False,
) -> None:
    """Run every point of a grid; a point that cannot run is a row that says why."""
    from trainsim.sweep.grid import sweep as run_grid

    values = dict(_grid(text) for text in grid)
    base = _load(scenario, changes)
    if csv:
        _writable(csv)
    frame = run_grid(base, values, workers=workers)
    if csv:
        frame.to_csv(csv, index=False)
        print(f"Written: {csv}", file=sys.stderr)
    if as_json:
        import json

        _print_json({"rows": json.loads(frame.to_json(orient="records"))})
    else:
        print(_table(frame))
    if frame.attrs["interrupted"]:
        raise KeyboardInterrupt


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="A")],
    after: Annotated[str, typer.Argument(metavar="B")],
    as_json: Json = False,
) -> None:
    """Run two scenarios and say how much B differs from A, and from where."""
    one, two = _load(before, []), _load(after, [])
    difference = two.run() - one.run()
    if as_json:
        _print_json(difference.to_dict())
    else:
        _render(difference)


show = typer.Typer(help="Print and draw one thing: topology, model or schedule.", no_args_is_help=True)
app.add_typer(show, name="show")
Drawing = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to draw it (.svg, .png, .pdf).")]


@show.command("topology")
def show_topology(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    nodes: Annotated[int | None, typer.Option("--nodes", metavar="N")] = None,
    out: Drawing = None,
) -> None:
    """What is in a machine, and a picture of it."""
    from trainsim.hardware.cluster import load_topology
    from trainsim.hardware.draw import describe

    cluster = load_topology(name, nodes=nodes)
    _render(describe(cluster))
    file = out or Path("out") / f"{cluster.name}.svg"
    _folder(file.parent)
    _save_figure(cluster.draw(), file)


@show.command("model")
def show_model(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """The sizes and the parameters of a model."""
    from trainsim.model.transformer import load_model
    from trainsim.report.show import model_lines

    _print(model_lines(load_model(name)))


@show.command("schedule")
def show_schedule(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    stages: Annotated[int, typer.Option("--stages", metavar="P")] = 4,
    microbatches: Annotated[int, typer.Option("--microbatches", metavar="M")] = 8,
    chunks: Annotated[int | None, typer.Option("--chunks", metavar="V")] = None,
) -> None:
    """The order in which the ranks of a pipeline work."""
    from trainsim.report.show import schedule_lines
    from trainsim.schedules import schedules
    from trainsim.schedules.cells import schedule

    full = schedules.canonical(name)
    chunks = chunks or (2 if full.startswith("interleaved") else 1)
    _print(schedule_lines(full, schedule(full, stages=stages, microbatches=microbatches, chunks=chunks)))


@app.command("list")
def list_names(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="models, gpus, topologies, schedules, ...")],
) -> None:
    """The names of what is there, a line each."""
    kinds = _kinds()
    if kind not in kinds:
        raise UnknownName("kind of thing", kind, kinds)
    module, attribute = kinds[kind]
    from importlib import import_module

    found = getattr(import_module(module), attribute)
    _print(found() if callable(found) else found)


def _kinds() -> dict[str, tuple[str, str]]:
    return {
        "models": ("trainsim.model.transformer", "model_names"),
        "gpus": ("trainsim.hardware.gpu", "gpu_names"),
        "topologies": ("trainsim.hardware.topology", "topology_names"),
        "schedules": ("trainsim.schedules", "schedules"),
        "collectives": ("trainsim.collectives", "algorithms"),
        "strategies": ("trainsim.sharding", "strategies"),
        "frameworks": ("trainsim.frameworks", "framework_names"),
        "scenarios": ("trainsim.scenario.loading", "scenario_names"),
    }


# reading


def _load(name: str, changes: Iterable[str]) -> Scenario:
    from trainsim.scenario.scenario import Scenario

    values = {}
    for text in changes:
        path, value = _split(text, "--set parallel.tp=8")
        values[path] = _value(value)
    base = Scenario.load(name)
    return base.replace(values) if values else base


def _split(text: str, example: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ScenarioError(f"{text!r}: wants path=value, for example {example}")
    return path.strip(), value


def _value(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _grid(text: str) -> tuple[str, list[Any]]:
    path, value = _split(text, "--grid parallel.tp=1,2,4")
    values = _value(f"[{value}]")
    if not isinstance(values, list) or not values:
        raise ScenarioError(f"{text!r}: wants values with commas between them, for example --grid parallel.tp=1,2,4")
    return path, values


# writing


def _slug(base: Scenario) -> str:
    stem = Path(base.origin.file).stem or base.name
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in stem)


def _folder(path: Path) -> Path:
    """*path*, made and tried out before any work is done."""
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "no permission to write", str(path))
    return path


def _writable(file: Path) -> None:
    _folder(file.parent)
    with file.open("a"):
        pass


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _print_json(value: dict[str, Any]) -> None:
    import json

    print(json.dumps(value, ensure_ascii=False))


def _render(thing: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(thing)


def _save_figure(figure: Any, file: Path) -> None:
    try:
        figure.savefig(file, bbox_inches="tight")
    except ValueError as error:
        raise TrainsimError(f"{file}: {error}") from None
    print(f"Drawn: {file}")


def _table(frame: DataFrame) -> str:
    return str(frame.dropna(axis="columns", how="all").to_string(index=False))


def _stop(message: str, status: int) -> NoReturn:
    print(f"trainsim: {message}", file=sys.stderr)
    sys.exit(status)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; every error that a user can cause is one message and exit status 2."""
    try:
        status = _run_app(arguments)
        sys.stdout.flush()
        sys.exit(status)
    except TrainsimError as error:
        _stop(str(error), WRONG_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        _stop("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader went away (`| head`): nothing to say, and nowhere to say it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(DONE)
    except OSError as error:
        _stop(f"{error.filename}: {error.strerror}" if error.filename else str(error), WRONG_INPUT)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _stop(_usage(error), WRONG_INPUT)


def _run_app(arguments: list[str] | None) -> int:
    try:
        status = app(args=arguments, standalone_mode=False)
        return status if isinstance(status, int) else DONE
    except SystemExit as ended:  # typer leaves this way only when the reader of a pipe went away
        if ended.code == 1:
            raise BrokenPipeError from None
        raise


def _usage(error: Any) -> str:
    """What typer says of wrong words, whose exceptions have no public name in all its versions."""
    message = str(error.format_message()).strip()
    known = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", None)
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        return f"say what to do.\n{error.ctx.get_help()}"
    if known and message.startswith("No such command"):
        return f"{message.rstrip('.')}. There are: {', '.join(known)}."
    return message if message.endswith((".", "?")) else f"{message}."


if __name__ == "__main__":
    main()
