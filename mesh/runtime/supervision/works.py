"""What tasks run, keep and return, as the supervisor has it: on disk, and what of it is alive in Ray in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
from ray import cloudpickle

from mesh.ids import TaskId, TenantPath
from mesh.runtime.supervision.agent_orders import Ended, HostOrder, Stopped
from mesh.runtime.supervision.work_store import WorkStore
from mesh.saved_state import Snapshot
from mesh.scheduling.decisions import StartTask

log = structlog.get_logger(__name__)


class TaskWorks:
    """The driver's `Works`. What is pickled here are this project's own frozen values; a user's bytes stay bytes inside them.

    Args:
        tenant_of: Whose a task is.
    """

    def __init__(self, store: WorkStore, tenant_of: Callable[[TaskId], TenantPath]) -> None:
        self._store = store
        self._tenant_of = tenant_of
        self._orders: dict[TaskId, HostOrder] = {}  #: With their ObjectRefs, which Ray counts while they are here.
        self._values: dict[TaskId, Any] = {}  #: Refs of results that are too large for `Ended`.

    def submit(self, order: HostOrder) -> None:
        """Keep what the task runs, before the scheduler hears of it."""
        self._orders[order.task] = order
        self._store.keep(order.task, "work", cloudpickle.dumps(order))  # type: ignore[no-untyped-call]  # Ray gives it no types

    def host_order(self, order: StartTask) -> HostOrder | None:
        """See `Works`."""
        submitted = self._submitted(order.task)
        if submitted is None:
            return None
        return replace(submitted, attempt=order.attempt, saved=self.saved(order.task) if order.resume else None)

    def tenant(self, task: TaskId) -> TenantPath:
        """See `Works`."""
        return self._tenant_of(task)

    def has_entry(self, task: TaskId) -> bool:
        """See `Works`."""
        submitted = self._submitted(task)
        return submitted is not None and submitted.entry is not None

    def keep_stopped(self, stopped: Stopped) -> None:
        """See `Works`."""
        if stopped.saved is not None:
            self.keep_saved(stopped.saved)
        if stopped.why:
            log.warning("the state of a task was not kept as it should be", task=stopped.task, why=stopped.why)

    def keep_saved(self, snapshot: Snapshot) -> None:
        """Keep a snapshot or a checkpoint for the next attempt."""
        self._store.keep(snapshot.task, "saved", pickle.dumps(snapshot))

    def saved(self, task: TaskId) -> Snapshot | None:
        """What was kept last."""
        content = self._store.read(task, "saved")
        return None if content is None else pickle.loads(content)  # noqa: S301 - written by `keep_saved` into this mesh's own folder

    def keep_ended(self, ended: Ended, value: Any | None) -> None:
        """See `Works`."""
        self._store.keep(ended.task, "result", pickle.dumps(ended))
        if value is not None:
            self._values[ended.task] = value

    def ended(self, task: TaskId) -> tuple[Ended, Any | None] | None:
        """What the entry method returned or raised, and the ref of a large value."""
        content = self._store.read(task, "result")
        if content is None:
            return None
        return pickle.loads(content), self._values.get(task)  # noqa: S301 - written by `keep_ended` into this mesh's own folder

    def is_over(self, task: TaskId, *, may_resume: bool) -> None:
        """The task runs no more; what only a next attempt would need goes."""
        self._orders.pop(task, None)
        if not may_resume:
            self._store.drop(task, "work", "saved", "process")

    def forget(self, task: TaskId) -> None:
        """Nothing of it is wanted any more."""
        self._orders.pop(task, None)
        self._values.pop(task, None)
        self._store.drop(task)

    def _submitted(self, task: TaskId) -> HostOrder | None:
        if task not in self._orders:
            content = self._store.read(task, "work")
            if content is None:
                return None
            self._orders[task] = cloudpickle.loads(content)
        return self._orders[task]
