"""Dispatch of stages to meshes: a queue per mesh, claims with fencing tokens, and an inbox for reports.

The stage's record is the source of truth; queues are indexes of records. A stage is `queued`, then `claimed` under a live session and
lease, then `ended`, `lost` or `cancelled`. A claim lives as long as its session. There is no visibility timeout, so a long stage is never
dispatched twice because of its age. Every message of a mesh about a stage carries the claim's token. The store refuses any other token,
so a late message of a dead attempt changes nothing.

Notifications are hints that something has changed. A mesh that missed one reads the truth with `claims_of` and `queued`.
"""

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Protocol

from pydantic import Field

from federation.leases import Lease, Session
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.core.values import StoredValue
from mesh.core.wire import encode
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.messages import STAGE_MESSAGE, StageMessage
from mesh.stages.spec import StageSpec

#: A mesh may claim at most this multiple of what its lease holds; a correct mesh never exceeds 1.
CLAIMS_PER_UNIT = 2
#: Queued stages per call of `heads_of` and `remembered`.
HEADS_MAX = 1_000
#: Claims per call of `resume`.
RESUMED_MAX = 200
#: Stages per call of `explain`.
EXPLAINED_MAX = 100
#: Entries of a queue that are searched for the oldest stage.
LOOKED_AT_MAX = 1_000
#: Type with which `mesh.core.wire` encodes and decodes the body of a `stage` entry.
STAGE_MESSAGES = list[STAGE_MESSAGE]
Slots = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedStage:
    """Facts about a queued stage that a mesh needs to decide; the whole spec comes with the claim."""

    stage: StageId
    run: RunId
    tenant: TenantPath
    slot: ResourceSet
    width: int
    priority: int
    created_ms: int = 0  #: See `StageSpec.created_ms`.
    reason: Reason = Reason.WAITING_IN_QUEUE
    preemption: PreemptionPolicy = NEVER_PREEMPTS
    queued_ms: int = 0  #: When it was queued at its mesh, since the epoch, on the store's clock; the store sets it.
    gang: Gang | None = None  #: See `StageSpec.gang`.
    waited_ms: int = field(default=0, compare=False)  #: Time since then as `heads_of` read it: with `queued_ms`, the store's clock.


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Right to run a stage and to report about it."""

    stage: StageId
    mesh: MeshId
    incarnation: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedStage:
    """Claim with everything that the run needs: the spec, and the inputs delivered so far."""

    claim: Claim
    spec: StageSpec
    inputs: dict[NodeId, StoredValue | None]  #: None: the input will never come.
    cancelled: bool = False

    def blobs(self) -> tuple[str, ...]:
        """Return the hashes of all blobs that the stage needs from the control store."""
        return (*self.spec.blobs(), *(value.sha256 for value in self.inputs.values() if value is not None and value.uri is None))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """Claim as its mesh knows it, with the facts that a store needs if it has lost the claim."""

    claim: Claim
    spec: str  #: `digest_of` the stage's spec.
    lease: Lease | None = None  #: The lease that paid for the claim; None: the stage needs no resources.
    is_whole: bool = False  #: The mesh can repeat every report made under the claim.
    has_ended: bool = False  #: The end is reported, or is about to be: the claim uses no resources any more.
    slots: Slots = 1  #: Slots with which the stage has started.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStatus:
    """Stored state of a claim."""

    is_current: bool
    batch: int = 0  #: Number of the last batch that the store accepted, as the store counts.
    may_come: bool = False  #: The stage is unknown, and may be submitted again while the ledger recovers.


class NotificationKind(str, Enum):
    """Subject of a notification to a mesh."""

    STAGE = "stage"
    """A stage was queued (`subject`: stage id), or waiting stages may have room now (no subject)."""
    INPUT = "input"
    """An input was delivered to a stage (`subject`: stage id)."""
    CANCEL = "cancel"
    """A stage must stop (`subject`: stage id)."""
    LEASE = "lease"
    """Other meshes wait for quota: return idle leases."""
    PLAN = "plan"
    """A plan reclaims part of the mesh's leases; the next heartbeat says which."""
    SETTINGS = "settings"
    """The root has published other settings for the mesh."""
    FORGET = "forget"
    """A run has ended; its values may be deleted (`subject`: run id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Notification to a mesh."""

    kind: NotificationKind
    subject: str


#: Kind of an inbox entry without run or body: tenants compete for quota that they would borrow, so the planner has to decide.
CONTESTED = "contested"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEntry:
    """Message about a run, in the order in which the store accepted it."""

    entry: str  #: The store's id of the entry; ids grow, compared as pairs of integers around the `-`.
    run: RunId
    kind: str  #: `submitted`, `cancel` or `stage`; `CONTESTED` is about no run.
    body: bytes  #: For `stage`: a JSON list of `StageMessage`.


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAges:
    """Ages of the oldest stages of a mesh in their present state, ms; 0: no such stage."""

    queued_ms: int = 0
    claimed_ms: int = 0
    claimed_ms_min: int = 0  #: Age of the youngest claim: every claimed stage has run for at least this long.


class OrphanKind(str, Enum):
    """Kind of inconsistency that an audit may find."""

    CLAIMED_WITHOUT_SESSION = "CLAIMED_WITHOUT_SESSION"
    """A mesh without a session has claimed the stage, so no sweep will find it."""
    INDEX_WITHOUT_RECORD = "INDEX_WITHOUT_RECORD"
    """A queue names a stage that has no record."""
    INDEX_DISAGREES = "INDEX_DISAGREES"
    """A queue names a stage whose record names another mesh or state."""
    RECORD_WITHOUT_INDEX = "RECORD_WITHOUT_INDEX"
    """A stage's record says queued or claimed, and the queue of its mesh lacks the stage: no mesh will run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """Record without its index entry, or index entry without its record."""

    kind: OrphanKind
    stage: StageId
    mesh: MeshId
    detail: str  #: State and mesh of the record, or what is missing.


def digest_of(spec: StageSpec) -> str:
    """Return the SHA-1 of the stored form of the spec, to compare specs of one name. A Lua script computes the same."""
    return hashlib.sha1(encode(spec), usedforsecurity=False).hexdigest()


class StageQueue(Protocol):
    """Port of the stage queue. Every method is atomic and safe to repeat. All methods raise StoreUnavailable."""

    def submit(self, mesh: MeshId, spec: StageSpec) -> bool:
        """Queue the stage at the mesh and notify the mesh.

        Returns:
            False, with no change, if the id was submitted before or its run was forgotten: a late call of a paused coordinator.
        """

    def waiting(self, mesh: MeshId, limit: int = 64) -> tuple[QueuedStage, ...]:
        """Return the mesh's queued stages, higher priority first, then earlier arrival. For display; a mesh calls `queued`."""

    def queued(self, mesh: MeshId) -> tuple[StageId, ...]:
        """Return the ids of all queued stages of the mesh, in the order of `waiting`.

        Ids alone keep the response short: a caller that knows most of the stages sees the whole queue, even if one tenant fills it.
        """

    def heads_of(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[QueuedStage, ...]:
        """Return what the mesh must know of those stages that are queued at it, in the order given. At most `HEADS_MAX` stages."""

    def remembered(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[StageId, ...]:
        """Return those stages that were sent to the mesh and whose runs are not forgotten, in any state. At most `HEADS_MAX` stages.

        The mesh may delete whatever the other stages have left there.
        """

    def explain(self, session: Session, stages: tuple[StageId, ...], reason: Reason, detail: str) -> None:
        """Record why queued stages wait. At most `EXPLAINED_MAX` stages.

        A changed reason puts a `StageWaiting` into the inbox; the same reason again does not.
        """

    def claim(self, session: Session, stage: StageId, lease: Lease | None, slots: int = 1) -> ClaimedStage | None:
        """Claim a queued stage. A repeated call of the same session returns the same claim.

        Args:
            lease: The lease that pays, as the ledger has it; None only for a stage that needs no resources.
            slots: Slots with which the stage starts; the lease pays for all of them until the claim ends.

        Returns:
            None if the stage is not queued at this mesh any more (claimed or cancelled).

        Raises:
            SessionLost: The session is not live.
            LeaseLost: The lease is not held under this token.
            TooManyClaims: All slots of all claims under the lease would exceed `CLAIMS_PER_UNIT` times what the lease holds.
            LedgerRecovering: The ledger recovers, so nothing new begins.
            EpochChanged: See `LeaseLedger`.
        """

    def resume(self, session: Session, claims: tuple[HeldClaim, ...]) -> tuple[ClaimStatus, ...]:
        """Return the state of the session's claims, in the order given. At most `RESUMED_MAX` claims.

        While the ledger recovers, it makes a lost claim again under the old token. The stage must wait there unchanged, and the mesh must
        be able to repeat every report.

        Raises:
            SessionLost: The session is not live.
            EpochChanged: See `LeaseLedger`.
        """

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...], *, after: int = 0) -> int:
        """Put messages into the inbox. A `StageEnded` or `StageLost` among the messages ends the claim.

        Args:
            batch: Counts up from 1 per claim. The store drops a batch that it has accepted already.
            after: The value returned for the batch before; 0: there was none, or the value is unknown.

        Returns:
            The store's number of this batch, for `after` of the next one.

        Raises:
            StaleFence: The claim is not current: lost, ended, of another session, or under a lease that was revoked with `hard`.
            EarlierReportsLost: The store has lost the batch `after`.
        """

    def deliver(self, stage: StageId, node: NodeId, value: StoredValue | None) -> None:
        """Deliver an input to the stage and notify the mesh. The store drops a second delivery of the same node. Harmless after the end.

        Args:
            value: None: the input will never come, and the stage drops the nodes that depend on it.
        """

    def inputs_of(self, stage: StageId) -> dict[NodeId, StoredValue | None]:
        """Return the inputs that have been delivered to the stage so far."""

    def cancel(self, stage: StageId) -> None:
        """Cancel the stage. Queued: it ends at once, with a `StageEnded` in the inbox. Claimed: the mesh is notified. Ended: no effect."""

    def claims_of(self, session: Session) -> tuple[ClaimedStage, ...]:
        """Return the current claims of this session that have not ended."""

    def take_back_overdue(self, limit: int = 200) -> tuple[StageId, ...]:
        """End claims on stages that ran longer than their `deadline_ms`, and return these stages. Each gets a `StageLost` in the inbox,
        and its mesh a notification. While the ledger recovers, no claim ends.

        Raises:
            LedgerUninitialised: There is no ledger, so no claim was ever made.
        """

    def ages(self) -> dict[MeshId, StageAges]:
        """Return the ages of the oldest stages of each mesh that has joined. Only the first `LOOKED_AT_MAX` stages of a queue count."""

    def orphans(self) -> tuple[Orphan, ...]:
        """Return inconsistencies between records and indexes. They are alarms and are never repaired silently.

        The scan reads everything in parts. A stage that moves meanwhile may be reported wrongly, so scan twice.
        """

    def forget(self, run: RunId, meshes: tuple[MeshId, ...], *, keep: tuple[str, ...] | None = None, version: int | None = None) -> bool:
        """Drop the run's stages and blobs, and notify the meshes that its values may be deleted.

        Return False, with no effect, if the run has another version: a coordinator that lost its election may call late, when the run
        was resumed, or removed and its id given to another one.

        Args:
            keep: Hashes of the blobs that stay; None: all.
            version: Version of the run that the caller knows; None: of a run that is not stored.
        """

    def notifications(self, mesh: MeshId, cursor: str, wait_ms: int) -> tuple[str, tuple[Notification, ...]]:
        """Return the next cursor and the notifications after `cursor`. The store keeps about the last thousand.

        Args:
            cursor: Empty: return at once with a cursor for notifications from now on.
            wait_ms: Longest wait for the first notification.
        """

    def notify(self, mesh: MeshId, kind: NotificationKind) -> None:
        """Send the mesh a notification without subject. Harmless if the mesh has no session."""

    def inbox(self, wait_ms: int, limit: int = 512) -> tuple[InboxEntry, ...]:
        """Return the oldest entries without acknowledgement; wait up to `wait_ms` for the first."""

    def acknowledge(self, entries: tuple[str, ...]) -> None:
        """Remove processed entries."""
