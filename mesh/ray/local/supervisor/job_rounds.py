"""Joint placement of all job members that wait for a place; results become events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mesh.core.random_stream import RandomStream
from mesh.jobs.events import MembersAllocated
from mesh.jobs.members import member_task
from mesh.jobs.room import PoolRoom
from mesh.jobs.scheduler import allocate
from mesh.jobs.snapshots import Allocation, JobSnapshot
from mesh.jobs.states import ScheduleState
from mesh.policies.policy import Policy
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.tasks.records import JobReservation


class JobRounds:
    """Placement rounds over the loop's state. Does not change the state.

    Args:
        policy_of: Returns a policy by its name.
        may_grow: Whether nodes may be added (`JobSettings.may_grow`).
    """

    def __init__(self, loop: ControlLoop, policy_of: Callable[[str], Policy], random_stream: RandomStream, *, may_grow: bool) -> None:
        self._loop = loop
        self._policy_of = policy_of
        self._random_stream = random_stream
        self._may_grow = may_grow
        self.last_ms = 0  #: Time of the last round, on the mesh's clock.

    def needs_places(self) -> bool:
        """Return whether a member waits for a place."""
        return any(snapshot.unplaced for snapshot in self._loop.jobs.snapshot())

    def run(self) -> Iterator[MembersAllocated]:
        """Run one round; yield new allocations, job by job. The caller may apply each event before it asks for the next."""
        self.last_ms = self._loop.clock.now_ms()
        state = self._loop.scheduler.state
        pools = {
            name: PoolRoom(capacity=pool.capacity, free=pool.free, selector=dict(pool.spec.selector))
            for name, pool in state.pools.pools.items()
            if not pool.is_closing
        }
        found = allocate(
            [_without_reserved(snapshot, state.job_reservations.get(snapshot.spec.job)) for snapshot in self._loop.jobs.snapshot()],
            state.table,
            draw=self._random_stream.draw,
            policy_of=self._policy_of,
            pools=pools,
            may_grow=self._may_grow,
        )
        for allocation in found:
            if self._is_change(allocation):
                yield MembersAllocated(at_ms=self._loop.clock.now_ms(), allocation=allocation)

    def _is_change(self, found: Allocation) -> bool:
        """Return whether the allocation is new. Rounds run once a second; repeated results would only fill the journal."""
        job = self._loop.jobs.jobs[found.job]
        return (
            bool(found.places)
            or found.schedule_state is ScheduleState.SCHEDULED_FAILED
            or (found.reason is not None and (found.reason, found.detail) != (job.reason, job.detail))
        )


def _without_reserved(job: JobSnapshot, places: JobReservation | None) -> JobSnapshot:
    """Exclude places that the scheduler reserves already, so that they are not reserved twice."""
    if places is None:
        return job
    kept = {place.prefix for place in places.kept}
    unseen = frozenset(member for member in job.unseen if member_task(job.spec.job, member, 0)[:-1] not in kept)
    return replace(job, unseen=unseen)
