"""
Will it fit, how, and on what card: one model under every plan on every card, each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainsim.hardware.cluster import Cluster, load_topology
from trainsim.hardware.gpu import GPU, load_gpu
from trainsim.hardware.topology import TOPOLOGIES
from trainsim.models.transformer import Transformer
from trainsim.scenario.scenario import Scenario
from trainsim.study.memory_plans import MemoryPlan, plans, usual_cards
from trainsim.study.runner import Runner
from trainsim.study.store import AnswerStore
from trainsim.study.trial import Change, Measures, Outcome, Trial, measures

WITHOUT_NVLINK, WITH_NVLINK = "pcie_box", "dgx_h100"
"""Machines for cards that no shipped topology has."""
COUNTS = ("nodes", "gpus", "on_nodes", "not_on_nodes", "placement")
"""Keys of a cluster that say how many GPUs, and which: the table does."""
USUAL: Mapping[str, Any] = {
    "framework": "transformers",
    "sharding": {"strategy": "ddp"},
    "training": {"sequence_length": 2048, "micro_batch": 1},
}
"""What holds where nobody says otherwise: Hugging Face's trainer on one sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOnCard:
    """A plan on so many GPUs of a card, and what came of running it."""

    plan: MemoryPlan
    card: str
    gpus: int
    outcome: Outcome[Measures]

    @property
    def ran(self) -> Measures | None:
        """The numbers, if it could be run."""
        return self.outcome.value

    @property
    def problem(self) -> str:
        """Why it could not be run."""
        return self.outcome.failure.reason if self.outcome.failure else ""

    @property
    def fits(self) -> bool:
        """Whether everything fits: on the GPU, in the host's memory."""
        return self.ran is not None and self.ran.fits

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds and bytes."""
        ran = self.ran
        return {
            "plan": self.plan.title,
            "card": self.card,
            "gpus": self.gpus,
            "peak_memory_bytes": ran and ran.peak_memory,
            "capacity_bytes": ran and ran.capacity,
            "fits": ran and ran.fits,
            "step_time_s": ran and ran.step_time,
            "tokens_per_s": ran and ran.tokens_per_s,
            "error": self.problem or None,
        }


@dataclass(frozen=True, kw_only=True)
class MemoryTable:
    """All that was tried with ``base``, the first that could be run; ``machines`` has a node of each card's machine;
    ``interrupted``: not everything was tried."""

    base: Scenario
    fits: tuple[PlanOnCard, ...]
    machines: Mapping[str, Cluster]
    interrupted: bool = False

    @cached_property
    def model(self) -> Transformer:
        """What is trained."""
        return self.base.resolve().model

    @property
    def cards(self) -> tuple[str, ...]:
        """The cards, in order."""
        return tuple(dict.fromkeys(fit.card for fit in self.fits))

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of GPUs, in order."""
        return tuple(dict.fromkeys(fit.gpus for fit in self.fits))

    def at(self, gpus: int) -> dict[str, dict[str, PlanOnCard]]:
        """By plan and card, those on so many GPUs."""
        out: dict[str, dict[str, PlanOnCard]] = {}
        for fit in self.fits:
            if fit.gpus == gpus:
                out.setdefault(fit.plan.title, {})[fit.card] = fit
        return out

    def best(self, card: str, gpus: int) -> PlanOnCard | None:
        """The fastest plan that trains all weights and fits; else the fastest that fits."""
        fitting = [fit for fit in self.fits if fit.card == card and fit.gpus == gpus and fit.fits]
        whole = [fit for fit in fitting if not fit.plan.lora] or fitting
        return max(whole, key=lambda fit: fit.ran.tokens_per_s if fit.ran else 0.0, default=None)


def memory_table(
    data: Mapping[str, Any],
    *,
    cards: Sequence[str] = (),
    gpus: Sequence[int] = (1, 8),
    workers: int | None = None,
    progress: bool | None = None,
    backend: str | None = None,
    store: AnswerStore | str | Path | None = None,
) -> MemoryTable:
    """The plans of ``memory_plans.yaml`` with the model and whatever else *data*, a scenario's mapping, says.

    *cards* are names of GPUs (none: the scenario's own, if it names a machine, else the usual ones), *gpus* how many of
    them. The scenario's own card is tried in the scenario's machine, others in one that has them. Raises what the model
    raises; a plan that cannot run is a row that says why.
    """
    given = data.get("cluster") or {}
    own = _machine(given) if "topology" in given else None
    named = tuple(cards) or ((own.gpu.name,) if own else usual_cards())
    whole = {**data, **{key: _over(value, data.get(key)) for key, value in USUAL.items()}}
    tried: list[tuple[MemoryPlan, str, int, Trial]] = []
    bases: list[Scenario] = []
    machines: dict[str, Cluster] = {}
    for card in named:
        cluster = _elsewhere(given, card) if own is None or card != own.gpu.name else _without(given, COUNTS)
        machines[card] = _machine(cluster)
        for count in gpus:
            base = _on(whole, machines[card].gpu, cluster, count)
            bases.append(base)
            tried += [(plan, card, count, _trial(base, plan)) for plan in plans() if count > 1 or not plan.several]
    runner = Runner(keep=measures, workers=workers, progress=progress, backend=backend, store=store)
    outcomes = runner.run([trial for *_, trial in tried], "memory")
    fits = [
        PlanOnCard(plan=plan, card=card, gpus=count, outcome=outcome)
        for (plan, card, count, _), outcome in zip(tried, outcomes, strict=True)
    ]
    base = next((fit.outcome.trial.base for fit in fits if fit.ran), bases[0])
    return MemoryTable(base=base, fits=tuple(fits), machines=machines, interrupted=runner.interrupted)


def _over(usual: Any, given: Any) -> Any:
    """What a section says, over what is usual."""
    return {**usual, **(given or {})} if isinstance(usual, Mapping) else given or usual


def _machine(cluster: Mapping[str, Any]) -> Cluster:
    """A node of the machine that a scenario's ``cluster`` means."""
    return load_topology(cluster["topology"], overrides=_without(cluster, ("topology", *COUNTS)))


def _elsewhere(cluster: Mapping[str, Any], card: str) -> dict[str, Any]:
    """A machine that has the card, with what the scenario says of hosts and of memory that others keep."""
    kept = {key: value for key, value in cluster.items() if key in ("reserved_memory", "hosts")}
    return {**kept, **machine_of(load_gpu(card), card)}


def _without(cluster: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in cluster.items() if key not in keys}


def _on(data: Mapping[str, Any], gpu: GPU, cluster: Mapping[str, Any], count: int) -> Scenario:
    """The scenario on so many GPUs of a machine, in its precision."""
    training = dict(data["training"])
    if "precision" not in training:
        training["precision"] = "bf16" if "bf16" in gpu.flops else "fp16"
    if "gradient_accumulation" not in training:
        training.setdefault("global_batch", training["micro_batch"] * count)
    if "flash2" in gpu.kernels.attention.absent:
        training.setdefault("attention", "sdpa")
    return Scenario.from_dict(
        {**data, "cluster": {**cluster, "gpus": count}, "training": training, "simulation": {"detail": "block"}}
    )


def machine_of(gpu: GPU, card: str) -> dict[str, Any]:
    """The cluster of a scenario for a card: the first shipped topology that has it, else one of its kind of links.

    >>> machine_of(load_gpu("a100-sxm4-80gb"), "a100-sxm4-80gb")
    {'topology': 'dgx_a100'}
    """
    own = [name for name in TOPOLOGIES.names() if TOPOLOGIES.find(name).data.get("gpu") == card]
    if own:
        return {"topology": next((name for name in own if name.startswith("dgx")), own[0])}
    return {"topology": WITH_NVLINK if gpu.nvlink_bandwidth else WITHOUT_NVLINK, "gpu": card}


def _trial(base: Scenario, plan: MemoryPlan) -> Trial:
    """The plan's changes on *base*."""
    model = base.data.get("model")
    values = plan.values(model if isinstance(model, Mapping) else {})
    return Trial(base=base, parts=(Change(title=plan.title, values=values),), name=plan.title)


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """The names of cards, if there are such. Raises UnknownName."""
    names = tuple(names)
    for name in names:
        load_gpu(name)
    return names
