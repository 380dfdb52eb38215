"""The records of a run, and the port of the store that keeps them.

Usually one coordinator changes a run, but nothing depends on that. `commit` compares the version that the change started from, so
of two coordinators one succeeds and the other loads the run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from dag.errors import DagError
from dag.run.dead_letters import DeadLetter, DeadLetters
from dag.run.events import SignalSent
from dag.run.node_table import NO_CHANGES, NodeChanges, NodeTable
from dag.run.run_events import LoggedEvents, RunEvent
from dag.run.states import RunState, StageState
from dag.spec.growth import Growth, grown
from dag.spec.spec import DagSpec, load
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.observability.trace_context import TraceContext, context_of_run
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.spec import StageSpec

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class StageRecord:
    """A stage of the run. Only the run machine writes it."""

    stage: StageId
    mesh: MeshId
    level: int  #: Largest number of borders between meshes before the stage.
    nodes: tuple[NodeId, ...]  #: In topological order.
    width: int = 1  #: Number of its nodes that could run at once.
    state: StageState = StageState.PLANNED
    incarnation: int = 0  #: Runner of the mesh that has the stage and holds the values of its nodes.
    cluster: str = ""
    slots: int = 0
    reason: Reason | None = None  #: Before the start: reason for the wait. After a stop or loss: reason for that.
    detail: str = ""
    why_here: str = ""  #: The routing decision in one line.
    sent_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    delivered: tuple[NodeId, ...] = ()  #: Nodes whose values were delivered or withheld.


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStage:
    """Queue the stage at the mesh."""

    mesh: MeshId
    spec: StageSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverInput:
    """Give a stage the stored value of a node outside it; None: the value will not come, drop the nodes that need it."""

    stage: StageId
    node: NodeId
    value: StoredValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelStage:
    """Stop the stage."""

    stage: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Stop one node of a running stage; the others go on."""

    stage: StageId
    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class DropValue:
    """Delete a stored checkpoint that no attempt will read. Nothing else of the run has the same bytes."""

    value: StoredValue


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCached:
    """Give the value of a node to the cache, and end the node's claim on its key."""

    key: str
    node: NodeId
    value: StoredValue
    ttl_ms: int
    took_ms: int  #: Run time that a hit saves.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCached:
    """End the claim of a node that has not computed its value; the next node with the key computes it."""

    key: str
    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRun:
    """Remove the stages, values and intermediate files of an ended run everywhere."""

    meshes: tuple[MeshId, ...]
    uris: tuple[str, ...] = ()  #: Files of values that are not outputs.
    keep: tuple[str, ...] = ()  #: Hashes of the stored values that outlive the run: outputs, pickled exceptions.


Decision = SendStage | DeliverInput | CancelStage | StopNode | DropValue | KeepCached | ReleaseCached | ForgetRun


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAgain:
    """Stored form of a `SendStage`: the run machine makes the same one of it, as long as no later step is committed."""

    stage: StageId
    preemption: PreemptionPolicy


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """The whole state of a run; any coordinator can continue from it."""

    run: RunId
    tenant: TenantPath
    user: str = ""  #: Submitter for limits per user: a name, or the id of the API key.
    labels: Mapping[str, str] = field(default_factory=dict)  #: Labels by which people find the run.
    digest: str  #: SHA-256 of the canonical spec; the same id with another digest is a conflict.
    spec: bytes  #: The submitted graph as `dag.spec.spec.kept_form` returns it.
    growths: tuple[Growth, ...] = ()  #: Nodes that functions have returned, in the order in which they were added.
    state: RunState = RunState.PENDING
    version: int = 0
    seq: int = 0  #: Number of the last event.
    created_ms: int = 0
    resumed_ms: int = 0  #: When it was resumed last; 0: never.
    ended_ms: int = 0
    forget_ms: int = 0  #: When the values of a run without success are deleted, since the epoch; 0: at its end.
    forgotten: bool = False  #: The values that are no outputs were deleted after the end of the run.
    is_removing: bool = False  #: Somebody removes the run with its files: it is never resumed.
    reason: Reason | None = None
    detail: str = ""
    last_entry: str = ""  #: Last inbox entry that was committed; earlier ones are skipped.
    nodes: NodeTable = field(default_factory=NodeTable)
    stages: dict[StageId, StageRecord] = field(default_factory=dict)
    outbox: tuple[Decision | SendAgain, ...] = ()  #: Decisions of the last commit, which may not be carried out yet.
    key: str = ""  #: Idempotency key of the submission; empty: none.
    traceparent: str = ""  #: Trace context of the client, as it was sent; empty: none.
    expected_ms: Mapping[str, int] = field(default_factory=dict)
    """Run times of its functions as the planner knew them at the last placement, for the estimate of its end."""

    @property
    def began_ms(self) -> int:
        """When the run was submitted, or resumed last."""
        return self.resumed_ms or self.created_ms

    @property
    def trace(self) -> TraceContext:
        """Context of its span, whether or not anybody traces the run."""
        return context_of_run(self.run, created_ms=self.created_ms, began_ms=self.began_ms, traceparent=self.traceparent)


def graph_of(record: RunRecord) -> DagSpec:
    """Return the graph of a run with all nodes that were added to it. Raises SpecError if the stored graph is damaged."""
    return grown(load(record.spec), record.growths)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWork:
    """Work of a stage that a preemption has ended or lost, since its last checkpoint."""

    stage: StageId
    at_ms: int
    resources: Mapping[str, int]  #: Units times milliseconds, by resource.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """Changes of one step of the run machine; committed whole or not at all."""

    nodes: NodeChanges = NO_CHANGES
    stages: tuple[StageRecord, ...] = ()
    events: tuple[LoggedEvents, ...] = ()
    decisions: tuple[Decision, ...] = ()  #: Decisions for the outbox.
    dead: tuple[DeadLetter, ...] = ()  #: Dead letters of nodes that failed for good in this step.
    growths: tuple[Growth, ...] = ()  #: The last ones of the record, which are new.
    lost: tuple[LostWork, ...] = ()  #: For bills.
    expected_ms: Mapping[str, int] | None = None  #: Those that the record has from now on; None: as before.


NOTHING_CHANGED = RunChange()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A line of `schedulemesh runs`."""

    run: RunId
    tenant: TenantPath
    state: RunState  #: As shown: see `run_status.shown_state`.
    created_ms: int
    ended_ms: int
    reason: Reason | None
    detail: str
    counts: dict[str, int]  #: Number of nodes per state.
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    meshes: tuple[MeshId, ...] = ()  #: Meshes that have had a stage of the run, by name.

    @property
    def place(self) -> RunPlace:
        """Place of the run in lists of runs."""
        return RunPlace(self.created_ms, self.run)


class RunPlace(NamedTuple):
    """Place of a run in lists of runs, which have the greatest place first."""

    created_ms: int
    run: str  #: Empty: before every run of that millisecond.


class SignalAnswer(str, Enum):
    """Tells how the store answered a signal."""

    SENT = "SENT"
    REPEATED = "REPEATED"  #: Sent again: this value of the name was sent before.
    CONFLICT = "CONFLICT"  #: Not sent: another value of the name was sent before.
    ENDED = "ENDED"  #: Not sent: the run has ended.


class ScheduleFence(NamedTuple):
    """Condition of a new run: the schedule at this place still has this version."""

    place: str
    version: int


class StaleSchedule(DagError):
    """The schedule of a fence was changed or deleted by another writer, so the run was not created."""


class RunStore(DeadLetters, Protocol):
    """Port of the store for runs. All methods raise StoreUnavailable."""

    def create(self, record: RunRecord, blobs: dict[str, bytes], fence: ScheduleFence | None = None) -> bool:
        """Store a new run with its blobs and put `submitted` into the inbox; False if the id exists with the same digest.

        The record's idempotency key names this run for as long as the run is kept. The check for an existing run comes before the check
        of the fence and of the limits, so a repeat of an accepted submission is never refused.

        Raises:
            StaleSchedule: The schedule of the fence has another version, or is gone.
            RunConflict: The id exists with another digest or tenant.
            KeyConflict: The tenant has used the key for another run, or for another graph.
            BacklogFull: The tenant, or one of its ancestors, has too many open runs.
            StoreFull: The store has hardly any memory left.
        """

    def check_room(self, record: RunRecord, blobs: dict[str, bytes]) -> None:
        """Raise the error that `create` would raise for the limits now. Nothing is stored or reserved.

        Raises:
            BacklogFull: As `create`.
            StoreFull: As `create`.
        """

    def load(self, run: RunId) -> RunRecord | None:
        """Return the whole record."""

    def commit(self, record: RunRecord, change: RunChange) -> bool:
        """Write the change and the record's own fields if the stored version is still `record.version`, and increment the version.

        Return False, and write nothing, if another coordinator committed first, or if the change resumes a run whose end is still being
        carried out or that is being removed. A change that resumes a run makes it active again, drops its dead letters, and puts
        `resumed` into the inbox.

        Raises:
            BacklogFull, StoreFull: As `create`, for a change that resumes a run.
        """

    def summary(self, run: RunId) -> RunSummary | None:
        """Return a summary of the run."""

    def summaries(self, runs: Sequence[RunId]) -> tuple[RunSummary | None, ...]:
        """Return a summary of each run; None: there is no such run."""

    def list(
        self, tenant: TenantPath, limit: int = 50, labels: Mapping[str, str] = NO_LABELS, *, below: RunPlace | None = None
    ) -> tuple[RunSummary, ...]:
        """Return runs of the tenant and of its descendants that have all these labels, newest first.

        Fewer than `limit` runs are the end of the list.

        Args:
            below: Only runs with a smaller place: those that follow in the list.
        """

    def active(self) -> tuple[RunId, ...]:
        """Return the runs that have not ended or are not settled."""

    def settle(self, run: RunId) -> bool:
        """Mark an ended run as settled, after its last decisions are carried out. Return True the first time."""

    def events(self, run: RunId, after: int = 0, limit: int = 1000) -> tuple[RunEvent, ...]:
        """Return the events with a greater sequence number, oldest first."""

    def to_forget(self, now_ms: int, limit: int = 100) -> tuple[RunId, ...]:
        """Return ended runs whose `forget_ms` has come, the earliest first."""

    def note_forgotten(self, run: RunId) -> None:
        """Record that the values of the run are deleted, or that it was resumed: `to_forget` does not return it again."""

    def request_cancel(self, run: RunId, reason: str, *, also_cleanup: bool = False) -> None:
        """Put `cancel` into the inbox, or `cancel_all` to stop the cleanup too; no effect on an ended run.

        Raises:
            UnknownRun: There is no such run.
        """

    def send_signal(self, run: RunId, signal: SignalSent, data: bytes) -> SignalAnswer:
        """Keep the bytes of the signal's value with the run and put `signal` into the inbox. The first value of a name counts.

        Raises:
            UnknownRun: There is no such run.
        """

    def retire(self, before_ms: int, limit: int = 100) -> tuple[tuple[RunId, str], ...]:
        """Remove the oldest runs that ended before `before_ms` (milliseconds since the epoch), `limit` at most, with all their data.

        Return the files of their values, each with its run. The caller deletes these files.
        """

    def remove(self, run: RunId) -> bool:
        """Remove an ended run with all its data; False, and no effect, if it goes on, is not settled, or is gone."""
