"""All-or-nothing placement: a node for each member of a gang, or for none.

Members are placed one by one on copies of the arrays with the members' policy. The largest comes first, since it has the fewest possible
nodes. Each placement counts for the next. A greedy search can miss an existing placement, so a failed one is repeated with best fit
(least capacity left over), which misses fewer. Nothing is reserved here: the caller reserves the whole answer or nothing, so two gangs
cannot each hold a part and wait for the other.

`strategy` is one of Ray's: PACK (few nodes), SPREAD (different nodes if possible), STRICT_PACK (one node), STRICT_SPREAD (all different).

Source: TY-Arranger's Gang; ray-project/ray, `bundle_scheduling_policy.cc`, for the strategies and the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mesh.policies.binpack import BINPACK
from mesh.policies.policy import BoolArray, Draw, FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import column

#: Places members of a gang that name no other policy.
GANG = Policy("gang", BINPACK.score)
STRATEGIES = ("", "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


def place_all(
    demands: Sequence[NodeDemand], view: NodeScoringView, policy: Policy, draw: Draw, *, strategy: str = ""
) -> tuple[int, ...] | None:
    """Return a row for each demand, such that all fit at once; None when none are found.

    Args:
        demands: In the columns of the view.
        view: Rows with matching labels; not changed.
        policy: Policy of the members.
        draw: Random source for policies that use it.
        strategy: One of `STRATEGIES`; empty: no constraint.

    Raises:
        ValueError: The strategy is unknown.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES[1:])}, got {strategy!r}")
    if not demands:
        return ()
    if strategy == "STRICT_PACK":
        return _on_one(demands, view, policy, draw)
    return _greedy(demands, view, policy, draw, strategy) or _greedy(demands, view, _BEST_FIT, draw, strategy)


def _on_one(demands: Sequence[NodeDemand], view: NodeScoringView, policy: Policy, draw: Draw) -> tuple[int, ...] | None:
    whole = replace(demands[0], wanted=np.sum([demand.wanted for demand in demands], axis=0))
    row = _pick(whole, view, policy, draw, np.ones(len(view.total), dtype=bool))
    return None if row is None else (row,) * len(demands)


def _greedy(demands: Sequence[NodeDemand], view: NodeScoringView, policy: Policy, draw: Draw, strategy: str) -> tuple[int, ...] | None:
    scratch = replace(view, free=view.free.copy(), busy=view.busy.copy(), load=view.load.copy(), of_job=view.of_job.copy())
    taken = np.zeros(len(view.total), dtype=bool)
    rows = [0] * len(demands)
    for member in _largest_first(demands, view):
        row = _row_for(demands[member], scratch, policy, draw, strategy, taken)
        if row is None:
            return None
        rows[member], taken[row] = row, True
        scratch.free[row] -= demands[member].wanted
        scratch.load[row] += demands[member].wanted
        scratch.busy[row] += 1
        scratch.of_job[row] += 1
    return tuple(rows)


def _row_for(demand: NodeDemand, view: NodeScoringView, policy: Policy, draw: Draw, strategy: str, taken: BoolArray) -> int | None:
    everywhere = np.ones_like(taken)
    if strategy == "STRICT_SPREAD":
        return _pick(demand, view, policy, draw, ~taken)
    if strategy == "":
        return _pick(demand, view, policy, draw, everywhere)
    liked = _pick(demand, view, policy, draw, taken if strategy == "PACK" else ~taken)
    return liked if liked is not None else _pick(demand, view, policy, draw, everywhere)


def _pick(demand: NodeDemand, view: NodeScoringView, policy: Policy, draw: Draw, allowed: BoolArray) -> int | None:
    fits = (view.free >= demand.wanted).all(axis=1) & allowed
    if not fits.any():
        return None
    return policy.pick(np.where(fits, policy.score(demand, view), -np.inf), demand, draw)


def _largest_first(demands: Sequence[NodeDemand], view: NodeScoringView) -> list[int]:
    """Return the order by GPUs, then other resources, then memory, then CPUs, as in Ray; ties keep their order."""
    common = [column(view.resources, name) for name in ("gpu", "object_store_memory", "memory", "cpu")]
    gpu, *last = common
    others = [place for place in range(len(view.resources)) if place not in common]
    order = [place for place in (gpu, *others, *last) if place is not None]
    return sorted(range(len(demands)), key=lambda member: [-int(demands[member].wanted[place]) for place in order])


def _left_over(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return scores from 0 to 1 [n]: the less capacity is left on the node, the better."""
    left = (view.free - demand.wanted) / np.maximum(view.total, 1)
    score: FloatArray = 1.0 - left.mean(axis=1)
    return score


_BEST_FIT = Policy("best_fit", _left_over)
