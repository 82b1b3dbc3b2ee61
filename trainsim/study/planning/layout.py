"""One way to lay a job on its GPUs, as values of its scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainsim.documents.origin import key_of, value_at
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways.shared_states import switched


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees, batches, order of passes, what is recomputed and how states are shared.

    ``recompute`` is as a scenario writes it; ``stages`` are the layers of each virtual stage where the usual layout
    does not divide; ``others`` are further fields that somebody asked to vary.
    """

    tp: int
    pp: int
    dp: int
    cp: int = 1
    ep: int = 1
    etp: int | None = None  # None: as tp
    micro_batch: int
    global_batch: int
    schedule: str
    chunks: int = 1
    stages: tuple[int, ...] | None = None
    recompute: Any = field(default="none", hash=False)
    sharding: str = "zero1"
    offload: str = "none"
    sequence_parallel: bool = False
    others: tuple[tuple[str, Any], ...] = field(default=(), hash=False)

    @property
    def microbatches(self) -> int:
        """Of one replica in one step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def title(self) -> str:
        """
        >>> Layout(tp=4, pp=12, dp=8, micro_batch=2, global_batch=2048, schedule="interleaved-1f1b", chunks=2).title
        'tp4 pp12 dp8, micro-batch 2, interleaved-1f1b x2, no recompute, zero1'
        """
        degrees = {name: getattr(self, name) for name in ("tp", "cp", "pp", "dp", "ep")}
        shape = " ".join(f"{k}{n}" for k, n in degrees.items() if n > 1 or k in ("tp", "pp", "dp"))
        shape += f" etp{self.etp}" if self.etp and self.tp > 1 else ""
        order = f"{self.schedule} x{self.chunks}" if self.chunks > 1 else self.schedule
        words = [shape + (" sp" if self.sequence_parallel else ""), f"micro-batch {self.micro_batch}"]
        words += [order] if self.pp > 1 else []
        words += [recomputation(self.recompute), self.sharding]
        words += [f"{self.offload} optimizer"] if self.offload != "none" else []
        return ", ".join([*words, *(f"{path.rpartition('.')[2]} {value}" for path, value in self.others)])

    @property
    def degrees(self) -> tuple[object, ...]:
        """What tells it from others in kind: all but what is recomputed and what is cut along the sequence."""
        sizes = self.tp, self.pp, self.dp, self.cp, self.ep, self.etp, self.micro_batch
        return *sizes, self.schedule, self.chunks, self.sharding, self.offload, repr(self.others)

    def changes(self, base: Scenario) -> dict[str, Any]:
        """What to change in *base*: dotted path -> value, without those that it says already."""
        values = {
            "parallel.tp": self.tp,
            "parallel.pp": self.pp,
            "parallel.cp": self.cp,
            "parallel.ep": self.ep,
            "parallel.etp": self.etp,
            "parallel.dp": None,
            "parallel.sequence_parallel": self.sequence_parallel,
            "pipeline.schedule": None if self.pp == 1 and base.spec.pipeline.schedule is None else self.schedule,
            "pipeline.chunks": self.chunks,
            "pipeline.group": None,
            "pipeline.layout": list(self.stages) if self.stages else None,
            "training.micro_batch": self.micro_batch,
            "training.global_batch": self.global_batch,
            "training.gradient_accumulation": None,
            "training.recompute": self.recompute,
            **dict(self.others),
        }
        now = base.spec.model_dump()
        out = {path: value for path, value in values.items() if value_at(now, key_of(path)) != value}
        if base.spec.sharding.strategy != self.sharding:
            out |= switched(base, self.sharding).values
        if base.spec.sharding.offload.optimizer != self.offload:
            out["sharding.offload.optimizer"] = self.offload
        return out

    def change(self, base: Scenario) -> Change:
        """The same as a change that a study can try."""
        return Change(title=self.title, values=self.changes(base))


def recomputation(value: Any) -> str:
    """What is recomputed, in words.

    >>> recomputation("full"), recomputation({"mode": "full", "layers": 3})
    ('full recompute', 'full recompute of 3 layers a stage')
    """
    if not isinstance(value, Mapping):
        return "no recompute" if value == "none" else f"{value} recompute"
    if value.keys() == {"mode", "layers"}:
        layers = value["layers"]
        return f"{value['mode']} recompute of {layers} layer{'s' if layers > 1 else ''} a stage"
    parts = ", ".join(f"{key} {part}" for key, part in value.items() if key != "mode" and part)
    return f"{value.get('mode', 'full')} recompute" + (f" ({parts})" if parts else "")
