"""All or nothing: a place for each member of a gang, or for none.

The members are placed one after the other on copies of the arrays, each with the policy of the members, the largest first, since
a large one has fewest places to go. What has been placed counts for the next one. A greedy search can miss a placement that
exists; so when it finds none, the members are packed once more by best fit (the least room left over), which misses fewer. Nothing
is promised to anybody here: the caller does that with the whole answer or not at all, so two gangs cannot hold parts and wait for
each other.

`strategy` takes Ray's words for groups of bundles: PACK (few nodes), SPREAD (different nodes while there are any), STRICT_PACK (one node),
STRICT_SPREAD (all different).

Source: TY-Arranger's Gang (seed S37); ray-project/ray, `bundle_scheduling_policy.cc`, for the strategies and the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mesh.policies.binpack import BINPACK
from mesh.policies.policy import BoolArray, Demand, Draw, FloatArray, NodeView, Policy
from mesh.policies.shares import column

#: What a member of a gang is placed with when it names no other policy than this.
GANG = Policy("gang", BINPACK.score)
STRATEGIES = ("", "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


def place_all(demands: Sequence[Demand], view: NodeView, policy: Policy, draw: Draw, *, strategy: str = "") -> tuple[int, ...] | None:
    """A row of the view for each demand, all of which fit there at once; None when no such rows are found.

    Args:
        demands: In the columns of the view.
        view: Rows that carry the labels; left as it is.
        policy: Of the members.
        draw: Chance, for policies that use it.
        strategy: One of `STRATEGIES`; empty: as the policy likes.
    Raises:
        ValueError: There is no such strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy {strategy!r}; there are {', '.join(STRATEGIES[1:])}")
    if not demands:
        return ()
    if strategy == "STRICT_PACK":
        return _on_one(demands, view, policy, draw)
    return _greedy(demands, view, policy, draw, strategy) or _greedy(demands, view, _BEST_FIT, draw, strategy)


def _on_one(demands: Sequence[Demand], view: NodeView, policy: Policy, draw: Draw) -> tuple[int, ...] | None:
    whole = replace(demands[0], wanted=np.sum([demand.wanted for demand in demands], axis=0))
    row = _pick(whole, view, policy, draw, np.ones(len(view.total), dtype=bool))
    return None if row is None else (row,) * len(demands)


def _greedy(demands: Sequence[Demand], view: NodeView, policy: Policy, draw: Draw, strategy: str) -> tuple[int, ...] | None:
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


def _row_for(demand: Demand, view: NodeView, policy: Policy, draw: Draw, strategy: str, taken: BoolArray) -> int | None:
    everywhere = np.ones_like(taken)
    if strategy == "STRICT_SPREAD":
        return _pick(demand, view, policy, draw, ~taken)
    if strategy == "":
        return _pick(demand, view, policy, draw, everywhere)
    liked = _pick(demand, view, policy, draw, taken if strategy == "PACK" else ~taken)
    return liked if liked is not None else _pick(demand, view, policy, draw, everywhere)


def _pick(demand: Demand, view: NodeView, policy: Policy, draw: Draw, allowed: BoolArray) -> int | None:
    fits = (view.free >= demand.wanted).all(axis=1) & allowed
    if not fits.any():
        return None
    return policy.pick(np.where(fits, policy.score(demand, view), -np.inf), demand, draw)


def _largest_first(demands: Sequence[Demand], view: NodeView) -> list[int]:
    """By GPUs, then by resources of other names, then memory, then CPUs, as Ray does; of equals the first."""
    common = [column(view.resources, name) for name in ("gpu", "object_store_memory", "memory", "cpu")]
    gpu, *last = common
    others = [place for place in range(len(view.resources)) if place not in common]
    order = [place for place in (gpu, *others, *last) if place is not None]
    return sorted(range(len(demands)), key=lambda member: [-int(demands[member].wanted[place]) for place in order])


def _left_over(demand: Demand, view: NodeView) -> FloatArray:
    """The less room is left on the node in all its resources, the better [n], from 0 to 1."""
    left = (view.free - demand.wanted) / np.maximum(view.total, 1)
    score: FloatArray = 1.0 - left.mean(axis=1)
    return score


_BEST_FIT = Policy("best_fit", _left_over)
