"""What runs stages on a mesh, as a port: Ray in production, plain calls in tests and simulation.

Work may outlive the process that has ordered it. So a host keeps what that process noted of each stage, and every report until it
is confirmed: a new process of the mesh finds the stages, and goes on with them as if it had been there all along.
"""

from dataclasses import dataclass, field
from typing import Protocol

from mesh.ids import NodeId, RunId, StageId
from mesh.messages import StageMessage
from mesh.stages import StageSpec
from mesh.values import StoredValue

#: A stored value as it is handed over: where it is, and the bytes themselves when they came through the control store.
#: None instead: the value will not come.
Delivered = tuple[StoredValue, bytes | None] | None

#: The number of a report beyond all others: after it nothing comes, whatever was told of the stage before.
LAST_WORD = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """What a host tells about one stage, with the bytes of small values that belong to it."""

    stage: StageId
    number: int  #: Counts up from 1 for each stage. What is told again has the number that it had.
    messages: tuple[StageMessage, ...]
    blobs: dict[str, bytes] = field(default_factory=dict)  #: By SHA-256; to be kept before the messages are passed on.


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStage:
    """A stage that an earlier process of the mesh has started. It runs, or there is something of it that nobody has confirmed."""

    stage: StageId
    note: bytes  #: What was noted of it at its start.
    holder: int  #: As `StageHost.start` has told it.
    is_cancelled: bool = False  #: It was asked to stop.


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStages:
    """What an earlier process of the mesh has left, all of it."""

    incarnation: int  #: Of the session that it proved last.
    since: int  #: The first session of its line: see `mesh.lease_deadline.Renewal`.
    stages: tuple[FoundStage, ...]


class StageHost(Protocol):
    """Runs stages and reports on them through the callback that it was built with. Methods return at once, but for `find`."""

    def start(
        self, spec: StageSpec, slots: int, token: int, blobs: dict[str, bytes], inputs: dict[NodeId, Delivered], note: bytes = b""
    ) -> int:
        """Run the stage on `slots` slots; the holder of its values (a token that names the runner). `note` is for `find`."""

    def deliver(self, stage: StageId, node: NodeId, value: Delivered) -> None:
        """An input from outside. Harmless when the stage is over, or has it."""

    def cancel(self, stage: StageId) -> None:
        """Stop it: running tasks too. Its `StageEnded` follows. Harmless when it is over."""

    def confirm(self, stage: StageId, number: int) -> None:
        """The root knows what was reported of the stage up to this number: it need not be kept any longer."""

    def forget(self, run: RunId) -> None:
        """Drop all values of the run."""

    def held(self) -> dict[RunId, StageId]:
        """The runs of which values may be kept, what was found and goes on included, each with one of the stages that it was given."""

    def is_ready(self) -> bool:
        """Whether what it runs on is there: nothing is to be started otherwise. May wait for half a second."""

    def stop_all(self) -> None:
        """Stop everything at once, without reports: the leases that paid for it are gone. What was found is stopped too."""

    def read_clock(self) -> None:
        """The ledger is about to be asked to renew the session: watchdogs look at their clocks."""

    def extend_deadline(self, incarnation: int, stop_after_ms: int, kill_after_ms: int, since: int) -> None:
        """It was renewed: from the last stamp on, work may go on that long by itself. See `mesh.lease_deadline`."""

    def leave(self, incarnation: int) -> None:
        """The session ends in good order, and the watch over its work with it."""

    def find(self) -> FoundStages | None:
        """Look for what an earlier process of this mesh has left. None: there is nothing, or not all of it answered, and it was stopped.

        Waits some seconds at most.
        """

    def go_on(self, stages: frozenset[StageId]) -> None:
        """Report on these stages of those that were found, beginning with what nobody has confirmed, and stop the others."""
