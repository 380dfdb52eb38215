"""Estimates of how long a stage waits at a mesh, and how long its inputs take to get there. All numbers are integers.

    behind      = waiting + 1 - room                      stages that must end before this one starts; at most 0: no wait
    wait_ms     = ceil(behind x run_ms / max(1, running)) one of the running stages ends every run_ms / running
    overdue_ms  = age_ms - run_ms, from 2 x run_ms on     every running stage overruns, so its end is unknown
    transfer_ms = ceil(missing_bytes x 1000 / bandwidth)  inputs stored elsewhere, each counted once

The router sends work to the mesh with the least `wait_ms + transfer_ms`. So work leaves its inputs only if moving them costs less than
waiting beside them.

If all stages of a mesh have run for `age_ms` already, the first wait is shorter by that: (run_ms - age_ms) / running.
About half of all stages run longer than the mean, so a stage that does is expected to end at once. Only twice the mean is an overrun.

`run_ms` is the recent mean of the mesh itself. A mesh that has run nothing yet gets the mean of the others, or else `run_ms_unknown`. The
sizes of waiting stages are unknown here, so each counts as one slot.

Source: Little's law for the queue; smoothing as for TCP round trip times (RFC 6298, 1/8).
"""

from collections.abc import Iterable
from dataclasses import dataclass

#: Work that has run this many times as long as expected overruns. Run times vary: a lower number would report half of all work.
OVERRUN = 2
#: A new run time changes the mean by one part in this many.
SMOOTHING = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRules:
    """Parameters of the estimates of waiting and transfer."""

    bandwidth_bytes_per_s: int = 100 * 2**20  #: Between meshes.
    run_ms_unknown: int = 1_000  #: A stage's run time where none has ended yet.
    queue_max: int = 10_000  #: Most stages that may wait for one mesh; beyond this the mesh gets nothing new.
    flavor_delay_ms: int = 1_000  #: Longest extra wait that is accepted for a flavor that the tenant prefers.


#: Defaults.
COST_RULES = CostRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Recent run times of stages on one mesh."""

    run_ms: int  #: The smoothed mean.
    stages: int = 1  #: Number of stages in the mean.


def paced(pace: Pace | None, took_ms: int) -> Pace:
    """Return the pace after one more stage."""
    if pace is None:
        return Pace(run_ms=max(0, took_ms))
    return Pace(run_ms=pace.run_ms + (max(0, took_ms) - pace.run_ms) // SMOOTHING, stages=pace.stages + 1)


def typical_run_ms(paces: Iterable[Pace | None], rules: CostRules) -> int:
    """Return the run time to assume for a mesh without a pace: the mean of the others, weighted by stages."""
    known = [pace for pace in paces if pace is not None]
    stages = sum(pace.stages for pace in known)
    return max(1, sum(pace.run_ms * pace.stages for pace in known) // stages) if stages else rules.run_ms_unknown


def wait_ms(*, waiting: int, room: int, running: int, run_ms: int, age_ms: int = 0) -> int:
    """Return how long one more stage would wait, ms.

    Args:
        waiting: Stages that start earlier.
        room: Slots that could be granted now.
        running: Stages that run there now.
        run_ms: Mean run time there.
        age_ms: Least age of the running stages.
    """
    behind, each_ms = max(0, waiting + 1 - room), max(1, run_ms)
    return -(-(behind * each_ms - min(behind, 1) * min(each_ms, age_ms)) // max(1, running))


def overdue_ms(*, waiting: int, room: int, run_ms: int, age_ms: int) -> int:
    """Return by how much every running stage overruns, ms; 0 if one does not, or the stage need not wait. Arguments as for `wait_ms`."""
    return overrun_ms(age_ms, run_ms) if waiting + 1 > room else 0


def overrun_ms(age_ms: int, expected_ms: int) -> int:
    """Return how long work has run beyond its expected run time; 0 until it has run for `OVERRUN` times that."""
    expected_ms = max(1, expected_ms)
    return age_ms - expected_ms if age_ms > OVERRUN * expected_ms else 0


def transfer_ms(missing_bytes: int, rules: CostRules) -> int:
    """Return the transfer time of these bytes; at least 1 ms if there are any."""
    return -(-missing_bytes * 1_000 // rules.bandwidth_bytes_per_s)
