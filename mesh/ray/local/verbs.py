"""Verbs of a supervisor: one table that clients, agents, the link and the supervisor's actor share.

Each service of the supervisor has a protocol here, and each method of a protocol is a verb: its name, its parameters, its result and
its errors. A caller passes the method itself, `link.ask(TaskVerbs.resume, task)`, so types are checked on both sides. The actor gets one
method per row of `VERBS`.

Clients exchange values with the supervisor. Every verb may be sent twice: when the supervisor's process dies during a call, the link
sends the call to the next one. No verb blocks the supervisor's event loop, so a call that waits (for a start, for a placement group)
delays no other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, get_type_hints

if TYPE_CHECKING:  # Each agent's process imports this table, and needs none of the values: they take half of its start.
    from mesh.actors.members import GroupMember
    from mesh.core.ids import JobId, PoolName, TaskId
    from mesh.core.pools import PoolSpec
    from mesh.core.resources import ResourceSet
    from mesh.core.saved_state import StateSnapshot
    from mesh.core.task_spec import TaskRequest, TaskState
    from mesh.jobs.spec import JobSpec
    from mesh.jobs.views import JobView
    from mesh.observability.metric_targets import MetricsSnapshot
    from mesh.ray.local.agent_messages import AgentStatus, Ended, HostCommand, JobPayload
    from mesh.ray.local.status_values import (
        AgentSeen,
        CandidateStatus,
        GroupGiven,
        GroupStatus,
        MeshAudit,
        MeshEvent,
        MeshStatus,
        NodeStatus,
        PoolStatus,
        RequestRefused,
        SlotReserved,
        TaskStatus,
    )
    from mesh.tasks.events import LabelConfigured

P = ParamSpec("P")
R = TypeVar("R")

#: Longest time until a wait is answered; the client then asks again.
WAIT_S_MAX = 30.0


class TaskVerbs(Protocol):
    """Verbs about tasks, from submission to result."""

    async def submit(self, request: TaskRequest, command: HostCommand | None, *, replaces: int | None = None) -> TaskStatus:
        """Submit a task. Idempotent for the same request. Return its status.

        Args:
            replaces: Last attempt of an ended or ending task of the same name, which this task replaces. If that task has not ended
                within `WAIT_S_MAX`, the status is still that task's: ask again.
        Raises:
            TaskExists: Another task has this name.
            PoolUnknown: The pool does not exist.
            SubmissionError: The task asks for a resource that neither a node nor a pool has.
            GangContradiction: A task of its gang gives another size of it.
        """
        ...

    async def task(self, task: TaskId) -> TaskStatus:
        """Return the task's status. Raises `TaskUnknown`."""
        ...

    async def tasks(self) -> list[TaskStatus]:
        """Return all remembered tasks, oldest first."""
        ...

    async def wait_task(self, task: TaskId, until: tuple[TaskState, ...], timeout_s: float) -> TaskStatus:
        """Wait until the task is in one of the states or over, at most `WAIT_S_MAX`; return its status."""
        ...

    async def result(self, task: TaskId, timeout_s: float) -> tuple[TaskStatus, tuple[Ended, Any | None] | None]:
        """Wait until the task is over, at most `WAIT_S_MAX`; return its status, and the end of its entry method if it had one.

        A large value is a reference beside the end.
        """
        ...

    async def handle(self, task: TaskId) -> tuple[Any, int] | None:
        """Return Ray's handle of the task's agent, and the attempt; None when it is not up."""
        ...

    async def cancel(self, task: TaskId, *, keep_state: bool, destroy_group: bool, requeue: bool) -> TaskStatus:
        """Cancel the task, or put it back into the queue. Idempotent."""
        ...

    async def finish(self, task: TaskId) -> TaskStatus:
        """Mark a task without an entry method as succeeded. Does nothing when it is over.

        Raises:
            TaskNotRunning: No agent has the task: it waits, or starts.
        """
        ...

    async def resume(self, task: TaskId) -> TaskStatus:
        """Resume a cancelled task from its saved state; a stopping task, once it has stopped. Idempotent."""
        ...

    async def saved(self, task: TaskId) -> StateSnapshot | None:
        """Return the task's last saved state."""
        ...

    async def evaluate_preemption(self, request: TaskRequest) -> list[CandidateStatus]:
        """Return the preemption candidates for such a task, with score and verdict (dry run). Raises `PoolUnknown`."""
        ...


class PoolVerbs(Protocol):
    """Verbs about pools and the slots in them."""

    async def configure_pool(self, spec: PoolSpec) -> PoolStatus:
        """Create the pool, or change it.

        Raises:
            SubmissionError: No node has a resource of the capacity, and its name is close to an existing one.
        """
        ...

    async def pool_spec(self, pool: PoolName) -> PoolSpec | None:
        """Return the pool's configuration; None: there is no such pool."""
        ...

    async def delete_pool(self, pool: PoolName) -> None:
        """Close the pool to new tasks and cancel its tasks. Does nothing when there is no such pool."""
        ...

    async def pool(self, pool: PoolName) -> PoolStatus:
        """Return one pool. Raises `PoolUnknown`."""
        ...

    async def pools(self) -> list[PoolStatus]: ...

    async def reserve_slot(self, slot: str, pool: PoolName, resources: ResourceSet) -> SlotReserved | RequestRefused:
        """Reserve quota under the name. Idempotent. Raises `PoolUnknown`, `SubmissionError`."""
        ...

    async def commit_slot(self, slot: str) -> RequestRefused | None:
        """Turn the slot's reserved quota into used quota."""
        ...

    async def release_slot(self, slot: str) -> RequestRefused | None:
        """Release the slot's quota. Idempotent."""
        ...


class GroupVerbs(Protocol):
    """Verbs about placement groups. An allocated group stands for a task: it is requested, awaited and cancelled like one."""

    async def allocate_group(self, request: TaskRequest, timeout_s: float) -> GroupGiven | RequestRefused:
        """Allocate a placement group without an agent (`allocate_pg`). Not in time: return `RequestRefused` and hold nothing.

        A holder that has released its group, or got none, may ask again.

        Raises:
            PoolUnknown: The pool does not exist.
            SubmissionError: The request names a resource that neither a node nor a pool has.
            TaskExists: The holder has asked for another group, or is a task.
        """
        ...

    async def groups(self) -> list[GroupStatus]: ...


class JobVerbs(Protocol):
    """Verbs about jobs of a leader and worker sets."""

    async def submit_job(self, spec: JobSpec, payload: JobPayload) -> JobView:
        """Submit a job. Idempotent for the same spec. Return its status.

        Raises:
            JobExists: Another job has this name.
            SubmissionError: The job asks for a resource that neither a node nor a pool has.
            PoolUnknown: The pool does not exist; a submitted job stays known when its pool is gone.
        """
        ...

    async def job(self, job: JobId) -> JobView:
        """Return the job's status. Raises `JobUnknown`."""
        ...

    async def jobs(self) -> list[JobView]:
        """Return all remembered jobs, oldest first."""
        ...

    async def wait_job(self, job: JobId, timeout_s: float) -> JobView:
        """Wait until the job is over and cleaned up, at most `WAIT_S_MAX`; return its status."""
        ...

    async def terminate_job(self, job: JobId) -> JobView: ...

    async def job_result(self, job: JobId) -> tuple[Ended, Any | None] | None:
        """Return the end of the leader's entry method, and the reference of a large value; None before the end."""
        ...


class AgentVerbs(Protocol):
    """Verbs about agents and nodes, and the one verb that agents send."""

    async def agents(self) -> list[AgentSeen]:
        """Return all agent processes, idle ones too."""
        ...

    async def nodes(self) -> list[NodeStatus]: ...

    async def agent_metrics(self, task: TaskId | None) -> dict[TaskId, AgentStatus]:
        """Return the agents' last reports. With `task`, ask its agent for a fresh one."""
        ...

    async def members(self, pool: PoolName | None, label: str | None, tasks: tuple[TaskId, ...] | None) -> list[GroupMember]:
        """Return agents that are up, ranked in the order of `tasks`, else of submission. Raises `PoolUnknown`."""
        ...

    async def report(self, agent: str, task: TaskId | None, attempt: int, kind: str, payload: Any) -> None:
        """Handle an agent's report. A report about another task or attempt than the process has now is late and ignored.

        Args:
            agent: Name of the agent's process.
            kind: `report`, `checkpoint`, `blocked` or `unblocked`; it decides the payload's type.
        """
        ...


class MeshVerbs(Protocol):
    """Verbs about the mesh as a whole."""

    async def status(self) -> MeshStatus:
        """Return the mesh's status once the supervisor is ready."""
        ...

    async def change_settings(self, settings: Mapping[str, float]) -> None:
        """Change settings of the scheduler, as `SchedulerSettings.changed` does."""
        ...

    async def configure_label(self, event: LabelConfigured) -> None:
        """Configure the order and scoring of one label's queue; the supervisor sets `at_ms`."""
        ...

    async def metrics(self) -> MetricsSnapshot: ...

    async def metrics_history(self) -> list[MetricsSnapshot]:
        """Return the metrics per metrics period, for the last two hours at most; the last entry is current."""
        ...

    async def recent_events(self) -> list[MeshEvent]:
        """Return the events for operators, oldest first."""
        ...

    async def audit(self) -> MeshAudit:
        """Audit all ledgers against each other and against Ray."""
        ...


class ActorVerbs(Protocol):
    """The verb that the actor answers itself, whether its mesh is up or not."""

    async def stop(self, *, forget: bool) -> None:
        """End everything of the mesh in Ray except the actor, which the caller ends. With `forget`, remove its folder too.

        Raises:
            RuntimeAdapterError: The mesh could not be started, so its folder, which may belong to another, stays; all else has ended.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services of one supervisor."""

    tasks: TaskVerbs
    pools: PoolVerbs
    groups: GroupVerbs
    jobs: JobVerbs
    agents: AgentVerbs
    mesh: MeshVerbs


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One row of the table."""

    name: str
    service: str  #: Field of `Services` that answers.
    signature: Callable[..., Coroutine[Any, Any, Any]]


VERBS: tuple[Verb, ...] = tuple(
    Verb(name=name, service=service, signature=signature)
    for service, protocol in get_type_hints(Services).items()
    for name, signature in vars(protocol).items()
    if inspect.iscoroutinefunction(signature)
)


def send(supervisor: Any, verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    """Send a call to the supervisor's actor; return Ray's reference to the answer."""
    return getattr(supervisor, verb.__name__).remote(*args, **kwargs)
