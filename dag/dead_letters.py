"""Dead letters: nodes that failed for good, kept for an operator to look at, to run again, or to drop.

A letter is written with the commit that fails the node, in the same script, and goes with its run: by retention, when the run
is submitted again, or when somebody drops it.

Source: references of the protocol §5 (fail, poison); ADR 0022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mesh.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.reasons import Reason

#: Characters of an error that a letter carries; the whole story is with the run.
MESSAGE_CHARS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A node that failed for good."""

    run: RunId
    node: NodeId
    tenant: TenantPath
    stage: StageId | None  #: The last that it was part of.
    mesh: MeshId | None
    reason: Reason
    type_name: str
    message: str
    attempts: int
    retries_used: int  #: Attempts that its own errors have cost.
    losses: int  #: Attempts that lost meshes and runners have cost.
    kills: int  #: Workers that died under it.
    at_ms: int  #: When it failed, since the epoch.

    @property
    def letter(self) -> str:
        """Its name: `<run>:<node>`. Ids of runs have no colon."""
        return f"{self.run}:{self.node}"


def parted(letter: str) -> tuple[RunId, NodeId]:
    """Run and node of a letter's name."""
    run, _, node = letter.partition(":")
    return RunId(run), NodeId(node)


class DeadLetters(Protocol):
    """The port; whoever keeps runs keeps these, for they are written with the run. Raises (all): StoreUnavailable."""

    def dead(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """The letters, the latest first."""

    def dead_letter(self, letter: str) -> DeadLetter | None:
        """The letter of this name."""

    def drop_dead(self, letters: tuple[str, ...]) -> int:
        """Take letters away; how many there were."""
