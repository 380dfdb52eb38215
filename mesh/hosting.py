"""What runs stages on a mesh, as a port: Ray in production, plain calls in tests and simulation."""

from dataclasses import dataclass, field
from typing import Protocol

from mesh.ids import NodeId, RunId, StageId
from mesh.messages import StageMessage
from mesh.stages import StageSpec
from mesh.values import StoredValue

#: A stored value as it is handed over: where it is, and the bytes themselves when they came through the control store.
#: None instead: the value will not come.
Delivered = tuple[StoredValue, bytes | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """What a host tells about one stage, with the bytes of small values that belong to it."""

    stage: StageId
    messages: tuple[StageMessage, ...]
    blobs: dict[str, bytes] = field(default_factory=dict)  #: By SHA-256; to be kept before the messages are passed on.


class StageHost(Protocol):
    """Runs stages and reports on them through the callback that it was built with. Methods return at once."""

    def start(self, spec: StageSpec, slots: int, token: int, blobs: dict[str, bytes], inputs: dict[NodeId, Delivered]) -> int:
        """Run the stage on `slots` slots; the holder of its values (a token that names the runner)."""

    def deliver(self, stage: StageId, node: NodeId, value: Delivered) -> None:
        """An input from outside. Harmless when the stage is over."""

    def cancel(self, stage: StageId) -> None:
        """Stop it: running tasks too. Its `StageEnded` follows. Harmless when it is over."""

    def forget(self, run: RunId) -> None:
        """Drop all values of the run."""

    def stop_all(self) -> None:
        """Stop everything at once, without reports: the leases that paid for it are gone."""

    def stamp(self) -> None:
        """The ledger is about to be asked to renew the session: watchdogs look at their clocks."""

    def prove(self, incarnation: int, stop_after_ms: int, kill_after_ms: int) -> None:
        """It was renewed: from the last stamp on, work may go on that long by itself. See `mesh.vigil`."""

    def leave(self, incarnation: int) -> None:
        """The session ends in good order, and the watch over its work with it."""
