"""How long work would wait at a mesh, and how long its inputs would be on the way there. Integers, and no more than estimates.

    behind      = waiting + 1 - room                      stages that have to end before this one has its turn; none: no wait
    wait_ms     = ceil(behind x run_ms / max(1, running)) one of the running stages ends every run_ms / running
    overdue_ms  = age_ms - run_ms                         all that runs does so for longer than it should: nobody knows when it ends
    transfer_ms = ceil(missing_bytes x 1000 / bandwidth)  inputs that lie elsewhere, each counted once

Work goes where `wait_ms + transfer_ms` is least: it leaves its data when bringing them costs less than waiting beside them,
and only then.

Of a mesh on which all stages have run for `age_ms` already, the first is as much nearer to its end: (run_ms - age_ms) / running.

`run_ms` is the mesh's own recent mean; of a mesh that has run nothing yet, the mean of the others; else `run_ms_unknown`.
How large the waiting stages are nobody knows here, so each counts as one slot.

Source: Little's law for the queue; the smoothing is that of TCP's round trip times (RFC 6298, 1/8); the break-even of data
against waiting, and one second for what is not known, from the references on planning.
"""

from collections.abc import Iterable
from dataclasses import dataclass

#: A new run time moves the mean by one part in so many.
SMOOTHING = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRules:
    """What waiting and moving are reckoned with."""

    bandwidth_bytes_per_s: int = 100 * 2**20  #: Between meshes.
    run_ms_unknown: int = 1_000  #: A stage's run time where none has ended yet.
    queue_max: int = 10_000  #: Stages that may wait for one mesh; with more it gets nothing new.
    flavor_delay_ms: int = 1_000  #: How much later work may begin for the sake of a flavor that its tenant likes better.


#: When nobody says otherwise.
COST_RULES = CostRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long stages ran lately on one mesh."""

    run_ms: int  #: The smoothed mean.
    stages: int = 1  #: How many it is made of.


def paced(pace: Pace | None, took_ms: int) -> Pace:
    """The pace after one more stage."""
    if pace is None:
        return Pace(run_ms=max(0, took_ms))
    return Pace(run_ms=pace.run_ms + (max(0, took_ms) - pace.run_ms) // SMOOTHING, stages=pace.stages + 1)


def typical_run_ms(paces: Iterable[Pace | None], rules: CostRules) -> int:
    """What a mesh without a pace of its own is reckoned with: the mean of the others, each by what it has run."""
    known = [pace for pace in paces if pace is not None]
    stages = sum(pace.stages for pace in known)
    return max(1, sum(pace.run_ms * pace.stages for pace in known) // stages) if stages else rules.run_ms_unknown


def wait_ms(*, waiting: int, room: int, running: int, run_ms: int, age_ms: int = 0) -> int:
    """How long one more stage would wait.

    Args:
        waiting: Stages that come first.
        room: Slots that could be granted now.
        running: Stages that run there now.
        run_ms: How long a stage runs there.
        age_ms: For how long at least each of those has run.
    """
    behind, each_ms = max(0, waiting + 1 - room), max(1, run_ms)
    return -(-(behind * each_ms - min(behind, 1) * min(each_ms, age_ms)) // max(1, running))


def overdue_ms(*, waiting: int, room: int, run_ms: int, age_ms: int) -> int:
    """By how much all overrun that such a stage waits for; 0: they do not, or it waits for none. Arguments as of `wait_ms`."""
    return max(0, age_ms - max(1, run_ms)) if waiting + 1 > room else 0


def transfer_ms(missing_bytes: int, rules: CostRules) -> int:
    """How long so many bytes are on the way; a thing that has to cross at all takes 1 ms at least."""
    return -(-missing_bytes * 1_000 // rules.bandwidth_bytes_per_s)
