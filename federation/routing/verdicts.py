"""What one mesh says to a piece of work: it could start there now, it would wait there, or it is refused, each with a reason."""

from dataclasses import dataclass

from mesh.ids import FlavorName, MeshId, PoolName
from mesh.reasons import Reason

#: Verdicts under which the mesh accepts the work, which then waits there.
WAITS_THERE = frozenset({Reason.QUOTA_EXHAUSTED, Reason.CAPACITY_BUSY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one mesh says to a demand."""

    mesh: MeshId
    reason: Reason | None  #: None: it could start now. One of `WAITS_THERE`: accepted, and would wait. Any other: refused.
    detail: str  #: In words.
    pool: PoolName | None = None  #: The pool that would take the work, when the mesh accepts it.
    flavor: FlavorName | None = None
    room: int = 0  #: How many slots could be granted there now, by quota and capacity.
    idle: int = 0  #: How many slots there is room for in the pool now, whoever's quota it is.
    wait_ms: int = 0  #: How long the work would wait there, about; of an unsteady mesh: how long until it is asked again.
    transfer_ms: int = 0  #: How long inputs that lie elsewhere would be on the way there, about; of meshes that accept.

    @property
    def accepts(self) -> bool:
        """Whether the work may go there: at once, or to wait there."""
        return self.reason is None or self.reason in WAITS_THERE
