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
from federation.dispatch import Claim, ClaimedStage
from mesh.core.ids import FlavorName, PoolName, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.wire import decode, encode
from mesh.errors import RuntimeAdapterError
from mesh.stages.admission_events import WorkloadFound, WorkloadOffered
from mesh.stages.hosting import FoundStage, FoundStages
from mesh.stages.messages import StageStarted

_NOBODY = TenantPath("")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNote:
    """Facts about a started stage that the store lacks. The host keeps the note beside the stage."""

    claim: int  #: Token of the claim.
    pool: PoolName  #: Pool that admitted the stage.
    flavor: FlavorName  #: Flavor of the lease that pays, as the tenant names it.
    slots: int
    token: int  #: Token of the lease that pays; 0 for a stage that takes nothing.
    tenant: TenantPath = _NOBODY  #: Tenant whose lease pays; empty in notes of earlier versions.
    slot: ResourceSet = NOTHING

    @property
    def payer(self) -> LeaseKey:
        """Key of the lease that pays, if the stage takes anything."""
        return self.tenant, self.flavor

    def started(self, claim: Claim, holder: int, cluster: str) -> StageStarted:
        """Return the message that the stage has started; the same from the first process and from its successor."""
        return StageStarted(stage=claim.stage, mesh=claim.mesh, incarnation=holder, cluster=cluster, slots=self.slots, token=self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredStage:
    """Recovered stage: it continues under the new process."""

    claimed: ClaimedStage
    note: StageNote
    holder: int  #: Incarnation that holds the stage's values.
    is_preempted: bool  #: Stopping without a user's cancellation: the stage runs again later.

    @property
    def found(self) -> WorkloadFound:
        """Return the event that puts the stage back into admission."""
        spec = self.claimed.spec
        offer = WorkloadOffered(
            workload=spec.stage, tenant=spec.tenant, slot=spec.slot, width=spec.width, priority=spec.priority, preemption=spec.preemption
        )
        return WorkloadFound(offer=offer, pool=self.note.pool, slots=self.note.slots)

    @property
    def amounts(self) -> ResourceSet:
        """Amounts that the stage takes of its pool and its lease."""
        return self.claimed.spec.slot.times(self.note.slots)

    @property
    def payer(self) -> LeaseKey | None:
        """Key of the lease that pays; None if the stage takes nothing."""
        return (self.claimed.spec.tenant, self.note.flavor) if self.claimed.spec.slot else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanStage:
    """Orphan stage: it does not continue, and counts against its lease until it has stopped."""

    stage: StageId
    note: StageNote

    @property
    def amounts(self) -> ResourceSet:
        """Amounts that the stage takes of the lease `note.payer`."""
        return self.note.slot.times(self.note.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecovery:
    """Result of a recovery. The caller stops every found stage that is not in `stages`."""

    stages: tuple[RecoveredStage, ...]  #: In the order of the claims.
    missing: tuple[ClaimedStage, ...]  #: Claimed stages that do not continue: the caller releases these claims.
    orphans: tuple[OrphanStage, ...] = ()  #: Stages to stop that a lease of the session pays for.


def recovery_of(
    found: FoundStages, claims: Collection[ClaimedStage], *, capacity: Mapping[PoolName, ResourceSet], leases: Collection[LeaseKey]
) -> StageRecovery:
    """Reconcile the found stages with the claims in the store.

    Args:
        found: Stages that run, or have ended with unreported results.
        claims: Open claims of the session.
        capacity: Present capacity of the mesh's pools.
        leases: Leases that the session holds.
    """
    by_stage = {stage.stage: stage for stage in found.stages}
    left = dict(capacity)
    stages: list[RecoveredStage] = []
    missing: list[ClaimedStage] = []
    for claimed in sorted(claims, key=lambda each: each.claim.token):
        recovered = _recovered(claimed, by_stage.get(claimed.claim.stage))
        if recovered is None or not _has_its_place(recovered, left, leases):
            missing.append(claimed)
        else:
            left[recovered.note.pool] -= recovered.amounts
            stages.append(recovered)
    goes_on = {recovered.claimed.claim.stage for recovered in stages}
    stopped = ((stage.stage, note_of(stage)) for stage in found.stages if stage.stage not in goes_on)
    orphans = (OrphanStage(stage=stage, note=note) for stage, note in stopped if note is not None and note.slot and note.payer in leases)
    return StageRecovery(stages=tuple(stages), missing=tuple(missing), orphans=tuple(orphans))


def seen_in(found: FoundStages) -> int:
    """Return the highest token among the found stages; a ledger that has lost writes notices the loss by this token."""
    notes = [note for stage in found.stages if (note := note_of(stage)) is not None]
    return max([found.incarnation, *(stage.holder for stage in found.stages), *(max(note.claim, note.token) for note in notes)])


def note_of(stage: FoundStage) -> StageNote | None:
    """Return the stage's note; None if it cannot be decoded, as after a change of version."""
    try:
        note: StageNote = decode(StageNote, stage.note)
    except RuntimeAdapterError:
        return None
    return note


def written(note: StageNote) -> bytes:
    """Encode the note for the host."""
    return encode(note)


def _recovered(claimed: ClaimedStage, found: FoundStage | None) -> RecoveredStage | None:
    note = note_of(found) if found is not None else None
    if found is None or note is None or note.claim != claimed.claim.token:
        return None
    return RecoveredStage(claimed=claimed, note=note, holder=found.holder, is_preempted=found.is_cancelled and not claimed.cancelled)


def _has_its_place(recovered: RecoveredStage, left: Mapping[PoolName, ResourceSet], leases: Collection[LeaseKey]) -> bool:
    room = left.get(recovered.note.pool)
    is_paid = recovered.payer is None or recovered.payer in leases
    return room is not None and recovered.amounts <= room and is_paid
