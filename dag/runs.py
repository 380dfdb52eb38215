"""Runs as they are kept: the record of a run, and the port of the store that keeps it.

One coordinator at a time changes a run, but nothing depends on that: `commit` compares the version that the change was
made from, so of two coordinators one wins and the other loads again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from dag.dead_letters import DeadLetter, DeadLetters
from dag.states import NodeState, RunState, StageState
from mesh.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.messages import Failure
from mesh.reasons import Reason
from mesh.stages import StageSpec
from mesh.values import StoredValue


@dataclass(slots=True, kw_only=True)
class NodeRecord:
    """The present attempt of a node. Written by the run machine only."""

    node: NodeId
    state: NodeState = NodeState.WAITING
    attempt: int = 1
    retries_used: int = 0  #: Attempts that the tenant's own errors have cost; mesh losses are not counted here.
    losses: int = 0  #: Attempts that lost meshes and runners have cost.
    kills: int = 0  #: Workers that died under it.
    not_before_ms: int = 0  #: It waits until then, since the epoch, before it is tried again.
    waits_since_ms: int = 0  #: Since when it could start and has neither room nor quota; 0: it does not wait for these.
    stage: StageId | None = None
    mesh: MeshId | None = None
    incarnation: int = 0  #: The holder: which runner of the mesh has the value in memory; 0: none.
    exported: bool = False  #: The value is (to be) stored, so that it can leave the mesh.
    stored: StoredValue | None = None
    reason: Reason | None = None
    detail: str = ""  #: Why here, why not yet, in words.
    started_ms: int = 0
    finished_ms: int = 0
    failure: Failure | None = None
    roots: tuple[NodeId, ...] = ()  #: For SKIPPED: the nodes whose failure it goes back to.


@dataclass(slots=True, kw_only=True)
class StageRecord:
    """A stage that was sent. Written by the run machine only."""

    stage: StageId
    mesh: MeshId
    level: int
    nodes: tuple[NodeId, ...]
    width: int = 1  #: How many of the nodes could run at once.
    state: StageState = StageState.PLANNED
    incarnation: int = 0  #: The holder: which runner of the mesh has it, and with it the values of its nodes.
    cluster: str = ""
    slots: int = 0
    reason: Reason | None = None  #: Until it starts: why it waits. Once stopped or lost: why that.
    detail: str = ""
    why_here: str = ""  #: The routing decision in words.
    sent_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    delivered: tuple[NodeId, ...] = ()  #: External inputs that it has been given.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One change, for everybody: numbered per run from 1 without gaps."""

    seq: int
    at_ms: int
    run: RunId
    kind: str  #: `run`, `stage` or `node`.
    node: NodeId | None = None
    attempt: int = 0
    stage: StageId | None = None
    mesh: MeshId | None = None
    cluster: str = ""
    before: str = ""
    after: str = ""
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStage:
    """Queue the stage at the mesh."""

    mesh: MeshId
    spec: StageSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverInput:
    """Give a stage the stored value of a node outside it; None: it will not come, drop what waits for it."""

    stage: StageId
    node: NodeId
    value: StoredValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelStage:
    """Stop the stage."""

    stage: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRun:
    """The run is over: drop its stages, values and intermediate files everywhere."""

    meshes: tuple[MeshId, ...]
    uris: tuple[str, ...] = ()  #: Files of values that are not outputs.
    keep: tuple[str, ...] = ()  #: Hashes of the stored values that outlive the run: outputs, pickled exceptions.


Decision = SendStage | DeliverInput | CancelStage | ForgetRun


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """All that is known of a run: enough for any coordinator to go on with it."""

    run: RunId
    tenant: TenantPath
    user: str = ""  #: Who submitted it: a name, or the id of the API key; limits per user count by it.
    digest: str  #: SHA-256 of the canonical spec: the same id with another digest is a conflict.
    spec: bytes  #: The `dag/1` spec, as JSON.
    state: RunState = RunState.PENDING
    version: int = 0
    seq: int = 0  #: Of the last event.
    created_ms: int = 0
    ended_ms: int = 0
    reason: Reason | None = None
    detail: str = ""
    last_entry: str = ""  #: The last inbox entry that was taken in; earlier ones are skipped.
    nodes: dict[NodeId, NodeRecord] = field(default_factory=dict)
    stages: dict[StageId, StageRecord] = field(default_factory=dict)
    outbox: tuple[Decision, ...] = ()  #: Decided and recorded, perhaps not carried out yet.
    key: str = ""  #: Idempotency key of the submission; empty: none.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """What one step of the run machine changed; committed whole or not at all."""

    nodes: tuple[NodeRecord, ...] = ()
    stages: tuple[StageRecord, ...] = ()
    events: tuple[RunEvent, ...] = ()
    decisions: tuple[Decision, ...] = ()  #: Become the outbox.
    dead: tuple[DeadLetter, ...] = ()  #: Of nodes that failed for good in this step.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A line of `schedulemesh runs`."""

    run: RunId
    tenant: TenantPath
    state: RunState
    created_ms: int
    ended_ms: int
    reason: Reason | None
    detail: str
    counts: dict[str, int]  #: Nodes per state.
    user: str = ""


class RunStore(DeadLetters, Protocol):
    """The port. Raises (all): StoreUnavailable."""

    def create(self, record: RunRecord, blobs: dict[str, bytes]) -> bool:
        """Store a new run with its blobs and put `submitted` into the inbox; False when the id exists with the same digest.

        A key of the record stands for this run from now on, as long as the run is kept. What exists is told before what is full,
        so a repeat of what was accepted is never refused.

        Raises:
            RunConflict: The id exists with another digest or tenant.
            KeyConflict: The tenant has used the key for another run, or for another graph.
            BacklogFull: The tenant, or one above it, has too much open.
            StoreFull: The store has hardly any memory left.
        """

    def check_room(self, record: RunRecord, blobs: dict[str, bytes]) -> None:
        """Would `create` find room for it as things stand? Nothing is stored, and nothing is set aside.

        Raises:
            BacklogFull: As `create`.
            StoreFull: As `create`.
        """

    def load(self, run: RunId) -> RunRecord | None:
        """The whole record."""

    def commit(self, record: RunRecord, change: RunChange) -> bool:
        """Write the change, if the stored version is still `record.version`; the record's own fields are written as they are
        and its version is counted up in place. False (and nothing written) when somebody else was faster."""

    def summary(self, run: RunId) -> RunSummary | None:
        """The run in one line."""

    def list(self, tenant: TenantPath, limit: int = 50) -> tuple[RunSummary, ...]:
        """Runs of the tenant and of all below it, newest first."""

    def active(self) -> tuple[RunId, ...]:
        """Runs with something left to do: those that have not ended, and those that nobody has settled."""

    def settle(self, run: RunId) -> bool:
        """The run has ended and its last decisions are carried out: nobody has to look at it any more. True the first time."""

    def events(self, run: RunId, after: int = 0, limit: int = 1000) -> tuple[RunEvent, ...]:
        """Events with a greater sequence number, oldest first."""

    def request_cancel(self, run: RunId, reason: str) -> None:
        """Put `cancel` into the inbox. Harmless when the run has ended.

        Raises:
            UnknownRun: There is no such run.
        """

    def retire(self, before_ms: int, limit: int = 100) -> tuple[tuple[RunId, str], ...]:
        """Remove runs that ended before `before_ms` (milliseconds since the epoch), oldest first, `limit` at most, with
        everything that belongs to them; the files that their values lie in, each with its run, to be deleted by the caller."""
