"""
One layer, the embedding and the head as instructions: kernels with their seconds, and tensor-parallel collectives.

A block is worked out once per job and used for every layer. Tensor parallelism puts collectives around its
operations (Megatron-LM; Korthikanti et al. 2022 for sequence parallelism); a collective that runs under kernels is kept
together with them as an ``Overlapped`` until a stage cuts it into two chains, the second being a lane of its axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainsim.contracts.groups import TENSOR, Across, Group, Part, Within
from trainsim.contracts.instructions import Kernel, Meet
from trainsim.contracts.job import Job
from trainsim.costs.kernels import cost, gpu_spread
from trainsim.hardware.kernel_constants import Speeds
from trainsim.models.fp8_recipes import recipes
from trainsim.models.layer_kind import LayerKind
from trainsim.models.operations import Exchange, MemoryBound, Operation, Step, Under, Work
from trainsim.program.network import Network
from trainsim.program.peaks import peak_backward, peak_forward
from trainsim.program.pieces import Block, Overlapped, Piece
from trainsim.program.tensor_overlap import Boundary, Pieces, TensorOverlap, scatter_last, tensor_overlaps
from trainsim.schedules.lookup import slices_of

PARTS: Mapping[str, Callable[[int], Part]] = {"within": Within, "across": Across}
OUTSIDE = ("embedding", "logits")
"""Operations outside the layers, whose collectives are not those of a layer's modules."""


@dataclass(frozen=True, slots=True)
class Launches:
    """What the host does for one pass of a block: kernels launched, collectives aside, and seconds of its own."""

    kernels: int
    seconds: float = 0.0


class Blocks:
    """Builds blocks of one job; ``network`` tells the time of collectives alone."""

    def __init__(self, job: Job, network: Network):
        self.job, self.network = job, network
        self.spread = gpu_spread(job.parallel.ranks) if job.jitter.gpu is None else 1.0
        recipe = job.training.fp8_recipe and recipes()[job.training.fp8_recipe].products
        self.products = recipe or job.training.precision
        self.software = Speeds(*job.framework.kernels.speeds)
        for kind, variant in job.framework.kernels.variants.items():
            job.cluster.gpu.kernels.rate(kind, variant)  # refuses what nobody knows

    def block(
        self,
        operations: Sequence[Operation],
        *,
        recompute: str,
        forward: int,
        backward: int,
        split: bool = False,
        checkpoint: float = 0.0,
        hooks: float = 0.0,
    ) -> Block:
        """Instructions of *operations*; *forward* and *backward* count the kernels that the host launches, and
        *hooks* are its seconds for hooks of gradients.

        With *split* the backward pass comes in two halves as well, for schedules that take them apart. Full
        recomputation keeps *checkpoint* bytes.
        """
        again = [o for o in operations if o.again] if recompute == "selective" else []
        ahead: tuple[Piece, ...] = tuple(self._forward(operations, "forward"))
        before: tuple[Piece, ...] = ()
        launches = Launches(backward, hooks)
        saved, peak = sum(o.saved for o in operations), peak_backward(operations)
        kept = saved
        if recompute == "full":
            before = tuple(self._forward(operations, "recompute"))
            launches = Launches(forward + backward, self.job.framework.host.recompute_seconds + hooks)
            kept = checkpoint
        elif recompute == "selective":
            kept -= sum(o.dropped for o in operations)
        back: tuple[Piece, ...] = (*before, *self._backward(operations, again))
        ahead, forward_seconds = self._launched(ahead, Launches(forward))
        back, backward_seconds = self._launched(back, launches)
        block = Block(
            forward=ahead,
            backward=back,
            forward_seconds=forward_seconds,
            backward_seconds=backward_seconds,
            saved=kept,
            transient=max(peak - kept, 0.0),
            transient_forward=max(peak_forward(operations) - kept, 0.0) if recompute == "none" else 0.0,
            resident=tuple((o.name, o.resident) for o in operations if o.resident),
        )
        return self._halves(block, operations, before, again, launches) if split else block

    def _halves(
        self,
        block: Block,
        operations: Sequence[Operation],
        before: tuple[Piece, ...],
        again: list[Operation],
        launches: Launches,
    ) -> Block:
        """*block* with its backward in two: input gradients, which others wait for, and weight gradients."""
        inputs: tuple[Piece, ...] = (*before, *self._input_gradient(operations, again))
        weights: tuple[Piece, ...] = tuple(self._weight_gradient(operations))
        share = len(weights) / max(1, len(weights) + len(inputs))
        late = Launches(round(launches.kernels * share))
        early = Launches(launches.kernels - late.kernels, launches.seconds)
        weights, weight_seconds = self._launched(weights, late)
        inputs, input_seconds = self._launched(inputs, early)
        return replace(
            block,
            input_gradient=inputs,
            weight_gradient=weights,
            input_seconds=input_seconds,
            weight_seconds=weight_seconds,
            kept=sum(o.saved for o in operations if o.weight_gradient),
        )

    def checkpoint(self, kind: LayerKind) -> float:
        """Bytes of a layer's input that full recomputation keeps for a microbatch (or slice of one).

        The keys and values of a slice stay as well, since other slices look at them.
        """
        training, parallel = self.job.training, self.job.parallel
        slices = slices_of(self.job.pipeline.schedule, self.job.pipeline.group)
        length = (kind.cross_attention and training.decoder_length) or training.sequence_length
        tokens = training.micro_batch * length / parallel.cp / slices
        share = parallel.tp if parallel.sequence_parallel else 1
        seen = max(1, kind.kv_heads // parallel.tp) * (kind.query_dim + kind.value_dim) if slices > 1 else 0
        return tokens * (kind.hidden / share * training.stream_bytes + seen * training.number_bytes)

    def kernel(self, work: Work, kind: str) -> Kernel:
        """One piece of work as a kernel; the slowest of all GPUs sets the pace (``gpu_spread``)."""
        variants = self.job.framework.kernels.variants
        if variants and isinstance(work, MemoryBound) and work.kind in variants:
            work = replace(work, variant=variants[work.kind])
        seconds, sm, hbm = cost(work, self.job.cluster.gpu, self.products, self.software)
        return Kernel(work.name, kind, seconds * self.spread, sm, hbm)

    def pieces(self, steps: Iterable[Step], kind: str) -> Iterator[Piece]:
        """What an operation does in a pass; collectives of one rank are left out."""
        for step in steps:
            if isinstance(step, Under):
                kernels = tuple(self.kernel(w, kind) for w in step.work)
                meet = self._meet(step.exchange)
                yield from (Overlapped.of(meet, kernels),) if meet else kernels
            elif isinstance(step, Exchange):
                if meet := self._meet(step):
                    yield meet
            else:
                yield self.kernel(step, kind)

    def _meet(self, e: Exchange) -> Meet | None:
        """A collective of a layer, if the rank has anybody to meet."""
        group = Group((e.axis,), part=None if e.part is None else PARTS[e.part[0]](e.part[1]))
        if not self.network.has(group):
            return None
        return Meet(e.name, e.axis_kind, group, e.operation, e.nbytes, stream=e.axis_kind, exposed=e.exposed)

    def traffic(self, name: str, nbytes: float, kind: str) -> Kernel:
        """An elementwise kernel over *nbytes* of memory, such as the optimizer's."""
        return self.kernel(MemoryBound(name, "elementwise", nbytes), kind)

    def _forward(self, operations: Iterable[Operation], kind: str) -> Iterator[Piece]:
        sequence = self.job.parallel.sequence_parallel
        for o in operations:
            way = self._way(o)
            if o.parallel == "column" and sequence:
                yield from self._at_boundary(way.gather, o, "all_gather", o.forward, kind)
            elif o.parallel == "row":
                scatter = way.scatter if sequence else scatter_last
                yield from self._at_boundary(scatter, o, self._summed, o.forward, kind)
            else:
                yield from self.pieces(o.forward, kind)
            for nbytes in o.reduced if self.network.has(TENSOR) else ():
                yield Meet(f"{o.name}.all_reduce", "tp", TENSOR, "all_reduce", nbytes, stream="tp")

    def _backward(self, operations: Sequence[Operation], lost: list[Operation]) -> Iterator[Piece]:
        sequence = self.job.parallel.sequence_parallel
        for o in reversed(operations):
            if o.again and lost:
                yield from (piece for x in lost for piece in self.pieces(x.again, "recompute"))
                lost = []
            weights = tuple(self.pieces(o.weight_gradient, "backward"))
            gather = self._tp(o, "all_gather") if o.parallel == "column" and sequence and weights else ()
            if o.parallel == "column" and self._way(o).bulk:
                inputs = tuple(self.pieces(o.input_gradient, "backward"))
                yield from self._beside(gather, inputs)
                yield from self._beside(self._tp(o, self._summed) if inputs else (), weights)
            else:
                yield from (*gather, *self._inputs(o), *weights)

    def _input_gradient(self, operations: Sequence[Operation], lost: list[Operation]) -> Iterator[Piece]:
        for o in reversed(operations):
            if o.again and lost:
                yield from (piece for x in lost for piece in self.pieces(x.again, "recompute"))
                lost = []
            yield from self._inputs(o)

    def _inputs(self, o: Operation) -> Iterator[Piece]:
        """The gradient of an operation's input, with the collective that it waits for or that waits for it."""
        sequence, way = self.job.parallel.sequence_parallel, self._way(o)
        if o.parallel == "row" and sequence and (o.input_gradient or o.weight_gradient):
            yield from self._at_boundary(way.gather, o, "all_gather", o.input_gradient, "backward")
        elif o.parallel == "column" and o.input_gradient:
            scatter = way.scatter_input_gradient if sequence else scatter_last
            yield from self._at_boundary(scatter, o, self._summed, o.input_gradient, "backward")
        else:
            yield from self.pieces(o.input_gradient, "backward")

    def _weight_gradient(self, operations: Sequence[Operation]) -> Iterator[Piece]:
        for o in reversed(operations):
            if o.weight_gradient:
                if o.parallel == "column" and self.job.parallel.sequence_parallel:
                    yield from self._tp(o, "all_gather")
                yield from self.pieces(o.weight_gradient, "backward")

    @property
    def _summed(self) -> str:
        """What adds up partial sums of the tensor-parallel group."""
        return "reduce_scatter" if self.job.parallel.sequence_parallel else "all_reduce"

    def _way(self, o: Operation) -> TensorOverlap:
        """How this operation's collectives overlap; those of the embedding and the head are outside the layers."""
        way = tensor_overlaps[self.job.training.tp_overlap]
        return tensor_overlaps[way.outside] if o.name in OUTSIDE else way

    def _tp(self, o: Operation, operation: str) -> tuple[Meet, ...]:
        if not self.network.has(TENSOR):
            return ()
        return (Meet(f"{o.name}.{operation}", "tp", TENSOR, operation, o.boundary, stream="tp"),)

    def _at_boundary(
        self, way: Pieces, o: Operation, operation: str, steps: tuple[Step, ...], kind: str
    ) -> Iterator[Piece]:
        """*steps* of an operation and the collective *operation* before or behind them, as *way* has it."""
        meets = self._tp(o, operation)
        if not meets:
            yield from self.pieces(steps, kind)
            return
        yield from way(
            Boundary(
                meet=meets[0],
                steps=steps,
                kind=kind,
                pieces=self.pieces,
                kernel=self.kernel,
                ranks=self.network.size(TENSOR),
                splits=self.job.framework.communication.userbuffers_splits,
                copied=self.job.parallel.sequence_parallel and self.job.framework.kernels.sequence_copies,
            )
        )

    def _beside(self, meets: tuple[Meet, ...], pieces: tuple[Piece, ...]) -> Iterator[Piece]:
        """The collective under the kernels that do not need it."""
        kernels = tuple(piece for piece in pieces if isinstance(piece, Kernel))
        if meets and kernels and len(kernels) == len(pieces):
            (meet,) = meets
            yield Overlapped.of(meet, kernels)
        else:
            yield from meets
            yield from pieces

    def _launched(self, pieces: tuple[Piece, ...], launches: Launches) -> tuple[tuple[Piece, ...], float]:
        """*pieces* with what the GPU waits for a host that cannot launch fast enough, and the seconds of it all.

        Host and GPU time of a block join as (g^4 + h^4)^(1/4), and add up where launches block.
        """
        framework, gpu = self.job.framework, self.alone(pieces)
        if framework.host.cuda_graph:
            return pieces, gpu
        meets = [p.meet if isinstance(p, Overlapped) else p for p in pieces if not isinstance(p, Kernel)]
        count = launches.kernels + framework.host.operations_per_collective * len(meets)
        agreed = sum(self._agreed(meet) for meet in meets)
        host = count * framework.host.seconds_per_operation + launches.seconds + agreed
        total = gpu + host if framework.host.blocking else (gpu**4 + host**4) ** 0.25
        waits = (Kernel("host", "host", total - gpu, 0.0, 0.0),) if total > gpu else ()
        far = self._far(meets)
        if far:
            waits = (*waits, Kernel("far collectives", "tp", far, 0.0, 0.0))
        return (*pieces, *waits), max(total, gpu) + far

    def _far(self, meets: Sequence[Meet]) -> float:
        """Seconds that collectives of layers take over further nodes, beyond what the fabric's constants give them."""
        each = self.job.framework.communication.seconds_per_hop
        return each * sum(self.network.hops(meet.communicator) for meet in meets) if each else 0.0

    def _agreed(self, meet: Meet) -> float:
        """Seconds of the host until the ranks of a collective have agreed on it, in a job over several nodes."""
        host = self.job.framework.host
        if not (host.seconds_per_peer or host.seconds_per_far_peer) or self.job.cluster.nodes == 1:
            return 0.0
        each = host.seconds_per_far_peer if self.network.hops(meet.communicator) else host.seconds_per_peer
        return each * self.network.size(meet.communicator)

    def alone(self, pieces: Iterable[Piece]) -> float:
        """Seconds of *pieces* one after the other with nothing else on the machine."""
        return sum(seconds for _, seconds in self.parts(pieces))

    def parts(self, pieces: Iterable[Piece]) -> Iterator[tuple[str, float]]:
        """(kind, seconds alone) of each piece; an overlapped collective counts where it sticks out."""
        for p in pieces:
            if isinstance(p, Kernel):
                yield p.kind, p.seconds
            elif isinstance(p, Meet):
                yield p.kind, self.network.seconds(p.communicator, p.operation, p.nbytes) * p.exposed
            else:
                collective = self.network.seconds(p.meet.communicator, p.meet.operation, p.meet.nbytes)
                for kind in dict.fromkeys(k.kind for k in p.kernels):
                    yield kind, sum(k.seconds for k in p.kernels if k.kind == kind)
                yield p.meet.kind, max(0.0, collective - sum(k.seconds for k in p.kernels))
