"""Who stops for a more urgent stage of the same tenant on the same mesh.

Priorities are compared strictly and never aged, so each choice exchanges stages for one that is more urgent than all of them, and no
chain of choices leads back to where it began: what gave way comes back with the priority that it had.

The least urgent goes first; of equals the one that has run for the shortest time, since nothing is known of what a stage has
saved; of these the one that started last. Enough of them are taken or nobody is, and whoever turns out not to be needed goes on, the
most urgent first. Who is out of reach (equally urgent, too young) says `mesh.scheduling.preemption`, as for the tasks of one mesh.

Source: ADR 0025; the order is that of `federation.planning.reclaim_candidates`, the filling back Kueue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mesh.ids import LabelName, PoolName, StageId, TaskId, TenantPath
from mesh.resources import ResourceSet
from mesh.scheduling.preemption import Candidate, PreemptionRules, Preemptor, Scored, evaluate

#: Resource to units; what is at most 0 is not short.
Short = Mapping[str, int]
_NO_LABEL = LabelName("")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionPolicy:
    """What holds among the stages of one tenant on a mesh; goes along with each stage, as the tenant's file said when it was sent."""

    takes: bool = False  #: Less urgent stages of its tenant are stopped for it.
    min_run_ms: int = 60_000  #: Stages of its tenant are not stopped for it before they have run so long.
    reservation_timeout_ms: int = 60_000  #: How long room that is being freed is held for it.
    flavors: tuple[str, ...] = ()  #: Pools of the first are tried first; those of flavors that are not named here last.
    in_order: bool = False  #: It does not start before the stages of its tenant that wait there and come first.


#: What holds where nobody said anything.
NEVER_PREEMPTS = PreemptionPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """A running stage that may be asked to stop."""

    stage: StageId
    tenant: TenantPath
    priority: int
    pool: PoolName
    amounts: ResourceSet  #: What it has of its pool, and what its tenant's lease pays for it.
    started_ms: int
    token: int = 0  #: Of its claim; later ones are greater.


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A stage that waits for room in a pool."""

    stage: StageId
    tenant: TenantPath
    priority: int
    pool: PoolName


def evaluate_occupants(claimant: Claimant, occupants: Iterable[Occupant], *, min_run_ms: int, now_ms: int) -> tuple[Scored, ...]:
    """Each occupant with ELIGIBLE, or the reason for which it does not give way, in the order given."""
    rules = PreemptionRules(threshold=0.0, kappa_per_s=0.0, lost_work_per_s=0.0, min_run_ms=min_run_ms, cross_pool=True)
    preemptor = Preemptor(task=TaskId(claimant.stage), label=_NO_LABEL, pool=claimant.pool, priority=claimant.priority)
    return evaluate(preemptor, [_candidate(occupant) for occupant in occupants], rules, now_ms)


def short_of(slot: ResourceSet, room: Mapping[str, int]) -> dict[str, int]:
    """What is missing of the room for a slot; `room` has every resource of the slot, and may be below zero."""
    return {name: units - room[name] for name, units in slot.items() if units > room[name]}


def select_victims(
    claimant: Claimant, occupants: Iterable[Occupant], *, room: Short, quota: Short, min_run_ms: int, now_ms: int
) -> tuple[Occupant, ...]:
    """The stages to stop so that the claimant can start, the first to go first; empty when all that may be asked are not enough.

    None of them can be spared.

    Args:
        occupants: What runs, of any tenant; only those of the claimant's own are asked.
        room: What its pool lacks; stages in other pools are no help.
        quota: What its tenant's lease lacks; every stage that the lease pays for is a help. The caller leaves out the others.
        now_ms: On the clock of `Occupant.started_ms`.
    """
    own = [occupant for occupant in occupants if occupant.tenant == claimant.tenant]
    judged = zip(own, evaluate_occupants(claimant, own, min_run_ms=min_run_ms, now_ms=now_ms), strict=True)
    in_order = sorted((occupant for occupant, scored in judged if scored.is_eligible), key=lambda occupant: _rank(occupant, now_ms))
    taken: list[Occupant] = []
    for occupant in in_order:
        if _is_covered(taken, claimant.pool, room, quota):
            break
        taken.append(occupant)
    if not _is_covered(taken, claimant.pool, room, quota):
        return ()
    for occupant in reversed(tuple(taken)):
        without = [other for other in taken if other is not occupant]
        if _is_covered(without, claimant.pool, room, quota):
            taken = without
    return tuple(taken)


def harm_of(victims: tuple[Occupant, ...], now_ms: int) -> tuple[int, int, int]:
    """To compare choices by; less is better: the most urgent that stops, how many do, and how long they ran together."""
    return max(victim.priority for victim in victims), len(victims), sum(now_ms - victim.started_ms for victim in victims)


def _rank(occupant: Occupant, now_ms: int) -> tuple[int, int, int, str]:
    return occupant.priority, now_ms - occupant.started_ms, -occupant.token, occupant.stage


def _is_covered(taken: list[Occupant], pool: PoolName, room: Short, quota: Short) -> bool:
    return _gives([occupant for occupant in taken if occupant.pool == pool], room) and _gives(taken, quota)


def _gives(taken: list[Occupant], short: Short) -> bool:
    return all(sum(occupant.amounts[name] for occupant in taken) >= units for name, units in short.items())


def _candidate(occupant: Occupant) -> Candidate:
    return Candidate(
        task=TaskId(occupant.stage),
        label=_NO_LABEL,
        pool=occupant.pool,
        tenant=occupant.tenant,
        priority=occupant.priority,
        resources=occupant.amounts,
        row=0,  # A mesh has no nodes here: pools are its grain.
        started_ms=occupant.started_ms,
        kept_ms=occupant.started_ms,
    )
