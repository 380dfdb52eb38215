"""Workloads: stages as admission knows them, from the queue to their end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mesh.core.ids import PoolName, StageId
from mesh.core.reasons import Reason
from mesh.stages.admission_events import WorkloadOffered
from mesh.stages.admission_kinds import Kind, KindKey, Turn
from mesh.stages.hosting import NO_POOL
from mesh.stages.stage_settings import NO_QUEUE, QueueRules

#: Added to the arrival of a workload that grows: queued workloads of its priority come before it.
_GROWS_LATER = 1 << 40
#: Ends the name under which pool and nodes hold room for a growth.
_GROWTH = "+"


class WorkloadState(str, Enum):
    """State of a workload on this mesh."""

    QUEUED = "QUEUED"
    """Waits for room or a lease."""
    GATHERING = "GATHERING"
    """Its victims are stopping; room that comes free in its pool is reserved for it, up to one slot."""
    RESERVED = "RESERVED"
    """Room is reserved for it, and its lease is requested."""
    RUNNING = "RUNNING"
    """Started."""


@dataclass(slots=True, kw_only=True)
class Workload:
    """A workload that this mesh knows."""

    offer: WorkloadOffered
    arrival: int  #: Counts up; breaks ties of priority.
    kind: Kind  #: Its refusals hold for this workload.
    rules: QueueRules = NO_QUEUE  #: Rules of its queue.
    state: WorkloadState = WorkloadState.QUEUED
    pool: PoolName | None = None  #: Pool of its room, from GATHERING on.
    victims: frozenset[StageId] = frozenset()  #: Only while GATHERING.
    until_ms: int = 0  #: While GATHERING: end of the reservation; no decision here reads it.
    reported: tuple[Reason, str] | None = None  #: Last reported reason for its wait.
    slots: int = 0  #: While RUNNING.
    useful: int = 0  #: While RUNNING: the most slots that it can use.
    growth: Kind | None = None  #: Where it waits for more slots.
    asked: int = 0  #: Further slots for which its lease is requested.
    delayed: str = ""  #: Why it preempts nothing for the moment; empty: nothing delays it.

    @property
    def refused_by(self) -> dict[PoolName, tuple[Reason, str]]:
        """Pools that have refused its kind since room last came, with the reasons."""
        return self.kind.refused_by

    @property
    def key(self) -> KindKey:
        """Key of its kind."""
        return self.offer.tenant, self.offer.shape, NO_POOL, self.kind.reserves

    @property
    def growth_key(self) -> KindKey:
        """Key of the kind in which it grows."""
        return self.offer.tenant, self.offer.shape, self.pool or NO_POOL, self.kind.reserves

    @property
    def growth_turn(self) -> Turn:
        """Position among those that want slots, while it runs. It waits no more, so it has not aged."""
        return self.rules.key(self.offer.priority, 0), _GROWS_LATER + self.arrival, self.offer.workload

    @property
    def turn(self) -> Turn:
        """Position in the queue."""
        return self.rules.key(self.offer.priority, self.offer.queued_ms), self.arrival, self.offer.workload


def growth_of(stage: StageId) -> StageId:
    """Return the name under which pool and nodes hold room for further slots of the stage."""
    return StageId(f"{stage}{_GROWTH}")


def stage_of(holder: str) -> StageId:
    """Return the stage that holds room under this name, its own or that of its growth."""
    return StageId(holder.removesuffix(_GROWTH))
