"""Capacity held for tasks that have not started: for tasks that waited too long, and for a job's workers while its leader starts.

Node resources are held as promises, quota under a name of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mesh.core.ids import JobId, NodeName, PoolName, TaskId
from mesh.core.nodes import NodeTable, Units
from mesh.core.pools import PoolLedger
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.tasks.events import PlacementsReserved, ReservedPlacement
from mesh.tasks.queues import LabelQueues
from mesh.tasks.records import JobReservation, NodeReservation


class ReservationLedger(Mapping[PoolName, NodeReservation]):
    """Owner of the reservations for tasks that waited too long, read as a mapping by pool: one per pool."""

    def __init__(self, table: NodeTable, pools: PoolLedger) -> None:
        self._table = table
        self._pools = pools
        self._reservations: dict[PoolName, NodeReservation] = {}
        self._opened: dict[PoolName, NodeReservation] = {}

    def __getitem__(self, pool: PoolName) -> NodeReservation:
        return self._reservations[pool]

    def __iter__(self) -> Iterator[PoolName]:
        return iter(self._reservations)

    def __len__(self) -> int:
        return len(self._reservations)

    @property
    def opened(self) -> Mapping[PoolName, NodeReservation]:
        """Reservations before the current pass; empty between passes."""
        return self._opened

    def open(self) -> Sequence[NodeReservation]:
        """Release all reservations, to be reserved again during the pass. Return the released ones."""
        for reservation in self._reservations.values():
            for node, vector in reservation.rows:
                if node in self._table:
                    self._table.withdraw(self._table.row(node), self._table.widened(vector), _holder_of(reservation))
            self._pools.release(_holder_of(reservation))
        self._opened, self._reservations = self._reservations, {}
        return tuple(self._opened.values())

    def close(self) -> bool:
        """End the pass. Return True when a reservation was not reserved again."""
        has_lapsed = any(pool not in self._reservations for pool in self._opened)
        self._opened = {}
        return has_lapsed

    def reserve(self, task: TaskId, pool: PoolName, since_ms: int, places: Sequence[tuple[int, Units]], quota: ResourceSet) -> int:
        """Promise to the head what is free of its places. Return how many places are incomplete.

        Args:
            places: Row and amounts of each place.
            quota: Amounts that it needs of the pool.
        """
        reservation = NodeReservation(task=task, pool=pool, since_ms=since_ms)
        lacking, free = 0, self._pools.pool(pool).free
        for row, vector in places:
            held = np.minimum(vector, self._table.free(slice(row, row + 1))[0])
            lacking += not self._table.fits(row, vector)
            if held.any():
                self._table.promise(row, held, _holder_of(reservation), in_parts=True)
                reservation.rows.append((self._table.name(row), held))
        for row, vector in places:
            name = self._table.name(row)
            reservation.needs[name] = reservation.needs.get(name, NOTHING) + self._table.amounts(vector)
        self._hold_quota(reservation, ResourceSet({name: min(amount, free[name]) for name, amount in quota.items()}))
        self._reservations[pool] = reservation
        return lacking

    def lend(self, pool: PoolName, row: int, amounts: ResourceSet) -> None:
        """Open enough of the reservation for a task on this row. The rest is reserved again when the pass next reaches the head."""
        reservation = self._reservations[pool]
        name, wanted = self._table.name(row), self._table.vector(amounts)
        kept = []
        for node, held in reservation.rows:
            if node == name:
                self._table.withdraw(row, self._table.widened(held), _holder_of(reservation))
            else:
                kept.append((node, held))
        free = self._table.free(slice(row, row + 1))[0]
        held = np.maximum(np.minimum(self._table.vector(reservation.needs.get(name, NOTHING)), free - wanted), 0)
        if held.any():
            self._table.promise(row, held, _holder_of(reservation), in_parts=True)
            kept.append((name, held))
        reservation.rows = kept
        self._pools.release(_holder_of(reservation))
        free_quota = self._pools.pool(pool).free
        self._hold_quota(
            reservation, ResourceSet({n: max(0, min(amount, free_quota[n] - amounts[n])) for n, amount in reservation.quota.items()})
        )

    def forget_node(self, node: NodeName) -> None:
        """Drop what was held on a node that has left."""
        for reservation in self._reservations.values():
            reservation.rows = [(kept, vector) for kept, vector in reservation.rows if kept != node]

    def restore(self, reservation: NodeReservation) -> None:
        """Add the reservation of a snapshot, with its promises; the pools restore its quota."""
        self._reservations[reservation.pool] = reservation
        for node, vector in reservation.rows:
            if node in self._table:
                self._table.queue_for(self._table.row(node), vector, _holder_of(reservation), in_parts=True)

    def held_rows(self) -> Iterator[tuple[NodeName, Units]]:
        """Yield the promises of node resources."""
        for reservation in self._reservations.values():
            yield from reservation.rows

    def holders(self) -> Iterator[str]:
        """Yield the names under which the pools hold quota."""
        yield from map(_holder_of, self._reservations.values())

    def check(self, queues: LabelQueues) -> Iterator[str]:
        """Yield a message per broken invariant."""
        for pool, reservation in self._reservations.items():
            if reservation.task not in queues:
                yield f"pool {pool} has a reservation for {reservation.task}, which is not queued"
            held = self._pools.held_by(_holder_of(reservation))
            if held != reservation.quota:
                yield f"pool {pool} holds {held} for {reservation.task}, expected {reservation.quota}"
        if self._opened:
            yield f"reservations are open outside a pass: {sorted(self._opened)}"

    def _hold_quota(self, reservation: NodeReservation, quota: ResourceSet) -> None:
        reservation.quota = quota
        if quota:
            self._pools.reserve(reservation.pool, _holder_of(reservation), quota)


class JobReservationLedger(Mapping[JobId, JobReservation]):
    """Owner of the reservations for a job's workers while its leader starts, read as a mapping by job.

    The workers are submitted once the leader's address is known, so they are not tasks yet. Until then node resources and quota are held
    under the job's name, each place completely or not at all. A reservation ends when the worker's task is submitted, when the job
    releases it, or at `until_ms`. A leader that does not start therefore blocks other tasks no longer than that.
    """

    def __init__(self, table: NodeTable, pools: PoolLedger) -> None:
        self._table = table
        self._pools = pools
        self._reservations: dict[JobId, JobReservation] = {}

    def __getitem__(self, job: JobId) -> JobReservation:
        return self._reservations[job]

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._reservations)

    def __len__(self) -> int:
        return len(self._reservations)

    def replace(self, event: PlacementsReserved) -> bool:
        """Replace the job's reservations by these. Return True when places were released before."""
        before = self._reservations.pop(event.job, None)
        for place in before.kept if before is not None else ():
            self._release(event.job, place)
        if event.places:
            kept = JobReservation(job=event.job, pool=event.pool, wanted=event.places, until_ms=event.until_ms, attempt=event.attempt)
            self._reservations[event.job] = kept
            kept.kept = tuple(place for place in event.places if event.until_ms > event.at_ms and self._hold(kept, place))
        return before is not None and bool(before.kept)

    def use(self, request: TaskRequest) -> bool:
        """Release the reservation for the submitted worker. Return True when there was one, so that the task is placed at once."""
        kept = self._reservations.get(request.job) if request.job is not None else None
        if kept is None:
            return False
        there = [place for place in kept.kept if request.task.startswith(place.prefix) and place.node == request.node]
        kept.wanted = tuple(place for place in kept.wanted if not request.task.startswith(place.prefix))
        kept.kept = tuple(place for place in kept.kept if place not in there)
        for place in there:
            self._release(kept.job, place)
        return bool(there)

    def end_overdue(self, now_ms: int) -> None:
        """Release reservations whose leader has not started in time."""
        for kept in self._reservations.values():
            if kept.kept and now_ms >= kept.until_ms:
                for place in kept.kept:
                    self._release(kept.job, place)
                kept.kept = ()

    def forget_node(self, node: NodeName) -> None:
        """Drop reservations on a node that has left, and release their quota."""
        for kept in self._reservations.values():
            for place in kept.kept:
                if place.node == node:
                    self._pools.release(_place_holder(kept.job, place))
            kept.kept = tuple(place for place in kept.kept if place.node != node)

    def restore(self, kept: JobReservation) -> None:
        """Add the reservation of a snapshot, with its promises; the pools restore its quota."""
        self._reservations[kept.job] = kept
        for place in kept.kept:
            self._table.queue_for(self._table.row(place.node), self._table.vector(place.resources), _place_holder(kept.job, place))

    def held_rows(self) -> Iterator[tuple[NodeName, Units]]:
        """Yield the promises of node resources."""
        for kept in self._reservations.values():
            yield from ((place.node, self._table.vector(place.resources)) for place in kept.kept)

    def holders(self) -> Iterator[str]:
        """Yield the names under which the pools hold quota."""
        for kept in self._reservations.values():
            yield from (_place_holder(kept.job, place) for place in kept.kept)

    def _hold(self, kept: JobReservation, place: ReservedPlacement) -> bool:
        pool = self._pools.pools.get(kept.pool)
        if pool is None or place.node not in self._table or not pool.fits(place.resources):
            return False
        row, vector = self._table.row(place.node), self._table.vector(place.resources)
        if not self._table.fits(row, vector):
            return False
        self._pools.reserve(kept.pool, _place_holder(kept.job, place), place.resources)
        self._table.promise(row, vector, _place_holder(kept.job, place))
        return True

    def _release(self, job: JobId, place: ReservedPlacement) -> None:
        self._pools.release(_place_holder(job, place))
        if place.node in self._table:
            self._table.withdraw(self._table.row(place.node), self._table.vector(place.resources), _place_holder(job, place))


def _holder_of(reservation: NodeReservation) -> str:
    """Return the name under which the pool's ledger holds the reserved quota."""
    return f"hold:{reservation.task}:waits"


def _place_holder(job: JobId, place: ReservedPlacement) -> str:
    """Return the name under which the pool's ledger holds the quota of a job's place."""
    return f"place:{job}:{place.prefix}"
