"""Calls about tasks and preemption."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import ray
from pydantic import Field
from ray.exceptions import GetTimeoutError
from ray.experimental import get_object_locations

from mesh.core.ids import JobId, LabelName, NodeName, PoolName, TaskId, TenantPath
from mesh.core.saved_state import Preserver, Restorer, StateHandlers
from mesh.core.saved_state import register_state_handlers as state_handlers_of
from mesh.core.task_spec import DEFAULT_PRIORITY, TaskRequest, TaskState, Weights
from mesh.ray.local.agent_messages import METRICS_PERIOD_MS, HostCommand, PickledArguments
from mesh.ray.local.client.checked_calls import Count, Milliseconds, Seconds, Values, checked
from mesh.ray.local.client.parsing import (
    Amounts,
    read_amounts,
    read_class,
    read_handlers,
    read_method,
    read_task_id,
    read_values,
    required,
)
from mesh.ray.local.client.payload_digest import payload_digest
from mesh.ray.local.client.pool_calls import pool_spec
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.client.task_handle import TaskHandle
from mesh.ray.local.status_values import (
    CandidateStatus,
    TaskStatus,
)
from mesh.ray.local.supervision_errors import SubmissionError, TaskNotRunning, TaskUnknown
from mesh.ray.local.verbs import TaskVerbs

#: A task state, or its name.
State = Annotated[TaskState, Field(strict=False)]


#: Time limit for the owners of the objects; without an answer, placement ignores the arguments.
_ASKED_MS_MAX = 1_000


def local_bytes(*arguments: PickledArguments | None) -> dict[NodeName, int]:
    """Return the bytes of the arguments on each node, as Ray counts them. Small and unfinished objects count nowhere."""
    refs = list(dict.fromkeys(ref for each in arguments if each is not None for ref in each.refs))
    if not refs:
        return {}
    try:
        found: dict[Any, dict[str, Any]] = get_object_locations(refs, timeout_ms=_ASKED_MS_MAX)
    except GetTimeoutError:
        return {}
    bytes_on: dict[NodeName, int] = {}
    for place in found.values():
        for node in place["node_ids"]:
            bytes_on[NodeName(node)] = bytes_on.get(NodeName(node), 0) + int(place["object_size"] or 0)
    return bytes_on


@checked()
class TaskCalls:
    """Calls that submit, cancel, resume, explain and preempt tasks.

    Args:
        handlers: State handlers of tasks that bring none.
        takes_over_names: Whether a submission may reuse the name of an ended task.
    """

    def __init__(self, link: SupervisorLink, handlers: StateHandlers | None = None, *, takes_over_names: bool = False) -> None:
        self._link = link
        self._handlers = handlers
        self._takes_over_names = takes_over_names

    def submit_task(
        self,
        actor_class: Any,
        *,
        pool: str,
        task_id: str | None = None,
        resources: Amounts | None = None,
        args: Values = (),
        kwargs: Mapping[str, Any] | None = None,
        method: str | None = None,
        method_args: Values = (),
        method_kwargs: Mapping[str, Any] | None = None,
        priority: float = DEFAULT_PRIORITY,
        label: str = "",
        tenant: str = "",
        labels: Mapping[str, str] | None = None,
        policy: str = "",
        weights: Weights | None = None,
        workload_type: str = "",
        node: str | None = None,
        soft: bool = False,
        after: Sequence[str | TaskHandle] = (),
        bundles: Sequence[Amounts] = (),
        gang: str = "",
        gang_size: Count = 0,
        job: str | None = None,
        estimated_s: Seconds | None = None,
        preemptible: bool = True,
        max_restarts: Annotated[int, Field(ge=-1)] = 0,
        state_handlers: StateHandlers | None = None,
        environment: Mapping[str, str] | None = None,
        own_process: bool = False,
        metrics_period_ms: Milliseconds = METRICS_PERIOD_MS,
    ) -> TaskHandle:
        """Submit an agent with an object of your class, queued until there is room; `method` names the method that runs as the task.

        A task waits while its pool is full: `handle.status()` has reason, position and estimate. Idempotent for the same id, class,
        arguments and request, so a submission may be sent twice.

        Args:
            actor_class: A plain class, or one with `@ray.remote`.
            pool: Pool whose quota the task uses.
            task_id: A name of your own; None: a new one.
            resources: For example `{"cpu": 1, "gpu": 0.5, "memory": "1GiB"}`.
            args, kwargs: Arguments of the constructor; ObjectRefs arrive as their values.
            method, method_args, method_kwargs: The entry method; None: the object waits for calls until `finish` or `cancel`.
            priority: P_base; 8.0 and more may take a reserved placement group.
            label: The queue, like `tier:premium`.
            tenant: Tenant of the task; a process never serves two tenants.
            labels: Selector of node labels.
            policy, weights, workload_type, node, soft: Choice of the node; None and empty: as the pool says.
            after: Tasks that must succeed first.
            bundles: Bundles of its placement group, if other than one bundle of `resources`.
            gang, gang_size, job: Tasks that are admitted together, or belong together.
            estimated_s: Expected run time; makes preemption near the start less likely.
            preemptible: Whether the task may be preempted.
            max_restarts: Number of restarts after its agent was lost; -1: no limit.
            state_handlers: Handlers that save and restore its state; None: those of the class, or of this mesh.
            environment: Environment variables of its process.
            own_process: Start a process for this task alone; else it may share one with earlier and later tasks of this program.
            metrics_period_ms: Period of its agent's reports.
        Raises:
            SubmissionError: A parameter is invalid.
            PoolUnknown: The pool does not exist.
            TaskExists: Another task has this name.
            GangContradiction: A task of its gang gives another `gang_size`.
        """
        amounts = read_amounts(resources if resources is not None else {})
        if method is None and (method_args or method_kwargs):
            raise SubmissionError("method_args and method_kwargs need a method; name the method that they are for")
        code = read_class(actor_class)
        entry = read_method(actor_class, method)
        arguments = read_values("", args, kwargs or {})
        entry_arguments = read_values("method_", method_args, method_kwargs or {}) if method is not None else None
        request = TaskRequest(
            task=read_task_id(task_id),
            pool=PoolName(required("pool", pool)),
            resources=amounts,
            local_bytes=local_bytes(arguments, entry_arguments),
            label=LabelName(label),
            tenant=TenantPath(tenant),
            priority=float(priority),
            selector=dict(labels or {}),
            policy=policy,
            weights=weights,
            workload_type=workload_type,
            node=NodeName(node) if node is not None else None,
            soft=soft,
            after=tuple(TaskId(need if isinstance(need, str) else need.task) for need in after),
            bundles=tuple(map(read_amounts, bundles)),
            gang=gang,
            gang_size=gang_size,
            job=JobId(job) if job is not None else None,
            estimated_ms=int(estimated_s * 1000) if estimated_s is not None else None,
            preemptible=preemptible,
            max_restarts=max_restarts,
            work=payload_digest(
                actor_class,
                (args, kwargs or {}),
                entry,
                (method_args, method_kwargs or {}) if method is not None else None,
                environment or {},
            ),
        )
        handlers = state_handlers or self._handlers
        command = HostCommand(
            task=request.task,
            attempt=0,
            code=code,
            arguments=arguments,
            entry=entry,
            entry_arguments=entry_arguments,
            handlers=read_handlers(handlers) if handlers is not None else None,
            environment=dict(environment or {}),
            # Ray would start a cluster of its own for a process that is connected to none.
            submitter=ray.get_runtime_context().get_job_id() if ray.is_initialized() else "",
            own_process=own_process,
            metrics_period_ms=metrics_period_ms,
        )
        if self._takes_over_names:
            self._take_over(request, command)
        else:
            self._link.ask(TaskVerbs.submit, request, command)
        return TaskHandle(self._link, request.task)

    def submit_task_with_pg_preemption(
        self,
        /,
        *,
        pool_name: str,
        resources: Amounts,
        actor_class: Any,
        task_id: str,
        timeout_s: Seconds | None = None,
        **options: Any,
    ) -> TaskHandle:
        """Check the parameters, allocate a placement group, else preempt and allocate again; then wait for the start.

        The mesh chooses the victims: each saves its state and returns to its position in the queue; its group stays for this task if it
        fits.

        Returns:
            The started task; or a waiting one at the timeout or without preemption candidates: `status()` says why.
        Raises:
            SubmissionError: A required parameter is missing, or the pool has no placement groups.
            PoolUnknown: The pool does not exist.
        """
        required("task_id", task_id)
        if actor_class is None:
            raise SubmissionError("actor_class is missing: give the class that the agent is to host")
        if not read_amounts(resources):
            raise SubmissionError('resources are missing: say what the agent needs, like {"cpu": 1}')
        if pool_spec(self._link, required("pool_name", pool_name)).groups is None:
            raise SubmissionError(f"pool {pool_name} has no placement groups: call configure_pool({pool_name!r}, ...) first")
        handle = self.submit_task(actor_class, pool=pool_name, task_id=task_id, resources=resources, **options)
        handle.wait_started(timeout_s)
        return handle

    def task(self, task_id: str) -> TaskHandle:
        """Return the handle of a task that was submitted by any client. Raises `TaskUnknown`."""
        handle = TaskHandle(self._link, TaskId(task_id))
        handle.status()
        return handle

    def list_tasks(self, *, pool: str | None = None, state: State | None = None) -> list[TaskStatus]:
        """Return all remembered tasks, oldest first; those of one pool, or in one state (`TaskState`, or its name).

        Raises:
            PoolUnknown: The pool does not exist, and no task was in a pool of this name.
        """
        tasks = self._link.ask(TaskVerbs.tasks)
        if pool is not None and all(status.pool != pool for status in tasks):
            pool_spec(self._link, pool)
        return [status for status in tasks if pool in (None, status.pool) and state in (None, status.state)]

    def cancel(self, task_id: str, *, keep_state: bool = True, destroy_group: bool = False) -> TaskStatus:
        """Stop a task and save its state. Idempotent."""
        return TaskHandle(self._link, TaskId(task_id)).cancel(keep_state=keep_state, destroy_group=destroy_group)

    def resume(self, task_id: str) -> TaskStatus:
        """Resume a cancelled task from its saved state."""
        return TaskHandle(self._link, TaskId(task_id)).resume()

    def explain(self, task_id: str) -> str:
        """Return why the task does not run now, as text."""
        return TaskHandle(self._link, TaskId(task_id)).why()

    def register_state_handlers(self, *, preserver: Preserver | None = None, restorer: Restorer | None = None) -> StateHandlers:
        """Set the state handlers of tasks that this object submits from now on; as a decorator, those of one class."""
        self._handlers = state_handlers_of(preserver=preserver, restorer=restorer)
        return self._handlers

    def evaluate_preemption(
        self,
        *,
        pool: str,
        resources: Amounts,
        priority: float,
        label: str = "",
        bundles: Sequence[Amounts] = (),
        strategy: str = "PACK",
        gang_size: int = 1,
    ) -> list[CandidateStatus]:
        """Return every running task with its score and verdict as a victim for such a task (dry run).

        Args:
            gang_size: Number of such tasks in a gang: preempt for all of them, or for none.

        Raises:
            PoolUnknown: The pool does not exist.
        """
        request = TaskRequest(
            task=TaskId(f"dry-{uuid.uuid4().hex[:12]}"),
            pool=PoolName(pool),
            resources=read_amounts(resources),
            bundles=tuple(map(read_amounts, bundles)),
            strategy=strategy,
            priority=priority,
            label=LabelName(label),
            gang_size=gang_size,
        )
        return self._link.ask(TaskVerbs.evaluate_preemption, request)

    def execute_preemption(self, task_ids: Sequence[str | CandidateStatus]) -> list[TaskStatus]:
        """Preempt these tasks: each saves its state, and returns to its position in the queue.

        Raises:
            TaskUnknown: A task is not known; none was preempted.
            TaskNotRunning: A task is over; none was preempted.
        """
        handles = [TaskHandle(self._link, TaskId(each if isinstance(each, str) else each.task)) for each in task_ids]
        for handle in handles:
            status = handle.status()
            if status.is_over:
                raise TaskNotRunning(f"task {handle.task} is {status.state.value} and cannot be preempted")
        return [handle.preempt() for handle in handles]

    def _take_over(self, request: TaskRequest, command: HostCommand) -> None:
        """Submit the task under the name of an ended task; of an ending one, once it has ended."""
        try:
            earlier = self._link.ask(TaskVerbs.task, request.task)
        except TaskUnknown:
            self._link.ask(TaskVerbs.submit, request, command)
            return
        while True:
            status = self._link.ask(TaskVerbs.submit, request, command, replaces=earlier.attempt)
            if not status.is_ending or status.attempt != earlier.attempt:
                return

    def taking_over_names(self) -> TaskCalls:
        """Return calls that may reuse names of ended tasks, for named agents that come and go."""
        return TaskCalls(self._link, self._handlers, takes_over_names=True)
