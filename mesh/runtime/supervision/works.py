"""What tasks run, keep and return, as the supervisor has it: on disk, and what of it is alive in Ray in memory.

The members of a job share the code and arguments of their role, which are kept once, with the job; of each member only what
differs is kept beside it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from ray import cloudpickle

from mesh.ids import JobId, TaskId, TenantPath
from mesh.runtime.supervision.agent_orders import Ended, Hosted, HostOrder, Stopped
from mesh.runtime.supervision.order_book import TaskRow
from mesh.runtime.supervision.snapshot_store import FileSnapshots
from mesh.runtime.supervision.work_store import WorkStore
from mesh.saved_state import Snapshot
from mesh.scheduling.decisions import StartTask

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """What the members of a job run: an order per role, which lacks the task."""

    orders: Mapping[str, HostOrder]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemberWork:
    """What one member runs."""

    job: JobId
    role: str
    environment: Mapping[str, str]
    is_leader: bool


class TaskWorks:
    """The driver's `Works`. What is pickled here are this project's own frozen values; a user's bytes stay bytes inside them.

    Args:
        store: Of code, results and the like.
        snapshots: Of kept states.
        row_of: A task as the book has it; None: it has none.
    """

    def __init__(self, store: WorkStore, snapshots: FileSnapshots, row_of: Callable[[TaskId], TaskRow | None]) -> None:
        self._store = store
        self._snapshots = snapshots
        self._row_of = row_of
        self._orders: dict[TaskId, HostOrder] = {}  #: With their ObjectRefs, which Ray counts while they are here.
        self._jobs: dict[JobId, JobWork] = {}  #: The same.
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
        row = self._row_of(task)
        return row.request.tenant if row is not None else TenantPath("")

    def is_call(self, task: TaskId) -> bool:
        """See `Works`."""
        row = self._row_of(task)
        return row is not None and row.request.agent is not None

    def has_entry(self, task: TaskId) -> bool:
        """See `Works`."""
        submitted = self._submitted(task)
        return submitted is not None and submitted.entry is not None

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit_job(self, job: JobId, work: JobWork) -> None:
        """Keep what the members of a job run, before anybody hears of it."""
        self._jobs[job] = work
        self._store.keep(job_folder(job), "work", cloudpickle.dumps(work))  # type: ignore[no-untyped-call]  # as above

    def submit_member(self, task: TaskId, job: JobId, role: str, environment: Mapping[str, str], *, is_leader: bool) -> None:
        """Keep what one attempt of a member runs, before the scheduler hears of it."""
        work = _MemberWork(job=job, role=role, environment=dict(environment), is_leader=is_leader)
        self._store.keep(task, "work", pickle.dumps(work))

    def keep_job_result(self, job: JobId, leader: TaskId) -> None:
        """What the leader returned is the job's, and stays when its members are cleaned away."""
        content = self._store.read(leader, "result")
        if content is not None:
            self._store.keep(job_folder(job), "result", content)
        if leader in self._values:
            self._values[job_folder(job)] = self._values[leader]

    def job_ended(self, job: JobId) -> tuple[Ended, Any | None] | None:
        """How the leader's entry method ended, and the ref of a large value."""
        return self.ended(job_folder(job))

    def job_is_over(self, job: JobId) -> None:
        """No member of it is started any more."""
        self._jobs.pop(job, None)
        self._store.drop(job_folder(job), "work")

    def forget_job(self, job: JobId) -> None:
        """Nothing of it is wanted any more."""
        self._jobs.pop(job, None)
        self.forget(job_folder(job))

    # -- what is kept of tasks -----------------------------------------------------------------------------------------

    def keep_hosted(self, hosted: Hosted) -> None:
        """See `Works`."""
        if hosted.address:
            self._store.keep(hosted.task, "address", hosted.address.encode())

    def address(self, task: TaskId) -> str:
        """Where others reach it; empty: nobody asked for that."""
        content = self._store.read(task, "address")
        return "" if content is None else content.decode()

    def keep_stopped(self, stopped: Stopped) -> str:
        """See `Works`."""
        unkept = stopped.unkept
        if stopped.saved is not None:
            refused = self.keep_saved(stopped.saved)
            unkept = "; ".join(filter(None, (unkept, refused)))
            if stopped.saved.why:
                log.warning("the state of a task was not kept as it should be", task=stopped.task, why=stopped.saved.why)
        if stopped.why:
            log.info("the process of a task is not used again", task=stopped.task, why=stopped.why)
        return unkept

    def keep_saved(self, snapshot: Snapshot) -> str:
        """Keep a snapshot or a checkpoint for the next attempt; why not all of it was, empty when it was."""
        kept = self._snapshots.put(snapshot)
        if kept.why:
            log.warning("the state of a task was not kept as it should be", task=snapshot.task, why=kept.why)
        for dropped in kept.dropped:
            log.warning("the kept state of a task gave way to newer ones", task=dropped)
        return kept.why

    def saved(self, task: TaskId) -> Snapshot | None:
        """What was kept last."""
        return self._snapshots.get(task)

    def sweep(self, now_ms: int) -> None:
        """Drop the kept states of tasks that are over for long."""
        self._snapshots.sweep(now_ms)

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

    def is_over(self, task: TaskId, *, may_resume: bool, at_ms: int) -> None:
        """The task runs no more; what only a next attempt would need goes."""
        self._orders.pop(task, None)
        self._snapshots.end(task, at_ms)
        if not may_resume:
            self._store.drop(task, "work", "process", "address")
            self._snapshots.drop(task)

    def forget(self, task: TaskId) -> None:
        """Nothing of it is wanted any more."""
        self._orders.pop(task, None)
        self._values.pop(task, None)
        self._store.drop(task)
        self._snapshots.drop(task)

    def _submitted(self, task: TaskId) -> HostOrder | None:
        if task not in self._orders:
            content = self._store.read(task, "work")
            if content is None:
                return None
            work = cloudpickle.loads(content)
            order = self._of_member(task, work) if isinstance(work, _MemberWork) else work
            if order is None:
                return None
            self._orders[task] = order
        return self._orders[task]

    def _of_member(self, task: TaskId, work: _MemberWork) -> HostOrder | None:
        if work.job not in self._jobs:
            content = self._store.read(job_folder(work.job), "work")
            if content is None:
                return None
            self._jobs[work.job] = cloudpickle.loads(content)
        order = self._jobs[work.job].orders[work.role]
        environment = {**order.environment, **work.environment}
        return replace(order, task=task, environment=environment, wants_address=work.is_leader)


def job_folder(job: JobId) -> TaskId:
    """Under which name the works of a job itself are kept: no task's, as no role is empty."""
    return TaskId(f"{job}::job")
