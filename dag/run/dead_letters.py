"""Dead letters: nodes that failed for good, kept for an operator to inspect, requeue or drop.

The commit that fails the node also writes its dead letter, in the same script. The dead letter goes with its run at the end of
retention, when the run is requeued, or when an operator drops it.

Source: ADR 0022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason

#: Limit on the characters of an error in a dead letter; the run has the whole error.
MESSAGE_CHARS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A node that failed for good."""

    run: RunId
    node: NodeId
    tenant: TenantPath
    stage: StageId | None  #: The last stage of the node.
    mesh: MeshId | None
    reason: Reason
    type_name: str
    message: str
    attempts: int
    retries_used: int  #: Attempts lost to the node's own errors.
    losses: int  #: Attempts lost with meshes and runners.
    kills: int  #: Workers that died while they ran the node.
    at_ms: int  #: Time of the failure, in milliseconds since the epoch.

    @property
    def letter(self) -> str:
        """Name of the dead letter: `<run>:<node>`. Run ids contain no colon."""
        return f"{self.run}:{self.node}"


def parted(letter: str) -> tuple[RunId, NodeId]:
    """Split the name of a dead letter into run and node."""
    run, _, node = letter.partition(":")
    return RunId(run), NodeId(node)


class DeadLetters(Protocol):
    """Port for dead letters. The store of the runs implements it, because both are written together. All raise StoreUnavailable."""

    def dead(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """Return the dead letters, the latest first."""

    def dead_letter(self, letter: str) -> DeadLetter | None:
        """Return the dead letter of this name."""

    def drop_dead(self, letters: tuple[str, ...]) -> int:
        """Remove dead letters and return their number."""
