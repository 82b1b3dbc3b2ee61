"""
What an inference engine takes for prompts, for tokens and for scores: intervals per kind, from the model's operations.

Kernels cost what they cost in training, and the collectives of tensor parallelism take what they take alone. CUDA
graphs launch a whole iteration of decoding; prompts, and without graphs (``enforce_eager``) everything, are launched
kernel by kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from trainsim.contracts.groups import ALL_AXES, TENSOR, Group, Within
from trainsim.contracts.instructions import Kernel, Payload
from trainsim.contracts.job import Job
from trainsim.contracts.rollout import Rollout
from trainsim.costs.kernels import cost
from trainsim.models.decoding import cache_bytes, decode_operations, embedded, prompt_operations, sampled
from trainsim.models.layer_kind import counted
from trainsim.models.layers import Shape, parameters_per_rank, style_of
from trainsim.models.operations import MemoryBound, Operation, Work, works
from trainsim.program.parts import Parts

ELEMENT = 2
"""Bytes of a weight, of an activation and of a number of the cache: engines run in 16 bits."""
LOGIT = 4
"""Bytes of a logit in single precision, in which tokens are chosen."""


@dataclass(slots=True)
class _Spent:
    """What the kernels of one name take together: seconds, and seconds times their shares of SMs and of the HBM."""

    kind: str
    seconds: float = 0.0
    sm: float = 0.0
    hbm: float = 0.0


class Inference:
    """The engines of a job: what each of their GPUs holds, and how long it takes."""

    def __init__(self, parts: Parts, rollout: Rollout):
        self.parts, self.job, self.rollout = parts, parts.job, rollout
        self.group = group_of(parts.job, rollout.tp)
        self.style = style_of(self.job.framework, self.job.training.attention)
        self.precision = precision_of(self.job)
        layers, kinds = self.job.model.layers, self.job.model.kinds
        edges = [layers * s // rollout.pp for s in range(rollout.pp + 1)]
        self.stages = [kinds[begin:end] for begin, end in pairwise(edges)]

    def weights(self, stage: int) -> float:
        """Bytes of weights on each GPU of a stage."""
        first, last = stage == 0, stage == self.rollout.pp - 1
        kinds, vocab = self.stages[stage], self.job.padded_vocab
        held = parameters_per_rank(
            self.job.model, self.rollout.tp, kinds, embedding=first, head=last, padded_vocab=vocab
        )
        return float(ELEMENT * held)

    def token_bytes(self, stage: int) -> float:
        """Bytes of the cache of a token on each GPU of a stage."""
        return sum(cache_bytes(kind, self.rollout.tp, ELEMENT) for kind in self.stages[stage])

    def workspace(self, stage: int, sequences: int) -> float:
        """Bytes of activations at most, of *sequences* at once: results of the widest operation of a full batch beside
        the residual stream, or the logits in single precision."""
        tokens = max(self.rollout.max_num_batched_tokens, self.rollout.prompt_length)
        shape = self._shape(1, tokens)
        widest = max(
            o.output for kind in counted(self.stages[stage]) for o in prompt_operations(kind, shape, self.style)
        )
        logits = float(LOGIT * sequences * self.job.padded_vocab) if stage == self.rollout.pp - 1 else 0.0
        return max(2.0 * ELEMENT * tokens * self.job.model.hidden + widest, logits)

    def prompts(self, sequences: int, tokens: int, stage: int = 0, *, scores: bool = False) -> tuple[Kernel, ...]:
        """*sequences* of so many *tokens* go through a stage, in batches of whole sequences of at most
        ``max_num_batched_tokens``. With *scores* all their tokens get log-probabilities, else the last ones a token."""
        most = max(1, self.rollout.max_num_batched_tokens // tokens)
        full, rest = divmod(sequences, most)
        spent = _Tally(self, "scoring" if scores else "prefill")
        for batch, times in ((most, full), (rest, 1)):
            if batch and times:
                shape = self._shape(batch, tokens)
                spent.through(stage, shape, shape if scores else self._shape(batch, 1), times)
        return spent.kernels()

    def decode(self, sequences: int, read: float, times: int, stage: int = 0) -> tuple[Kernel, ...]:
        """*times* iterations of a stage: a token for each of *sequences*, which read *read* tokens of the cache
        together in all iterations."""
        spent = _Tally(self, "decode")
        shape = self._shape(sequences, 1)
        spent.through(stage, shape, shape, times)
        for kind, layers in counted(self.stages[stage]).items():
            nbytes = cache_bytes(kind, self.rollout.tp, ELEMENT) * read / times
            spent.add(MemoryBound("cache read", "elementwise", nbytes), layers * times, "cache read")
        return spent.kernels()

    def _shape(self, sequences: int, tokens: int) -> Shape:
        return Shape(
            micro_batch=sequences,
            sequence_length=tokens,
            tp=self.rollout.tp,
            precision=self.precision,
            padded_vocab=self.job.padded_vocab,
        )


class _Tally:
    """What passes through a stage take, kernel by kernel of one name and all collectives together."""

    def __init__(self, engine: Inference, kind: str):
        self.engine, self.kind = engine, kind
        self.spent: dict[str, _Spent] = {}
        self.payloads: list[Payload] = []
        self.host = 0.0

    def through(self, stage: int, shape: Shape, head: Shape, times: int) -> None:
        """*times* passes of *shape* through the layers of *stage*; logits of *head* where it has them."""
        engine, decodes = self.engine, self.kind == "decode"
        rollout, style, model = engine.rollout, engine.style, engine.job.model
        before = self._gpu
        make = decode_operations if decodes else prompt_operations
        for kind, layers in counted(engine.stages[stage]).items():
            self._operations(make(kind, shape, style), layers * times, self.kind)
        if stage == 0:
            self._operations(embedded(model, shape, style), times, self.kind)
        if stage == rollout.pp - 1:
            self._operations(sampled(model, head, style), times, "sampling")
            self._collective("all_gather", float(head.tokens) * head.padded_vocab * head.element, times)
        gpu = (self._gpu - before) / times
        launched = 0.0 if decodes and not rollout.enforce_eager else self._launched(stage, shape)
        total = gpu + launched if engine.job.framework.host.blocking else (gpu**4 + launched**4) ** 0.25
        self.host += (max(0.0, total - gpu) + rollout.host_per_iteration) * times

    def add(self, work: Work, times: int, name: str) -> None:
        """A kernel, *times* times."""
        engine = self.engine
        seconds, sm, hbm = cost(work, engine.job.cluster.gpu, engine.precision)
        all_of_them = seconds * engine.parts.blocks.spread * times
        spent = self.spent.setdefault(name, _Spent(self.kind))
        spent.seconds += all_of_them
        spent.sm += sm * all_of_them
        spent.hbm += hbm * all_of_them

    def kernels(self) -> tuple[Kernel, ...]:
        """An interval per name, those that take no time left out."""
        out = [
            Kernel(name, spent.kind, spent.seconds, spent.sm / spent.seconds, spent.hbm / spent.seconds)
            for name, spent in self.spent.items()
            if spent.seconds > 0 and spent.kind != "tp"
        ]
        if (collectives := self.spent.get("tp")) is not None:
            out.append(Kernel("tp", "tp", collectives.seconds, 0.0, 0.0, stream="tp", payloads=tuple(self.payloads)))
        if self.host > 0:
            out.append(Kernel("host", "host", self.host, 0.0, 0.0))
        return tuple(out)

    @property
    def _gpu(self) -> float:
        return sum(spent.seconds for spent in self.spent.values())

    def _operations(self, operations: Iterable[Operation], times: int, name: str) -> None:
        for o in operations:
            for work in works(o.forward):
                self.add(work, times, name)
            if o.parallel == "row":
                self._collective("all_reduce", o.boundary, times)

    def _collective(self, operation: str, nbytes: float, times: int) -> None:
        """A collective of the engine's tensor parallelism, *times* times; their bytes are those of one payload."""
        engine = self.engine
        if engine.rollout.tp == 1:
            return
        seconds = engine.parts.network.seconds(engine.group, operation, nbytes)
        self.spent.setdefault("tp", _Spent("tp")).seconds += seconds * times
        self.payloads.append(Payload(engine.group, operation, nbytes * times))

    def _launched(self, stage: int, shape: Shape) -> float:
        """Seconds in which the host launches the kernels of one pass."""
        host, layers = self.engine.job.framework.host, len(self.engine.stages[stage])
        collectives = 2 * host.operations_per_collective if shape.tp > 1 else 0
        return layers * (host.operations_forward + collectives) * host.seconds_per_operation


def precision_of(job: Job) -> str:
    """The 16-bit type in which an engine runs: that of training, or bf16 where the GPU has it."""
    if job.training.precision in ("fp16", "bf16"):
        return job.training.precision
    return "bf16" if "bf16" in job.cluster.gpu.flops else "fp16"


def group_of(job: Job, tp: int) -> Group:
    """The ranks of an engine that cut the same layers: neighbours, or those that do so in training."""
    return TENSOR if tp == job.parallel.tp and job.parallel.order[0] == "tp" else Group(ALL_AXES).only(Within(tp))
