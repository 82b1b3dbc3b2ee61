"""``trainsim show``: one thing at a time, with its sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainsim.cli.measured import show_trace
from trainsim.cli.memory import show_memory
from trainsim.cli.options import Json, Names, Sets
from trainsim.cli.reading import load
from trainsim.cli.step import show_step
from trainsim.cli.writing import print_json, print_lines, render, save_figure, slug, try_drawing, try_writing

if TYPE_CHECKING:
    from trainsim.documents.catalogue import Catalogue

show = typer.Typer(help="Print one thing with its sources, and draw it if requested.", no_args_is_help=True)
Named = Annotated[str, typer.Argument(metavar="NAME", help="A name from `trainsim list`, or a path.")]
Drawing = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw it here (.svg, .png, .pdf).")]


@show.command("topology")
def show_topology(
    name: Named,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="Number of nodes. Default: that of the topology.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Draw it here (.svg, .png, .pdf), or write its graph (.graphml, .json)."
        ),
    ] = None,
) -> None:
    """What a machine consists of; a picture or graph file of it."""
    from trainsim.hardware.draw import describe
    from trainsim.hardware.graph_files import WRITERS, graph_text
    from trainsim.importers.topology.reading import topology

    cluster = topology(name, nodes=nodes)
    file = out or Path("out") / f"{slug(cluster.name)}.svg"
    if file.suffix in WRITERS:
        try_writing(file)
        text = graph_text(cluster, file.suffix)
        print_lines(describe(cluster))
        file.write_text(text, encoding="utf-8")
        print_lines([f"Written: {file}"])
        return
    try_drawing(file, graphs=WRITERS)
    print_lines(describe(cluster))
    save_figure(cluster.draw(), file)


@show.command("model")
def show_model(name: Named) -> None:
    """The sizes and the parameters of a model."""
    from trainsim.models.known import MODELS
    from trainsim.models.reading import load_model
    from trainsim.report.described import model_section

    data = {} if Path(name).suffix == ".json" else MODELS.find(name).data
    render(model_section(load_model(name), data))


@show.command("gpu")
def show_gpu(name: Named) -> None:
    """The datasheet of a GPU, its kernels, their sources and errors."""
    from trainsim.costs.errors import errors_alone
    from trainsim.hardware.gpu import GPUS, load_gpu
    from trainsim.hardware.kernel_constants import KERNELS
    from trainsim.report.described import described
    from trainsim.report.kernel_constants import constants_section, errors_section

    gpu, document = load_gpu(name), GPUS.find(name)
    datasheet = {key: value for key, value in document.data.items() if key != "kernels"}
    render(described(document.name, datasheet, str(document.origin.file)))
    render(constants_section(KERNELS.find(document.data["kernels"], origin=document.origin.part(("kernels",)))))
    render(errors_section(errors_alone(gpu), gpu.name))
    if not gpu.measured:
        print_lines([f"No kernels were measured on {gpu.name}: constants of its nearest relative.", ""])


@show.command("framework")
def show_framework(name: Named) -> None:
    """What a framework does by default."""
    from trainsim.frameworks import FRAMEWORKS, load_framework

    load_framework(name)
    _render(FRAMEWORKS, name)


@show.command("optimizer")
def show_optimizer(name: Named) -> None:
    """The states of an optimizer, and the bytes that an update moves."""
    from trainsim.optimizers import OPTIMIZERS, load_optimizer

    load_optimizer(name)
    _render(OPTIMIZERS, name)


@show.command("network")
def show_network(name: Named) -> None:
    """What collectives cost on a kind of network."""
    from trainsim.hardware.collective_constants import COLLECTIVE_CONSTANTS, load_collectives

    load_collectives(name)
    _render(COLLECTIVE_CONSTANTS, name)


@show.command("kernels")
def show_kernels(name: Named) -> None:
    """How well an architecture runs kernels."""
    from trainsim.hardware.kernel_constants import KERNELS, load_kernels
    from trainsim.report.kernel_constants import constants_section

    load_kernels(name)
    render(constants_section(KERNELS.find(name)))


@show.command("scenario")
def show_scenario(scenario: Names, changes: Sets = []) -> None:  # noqa: B006
    """The resolved scenario, and how values were derived."""
    from trainsim.report.resolved import resolved_section

    base = load(scenario, changes)
    render(resolved_section(base.resolved, str(base.origin.file)))


@show.command("schedule")
def show_schedule(
    name: Named,
    stages: Annotated[int, typer.Option("--stages", metavar="P", help="Pipeline stages.")] = 4,
    microbatches: Annotated[int, typer.Option("--microbatches", metavar="M", help="Microbatches per step.")] = 8,
    chunks: Annotated[int | None, typer.Option("--chunks", metavar="V", help="Virtual stages per rank.")] = None,
    out: Drawing = None,
    as_json: Json = False,
) -> None:
    """The order of a pipeline as a chart, its bubble and memory."""
    from trainsim.report.gallery import order_of, schedule_section

    if as_json:
        print_json({"order": order_of(name, ranks=stages, microbatches=microbatches, chunks=chunks)})
        return
    if out:
        try_drawing(out)
    render(schedule_section(name, ranks=stages, microbatches=microbatches, chunks=chunks))
    if out:
        from trainsim.report.gallery import example
        from trainsim.report.order_chart import order_chart
        from trainsim.schedules import schedules

        full = schedules.canonical(name)
        step, slices = example(full, stages, microbatches, chunks=chunks)
        save_figure(order_chart(full, step, slices=slices), out)


show.command("memory")(show_memory)
show.command("step")(show_step)
show.command("trace")(show_trace)


def _render(catalogue: Catalogue, name: str) -> None:
    """What a file of a catalogue says, on top of what it is based on."""
    from trainsim.report.described import described

    document = catalogue.find(name)
    render(described(document.name, document.data, str(document.origin.file)))
