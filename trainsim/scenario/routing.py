"""How tokens get to experts, from a scenario: the dispatcher, the capacity, and how far from balance the router is."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from trainsim.contracts.job import Parallel, Routing
from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.models.dispatchers import dispatchers
from trainsim.models.mixture import Moe
from trainsim.models.transformer import Transformer
from trainsim.scenario.checks import Fault, divisors, offer
from trainsim.scenario.context import Context, default
from trainsim.scenario.routing_section import ImbalanceSpec, RoutingSpec

DROPPING = "alltoall"
"""The dispatcher of experts with a capacity."""


def resolve_routing(
    context: Context, model: Transformer, framework: Framework, *, modules: Collection[str] = ()
) -> Routing:
    """The routing of a scenario that recomputes *modules*.

    Raises ScenarioError for experts that are not there, and for what Megatron-Core refuses to combine
    (megatron/core/transformer/transformer_config.py).
    """
    spec, moe = context.spec.training.moe, model.experts
    if spec is None and moe is None:
        return Routing()
    spec = spec or RoutingSpec()
    if moe is None:
        context.require(Fault("training.moe", f"{model.name} has no experts; leave it out"), ScenarioError)
        raise AssertionError
    with context.at("training.moe.dispatcher"):
        dispatcher = dispatchers.canonical(_dispatcher(context, spec, framework))
    if spec.pad_to_capacity and spec.capacity_factor is None:
        context.require(
            Fault("training.moe.pad_to_capacity", "needs a capacity_factor to pad experts to, such as 1.25"),
            ScenarioError,
        )
    if spec.capacity_factor is not None and spec.capacity_factor > moe.experts / moe.top_k:
        most = moe.experts / moe.top_k
        reason = (
            f"an expert gets no token twice, so it never has more than {most:g} times an equal share; {most:g} or less"
        )
        context.require(Fault("training.moe.capacity_factor", f"{reason} would work, or leave it out"), ScenarioError)
    if spec.shared_overlap and "shared_experts" in modules:
        reason = "shared experts that run under the exchange cannot be recomputed apart from it"
        way = "leave it out, or take shared_experts out of training.recompute.modules"
        context.require(Fault("training.moe.shared_overlap", f"{reason}; {way}"), ScenarioError)
    return Routing(
        dispatcher=dispatcher,
        dispatch_precision=spec.dispatch_precision,
        capacity_factor=spec.capacity_factor,
        pad_to_capacity=spec.pad_to_capacity,
        loads=() if spec.imbalance is None else _loads(context, spec.imbalance, moe),
        shared_overlap=spec.shared_overlap,
    )


def _dispatcher(context: Context, spec: RoutingSpec, framework: Framework) -> str:
    """The framework's where the scenario names none; dropped tokens are known to all-to-alls only (Megatron-Core's
    transformer_config.py)."""
    usual = framework.communication.token_dispatcher
    if spec.dispatcher is None and spec.capacity_factor is not None and usual != DROPPING:
        context.derived("training.moe.dispatcher", DROPPING, f"{usual} drops no tokens")
        return DROPPING
    return str(default(context, "training.moe.dispatcher", spec.dispatcher, usual))


def _loads(context: Context, spec: ImbalanceSpec, moe: Moe) -> tuple[float, ...]:
    key = "training.moe.imbalance"
    if (spec.zipf is None) == (spec.loads is None):
        context.require(Fault(key, "write one of zipf: 0.5 (a law) and loads: [...] (shares)"), ScenarioError)
    if spec.loads is None:
        return zipf(moe, float(spec.zipf or 0.0), seed=spec.seed)
    if len(spec.loads) != moe.experts:
        context.require(
            Fault(f"{key}.loads", f"has {len(spec.loads)} shares, and there are {moe.experts} experts"), ScenarioError
        )
    total = sum(spec.loads)
    if min(spec.loads) < 0 or not 0 < total < float("inf"):
        reason = f"no share may be negative, and their sum must be positive and finite, not {total:g}"
        context.require(Fault(f"{key}.loads", f"{reason}; [3, 1, 1, ...] would work"), ScenarioError)
    return limited([share / total * moe.experts for share in spec.loads], moe)


def zipf(moe: Moe, power: float, *, seed: int = 0) -> tuple[float, ...]:
    """Tokens of each expert over the mean, where the k-th most popular one gets 1/k^*power*; which is which is random.

    >>> max(zipf(Moe(experts=8, top_k=2, expert_ffn_hidden=64), 0.0))
    1.0
    """
    weights = 1.0 / np.arange(1, moe.experts + 1) ** power
    shuffled = np.random.default_rng(seed).permutation(weights / weights.mean())
    return limited(shuffled.tolist(), moe)


def limited(each: Sequence[float], moe: Moe) -> tuple[float, ...]:
    """*each*, but no expert gets a token twice: what is above that goes to the others, in proportion.

    >>> limited([4.0, 0.0, 0.0, 0.0], Moe(experts=4, top_k=2, expert_ffn_hidden=64))
    (2.0, 0.6666666666666666, 0.6666666666666666, 0.6666666666666666)
    """
    most, loads = moe.experts / moe.top_k, np.array(each, float)
    while (over := loads > most * (1 + 1e-12)).any():
        rest = loads < most
        spare, left = float((loads[over] - most).sum()), float(loads[rest].sum())
        loads[over] = most
        loads[rest] = loads[rest] * (1 + spare / left) if left > 0 else spare / rest.sum()
    return tuple(loads.tolist())


def expert_parallel(model: Transformer, parallel: Parallel) -> Fault | None:
    """Experts are spread over ranks that would otherwise be replicas, or cut the same layers."""
    moe, ranks = model.experts, parallel.tp * parallel.cp * parallel.dp
    if moe is None:
        given = [key for key in ("ep", "etp") if getattr(parallel, key) not in (1, parallel.tp)]
        given += ["ep"] if parallel.ep == parallel.tp > 1 else []
        message = f"{model.name} has no experts: leave it out, or give the model moe"
        return Fault(f"parallel.{given[0]}", message) if given else None
    if moe.experts % parallel.ep:
        works = [d for d in divisors(moe.experts) if ranks % (d * parallel.etp) == 0]
        return Fault(
            "parallel.ep",
            f"{moe.experts} experts are not divisible by ep={parallel.ep}; {offer(works, parallel.ep, 'ep')}",
        )
    if ranks % (parallel.ep * parallel.etp):
        shape = f"tp {parallel.tp} x cp {parallel.cp} x dp {parallel.dp} = {ranks} ranks of a stage"
        works = [d for d in divisors(moe.experts, ranks) if ranks % (d * parallel.etp) == 0]
        way = offer(works, parallel.ep, "ep") if works else f"etp={parallel.tp} would"
        return Fault("parallel.ep", f"{shape} are not divisible by ep {parallel.ep} x etp {parallel.etp}; {way}")
    return _widths(moe, parallel) or _laid_out(parallel)


def _widths(moe: Moe, parallel: Parallel) -> Fault | None:
    if moe.expert_ffn_hidden % parallel.etp:
        works = offer(divisors(moe.expert_ffn_hidden), parallel.etp, "etp")
        width = f"{moe.expert_ffn_hidden} columns of an expert (moe.expert_ffn_hidden)"
        return Fault("parallel.etp", f"{width} are not divisible by etp={parallel.etp}; {works}")
    if moe.shared_ffn_hidden % parallel.tp:
        works = offer(divisors(moe.shared_ffn_hidden), parallel.tp, "tp")
        width = f"{moe.shared_ffn_hidden} columns of the shared experts (moe.shared_ffn_hidden)"
        return Fault("parallel.tp", f"{width} are not divisible by tp={parallel.tp}; {works}")
    return None


def _laid_out(parallel: Parallel) -> Fault | None:
    """Ranks of a stage are the same for experts and for all else; tokens are not routed twice."""
    if parallel.tp > 1 and not parallel.sequence_parallel and (parallel.ep > 1 or parallel.etp != parallel.tp):
        return Fault(
            "parallel.sequence_parallel",
            f"experts with tp={parallel.tp} need it, or every rank would route the same tokens; "
            "sequence_parallel: true would work, or tp: 1",
        )
    order = parallel.order
    inside = order[: order.index("pp")]
    if len(inside) < len(order) - 1 and (inside != ("tp",) or parallel.etp != parallel.tp) and parallel.pp > 1:
        return Fault("parallel.order", "with experts pp must come last, or just behind a tp that cuts experts too")
    return None
