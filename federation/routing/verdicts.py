"""Verdict of one mesh on a request: it could start there now, it would wait there, or it is refused, each with a reason."""

from dataclasses import dataclass

from mesh.core.ids import FlavorName, MeshId, PoolName
from mesh.core.reasons import PASSING, Reason

#: Reasons with which the mesh accepts the work, which then waits there.
WAITS_THERE = frozenset({Reason.QUOTA_EXHAUSTED, Reason.POOL_BUSY})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshVerdict:
    """Verdict of one mesh on a request."""

    mesh: MeshId
    reason: Reason | None  #: None: it could start now. One of `WAITS_THERE`: accepted, and would wait. Any other: refused.
    detail: str  #: The reason in words.
    pool: PoolName | None = None  #: The pool for the work, if the mesh accepts it.
    flavor: FlavorName | None = None
    grantable_slots: int = 0  #: Slots that could start there now, by quota and by room in the pool.
    free_slots: int = 0  #: Slots for which the pool has room now, whatever the quota.
    wait_ms: int = 0  #: Estimated wait there; on probation: the time until the mesh is considered again.
    transfer_ms: int = 0  #: Estimated transfer time of inputs that lie elsewhere, if the mesh accepts.

    @property
    def accepts(self) -> bool:
        """The work may go there, to start at once or to wait."""
        return self.reason is None or self.reason in WAITS_THERE

    @property
    def could_accept(self) -> bool:
        """The mesh accepts the work, or could accept it later although neither the work nor the configuration changes."""
        return self.reason is None or self.reason in PASSING
