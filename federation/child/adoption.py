"""Going on with the work of an earlier process of the same mesh: what it left running, held against what the store says is claimed.

The host tells what it has, with what was noted of each stage at its start; the store tells what the session pays for. Only what
both name goes on, at the place where it was let in, if the mesh still has that room and the lease that paid. Everything else is put
right: what nobody pays for is stopped, and takes its part of a lease until it has; what nobody runs is given back. Pure: no part of
this asks anybody.

Source: references of the protocol §3 (`join adopt`) and §6, row 1; ADR 0024.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from federation.child.balance import LeaseKey
from federation.dispatch import Claim, ClaimedStage
from mesh.admission_events import WorkloadFound, WorkloadOffered
from mesh.errors import RuntimeDoorError
from mesh.hosting import Found, FoundStage
from mesh.ids import FlavorName, PoolName, StageId, TenantPath
from mesh.messages import StageStarted
from mesh.resources import NOTHING, ResourceSet
from mesh.wire import decode, encode

_NOBODY = TenantPath("")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNote:
    """What a mesh knows of a stage that it started, and the store does not. The host keeps it beside the stage."""

    claim: int  #: Token of the claim.
    pool: PoolName  #: Where it was let in.
    flavor: FlavorName  #: Of the lease that pays; the tenant's own.
    slots: int
    token: int  #: Of the lease that pays; 0 for a stage that takes nothing.
    tenant: TenantPath = _NOBODY  #: Whose lease pays; empty where an earlier version has written the note.
    slot: ResourceSet = NOTHING

    @property
    def payer(self) -> LeaseKey:
        """The lease that pays, when it takes something."""
        return self.tenant, self.flavor

    def started(self, claim: Claim, holder: int, cluster: str) -> StageStarted:
        """The word that it has started; the same whoever says it."""
        return StageStarted(stage=claim.stage, mesh=claim.mesh, incarnation=holder, cluster=cluster, slots=self.slots, token=self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heirloom:
    """A stage that goes on."""

    claimed: ClaimedStage
    note: StageNote
    holder: int  #: Of its values.
    gives_way: bool  #: It was asked to stop, and nobody has cancelled it: it runs again later.

    @property
    def found(self) -> WorkloadFound:
        """For admission."""
        spec = self.claimed.spec
        offer = WorkloadOffered(
            workload=spec.stage, tenant=spec.tenant, slot=spec.slot, width=spec.width, priority=spec.priority, yielding=spec.yielding
        )
        return WorkloadFound(offer=offer, pool=self.note.pool, slots=self.note.slots)

    @property
    def amounts(self) -> ResourceSet:
        """What it takes of its pool and its lease."""
        return self.claimed.spec.slot.times(self.note.slots)

    @property
    def payer(self) -> LeaseKey | None:
        """The lease that pays; None when it takes nothing."""
        return (self.claimed.spec.tenant, self.note.flavor) if self.claimed.spec.slot else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remnant:
    """A stage that does not go on, and still takes its part of a lease until it has stopped."""

    stage: StageId
    note: StageNote

    @property
    def amounts(self) -> ResourceSet:
        """What it takes of the lease of `note.payer`."""
        return self.note.slot.times(self.note.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What becomes of what was found. What was found and is not in `stages` is to be stopped."""

    stages: tuple[Heirloom, ...]  #: In the order in which they were claimed.
    missing: tuple[ClaimedStage, ...]  #: Claimed, and not to go on: to be given back.
    remnants: tuple[Remnant, ...] = ()  #: Of what is to be stopped, those that a lease of the session pays for.


def adoption_of(
    found: Found, claims: Collection[ClaimedStage], *, capacity: Mapping[PoolName, ResourceSet], leases: Collection[LeaseKey]
) -> Adoption:
    """Hold what was found against what the store says.

    Args:
        found: What runs, or has ended and was not told.
        claims: What the session has claimed, and not ended.
        capacity: Of the mesh's pools as they are now.
        leases: What the session holds.
    """
    by_stage = {stage.stage: stage for stage in found.stages}
    left = dict(capacity)
    stages: list[Heirloom] = []
    missing: list[ClaimedStage] = []
    for claimed in sorted(claims, key=lambda each: each.claim.token):
        heirloom = _heirloom(claimed, by_stage.get(claimed.claim.stage))
        if heirloom is None or not _has_its_place(heirloom, left, leases):
            missing.append(claimed)
        else:
            left[heirloom.note.pool] -= heirloom.amounts
            stages.append(heirloom)
    goes_on = {heirloom.claimed.claim.stage for heirloom in stages}
    stopped = ((stage.stage, note_of(stage)) for stage in found.stages if stage.stage not in goes_on)
    remnants = (Remnant(stage=stage, note=note) for stage, note in stopped if note is not None and note.slot and note.payer in leases)
    return Adoption(stages=tuple(stages), missing=tuple(missing), remnants=tuple(remnants))


def seen_in(found: Found) -> int:
    """The highest token that is known from what was found: a ledger that has lost writes learns from it that it has."""
    notes = [note for stage in found.stages if (note := note_of(stage)) is not None]
    return max([found.incarnation, *(stage.holder for stage in found.stages), *(max(note.claim, note.token) for note in notes)])


def note_of(stage: FoundStage) -> StageNote | None:
    """What was noted; None when it cannot be read, as when another version has written it."""
    try:
        note: StageNote = decode(StageNote, stage.note)
    except RuntimeDoorError:
        return None
    return note


def written(note: StageNote) -> bytes:
    """As the host keeps it."""
    return encode(note)


def _heirloom(claimed: ClaimedStage, found: FoundStage | None) -> Heirloom | None:
    note = note_of(found) if found is not None else None
    if found is None or note is None or note.claim != claimed.claim.token:
        return None
    return Heirloom(claimed=claimed, note=note, holder=found.holder, gives_way=found.is_cancelled and not claimed.cancelled)


def _has_its_place(heirloom: Heirloom, left: Mapping[PoolName, ResourceSet], leases: Collection[LeaseKey]) -> bool:
    room = left.get(heirloom.note.pool)
    is_paid = heirloom.payer is None or heirloom.payer in leases
    return room is not None and heirloom.amounts <= room and is_paid
