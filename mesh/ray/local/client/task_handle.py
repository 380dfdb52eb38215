"""Handle of a submitted task."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import cloudpickle
import ray
from ray.core.generated.gcs_pb2 import ActorTableData  # type: ignore[attr-defined]  # protobuf makes its names at run time
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from mesh.core.ids import TaskId
from mesh.core.task_spec import AT_WORK, TaskState
from mesh.errors import MeshError
from mesh.ray.local.agent.agent_errors import NothingHosted
from mesh.ray.local.agent_messages import Ended, call_name
from mesh.ray.local.client.checked_calls import Seconds, checked
from mesh.ray.local.client.large_values import value_of
from mesh.ray.local.client.parsing import unsendable
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.status_values import TaskStatus
from mesh.ray.local.supervision_errors import NotOverYet, TaskFailed, TaskNotRunning
from mesh.ray.local.verbs import TaskVerbs

#: Time that a call waits for its task to start, or to start again.
CALL_WAITS_S_MAX = 60.0
#: Time to wait, after an agent's death, until the supervisor knows of it.
LOSS_HEARD_S_MAX = 3.0
_FOREVER_S = 1e9
_NOT_AT_WORK = tuple(state for state in TaskState if state not in AT_WORK)


@checked()
class TaskHandle:
    """Client of one task. Can be pickled; the task does not depend on it."""

    def __init__(self, link: SupervisorLink, task: TaskId) -> None:
        self.task = task
        self._link = link
        self._agent: tuple[Any, int] | None = None

    def __reduce__(self) -> tuple[type[TaskHandle], tuple[SupervisorLink, TaskId]]:
        """Pickle without the agent: the other process looks it up itself."""
        return type(self), (self._link, self.task)

    def __repr__(self) -> str:
        return f"TaskHandle({self.task!r})"

    def status(self) -> TaskStatus:
        """Return the task's state, reason, position in the queue, and estimate."""
        status: TaskStatus = self._link.ask(TaskVerbs.task, self.task)
        return self._heard(status)

    def why(self) -> str:
        """Return why the task does not run now, as text; empty when it runs."""
        status = self.status()
        if status.state in AT_WORK or status.reason is None:
            return ""
        place = f" It is number {status.position} in the queue." if status.position is not None else ""
        wait = f" About {status.estimate_ms / 1000:.0f} s more, by the pace of recent starts." if status.estimate_ms is not None else ""
        return f"{_in_words(status).rstrip('.')}.{place}{wait}"

    def wait_started(self, timeout_s: Seconds | None = None) -> TaskStatus:
        """Wait until the agent is up, the task is over, or the timeout; return the status. A full pool is a wait, not an error."""
        return self._wait(tuple(AT_WORK), timeout_s)

    def wait(self, timeout_s: Seconds | None = None) -> TaskStatus:
        """Wait until the task is over, or until the timeout; return the status."""
        return self._wait((), timeout_s)

    def result(self, timeout_s: Seconds | None = None) -> Any:
        """Return the result of the entry method.

        Raises:
            TaskFailed: The method raised, or the agent could not be created or was lost; with the user's traceback.
            TaskNotRunning: The task was cancelled.
            ResultLost: The result was large, and was lost with a supervisor that died.
            NotOverYet: The task is not over in time; the message names its state.
        """
        deadline = time.monotonic() + (timeout_s if timeout_s is not None else _FOREVER_S)
        while True:
            status, answer = self._link.ask(TaskVerbs.result, self.task, max(0.0, deadline - time.monotonic()))
            if self._heard(status).is_over:
                break
            if time.monotonic() >= deadline:
                raise NotOverYet(f"task {self.task} is {status.state.value}: {self.why()}")
        if status.state is TaskState.CANCELLED:
            raise TaskNotRunning(f"task {self.task} was cancelled: {_in_words(status)}")
        if status.state is TaskState.FAILED:
            raise _failure(status, answer[0] if answer is not None else None)
        if answer is None:
            return None
        return value_of(*answer, f"task {self.task}")

    def remote(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the object and return the ObjectRef of its value. Goes straight to the agent.

        Raises:
            TaskNotRunning: The task is over, or does not start in time.
            ArgumentError: An argument cannot be pickled.
        """
        handle, attempt = self._up()
        try:
            return handle.call_named.options(name=call_name(self.task, attempt, method)).remote(*args, **kwargs)
        except TypeError as refused:
            raise unsendable(method, args, kwargs, refused) from refused

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the object and wait for its value; waits for the task's start first.

        Raises:
            TaskNotRunning: The task is over, does not start in time, or its agent died or was unreachable during the call.
            ArgumentError: An argument cannot be pickled.
        """
        while True:
            try:
                return ray.get(self.remote(method, *args, **kwargs))
            except RayTaskError as error:
                if not isinstance(error.cause, NothingHosted):
                    raise
                self._agent = None  # The task has moved; the call has not begun.
            except RayActorError as error:
                self._agent = None
                became = "was unreachable" if isinstance(error, ActorUnavailableError) else "died"
                raise TaskNotRunning(
                    f"the agent of task {self.task} {became} during the call of {method}, which may have begun; {self._after_a_loss()}"
                ) from error

    def cancel(self, *, keep_state: bool = True, destroy_group: bool = False) -> TaskStatus:
        """Stop the task; its state is saved, so that `resume` continues from there."""
        return self._link.ask(TaskVerbs.cancel, self.task, keep_state=keep_state, destroy_group=destroy_group, requeue=False)

    def preempt(self) -> TaskStatus:
        """Preempt the task: save its state and return it to the queue."""
        return self._link.ask(TaskVerbs.cancel, self.task, keep_state=True, destroy_group=False, requeue=True)

    def resume(self) -> TaskStatus:
        """Resume a cancelled task from its saved state."""
        self._agent = None
        return self._link.ask(TaskVerbs.resume, self.task)

    def finish(self) -> TaskStatus:
        """Mark the task as succeeded and release its resources."""
        return self._link.ask(TaskVerbs.finish, self.task)

    def _wait(self, states: tuple[TaskState, ...], timeout_s: float | None) -> TaskStatus:
        deadline = time.monotonic() + (timeout_s if timeout_s is not None else _FOREVER_S)
        while True:
            left = max(0.0, deadline - time.monotonic())
            status = self._heard(self._link.ask(TaskVerbs.wait_task, self.task, states, left))
            if status.state in states or status.is_over or time.monotonic() >= deadline:
                return status

    def _heard(self, status: TaskStatus) -> TaskStatus:
        """Drop the known agent if the status is of a later attempt: Ray may report the old agent's death later."""
        agent = self._agent
        if agent is not None and agent[1] < status.attempt:
            self._agent = None
        return status

    def _after_a_loss(self) -> str:
        """Return advice for a caller whose call was lost with the agent."""
        with contextlib.suppress(MeshError):  # The supervisor may be away as well; it learns of the loss a moment later.
            status = self._wait(_NOT_AT_WORK, LOSS_HEARD_S_MAX)
            if status.is_over:
                reason = f", {status.reason.value}" if status.reason is not None else ""
                return f"it is {status.state.value}{reason}, and does not start again; `max_restarts` of submit_task limits restarts"
        return "if it is safe to run twice, call again: the call then waits for the task's next start"

    def _up(self) -> tuple[Any, int]:
        agent: tuple[Any, int] | None = self._agent  # Read once: another thread may clear it at any moment.
        if agent is not None and agent[0]._get_local_state() != ActorTableData.DEAD:  # noqa: SLF001 - as Ray Serve does; local, without a call
            return agent
        agent = self._link.ask(TaskVerbs.handle, self.task)  # The agent is usually up, and then one request is enough.
        if agent is None:
            status = self.wait_started(CALL_WAITS_S_MAX)
            agent = self._link.ask(TaskVerbs.handle, self.task) if status.state in AT_WORK else None
            if agent is None:
                raise TaskNotRunning(f"task {self.task} has no agent: it is {status.state.value}, {self.why()}")
        self._agent = agent
        return agent


def _in_words(status: TaskStatus) -> str:
    reason = status.reason.value if status.reason is not None else status.state.value
    return f"{reason}: {status.detail}" if status.detail else reason


def _failure(status: TaskStatus, ended: Ended | None) -> TaskFailed:
    reason = status.reason.value if status.reason is not None else "FAILED"
    words = ended.traceback if ended is not None and ended.traceback else status.detail
    failure = TaskFailed(f"task {status.task} failed, {reason}" + (f": {words}" if words else ""))
    if ended is not None and ended.pickled is not None:
        try:
            failure.__cause__ = cloudpickle.loads(ended.pickled)
        except Exception:  # noqa: BLE001 - its class may be unknown in this process; the text remains
            return failure
    return failure
