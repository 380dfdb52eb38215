"""Stages on their way to meshes: a queue per mesh, claims with fencing tokens, and an inbox for what comes back.

The stage's record is the truth; queues are indexes of it. A stage is `queued`, then `claimed` under a live session and
lease, then `ended`, `lost` or `cancelled`. A claim lives as long as its session: there is no visibility timeout, so a
long stage is never handed out twice because of its age. Every message of a mesh about a stage carries the claim's token;
under any other token it is refused, so the late word of a dead attempt changes nothing.

Mail tells a mesh that there is something to look at. It is a hint: a mesh that missed it finds the truth by `claims_of`
and `queued`.
"""

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from federation.leases import Lease, Session
from mesh.giving_way import NEVER_TAKES, YieldRules
from mesh.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.messages import STAGE_MESSAGE, StageMessage
from mesh.reasons import Reason
from mesh.stages import StageSpec
from mesh.values import StoredValue
from mesh.wire import encode

#: A mesh may have this many times as much claimed as its lease holds; an honest one never has more than once.
CLAIMS_PER_UNIT = 2
#: Queued stages that a mesh asks about in one call.
HEADS_MAX = 1_000
#: Claims that are asked about in one call.
RESUMED_MAX = 200
#: Stages that are explained in one call.
EXPLAINED_MAX = 100
#: How far into a queue is looked for the oldest.
LOOKED_AT_MAX = 1_000
#: What `mesh.wire` encodes the body of a `stage` entry as, and decodes it from.
STAGE_MESSAGES = list[STAGE_MESSAGE]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedStage:
    """What a mesh must know of a stage to decide about it; the whole spec comes with the claim."""

    stage: StageId
    run: RunId
    tenant: TenantPath
    slot: dict[str, int]  #: Units; see `StageSpec.slot`.
    width: int
    priority: int
    reason: Reason = Reason.WAITING_IN_QUEUE
    yielding: YieldRules = NEVER_TAKES


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run a stage and to speak about it."""

    stage: StageId
    mesh: MeshId
    incarnation: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedStage:
    """A claim with all that is needed to run: the spec, and the inputs that have been delivered so far."""

    claim: Claim
    spec: StageSpec
    inputs: dict[NodeId, StoredValue | None]  #: None: the input will not come.
    cancelled: bool = False

    def blobs(self) -> tuple[str, ...]:
        """The hashes of everything that the stage needs from the control store."""
        return (*self.spec.blobs(), *(value.sha256 for value in self.inputs.values() if value is not None and value.uri is None))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """A claim as its mesh knows it, and what a store has to know that may have lost it."""

    claim: Claim
    spec: str  #: `digest_of` the stage's spec.
    lease: Lease | None = None  #: That paid for it when it was made; None: it takes nothing.
    is_whole: bool = False  #: All that was told under it can be told again.
    has_ended: bool = False  #: Its end was told, or is about to be: it takes nothing any more.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStanding:
    """What the store has of a claim."""

    is_current: bool
    batch: int = 0  #: The last that was taken in, as the store counts.
    may_come: bool = False  #: The stage is not known, and may be submitted again as long as the ledger learns.


class MailKind(str, Enum):
    """What a mesh is told to look at."""

    STAGE = "stage"
    """A stage was queued (`subject`: stage id), or room may have come for those that wait (no subject)."""
    INPUT = "input"
    """An input was delivered to a stage (`subject`: stage id)."""
    CANCEL = "cancel"
    """A stage is to be stopped (`subject`: stage id)."""
    LEASE = "lease"
    """Others wait for quota: what lies idle is to be given back."""
    PLAN = "plan"
    """A plan takes something back that the mesh holds; its next heartbeat tells what."""
    FORGET = "forget"
    """A run has ended; its values may go (`subject`: run id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One letter."""

    kind: MailKind
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEntry:
    """A message about a run, in the order in which the store took it in."""

    entry: str  #: The store's id of the entry; later entries compare greater, as pairs of integers around the `-`.
    run: RunId
    kind: str  #: `submitted`, `cancel` or `stage`.
    body: bytes  #: For `stage`: a JSON list of `StageMessage`.


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAges:
    """For how long the oldest stages of a mesh are where they are; 0 where there is none."""

    queued_ms: int = 0
    claimed_ms: int = 0
    claimed_ms_min: int = 0  #: The same of what was claimed last: all that runs does so for at least so long.


class OrphanKind(str, Enum):
    """What an audit may find."""

    CLAIMED_WITHOUT_SESSION = "CLAIMED_WITHOUT_SESSION"
    """A mesh has claimed the stage and has no session any more, so no sweep will find it."""
    INDEX_WITHOUT_RECORD = "INDEX_WITHOUT_RECORD"
    """A queue names a stage of which there is no record."""
    INDEX_DISAGREES = "INDEX_DISAGREES"
    """A queue names a stage whose record says that it is elsewhere, or in another state."""
    RECORD_WITHOUT_INDEX = "RECORD_WITHOUT_INDEX"
    """A stage says that it is queued or claimed, and its mesh's queue does not name it: nobody will ever take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A record or an index entry that has lost its other half."""

    kind: OrphanKind
    stage: StageId
    mesh: MeshId
    detail: str  #: What the record says: state and mesh; or what is missing.


def digest_of(spec: StageSpec) -> str:
    """Tells a spec from another of the same name: SHA-1 of it as it is stored, which a script can reckon too."""
    return hashlib.sha1(encode(spec), usedforsecurity=False).hexdigest()


class StageQueue(Protocol):
    """The port; every method is atomic, and safe to repeat. Raises (all): StoreUnavailable."""

    def submit(self, mesh: MeshId, spec: StageSpec) -> bool:
        """Queue the stage at the mesh and tell the mesh; False (and nothing done) when the id was submitted before, or its run was
        forgotten: the late word of a coordinator that slept."""

    def waiting(self, mesh: MeshId, limit: int = 64) -> tuple[QueuedStage, ...]:
        """The mesh's queued stages: higher priority first, then earlier arrival. For whoever shows them; a mesh asks for `queued`."""

    def queued(self, mesh: MeshId) -> tuple[StageId, ...]:
        """All of the mesh's queued stages, in the order of `waiting`, by their names alone: who knows the rest of most of them sees the
        whole queue in one short answer, however much of it is one tenant's."""

    def heads_of(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[QueuedStage, ...]:
        """What the mesh must know of those of these stages, at most `HEADS_MAX`, that are queued at it; in the order in which they are
        named."""

    def remembered(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[StageId, ...]:
        """Those of these stages, at most `HEADS_MAX`, that were sent to the mesh and whose runs were not forgotten, in whatever state they
        are. What the others have left at the mesh nobody will ask for."""

    def explain(self, session: Session, stages: tuple[StageId, ...], reason: Reason, detail: str) -> None:
        """Say why queued stages wait, of which at most `EXPLAINED_MAX` may be named. For each a change of its reason puts a `StageWaiting`
        into the inbox; the same again does not."""

    def claim(self, session: Session, stage: StageId, lease: Lease | None) -> ClaimedStage | None:
        """Take a queued stage; None when it is not queued at this mesh any more (taken, cancelled). Needs a live session, and the
        lease that pays as the ledger has it; None pays only for a stage that takes nothing. Claimed by this very session
        already: the same claim again.

        Raises:
            SessionLost: The session is not live.
            LeaseLost: The lease is not held under this token.
            TooManyClaims: What the mesh has claimed under the lease, a slot for each stage, would be more than `CLAIMS_PER_UNIT` times
                what the lease holds.
            LedgerLearning: Nothing new begins while the ledger learns.
            EpochChanged: See `LeaseLedger`.
        """

    def resume(self, session: Session, claims: tuple[HeldClaim, ...]) -> tuple[ClaimStanding, ...]:
        """How claims of the session stand, at most `RESUMED_MAX`, in their order. While the ledger learns, a claim that it has lost is made
        again under its old token, when its stage waits there as it was and all that was told can be told again.

        Raises:
            SessionLost: The session is not live.
            EpochChanged: See `LeaseLedger`.
        """

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...], *, after: int = 0) -> int:
        """Put messages into the inbox. `batch` counts up from 1 per claim; a batch that was taken in already is dropped
        silently. A `StageEnded` or `StageLost` among the messages ends the claim.

        Args:
            after: What this answered for the batch before; 0: none came before, or nobody knows.

        Returns:
            As what the store counts the batch, for `after` of the next one.

        Raises:
            StaleFence: The claim is not current: lost, ended, of another session, or its lease was revoked hard.
            EarlierReportsLost: The store does not have the batch `after` any more.
        """

    def deliver(self, stage: StageId, node: NodeId, value: StoredValue | None) -> None:
        """Give the stage an input, once; the second delivery of the same node is dropped. None says that it will not come:
        what waits for it is dropped from the stage. Tells the mesh. Harmless after the end."""

    def inputs_of(self, stage: StageId) -> dict[NodeId, StoredValue | None]:
        """What has been delivered to the stage so far."""

    def cancel(self, stage: StageId) -> None:
        """Queued: gone at once, with a `StageEnded` in the inbox. Claimed: marked, and the mesh told. Ended: harmless."""

    def claims_of(self, session: Session) -> tuple[ClaimedStage, ...]:
        """What this session has claimed and not ended, as it stands now."""

    def take_back_overdue(self, limit: int = 200) -> tuple[StageId, ...]:
        """End the claims on stages that took longer than their `deadline_ms`, each with a `StageLost` in the inbox and a letter to its
        mesh; which they were. Nothing while the ledger learns.

        Raises:
            LedgerUninitialised: There is no ledger, so nothing was ever claimed.
        """

    def ages(self) -> dict[MeshId, StageAges]:
        """How old the oldest stages are, of each mesh that has joined; of queues, the next `LOOKED_AT_MAX` stages count."""

    def orphans(self) -> tuple[Orphan, ...]:
        """What does not agree between records and indexes; an alarm, and never repaired silently. Looks at everything, in parts, so a
        stage that moves meanwhile may be told that is none: look twice."""

    def forget(self, run: RunId, meshes: tuple[MeshId, ...]) -> None:
        """Drop the run's stages and tell the meshes that its values may go."""

    def mail(self, mesh: MeshId, cursor: str, wait_ms: int) -> tuple[str, tuple[Mail, ...]]:
        """Letters after `cursor` (`""`: only what comes from now on is of interest, return at once with a cursor), waiting up to `wait_ms`
        for the first; with the next cursor. About the last thousand are kept."""

    def inbox(self, wait_ms: int, limit: int = 512) -> tuple[InboxEntry, ...]:
        """The oldest entries that were not acknowledged, waiting up to `wait_ms` for the first."""

    def acknowledge(self, entries: tuple[str, ...]) -> None:
        """Remove entries that have been dealt with."""
