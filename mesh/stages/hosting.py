"""Port to a host that runs stages on a mesh: Ray in production, plain calls in tests and simulation.

Work may outlive the mesh process that started it. So a host keeps that process's note on each stage, and every report until
it is confirmed. A new process of the mesh finds the stages and continues them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mesh.core.ids import GroupId, NodeId, NodeName, PoolName, RunId, StageId
from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.shapes import GroupPoolSpec
from mesh.core.task_spec import NO_LABELS
from mesh.core.values import StoredValue
from mesh.stages.messages import NodeOutput, StageMessage
from mesh.stages.spec import StageSpec

#: A stored value as delivered: its location, and its bytes when they came through the control store. None: the value will
#: never arrive.
Delivered = tuple[StoredValue, bytes | None] | None

#: Number of the final report of a stage, above all other numbers: no report follows, whatever was reported before.
LAST_WORD = 2**31


#: No node is preferred.
ANY_NODE = NodeName("")
#: A stage without a pool of its own.
NO_POOL = PoolName("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Nodes for the slots of a stage."""

    nodes: tuple[NodeName, ...] = ()  #: Preferred node of each slot in no reserved group, or of each bundle, gang after gang; empty: any.
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)  #: Selector on the labels that each node must have.
    pool: PoolName = NO_POOL  #: Pool whose layers of groups apply; empty: the defaults.
    groups: Mapping[GroupId, NodeName] = field(default_factory=dict)  #: Reserved groups, a slot each, with their nodes.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedGroup:
    """Reserved group of a pool: one slot, which the host makes in advance."""

    group: GroupId
    pool: PoolName
    slot: ResourceSet
    node: NodeName = ANY_NODE  #: Preferred node; empty: any.
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)  #: Selector on the labels of its node.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayers:
    """Placement groups that a host keeps beside those of its stages."""

    reserved: tuple[ReservedGroup, ...] = ()  #: Made at once, and again when they are lost.
    pools: Mapping[PoolName, GroupPoolSpec] = field(default_factory=dict)  #: Bounds of the groups that are made on demand.


#: Most parts in which a host takes the slots of one start or growth; each part comes and goes as a whole.
PARTS_MAX = 64


def parts_of(slots: int) -> list[int]:
    """Return the slots of each part, in the order in which they are reclaimed; the last one has the rest."""
    size = max(1, -(-slots // PARTS_MAX))
    count = max(1, slots // size)
    return [*([size] * (count - 1)), slots - size * (count - 1)]


def slots_left(slots: int, gives: int) -> int:
    """Return how many slots a stage keeps that gives back this many; none if that would be less than a part."""
    left = slots - gives
    return left if left >= -(-slots // PARTS_MAX) else 0


#: Any node of the mesh.
ANYWHERE = Places()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """Report of a host on one stage, with the bytes of the small values that belong to it."""

    stage: StageId
    number: int  #: Counts up from 1 for each stage. A repeated report keeps its number.
    messages: tuple[StageMessage, ...]
    blobs: dict[str, bytes] = field(default_factory=dict)  #: By SHA-256; store them before the messages are passed on.
    output: tuple[NodeOutput, ...] = ()  #: For the run's log; printed before the messages were sent.


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStage:
    """Stage that a host got and has not forgotten: it still runs, or has reports that are not confirmed."""

    stage: StageId
    note: bytes  #: The `note` given to `StageHost.start`.
    holder: int  #: The token that `StageHost.start` returned.
    is_cancelled: bool = False  #: Its cancellation was requested.
    left: tuple[NodeId, ...] | None = None  #: Its tasks that have not ended; None: unknown, as when all have.


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStages:
    """All stages that an earlier process of the mesh left."""

    incarnation: int  #: Last renewed session.
    since: int  #: First session of the unbroken chain: see `mesh.stages.lease_deadline.Renewal`.
    stages: tuple[HeldStage, ...]


class StageHost(Protocol):
    """Runs stages and reports on them through the callback that it was built with. All methods but `find` return at once."""

    def start(
        self,
        spec: StageSpec,
        slots: int,
        token: int,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, Delivered],
        note: bytes = b"",
        places: Places = ANYWHERE,
    ) -> int:
        """Run the stage on `slots` slots. Return the holder of its values: a token that names the runner. `find` returns `note`."""

    def grow(self, stage: StageId, slots: int, note: bytes, places: Places = ANYWHERE) -> None:
        """Give a running stage so many more slots; `StageResized` follows once they are placed. Harmless when the stage is over.

        Args:
            slots: 0: only the note changes.
            note: Replaces the note given to `start`.
            places: Nodes for these slots.
        """

    def keep_groups(self, layers: GroupLayers) -> None:
        """Keep these placement groups from now on, until `stop_all` for now; the next session has them again."""

    def shrink(self, stage: StageId, slots: int, *, at_once: bool = False) -> None:
        """Take slots from a running stage until `slots` are left, at least one: idle ones first. Harmless when the stage is over.

        A slot is given back when its task has ended; `StageResized` follows.

        Args:
            at_once: Interrupt these tasks, which fail with QUOTA_RECLAIMED; those that began last first.
        """

    def deliver(self, stage: StageId, node: NodeId, value: Delivered) -> None:
        """Deliver an input from outside; None: it will not come. Harmless when the stage is over, or has the input already.

        None for a task of the stage itself stops that task, and drops those behind it.
        """

    def cancel(self, stage: StageId) -> None:
        """Stop the stage and its running tasks; its `StageEnded` follows. Harmless when the stage is over."""

    def confirm(self, stage: StageId, number: int) -> None:
        """Drop the stage's reports up to this number: the root has stored them."""

    def forget(self, run: RunId) -> None:
        """Drop all values of the run."""

    def held(self) -> dict[RunId, StageId]:
        """Return the runs whose values may be kept, found stages included, each with one of its stages."""

    def is_ready(self) -> bool:
        """Return whether the host can start stages now. May block for half a second."""

    def nodes(self) -> tuple[NodeSeen, ...]:
        """Return the nodes of the mesh as last listed; empty: not known yet.

        What the mesh's own placement groups hold counts as available.
        """

    def stop_all(self) -> None:
        """Stop all stages at once, found ones too, without reports: the leases that paid for them are gone."""

    def read_clock(self) -> None:
        """Have the watchdogs read their clocks: the ledger is about to be asked to renew the session."""

    def extend_deadline(self, incarnation: int, stop_after_ms: int, kill_after_ms: int, since: int) -> None:
        """Extend the work's deadline after a renewal; both times count from the last `read_clock`. See `mesh.stages.lease_deadline`."""

    def leave(self, incarnation: int) -> None:
        """End the session in good order, and stop watching its work."""

    def find(self) -> FoundStages | None:
        """Find the stages that an earlier process of this mesh left. None: nothing was left, or a part did not answer and all was stopped.

        Blocks for some seconds at most.
        """

    def go_on(self, stages: frozenset[StageId]) -> None:
        """Report on these of the found stages, beginning with the unconfirmed reports, and stop the others."""
