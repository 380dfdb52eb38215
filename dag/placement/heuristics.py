"""List schedules: nodes one after another, each to the pool where a criterion is least. HEFT, CPOP and PEFT differ in order and criterion.

All three take the earliest start on a pool, gaps included. O(E + V x pools x log slots), plus the gaps that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf

from dag.placement.problem import Problem, Run, Schedule
from dag.placement.ranks import downward, optimistic_costs, upward
from dag.placement.slot_pool import SlotPool

#: Priorities on the critical path are sums in different orders; they may differ in their last digits.
_SAME = 1e-9
#: A finish that is earlier by less is no gain: times are sums, and the first pool of several equal ones is taken.
_NO_GAIN = 1e-12


def heft(problem: Problem, *, start: float = 0, with_gaps: bool = True) -> Schedule:
    """Return HEFT's schedule: the highest upward rank first, to the pool of the earliest finish.

    Args:
        start: No node starts earlier.
        with_gaps: Nodes may start in gaps between other nodes of a slot.
    """
    return in_order(problem, by_rank(problem, upward(problem)), start=start, with_gaps=with_gaps)


def peft(problem: Problem) -> Schedule:
    """Return PEFT's schedule: of the ready nodes the one with the highest mean of optimistic costs, to the least finish plus cost."""
    table = optimistic_costs(problem)
    slots = [pool.slots for pool in problem.pools]
    means = [sum(cost * count for cost, count in zip(row, slots, strict=True)) / sum(slots) for row in table]
    return in_order(problem, ready_first(problem, means), remaining=table)


def cpop(problem: Problem) -> Schedule:
    """Return CPOP's schedule: the nodes of the critical path go to one pool, the one that is fastest for the whole path."""
    up, down = upward(problem), downward(problem)
    priorities = [first + second for first, second in zip(up, down, strict=True)]
    path = _critical_path(problem, priorities)
    sums = [sum(problem.run_times[node][pool] for node in path) for pool in range(len(problem.pools))]
    pool = min(range(len(sums)), key=sums.__getitem__)
    fixed = [-1] * len(priorities)
    for node in path if sums[pool] != inf else ():
        fixed[node] = pool
    return in_order(problem, ready_first(problem, priorities), fixed=fixed)


def by_rank(problem: Problem, ranks: Sequence[float]) -> list[int]:
    """Return the nodes, highest rank first; of equal ones the first in the topological order. A need always goes before its readers."""
    if all(ranks[need.source] >= ranks[node] for node, needs in enumerate(problem.needs) for need in needs):
        return sorted(problem.order, key=lambda node: -ranks[node])
    return list(ready_first(problem, ranks))


def in_order(
    problem: Problem,
    order: Iterable[int],
    *,
    start: float = 0,
    with_gaps: bool = True,
    remaining: Sequence[Sequence[float]] | None = None,
    fixed: Sequence[int] | None = None,
) -> Schedule:
    """Return the schedule that takes the nodes one by one, each to the pool of the least finish.

    Args:
        order: All nodes, each after its needs.
        remaining: Added to the finish when pools are compared, by node and pool.
        fixed: The only pool of each node; -1: it has no fixed pool.
    """
    count, runs = len(problem.needs), [Run(-1, 0, 0)] * len(problem.needs)
    pools = [SlotPool(pool, count, with_gaps=with_gaps) for pool in problem.pools]
    needs, run_times, ready_at = problem.needs, problem.run_times, problem.ready_at
    every = range(len(pools))
    for node in order:
        only = fixed[node] if fixed is not None else -1
        least, chosen = inf, (-1, 0.0, 0.0, 0, -1)
        there, local = _arrivals(needs[node], runs, start)
        for pool in every if only < 0 else (only,):
            length = run_times[node][pool]
            if length == inf:
                continue
            ready = local.get(pool, there)
            if ready_at:
                ready = max(ready, ready_at[node][pool])
            begins, slot, gap = pools[pool].earliest(ready, length)
            cost = begins + length
            if remaining is not None:
                cost += remaining[node][pool]
            if cost < least - _NO_GAIN:
                least, chosen = cost, (pool, begins, begins + length, slot, gap)
        pool, begins, ends, slot, gap = chosen
        pools[pool].book(begins, ends, slot, gap)
        runs[node] = Run(pool, begins, ends)
    return Schedule(runs=tuple(runs))


def _arrivals(needs: Iterable[tuple[int, float]], runs: Sequence[Run], start: float) -> tuple[float, dict[int, float]]:
    """Return when all inputs are on a pool that made none of them, and when they are on each pool that made some."""
    there, made_on = start, {runs[source].pool for source, _ in needs}
    local = dict.fromkeys(made_on, start)
    for source, transfer in needs:
        made = runs[source]
        across = made.end + transfer
        there = max(there, across)
        for pool in made_on:
            arrives = made.end if made.pool == pool else across
            local[pool] = max(local[pool], arrives)
    return there, local


def ready_first(problem: Problem, priorities: Sequence[float]) -> Iterator[int]:
    """Yield the nodes, at each step the one of highest priority whose needs have all been yielded."""
    missing = [len(needs) for needs in problem.needs]
    ready: list[tuple[float, int]] = []
    for node, count in enumerate(missing):
        if not count:
            heappush(ready, (-priorities[node], node))
    while ready:
        _, node = heappop(ready)
        yield node
        for reader, _ in problem.consumers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                heappush(ready, (-priorities[reader], reader))


def _critical_path(problem: Problem, priorities: Sequence[float]) -> list[int]:
    """Return the nodes of a longest way: from the first node of the highest priority, always to a reader of the same priority."""
    entries = [node for node in problem.order if not problem.needs[node]]
    if not entries:
        return []
    node = max(entries, key=lambda one: (priorities[one], -one))
    path, highest = [node], priorities[node]
    while True:
        nexts = [reader for reader, _ in problem.consumers[node] if priorities[reader] >= highest * (1 - _SAME) - _SAME]
        if not nexts:
            return path
        node = min(nexts)
        path.append(node)
