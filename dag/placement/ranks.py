"""Ranks of nodes: how long it takes from a node to the end, and from the start to a node, by mean run times.

    upward(i)   = mean(i) + max over readers j (transfer x share + upward(j))
    downward(i) = max over needs j (downward(j) + mean(j) + transfer x share)
    OCT(i, p)   = max over readers j, min over pools q (OCT(j, q) + time(j, q) + [p != q] transfer)

Pools that may not run a node do not count in its mean. A pool counts once for each slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from dag.placement.problem import Problem


def mean_times(problem: Problem) -> list[float]:
    """Return the mean run time of each node over the slots that may run it."""
    slots = [pool.slots for pool in problem.pools]
    known: dict[tuple[float, ...], float] = {}
    means = []
    for times in problem.run_times:
        row = tuple(times)
        mean = known.get(row)
        if mean is None:
            weights = [count if time != inf else 0 for time, count in zip(row, slots, strict=True)]
            total = sum(weights)
            counted = zip(row, weights, strict=True)
            known[row] = mean = sum(time * weight for time, weight in counted if weight) / total if total else min(row)
        means.append(mean)
    return means


def least_times(problem: Problem) -> list[float]:
    """Return the run time of each node on the pool that is fastest for it."""
    return [min(times) for times in problem.run_times]


def upward(problem: Problem, weigh: Callable[[Problem], list[float]] = mean_times, share: float | None = None) -> list[float]:
    """Return the upward rank of each node: the highest goes first."""
    ranks = weigh(problem)
    part = problem.rank_share if share is None else share
    for node in reversed(problem.order):
        ranks[node] += max([ranks[reader] + transfer * part for reader, transfer in problem.consumers[node]], default=0)
    return ranks


def downward(problem: Problem) -> list[float]:
    """Return the downward rank of each node: the length of the longest way to it."""
    means, ranks = mean_times(problem), [0.0] * len(problem.needs)
    for node in problem.order:
        ranks[node] = max([ranks[at] + means[at] + cost * problem.rank_share for at, cost in problem.needs[node]], default=0)
    return ranks


def optimistic_costs(problem: Problem) -> list[Sequence[float]]:
    """Return PEFT's table of optimistic costs: by node and pool, the least time from its end to the end of all."""
    table: list[Sequence[float]] = [()] * len(problem.needs)
    pools = range(len(problem.pools))
    last = [0.0] * len(problem.pools)
    for node in reversed(problem.order):
        row = last
        for reader, transfer in problem.consumers[node]:
            there = [cost + time for cost, time in zip(table[reader], problem.run_times[reader], strict=True)]
            across = min(there) + transfer
            row = [max(row[pool], min(there[pool], across)) for pool in pools]
        table[node] = row
    return table
