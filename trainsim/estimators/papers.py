"""The closed forms of two papers: ZeRO's table of model states, and Korthikanti's activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainsim.estimators.checked import choice, count, switch, whole
from trainsim.units import Quantity


class ZeroTable(NamedTuple):
    """Bytes per GPU of fp16 training with Adam; the names are the paper's: what is partitioned."""

    baseline: float
    pos: float
    pos_g: float
    pos_g_p: float


def zero_table(parameters: Quantity, replicas: int) -> ZeroTable:
    """Model states (bytes per GPU) of *parameters* over *replicas*: 16, 4 + 12/N, 2 + 14/N, 16/N per parameter.

    Source: Rajbhandari et al. 2020 (arXiv 1910.02054), table 1 and figure 1. Raises InvalidPlan for bad numbers.

    >>> [round(b / 1e9, 2) for b in zero_table(7.5e9, 64)]
    [120.0, 31.41, 16.64, 1.88]
    """
    p, n = count("parameters", parameters), whole("replicas", replicas)
    return ZeroTable(16.0 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n)


class FirstStage(NamedTuple):
    """Activations (bytes) on a rank of the first pipeline stage: of its layers, of the embedding, of the output."""

    layers: float
    embedding: float
    output: float

    @property
    def total(self) -> float:
        return self.layers + self.embedding + self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Activations of one transformer layer: ``layer`` bytes per microbatch and rank; ``elements`` = s b h."""

    layer: float
    elements: int
    hidden: int
    tp: int
    sequence_parallel: bool

    def first_stage(
        self, layers: int, *, pp: int = 1, chunks: int = 1, microbatches: int | None = None, vocab: int | None = None
    ) -> FirstStage:
        """All that the first of *pp* stages keeps, when it keeps most (the paper's section 4.3).

        1F1B holds pp microbatches of layers/pp layers (fewer if there are fewer *microbatches*), an interleaved
        schedule of *chunks* per rank 1 + (pp - 1) / (pp chunks) times that. The embedding keeps a dropout mask of each
        microbatch; one stage alone also the final norm's, the output layer's and the loss' inputs, if *vocab* is given.

        >>> model = korthikanti_activations(2048, 1, hidden=4096, heads=32)
        >>> model.first_stage(32).layers / 2**30
        28.5
        """
        layers, pp, chunks = whole("layers", layers), whole("pp", pp), whole("chunks", chunks)
        in_flight = pp if microbatches is None else min(pp, whole("microbatches", microbatches))
        factor = 1 + (pp - 1) / (pp * chunks) if chunks > 1 else in_flight / pp
        own = self.elements / (self.tp if self.sequence_parallel else 1)
        output = 0.0
        if pp == 1 and vocab is not None:
            logits = self.elements / self.hidden * whole("vocab", vocab) / self.tp
            output = 4 * own + 4 * logits
        return FirstStage(self.layer * layers * factor, own * in_flight, output)


def korthikanti_activations(
    sequence_length: int,
    microbatch: int,
    *,
    hidden: int,
    heads: int,
    tp: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> LayerActivations:
    """Activations (bytes) that a layer keeps per microbatch and rank in 16 bits: GELU, 4h, dropout, no fused attention.

    *recompute* is none, selective (the attention's core) or full. With sequence parallelism the part outside the
    tensor-parallel regions is cut over *tp* as well. Raises InvalidPlan for bad numbers.
    Source: Korthikanti et al. 2022 (arXiv 2205.05198), table 2.

    >>> korthikanti_activations(2048, 4, hidden=6144, heads=64, tp=8).layer * 48 / 2**30
    59.25
    """
    s, b = whole("sequence_length", sequence_length), whole("microbatch", microbatch)
    h, a, t = whole("hidden", hidden), whole("heads", heads), whole("tp", tp)
    cut = switch("sequence_parallel", sequence_parallel)
    whole_part = 1 / t if cut else 1.0
    per_element = {
        "none": 10 * whole_part + 24 / t + 5 * a * s / (h * t),
        "selective": 10 * whole_part + 24 / t,
        "full": 2 * whole_part,
    }
    kept = per_element[choice("recompute", recompute, per_element)]
    return LayerActivations(layer=s * b * h * kept, elements=s * b * h, hidden=h, tp=t, sequence_parallel=cut)


def korthikanti_states(layers: int, hidden: int, *, tp: int = 1, pp: int = 1) -> float:
    """Parameters, gradients and optimizer states (bytes per rank) of the layers alone: 18 x 12 L h^2 / (tp pp).

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), figure 1: embeddings are not in it.

    >>> korthikanti_states(48, 6144, tp=8) / 2**30
    45.5625
    """
    weights = 12 * whole("layers", layers) * whole("hidden", hidden) ** 2
    return 18 * weights / (whole("tp", tp) * whole("pp", pp))
