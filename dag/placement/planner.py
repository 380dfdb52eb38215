"""The planner of the root: HEFT's schedule, improved.

Three things improve a schedule. Scheduled backward from its end and then forward again, nodes start as late, then as early as they
can, and gaps close (justification). PEFT looks at what follows a node. Slightly changed ranks lead to other schedules, of which some are
shorter. The shortest of all is taken, so a plan is never longer than HEFT's. A schedule close to the lower bound is taken as it is: nothing
could end much earlier, as with most fans. The number of tries falls with the number of nodes. Each try is fixed, so the same problem has
the same plan. A problem of more than `NODES_MAX` nodes gets HEFT's schedule without gaps: the planner
runs inside the coordinator's loop, and a search among many gaps takes the square of their number.

Rejected: a search on the exact model, which needs seconds for a hundred nodes.

Source: Topcuoglu 2002; Arabnejad and Barbosa 2014; justification: Valls, Ballestin and Quintanilla 2005.
"""

from __future__ import annotations

from collections.abc import Iterator

from dag.placement.bounds import lower_bound
from dag.placement.heuristics import by_rank, heft, in_order, peft, ready_first
from dag.placement.problem import Problem, Schedule
from dag.placement.ranks import upward

#: Changed ranks that are tried at most, and nodes that all tries together may schedule; more nodes get no gaps and no tries.
TRIES_MAX, NODES_MAX = 8, 4_000
#: A schedule that is so many times as long as the lower bound, or less, is not improved.
CLOSE = 1.01
#: Largest change of a rank, as a part of it.
_CHANGE = 0.2
#: Multiplier and modulus of the sequence of changes (Park and Miller 1988).
_STEP, _RANGE = 48_271, 2**31 - 1


def plan(problem: Problem) -> Schedule:
    """Return the schedule that the root uses. Pure: the same problem has the same plan."""
    if len(problem.needs) > NODES_MAX:
        return heft(problem, with_gaps=False)
    best = heft(problem)
    enough = CLOSE * lower_bound(problem)
    if best.makespan <= enough:
        return best
    backward = Problem(pools=problem.pools, run_times=problem.run_times, needs=problem.consumers, rank_share=problem.rank_share)
    for tried in _tries(problem, best):
        for schedule in (tried, _justified(problem, backward, tried, stay=False), _justified(problem, backward, tried, stay=True)):
            if schedule.makespan < best.makespan:
                best = schedule
        if best.makespan <= enough:
            break
    return best


def _tries(problem: Problem, first: Schedule) -> Iterator[Schedule]:
    """Yield the schedules to improve."""
    yield first
    count = len(problem.needs)
    if not count:
        return
    yield peft(problem)
    ranks, seed = upward(problem), 1
    for _ in range(min(TRIES_MAX, NODES_MAX // count)):
        changed = []
        for rank in ranks:
            seed = seed * _STEP % _RANGE
            changed.append(rank * (1 - _CHANGE / 2 + _CHANGE * seed / _RANGE))
        yield in_order(problem, by_rank(problem, changed))


def _justified(problem: Problem, backward: Problem, schedule: Schedule, *, stay: bool) -> Schedule:
    """Return the schedule made backward from the end and then forward again.

    Args:
        backward: The same problem with all edges turned round.
        stay: Nodes keep their pools.
    """
    late = in_order(backward, ready_first(backward, [run.end for run in schedule.runs]), fixed=schedule.pools if stay else None)
    return in_order(problem, ready_first(problem, [run.end for run in late.runs]), fixed=late.pools if stay else None)
