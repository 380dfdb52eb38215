"""Lower bound of every schedule: the longest way at the highest speed, and all work on all slots."""

from __future__ import annotations

from math import inf

from dag.placement.problem import Problem
from dag.placement.ranks import least_times, upward


def lower_bound(problem: Problem) -> float:
    """Return a time that no schedule of the problem can undercut.

    The second part counts how much of each pool's work a slot does in one unit of time, for nodes whose times differ by a factor
    between pools, as they do for meshes of different speed. Otherwise the factor is the best of all nodes, which is still a bound.
    """
    if not problem.run_times:
        return 0
    least = least_times(problem)
    longest = max(upward(problem, least_times, 0.0))
    speeds = [0.0] * len(problem.pools)
    for times, fastest in zip(problem.run_times, least, strict=True):
        if fastest > 0:
            for pool, time in enumerate(times):
                speeds[pool] = max(speeds[pool], fastest / time if time != inf else 0.0)
    capacity = sum(speed * pool.slots for speed, pool in zip(speeds, problem.pools, strict=True))
    return max(longest, sum(least) / capacity if capacity else 0.0)
