"""Port for the logs of runs: what the nodes of a run print, from all meshes, bounded.

A log belongs to its run and is deleted with it. It keeps the first lines of each node and of the whole run, and the last lines of the
run; lines between are dropped when there is no room. Line numbers show what is missing. No decision reads a log, so a mesh that cannot
write to it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from federation.dispatch import Claim
from mesh.core.ids import MeshId, RunId
from mesh.stages.messages import NodeOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """Bounds of the log of a run; bytes of encoded output."""

    node_first_bytes: int = 32 << 10  #: First output of each attempt of a node, which later output of others does not push out.
    first_bytes: int = 1 << 20  #: All such first output together.
    last_bytes: int = 1 << 20  #: Last output of the run, beside the first.
    nodes_max: int = 10_000  #: Most attempts whose first output is counted; that of others counts as last output.


LOG_LIMITS = LogLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """Lines of one node in the log of a run."""

    seq: int  #: Counts up from 1; dropped entries leave gaps.
    mesh: MeshId  #: Where the node ran.
    output: NodeOutput


class RunLog(Protocol):
    """Logs of runs. All methods raise StoreUnavailable."""

    def append(self, claim: Claim, batch: int, output: tuple[NodeOutput, ...]) -> None:
        """Append output of the claim's stage to the log of its run. Safe to repeat.

        Args:
            batch: Counts up per claim; a batch that is not above the last one is ignored.

        Raises:
            StaleFence: The mesh does not hold the claim, or output is of another stage.
            BatchTooLarge: More output than a call may have.
        """

    def read(self, run: RunId, after: int = 0, limit: int = 200) -> tuple[LogEntry, ...]:
        """Return the entries with a greater number than `after`, oldest first; none of a run that is unknown."""
