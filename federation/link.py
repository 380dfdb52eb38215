"""Link of a mesh without a key to the store: the child's verbs of four ports over HTTP, at any replica of the root.

One table holds every verb: its port and method, its arguments, its response and its time limit. The root's routes and the child's
adapters read the same table, so they always agree. Values are those of the ports; an argument has the name that the method gives it.

The link has only verbs of a child. The root's own verbs (tree, plans, sweeps, revokes, submits, cancels) are absent. Every verb may be
repeated, also at another replica: see `LeaseLedger` and `StageQueue`.

Source: ADR 0019.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from federation.dispatch import Claim, ClaimedStage, ClaimStatus, HeldClaim, Notification, QueuedStage, Slots
from federation.errors import (
    BatchTooLarge,
    EarlierReportsLost,
    EpochChanged,
    ForeignLedger,
    ForgedReceipt,
    FutureToken,
    HoldingsRequired,
    LeaseLost,
    LedgerRecovering,
    LedgerUninitialised,
    LedgerUnsafe,
    SessionExpired,
    SessionLost,
    SessionSuperseded,
    SessionUnknown,
    StaleFence,
    StaleHeartbeat,
    TooManyClaims,
    UnfitName,
)
from federation.leases import Acquired, HeartbeatReport, Lease, LeaseAck, LedgerResponse, QuotaDemand, Session
from federation.snapshot import MeshRecord
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.errors import AmountError, MeshError
from mesh.stages.messages import STAGE_MESSAGE
from mesh.stages.stage_settings import StageSettings

#: Path prefix of the routes.
LINK_PATH = "/v1/link"
#: Header of responses with tokens: the highest token that the mesh got, signed. The mesh sends the last one back with each call.
PROOF_HEADER = "Mesh-Proof"
#: Header of a blob upload: incarnation of the session that has claimed a stage of the blob's run.
SESSION_HEADER = "Mesh-Session"
#: The largest call; blobs have a limit of their own.
CALL_BYTES_MAX = 1 << 20
#: The largest blob that a mesh may store; `inline_limit` allows no larger value.
BLOB_BYTES_MAX = 8 << 20
#: Most entries of one list, or keys of one object.
LIST_MAX = 1_000
#: The longest wait for notifications in one call.
NOTIFICATION_WAIT_MS_MAX = 10_000
#: Most characters of a text. Some texts may be longer: messages for people, addresses of files, and values that the root has signed.
TEXT_MAX = 256
LONG_TEXTS = {"traceback": 65_536, "message": 65_536, "detail": 4_096, "uri": 4_096, "type_name": 1_024, "bases": 1_024, "address": 1_024}
#: Long texts that the user's code writes: any character is allowed, and display escapes them. Every other text is a name.
FREE_TEXTS = frozenset({"traceback", "message", "detail", "type_name", "bases", "uri"})

A = TypeVar("A")
R = TypeVar("R")


class Budget(Enum):
    """Rate limit class of a verb: each mesh has a limit per second and class, and each class has its own threads."""

    HEARTBEAT = "heartbeat"
    """Keeps sessions alive; no other class can use up its limit."""
    CALL = "call"
    """Calls that return at once."""
    NOTIFICATIONS = "notifications"
    """Calls that wait for notifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Generic[A, R]):
    """One verb of the link: a method of a port."""

    name: str  #: The last part of the path.
    port: str  #: `ledger`, `queue` or `registry`.
    method: str
    asked: Any  #: The dataclass `A`; its fields are the method's arguments.
    answered: Any  #: The type `R`, for `mesh.core.wire`.
    budget: Budget = Budget.CALL
    limit_ms: int = 5_000  #: How long the child waits for one replica.


# -- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    record: MeshRecord
    adopt: int = 0
    seen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    session: Session
    record: MeshRecord
    heartbeat_report: HeartbeatReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    session: Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    session: Session
    demands: tuple[QuotaDemand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    session: Session
    parts: tuple[LeaseAck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    mesh: MeshId


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsOf:
    mesh: MeshId
    stages: tuple[StageId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    mesh: MeshId
    stages: tuple[StageId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    session: Session
    stages: tuple[StageId, ...]
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStage:
    session: Session
    stage: StageId
    lease: Lease | None
    slots: Slots = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    session: Session
    claims: tuple[HeldClaim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    claim: Claim
    batch: Annotated[int, Field(ge=0)]
    messages: tuple[STAGE_MESSAGE, ...]
    after: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsOf:
    """Arguments of `StageQueue.inputs_of`. The claim proves that the mesh has the stage; without a claim the stage must be queued at the
    mesh.
    """

    mesh: MeshId
    stage: StageId
    claim: Claim | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsOf:
    session: Session


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitNotifications:
    mesh: MeshId
    cursor: Annotated[str, Field(pattern="^([0-9]{1,19}-[0-9]{1,19})?$")]
    wait_ms: Annotated[int, Field(ge=0, le=NOTIFICATION_WAIT_MS_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOf:
    mesh: MeshId


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTerms:
    """Request for the terms of every mesh, and for the root's warnings about this record."""

    mesh: MeshId
    record: MeshRecord | None = None  #: The record that the mesh would join with; None: only the terms.


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """Settings that a mesh needs before it joins."""

    heartbeat_ms: int  #: How often to renew the session.
    inline_limit_bytes: int  #: Larger values go to the storage.
    storage_url: str  #: fsspec URL of the folder for large values.
    ledger: str = ""  #: Id of the root's ledger; it names this federation's processes on a Ray cluster that several federations share.
    warnings: tuple[str, ...] = ()  #: Differences between the record and the root's file, as messages.


# -- the table ---------------------------------------------------------------------------------------------------------

TERMS: Verb[AskTerms, LinkTerms] = Verb(name="terms", port="", method="", asked=AskTerms, answered=LinkTerms)
JOIN: Verb[Join, Session] = Verb(name="join", port="ledger", method="join", asked=Join, answered=Session, budget=Budget.HEARTBEAT)
HEARTBEAT: Verb[Heartbeat, LedgerResponse] = Verb(
    name="heartbeat",
    port="ledger",
    method="heartbeat",
    asked=Heartbeat,
    answered=LedgerResponse,
    budget=Budget.HEARTBEAT,
    limit_ms=1_000,
)
LEAVE: Verb[Leave, None] = Verb(name="leave", port="ledger", method="leave", asked=Leave, answered=type(None), budget=Budget.HEARTBEAT)
ACQUIRE: Verb[Acquire, Acquired] = Verb(name="acquire", port="ledger", method="acquire", asked=Acquire, answered=Acquired)
RELEASE: Verb[Release, LedgerResponse] = Verb(name="release", port="ledger", method="release", asked=Release, answered=LedgerResponse)
QUEUED: Verb[Queued, tuple[StageId, ...]] = Verb(name="queued", port="queue", method="queued", asked=Queued, answered=tuple[StageId, ...])
HEADS_OF: Verb[HeadsOf, tuple[QueuedStage, ...]] = Verb(
    name="heads-of", port="queue", method="heads_of", asked=HeadsOf, answered=tuple[QueuedStage, ...]
)
REMEMBERED: Verb[Remembered, tuple[StageId, ...]] = Verb(
    name="remembered", port="queue", method="remembered", asked=Remembered, answered=tuple[StageId, ...]
)
EXPLAIN: Verb[Explain, None] = Verb(name="explain", port="queue", method="explain", asked=Explain, answered=type(None))
CLAIM: Verb[ClaimStage, ClaimedStage | None] = Verb(
    name="claim", port="queue", method="claim", asked=ClaimStage, answered=ClaimedStage | None
)
RESUME: Verb[Resume, tuple[ClaimStatus, ...]] = Verb(
    name="resume", port="queue", method="resume", asked=Resume, answered=tuple[ClaimStatus, ...]
)
REPORT: Verb[Report, int] = Verb(name="report", port="queue", method="report", asked=Report, answered=int)
INPUTS_OF: Verb[InputsOf, dict[NodeId, StoredValue | None]] = Verb(
    name="inputs-of", port="queue", method="inputs_of", asked=InputsOf, answered=dict[NodeId, StoredValue | None]
)
CLAIMS_OF: Verb[ClaimsOf, tuple[ClaimedStage, ...]] = Verb(
    name="claims-of", port="queue", method="claims_of", asked=ClaimsOf, answered=tuple[ClaimedStage, ...]
)
NOTIFICATIONS: Verb[AwaitNotifications, tuple[str, tuple[Notification, ...]]] = Verb(
    name="notifications",
    port="queue",
    method="notifications",
    asked=AwaitNotifications,
    answered=tuple[str, tuple[Notification, ...]],
    budget=Budget.NOTIFICATIONS,
    limit_ms=2_000,
)
SETTINGS_OF: Verb[SettingsOf, StageSettings | None] = Verb(
    name="settings-of", port="registry", method="settings_of", asked=SettingsOf, answered=StageSettings | None
)

VERBS: tuple[Verb[Any, Any], ...] = (
    TERMS, JOIN, HEARTBEAT, LEAVE, ACQUIRE, RELEASE, QUEUED, HEADS_OF, REMEMBERED, EXPLAIN, CLAIM, RESUME, REPORT, INPUTS_OF,
    CLAIMS_OF, NOTIFICATIONS, SETTINGS_OF,
)  # fmt: skip


def arguments_of(asked: object) -> dict[str, Any]:
    """Return the request as arguments of the port's method."""
    return {part.name: getattr(asked, part.name) for part in fields(asked)}  # type: ignore[arg-type]  # a dataclass of the table


def meshes_in(value: object) -> Iterator[MeshId]:
    """Yield every mesh that a value names: the `mesh` fields of the value and of all dataclasses in it. Keys of labels do not count."""
    if isinstance(value, (tuple, list)):
        for part in value:
            if not isinstance(part, (int, str)):  # A column may have thousands of them.
                yield from meshes_in(part)
    else:
        kind: Any = type(value)
        for name in _parts_of(kind):
            inner = getattr(value, name)
            if name == "mesh":
                yield inner
            else:
                yield from meshes_in(inner)


@cache
def _parts_of(kind: type) -> tuple[str, ...]:
    """Return the field names of a dataclass; nothing for other types."""
    return tuple(part.name for part in fields(kind)) if is_dataclass(kind) else ()


# -- errors ------------------------------------------------------------------------------------------------------------

#: Errors of the ports that a child understands, by their code in HTTP. Subclasses come before their base.
CODES: dict[str, type[MeshError]] = {
    "session_unknown": SessionUnknown,
    "session_superseded": SessionSuperseded,
    "session_expired": SessionExpired,
    "foreign_ledger": ForeignLedger,
    "session_lost": SessionLost,
    "lease_lost": LeaseLost,
    "epoch_changed": EpochChanged,
    "holdings_wanted": HoldingsRequired,
    "stale_heartbeat": StaleHeartbeat,
    "stale_fence": StaleFence,
    "earlier_reports_lost": EarlierReportsLost,
    "ledger_recovering": LedgerRecovering,
    "ledger_uninitialised": LedgerUninitialised,
    "ledger_unsafe": LedgerUnsafe,
    "forged_receipt": ForgedReceipt,
    "future_token": FutureToken,
    "unfit_name": UnfitName,
    "batch_too_large": BatchTooLarge,
    "too_many_claims": TooManyClaims,
    "invalid_amount": AmountError,
}

#: Codes by which the root refuses this child; a retry helps only after an operator has acted.
REFUSALS = frozenset({"unauthorized", "wrong_mesh", "mesh_misfit", "unsupported_media_type"})
#: Codes by which the root will never accept this one call; see `CallRejected`.
REJECTIONS = frozenset({"malformed_call", "malformed_json", "body_too_large"})

#: Code for a missing blob.
NO_BLOB = "unknown_blob"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkError:
    """An error as it travels over the link."""

    code: str
    message: str
    facts: dict[str, int] = field(default_factory=dict)  #: Numbers that the error carries besides its message.


def facts_of(error: Exception) -> dict[str, int]:
    """Return the numbers that the error carries."""
    return {"epoch": error.epoch, "recovery_ms": error.recovery_ms} if isinstance(error, EpochChanged) else {}


def named_error(response: LinkError) -> MeshError | None:
    """Rebuild the port's error; None if no port has the code, or numbers are missing."""
    kind = CODES.get(response.code)
    if kind is EpochChanged:
        if not {"epoch", "recovery_ms"} <= response.facts.keys():
            return None
        return EpochChanged(response.message, epoch=response.facts["epoch"], recovery_ms=response.facts["recovery_ms"])
    return kind(response.message) if kind is not None else None
