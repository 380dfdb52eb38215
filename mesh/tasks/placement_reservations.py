"""Reservations for the workers of a job while its leader starts.

The workers are submitted once the leader's address is known, so they are not tasks yet. Until then node resources and quota are held
under the job's name, each place completely or not at all. A reservation ends when the worker's task is submitted, when the job releases
it, or at `until_ms`. A leader that does not start therefore blocks other tasks no longer than that.
"""

from __future__ import annotations

from mesh.core.ids import JobId, NodeName
from mesh.tasks.events import PlacementsReserved, ReservedPlacement
from mesh.tasks.records import JobReservation, TaskRecord
from mesh.tasks.state import MeshState


def reserve_placements(state: MeshState, event: PlacementsReserved) -> None:
    """Replace the job's reservations by these."""
    before = state.job_reservations.pop(event.job, None)
    for place in before.kept if before is not None else ():
        _let_go(state, event.job, place)
    if event.places:
        kept = JobReservation(job=event.job, pool=event.pool, wanted=event.places, until_ms=event.until_ms, attempt=event.attempt)
        state.job_reservations[event.job] = kept
        kept.kept = tuple(place for place in event.places if event.until_ms > event.at_ms and _hold(state, kept, place))
    if before is not None and before.kept:
        state.room_came()


def use_reservation(state: MeshState, record: TaskRecord) -> bool:
    """Release the reservation for the submitted worker. Return True when there was one, so that the task is placed at once."""
    request = record.request
    kept = state.job_reservations.get(request.job) if request.job is not None else None
    if kept is None:
        return False
    there = [place for place in kept.kept if request.task.startswith(place.prefix) and place.node == request.node]
    kept.wanted = tuple(place for place in kept.wanted if not request.task.startswith(place.prefix))
    kept.kept = tuple(place for place in kept.kept if place not in there)
    for place in there:
        _let_go(state, kept.job, place)
    return bool(there)


def end_overdue_reservations(state: MeshState) -> None:
    """Release reservations whose leader has not started in time."""
    for kept in state.job_reservations.values():
        if kept.kept and state.now_ms >= kept.until_ms:
            for place in kept.kept:
                _let_go(state, kept.job, place)
            kept.kept = ()


def forget_reservations_on(state: MeshState, node: NodeName) -> None:
    """Drop reservations on a node that has left, and release their quota."""
    for kept in state.job_reservations.values():
        for place in kept.kept:
            if place.node == node:
                state.pools.release(reservation_holder(kept.job, place))
        kept.kept = tuple(place for place in kept.kept if place.node != node)


def reservation_holder(job: JobId, place: ReservedPlacement) -> str:
    """Return the name under which the pool's ledger holds the quota of a reservation."""
    return f"place:{job}:{place.prefix}"


def _hold(state: MeshState, kept: JobReservation, place: ReservedPlacement) -> bool:
    pool = state.pools.pools.get(kept.pool)
    if pool is None or place.node not in state.table or not pool.fits(place.resources):
        return False
    row, vector = state.table.row(place.node), state.table.vector(place.resources)
    if (state.table.left[row] < vector)[vector > 0].any():
        return False
    state.pools.reserve(kept.pool, reservation_holder(kept.job, place), place.resources)
    state.table.promise(row, vector)
    return True


def _let_go(state: MeshState, job: JobId, place: ReservedPlacement) -> None:
    state.pools.release(reservation_holder(job, place))
    if place.node in state.table:
        state.table.withdraw(state.table.row(place.node), state.table.vector(place.resources))
