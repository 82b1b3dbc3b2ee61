"""``trainsim show``: one thing at a time, and ``trainsim list``: what there is."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from trainsim.cli.memory import show_memory
from trainsim.cli.writing import folder_for, print_lines, save_figure
from trainsim.errors import UnknownName

show = typer.Typer(help="Print and draw one thing: topology, model, schedule or memory.", no_args_is_help=True)
Drawing = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to draw it (.svg, .png, .pdf).")]
KINDS = {  # where the names of each kind are
    "models": ("trainsim.models.known", "model_names"),
    "gpus": ("trainsim.hardware.gpu", "gpu_names"),
    "topologies": ("trainsim.hardware.topology", "topology_names"),
    "schedules": ("trainsim.schedules", "schedules"),
    "collectives": ("trainsim.collectives", "algorithms"),
    "strategies": ("trainsim.sharding", "strategies"),
    "frameworks": ("trainsim.frameworks", "framework_names"),
    "optimizers": ("trainsim.optimizers", "optimizer_names"),
    "scenarios": ("trainsim.scenario.loading", "scenario_names"),
}


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
    print_lines(describe(cluster))
    file = out or Path("out") / f"{cluster.name}.svg"
    folder_for(file.parent)
    save_figure(cluster.draw(), file)


@show.command("model")
def show_model(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """The sizes and the parameters of a model."""
    from trainsim.models.transformer import load_model
    from trainsim.report.show import model_lines

    print_lines(model_lines(load_model(name)))


@show.command("schedule")
def show_schedule(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    stages: Annotated[int, typer.Option("--stages", metavar="P")] = 4,
    microbatches: Annotated[int, typer.Option("--microbatches", metavar="M")] = 8,
    chunks: Annotated[int | None, typer.Option("--chunks", metavar="V")] = None,
    out: Drawing = None,
) -> None:
    """The order in which the ranks of a pipeline work, and a picture of it."""
    from trainsim.report.show import schedule_lines
    from trainsim.schedules import schedules
    from trainsim.schedules.cells import schedule

    full = schedules.canonical(name)
    chunks = chunks or schedules.traits(full).chunks or 2  # a schedule that leaves the number open has two or more
    print_lines(schedule_lines(full, schedule(full, stages=stages, microbatches=microbatches, chunks=chunks)))
    if out:
        from trainsim.report.gallery import example
        from trainsim.report.order_chart import order_chart

        folder_for(out.parent)
        step, slices = example(full, stages, microbatches, chunks=chunks)
        save_figure(order_chart(full, step, slices=slices), out)


show.command("memory")(show_memory)


def list_names(
    kind: Annotated[str, typer.Argument(metavar="[KIND]", help="models, gpus, topologies, schedules, ...")] = "",
) -> None:
    """The names of what is there, a line each; without KIND, the kinds of things."""
    if not kind:
        print_lines(KINDS)
        return
    if kind not in KINDS:
        raise UnknownName("kind of thing", kind, KINDS)
    module, attribute = KINDS[kind]
    found = getattr(import_module(module), attribute)
    print_lines(found() if callable(found) else found)
