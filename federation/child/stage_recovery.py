"""Recovery of an earlier process's work: reconcile the stages that still run with the claims in the store.

The host lists the stages it runs, each with the note written at its start; the store lists the claims of the session. A stage
continues only if both name it, the mesh still has room in its pool, and the session still holds the lease that paid. The child stops
every other running stage; such a stage counts against its lease until it has stopped. The child releases every claim without a running
stage. Pure: no function here calls the host or the store.

Source: ADR 0024.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from federation.child.lease_accounting import LeaseKey
from federation.child.running_stage import RunningStage, StageNote
from federation.dispatch import Claim, ClaimedStage, QueuedStage
from federation.leases import Session
from mesh.core.ids import PoolName
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode
from mesh.errors import RuntimeAdapterError
from mesh.stages.admission_events import WorkloadFound, WorkloadOffered
from mesh.stages.hosting import FoundStages, HeldStage
from mesh.stages.spec import StageSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecovery:
    """Result of a recovery. The caller stops every found stage that is not in `stages`."""

    stages: tuple[tuple[RunningStage, ClaimedStage], ...]  #: Stages that continue, in the order of the claims.
    missing: tuple[ClaimedStage, ...]  #: Claimed stages that do not continue: the caller releases these claims.
    orphans: tuple[RunningStage, ...] = ()  #: Stages to stop that a lease of the session pays for, until they have stopped.


def recovery_of(
    found: FoundStages, claims: Collection[ClaimedStage], session: Session, *, capacity: Mapping[PoolName, ResourceSet], now_ms: int
) -> StageRecovery:
    """Reconcile the found stages with the claims in the store.

    Args:
        found: Stages that run, or have ended with unreported results.
        claims: Open claims of the session.
        session: Recovered session; its response names the leases that it holds.
        capacity: Present capacity of the mesh's pools.
        now_ms: On this process's own clock.
    """
    leases = {(lease.tenant, lease.flavor) for lease in session.response.leases}
    by_stage = {stage.stage: stage for stage in found.stages}
    left = dict(capacity)
    stages: list[tuple[RunningStage, ClaimedStage]] = []
    missing: list[ClaimedStage] = []
    for claimed in sorted(claims, key=lambda each: each.claim.token):
        stage = by_stage.get(claimed.claim.stage)
        note = note_of(stage) if stage is not None else None
        if stage is None or note is None or note.claim != claimed.claim.token or not _has_its_place(note, left, leases):
            missing.append(claimed)
        else:
            left[note.pool] -= note.amounts
            running = RunningStage.recovered(claimed, note, now_ms, held=stage)
            stages.append((running, claimed))
    goes_on = {running.claim.stage for running, _ in stages}
    stopped = ((stage.stage, note_of(stage)) for stage in found.stages if stage.stage not in goes_on)
    orphans = (
        RunningStage.orphan(Claim(stage=stage, mesh=session.mesh, incarnation=session.incarnation, token=note.claim), note)
        for stage, note in stopped
        if note is not None and note.payer in leases
    )
    return StageRecovery(stages=tuple(stages), missing=tuple(missing), orphans=tuple(orphans))


def workload_of(claimed: ClaimedStage, note: StageNote) -> WorkloadFound:
    """Return the event that puts a recovered stage back into admission."""
    return WorkloadFound(offer=offer_of(claimed.spec), pool=note.pool, slots=note.slots, nodes=note.nodes, groups=note.groups)


def offer_of(stage: QueuedStage | StageSpec, since_ms: int = 0) -> WorkloadOffered:
    """Return the event that offers the stage to admission. `since_ms`: when it began to wait, on the mesh's own clock."""
    return WorkloadOffered(
        workload=stage.stage,
        tenant=stage.tenant,
        slot=stage.slot,
        width=stage.width,
        priority=stage.priority,
        created_ms=stage.created_ms,
        preemption=stage.preemption,
        since_ms=since_ms,
        queued_ms=stage.queued_ms if isinstance(stage, QueuedStage) else 0,
        gang=stage.gang,
    )


def seen_in(found: FoundStages) -> int:
    """Return the highest token among the found stages; a ledger that has lost writes notices the loss by this token."""
    notes = [note for stage in found.stages if (note := note_of(stage)) is not None]
    return max([found.incarnation, *(stage.holder for stage in found.stages), *(max(note.claim, note.token) for note in notes)])


def note_of(stage: HeldStage) -> StageNote | None:
    """Return the stage's note; None if it cannot be decoded, as after a change of version."""
    try:
        note: StageNote = decode(StageNote, stage.note)
    except RuntimeAdapterError:
        return None
    return note


def _has_its_place(note: StageNote, left: Mapping[PoolName, ResourceSet], leases: Collection[LeaseKey]) -> bool:
    room = left.get(note.pool)
    return room is not None and note.amounts <= room and (note.payer is None or note.payer in leases)
