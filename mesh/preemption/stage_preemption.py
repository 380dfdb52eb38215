"""Victims for a more urgent stage of the same tenant on the same mesh.

A victim has a lower priority than the preemptor, or, with `takes_newer`, the same priority and a later creation time. Neither changes
while a stage waits, and a victim is queued again with both. So each choice exchanges stages for one that comes before all of them in one
strict order, (priority, creation time), and choices cannot cycle.

The least urgent stage is stopped first. Among equals, the stage with the shortest run time is first; then the one that started last.
Either enough stages are stopped or none. Victims that turn out not to be needed are spared, the most urgent first.
`mesh.preemption.rules` rules out candidates (equally urgent, too young), as for tasks.

A mesh may weigh unsaved work and set a threshold (`PreemptionLimits`). The score then chooses among the candidates that the strict order
allows; it never adds one. A plugin may score the candidates of lower priority instead: then the one with the highest score is
stopped first. It adds none either.

Source: ADR 0025, 0044, 0046; the order of `federation.quota.preemption.candidates`, and Kueue's filling back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mesh.core.ids import PoolName, StageId, TaskId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import NO_LABEL
from mesh.preemption.rules import Candidate, PreemptionRules, Preemptor, Scored, evaluate

#: Units by resource; an amount of 0 or less is not short.
Short = Mapping[str, int]
#: Millionths of a point of priority, or of a weight.
MICROS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionLimits:
    """Rules of a mesh on its own preemption among stages, beside those of their tenant. Points are in millionths."""

    threshold: int | None = None  #: The score of a victim must be above it; None: any score.
    lost_work_per_s: int = 0  #: Subtracted from the score per second since the victim last saved a checkpoint, or has started.
    per_minute_max: int | None = None  #: Most stages that the mesh preempts in a minute; None: any number.
    protected_pools: tuple[PoolName, ...] = ()  #: Their stages are not preempted for stages of other pools.

    def rules(self, min_run_ms: int) -> PreemptionRules:
        """Return the rules for a preemptor whose victims must have run for `min_run_ms`."""
        return PreemptionRules(
            threshold=-math.inf if self.threshold is None else self.threshold / MICROS,
            kappa_per_s=0.0,  # Nothing estimates how long a stage still has to run.
            lost_work_per_s=self.lost_work_per_s / MICROS,
            min_run_ms=min_run_ms,
            cross_pool=True,
            protected_pools=frozenset(self.protected_pools),
        )


NO_LIMITS = PreemptionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionPolicy:
    """Preemption among the stages of one tenant on a mesh; sent with each stage, from the tenant's configuration at that time."""

    takes: bool = False  #: Whether it preempts less urgent stages of its tenant.
    takes_newer: bool = False  #: Whether it also preempts stages of its tenant with the same priority that were created later.
    min_run_ms: int = 60_000  #: Stages of its tenant that have run for less are not preempted for it.
    reservation_timeout_ms: int = 60_000  #: How long freed room is held for it.
    flavors: tuple[str, ...] = ()  #: Order in which pools are tried; pools of other flavors come last.
    in_order: bool = False  #: It waits until all earlier stages of its tenant on the mesh have started.

    def newer_than_ms(self, created_ms: int) -> int | None:
        """Return the time after which stages of equal priority must be created, so that a stage created at `created_ms` preempts them."""
        return created_ms if self.takes_newer else None


#: Default policy of stages without one.
NEVER_PREEMPTS = PreemptionPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """Running stage with room in a pool: one that may be preempted, or that is stopping already."""

    stage: StageId
    tenant: TenantPath
    priority: int
    pool: PoolName
    amounts: ResourceSet  #: Its amounts in the pool, which its tenant's lease also pays for.
    started_ms: int
    token: int = 0  #: Token of its claim; later ones are greater.
    created_ms: int = 0  #: See `StageSpec.created_ms`.
    saved_ms: int | None = None  #: When a node of it last saved a checkpoint, on the clock of `started_ms`; None: none has.


def preemptor_of(stage: StageId, tenant: TenantPath, priority: int, pool: PoolName, newer_than_ms: int | None = None) -> Preemptor:
    """Return the stage that waits for room in the pool, as input to preemption."""
    return Preemptor(task=TaskId(stage), label=NO_LABEL, pool=pool, priority=priority, tenant=tenant, newer_than_ms=newer_than_ms)


def evaluate_occupants(
    preemptor: Preemptor, occupants: Iterable[Occupant], *, min_run_ms: int, now_ms: int, limits: PreemptionLimits = NO_LIMITS
) -> tuple[Scored, ...]:
    """Return each occupant with ELIGIBLE, or with the reason why it is not preempted, in the given order."""
    return evaluate(preemptor, [_candidate(occupant) for occupant in occupants], limits.rules(min_run_ms), now_ms)


def short_of(slot: ResourceSet, room: Mapping[str, int]) -> dict[str, int]:
    """Return how much room a slot lacks; `room` has every resource of the slot, and may be below zero."""
    return {name: units - room[name] for name, units in slot.items() if units > room[name]}


#: `(preemptor, occupants, now_ms) -> scores`: one score for each occupant, all of lower priority; the highest is stopped first, and None
#: spares the occupant. None instead of the scores: the usual order.
VictimScorer = Callable[[Preemptor, Sequence[Occupant], int], Sequence[float | None] | None]


def select_victims(
    preemptor: Preemptor,
    occupants: Iterable[Occupant],
    *,
    room: Short,
    quota: Short,
    min_run_ms: int,
    now_ms: int,
    limits: PreemptionLimits = NO_LIMITS,
    scorer: VictimScorer | None = None,
) -> tuple[Occupant, ...]:
    """Return the victims to stop so that the preemptor can start, in stop order; empty when all candidates are too few.

    Every victim is needed: without any one of them the preemptor could not start.

    Args:
        occupants: Running stages of any tenant; only those of the preemptor's tenant are candidates.
        room: Amounts that the preemptor's pool lacks; only stages in that pool help.
        quota: Amounts that the tenant's lease lacks; every stage that the lease pays for helps. The caller leaves out the others.
        now_ms: On the clock of `Occupant.started_ms`.
        limits: Rules of the mesh. `per_minute_max` is the caller's.
        scorer: Plugin's scorer; it chooses among candidates and makes none.
    """
    own = [occupant for occupant in occupants if occupant.tenant == preemptor.tenant]
    judged = zip(own, evaluate_occupants(preemptor, own, min_run_ms=min_run_ms, now_ms=now_ms, limits=limits), strict=True)
    eligible = [(occupant, scored.score) for occupant, scored in judged if scored.is_eligible]
    in_order = [occupant for occupant, _ in sorted(eligible, key=lambda each: _rank(each[0], each[1], now_ms))]
    if scorer is not None:
        in_order = _in_order_of(scorer, preemptor, in_order, now_ms)
    taken: list[Occupant] = []
    for occupant in in_order:
        if _is_covered(taken, preemptor.pool, room, quota):
            break
        taken.append(occupant)
    if not _is_covered(taken, preemptor.pool, room, quota):
        return ()
    for occupant in reversed(tuple(taken)):
        without = [other for other in taken if other is not occupant]
        if _is_covered(without, preemptor.pool, room, quota):
            taken = without
    return tuple(taken)


def harm_of(victims: tuple[Occupant, ...], now_ms: int) -> tuple[int, int, int]:
    """Return a key to compare choices by, less is better: the highest priority stopped, the number stopped, their total run time."""
    return max(victim.priority for victim in victims), len(victims), sum(now_ms - victim.started_ms for victim in victims)


def _rank(occupant: Occupant, score: float, now_ms: int) -> tuple[float, int, int, int, str]:
    return -score, occupant.priority, now_ms - occupant.started_ms, -occupant.token, occupant.stage


def _in_order_of(scorer: VictimScorer, preemptor: Preemptor, candidates: list[Occupant], now_ms: int) -> list[Occupant]:
    """Return the candidates by score; then those of the preemptor's own priority, which are newer. `candidates`: in the usual order."""
    lower = [one for one in candidates if one.priority < preemptor.priority]
    scores = scorer(preemptor, lower, now_ms) if lower else ()
    if scores is None:
        return candidates
    scored = [(score, one) for score, one in zip(scores, lower, strict=True) if score is not None]
    by_score = [one for _, one in sorted(scored, key=lambda each: -each[0])]
    return [*by_score, *(one for one in candidates if one.priority >= preemptor.priority)]


def _is_covered(taken: list[Occupant], pool: PoolName, room: Short, quota: Short) -> bool:
    return _gives([occupant for occupant in taken if occupant.pool == pool], room) and _gives(taken, quota)


def _gives(taken: list[Occupant], short: Short) -> bool:
    return all(sum(occupant.amounts[name] for occupant in taken) >= units for name, units in short.items())


def _candidate(occupant: Occupant) -> Candidate:
    return Candidate(
        task=TaskId(occupant.stage),
        label=NO_LABEL,
        pool=occupant.pool,
        tenant=occupant.tenant,
        priority=occupant.priority,
        resources=occupant.amounts,
        row=0,  # Constant: stages are compared by pool, not by node.
        started_ms=occupant.started_ms,
        kept_ms=occupant.started_ms if occupant.saved_ms is None else occupant.saved_ms,
        created_ms=occupant.created_ms,
    )
