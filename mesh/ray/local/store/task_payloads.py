"""Payloads, saved states and results of tasks: on disk, with live Ray references in memory.

Members of a job share the code and arguments of their role, which are stored once, with the job. Each member stores only its
differences.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from ray import cloudpickle

from mesh.core.ids import JobId, LabelName, TaskId, TenantPath
from mesh.core.saved_state import StateSnapshot
from mesh.ray.local.agent_messages import Ended, HostCommand, Hosted, JobPayload, Stopped
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.store.snapshot_store import FileSnapshots
from mesh.ray.local.store.task_index import TaskEntry
from mesh.tasks.decisions import StartTask

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemberPayload:
    """Payload of one member."""

    job: JobId
    role: str
    environment: Mapping[str, str]
    is_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Program and kind of a task. Tasks of one owner may share a process, and see what the others left in modules."""

    submitter: str  #: Ray job of the client: one program.
    tenant: TenantPath
    label: LabelName
    environment: frozenset[tuple[str, str]]  #: Environment variables of the task; a library may read them when it is imported.


class TaskPayloads:
    """Payloads of tasks, and what tasks leave behind. Pickles hold this project's own frozen values; a user's bytes stay bytes in them.

    Args:
        store: Store of code and results.
        snapshots: Store of saved states.
        row_of: Returns a task's row in the task index; None: it has none.
    """

    def __init__(self, store: PayloadStore, snapshots: FileSnapshots, row_of: Callable[[TaskId], TaskEntry | None]) -> None:
        self._store = store
        self._snapshots = snapshots
        self._row_of = row_of
        self._commands: dict[TaskId, HostCommand] = {}  #: With their ObjectRefs, which Ray counts while they are here.
        self._jobs: dict[JobId, JobPayload] = {}  #: With their ObjectRefs too.
        self._values: dict[TaskId, Any] = {}  #: References of results that are too large for `Ended`.

    def submit(self, command: HostCommand) -> None:
        """Store the task's payload, before the scheduler gets the task."""
        self._commands[command.task] = command
        self._store.keep(command.task, "work", cloudpickle.dumps(command))  # type: ignore[no-untyped-call]  # untyped in Ray

    def host_command(self, order: StartTask) -> HostCommand | None:
        """Return the task's code and arguments, and its saved state when it resumes; None when they are lost."""
        submitted = self._submitted(order.task)
        if submitted is None:
            return None
        return replace(submitted, attempt=order.attempt, saved=self.saved(order.task) if order.resume else None)

    def tenant(self, task: TaskId) -> TenantPath:
        row = self._row_of(task)
        return row.request.tenant if row is not None else TenantPath("")

    def owner(self, task: TaskId) -> Owner | None:
        """Return the owner of the task; None: the task shares its process with no other one."""
        row, command = self._row_of(task), self._submitted(task)
        if row is None or command is None or command.own_process or not command.submitter:
            return None
        return Owner(
            submitter=command.submitter,
            tenant=row.request.tenant,
            label=row.request.label,
            environment=frozenset(command.environment.items()),
        )

    def has_own_process(self, task: TaskId) -> bool:
        """Return whether the task's process may serve no other task."""
        command = self._submitted(task)
        return command is not None and command.own_process

    def is_call(self, task: TaskId) -> bool:
        """Return whether the task is a call on a running agent, which the caller makes itself."""
        row = self._row_of(task)
        return row is not None and row.request.agent is not None

    def has_entry(self, task: TaskId) -> bool:
        """Return whether the task has an entry method, whose end is the task's end."""
        submitted = self._submitted(task)
        return submitted is not None and submitted.entry is not None

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit_job(self, job: JobId, payload: JobPayload) -> None:
        """Store the payload of a job's members, before the controller gets the job."""
        self._jobs[job] = payload
        self._store.keep(job_folder(job), "work", cloudpickle.dumps(payload))  # type: ignore[no-untyped-call]  # as above

    def submit_member(self, task: TaskId, job: JobId, role: str, environment: Mapping[str, str], *, is_leader: bool) -> None:
        """Store the payload of one attempt of a member, before the scheduler gets it."""
        payload = _MemberPayload(job=job, role=role, environment=dict(environment), is_leader=is_leader)
        self._store.keep(task, "work", pickle.dumps(payload))

    def keep_job_result(self, job: JobId, leader: TaskId) -> None:
        """Copy the leader's result to the job, so that it outlives the members."""
        content = self._store.read(leader, "result")
        if content is not None:
            self._store.keep(job_folder(job), "result", content)
        if leader in self._values:
            self._values[job_folder(job)] = self._values[leader]

    def job_ended(self, job: JobId) -> tuple[Ended, Any | None] | None:
        """Return the end of the leader's entry method, and the reference of a large value."""
        return self.ended(job_folder(job))

    def job_is_over(self, job: JobId) -> None:
        """Drop the payload: no further member starts."""
        self._jobs.pop(job, None)
        self._store.drop(job_folder(job), "work")

    def forget_job(self, job: JobId) -> None:
        """Remove everything of the job."""
        self._jobs.pop(job, None)
        self.forget(job_folder(job))

    # -- stored parts of tasks -----------------------------------------------------------------------------------------

    def keep_hosted(self, hosted: Hosted) -> None:
        """Keep the address where others reach the object."""
        if hosted.address:
            self._store.keep(hosted.task, "address", hosted.address.encode())

    def address(self, task: TaskId) -> str:
        """Return the address where others reach the object; empty when the task has none."""
        content = self._store.read(task, "address")
        return "" if content is None else content.decode()

    def keep_stopped(self, stopped: Stopped) -> str:
        """Keep the state that came with the answer. Return why a part was not kept; empty when all was."""
        unkept = stopped.unkept
        if stopped.saved is not None:
            refused = self.keep_saved(stopped.saved)
            unkept = "; ".join(filter(None, (unkept, refused)))
            if stopped.saved.why:
                log.warning("the state of a task was not saved as it should be", task=stopped.task, why=stopped.saved.why)
        if stopped.why:
            log.info("the process of a task is not reused", task=stopped.task, why=stopped.why)
        return unkept

    def keep_saved(self, snapshot: StateSnapshot) -> str:
        """Store a snapshot or a checkpoint for the next attempt. Return why a part was not stored; empty when all was."""
        kept = self._snapshots.put(snapshot)
        if kept.why:
            log.warning("the state of a task was not saved as it should be", task=snapshot.task, why=kept.why)
        for dropped in kept.dropped:
            log.warning("the saved state of a task was evicted by newer ones", task=dropped)
        return kept.why

    def saved(self, task: TaskId) -> StateSnapshot | None:
        return self._snapshots.get(task)

    def sweep(self, now_ms: int) -> None:
        """Drop the saved states of tasks that ended long ago."""
        self._snapshots.sweep(now_ms)

    def keep_ended(self, ended: Ended, value: Any | None) -> None:
        """Keep the result or the error of the entry method."""
        self._store.keep(ended.task, "result", pickle.dumps(ended))
        if value is not None:
            self._values[ended.task] = value

    def ended(self, task: TaskId) -> tuple[Ended, Any | None] | None:
        """Return the end of the entry method, and the reference of a large value."""
        content = self._store.read(task, "result")
        if content is None:
            return None
        return pickle.loads(content), self._values.get(task)  # noqa: S301 - written by `keep_ended` into this mesh's own folder

    def is_over(self, task: TaskId, *, may_resume: bool, at_ms: int) -> None:
        """Drop what only a next attempt would need, because the task is over."""
        self._commands.pop(task, None)
        self._snapshots.end(task, at_ms)
        if not may_resume:
            self._store.drop(task, "work", "process", "address")
            self._snapshots.drop(task)

    def forget(self, task: TaskId) -> None:
        """Remove everything of the task."""
        self._commands.pop(task, None)
        self._values.pop(task, None)
        self._store.drop(task)
        self._snapshots.drop(task)

    def _submitted(self, task: TaskId) -> HostCommand | None:
        if task not in self._commands:
            content = self._store.read(task, "work")
            if content is None:
                return None
            payload = cloudpickle.loads(content)
            command = self._of_member(task, payload) if isinstance(payload, _MemberPayload) else payload
            if command is None:
                return None
            self._commands[task] = command
        return self._commands[task]

    def _of_member(self, task: TaskId, payload: _MemberPayload) -> HostCommand | None:
        if payload.job not in self._jobs:
            content = self._store.read(job_folder(payload.job), "work")
            if content is None:
                return None
            self._jobs[payload.job] = cloudpickle.loads(content)
        command = self._jobs[payload.job].commands[payload.role]
        environment = {**command.environment, **payload.environment}
        return replace(command, task=task, environment=environment, needs_address=payload.is_leader)


def job_folder(job: JobId) -> TaskId:
    """Return the name under which a job's own payload is stored. No task has it, because no role is empty."""
    return TaskId(f"{job}::job")
