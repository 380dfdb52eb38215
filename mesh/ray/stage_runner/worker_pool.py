"""Worker actors of a runner: each in the placement group of a slot, reused by the stages that get the group.

A worker holds no resources in Ray: an actor would keep them while its code waits for a child, which would then wait for ever. Its slot is
counted by `SlotWindow`, as for tasks. A worker ends with its group, with its runner, or after a while without a chunk.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import ray
from ray._private.accelerators import get_all_accelerator_resource_names
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.core.ids import MeshId
from mesh.core.resources import ResourceSet
from mesh.ray.placement import SlotGroup
from mesh.ray.worker.chunk_calls import WorkerSite
from mesh.ray.worker.node_worker import Worker

#: Time that a worker waits for another chunk; seconds. As long as its group is kept for another stage.
IDLE_S = 60.0


class WorkerState(Enum):
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"


@dataclass(slots=True, eq=False)
class PooledWorker:
    """A worker actor."""

    actor: Any
    group: str  #: Ray's id of its placement group.
    bundle: int  #: Index of its bundle there.
    state: WorkerState = WorkerState.STARTING
    site: WorkerSite | None = None
    codes: set[str] = field(default_factory=set)  #: Functions whose code it has got.
    idle_since_s: float = 0.0


class WorkerPool:
    """Workers by group. Not thread-safe: the engine makes all calls.

    Args:
        runner: Handle of the runner.
        answered: Called from a thread of Ray's with a worker and its site, or the error in its place.
    """

    def __init__(self, runner: Any, answered: Callable[[PooledWorker, WorkerSite | BaseException], object]) -> None:
        self._runner = runner
        self._answered = answered
        self._mesh = MeshId("")
        self._workers: dict[str, list[PooledWorker]] = {}

    def bind(self, mesh: MeshId) -> None:
        """Set the mesh that the workers work for."""
        self._mesh = mesh

    def idle(self, group: str) -> PooledWorker | None:
        """Return a worker of the group that waits for a chunk; None: there is none."""
        return next((worker for worker in self._workers.get(group, ()) if worker.state is WorkerState.IDLE), None)

    def count(self, groups: Collection[str], state: WorkerState) -> int:
        """Return the number of workers of these groups in the state."""
        return sum(worker.state is state for group in groups for worker in self._workers.get(group, ()))

    def start(self, group: SlotGroup, slot: ResourceSet) -> None:
        """Start a worker in the group; it is idle once it has answered."""
        workers = self._workers.setdefault(group.hex_id, [])
        bundle = min(range(group.slots), key=lambda index: sum(worker.bundle == index for worker in workers))
        if group.group is None:
            raise ValueError("a worker needs a placement group")
        strategy = PlacementGroupSchedulingStrategy(group.group, bundle, placement_group_capture_child_tasks=True)
        threads = max(1, int(slot.in_ray_units().get("cpu", 1)))
        actor = Worker.options(scheduling_strategy=strategy).remote(self._runner, self._mesh, threads)
        worker = PooledWorker(actor, group.hex_id, bundle)
        workers.append(worker)
        future = actor.site.remote().future()
        future.add_done_callback(partial(self._answer, worker))

    def _answer(self, worker: PooledWorker, future: Any) -> None:
        self._answered(worker, future.exception() or future.result())

    def is_up(self, worker: PooledWorker, site: WorkerSite) -> bool:
        """Note that the worker can take a chunk; return whether it is still wanted."""
        worker.site = site
        if worker not in self._workers.get(worker.group, ()):
            return False
        self.rest(worker)
        return True

    def rest(self, worker: PooledWorker) -> None:
        """Note that the worker has ended its chunk."""
        worker.state, worker.idle_since_s = WorkerState.IDLE, time.monotonic()

    def drop(self, worker: PooledWorker) -> bool:
        """Forget a worker, and end it: it has died, or must. Return whether it was wanted until now."""
        workers = self._workers.get(worker.group, [])
        is_new = worker in workers
        if is_new:
            workers.remove(worker)
            if not workers:
                del self._workers[worker.group]
        self.kill(worker)
        return is_new

    def kill(self, worker: PooledWorker) -> None:
        """Kill the worker's process; its chunk is then lost. Harmless when it is dead."""
        with contextlib.suppress(Exception):
            ray.kill(worker.actor)

    def end(self, groups: Collection[str]) -> None:
        """End all workers of these groups, which are about to be removed."""
        for group in groups:
            for worker in tuple(self._workers.get(group, ())):
                self.drop(worker)

    def end_idle(self) -> None:
        """End the workers that have been idle for long."""
        oldest_s = time.monotonic() - IDLE_S
        idle = [worker for workers in self._workers.values() for worker in workers if worker.state is WorkerState.IDLE]
        for worker in [worker for worker in idle if worker.idle_since_s <= oldest_s]:
            self.drop(worker)

    def pause_s(self) -> float | None:
        """Seconds until `end_idle` may end a worker; None: no worker is idle."""
        since_s = [worker.idle_since_s for workers in self._workers.values() for worker in workers if worker.state is WorkerState.IDLE]
        return max(0.0, min(since_s) + IDLE_S - time.monotonic()) if since_s else None


#: Resources for which Ray shows a task its own devices. It shows an actor without resources none.
_DEVICES = frozenset({"gpu", *get_all_accelerator_resource_names()})


def has_devices(amounts: ResourceSet) -> bool:
    """Return whether a task with these amounts must be shown devices of its own."""
    return any(name in _DEVICES for name in amounts)
