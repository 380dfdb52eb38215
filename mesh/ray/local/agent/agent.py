"""The agent: the actor that hosts one task's object, runs its calls, and reports to the supervisor.

Calls of the user's object run in Ray's default concurrency group, commands of the supervisor in `control`: a busy object never
delays a command. `wait_end` has its own group because a call of it is always pending. `host` is in the default group, so
constructor and methods run on the same thread, as in a plain Ray actor.
"""

from __future__ import annotations

import gc
import os
import pickle
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import psutil
import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayError

from mesh.core.ids import AgentId, NodeName, TaskId
from mesh.core.reasons import Reason
from mesh.core.saved_state import StateHandlers, handlers_of
from mesh.jobs.members import LEADER_ADDRESS
from mesh.ray.connection import keep_connected
from mesh.ray.local.agent.agent_errors import CallPreempted, NothingHosted
from mesh.ray.local.agent.error_serialization import serialize_error
from mesh.ray.local.agent.hosted_task import HostedTask, not_here
from mesh.ray.local.agent.report_sender import RaySupervisorClient, ReportSender
from mesh.ray.local.agent_messages import (
    METRICS_PERIOD_MS,
    AgentStatus,
    Ended,
    Failed,
    HostCommand,
    Hosted,
    HostedOrFailed,
    StopCommand,
    StopHow,
    Stopped,
)

A = TypeVar("A")

#: Number of attempts whose answers are kept, so that a repeated command gets the same answer.
ANSWERS_MAX = 64


class QueueProbe:
    """Measures how long calls of an agent wait, with a periodic call of the agent's own, at no cost to callers.

    Args:
        actor: Handle of the agent; its method `probe` is in the concurrency group that is measured.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._sent_s: float | None = None
        self._last_ms = 0

    def send(self, *, is_wanted: bool) -> None:
        """Send the next probe, unless the last one still waits. Nothing is measured while no calls come."""
        if not is_wanted:
            self._sent_s, self._last_ms = None, 0
        elif self._sent_s is None:
            self._sent_s = time.monotonic()
            self._actor.probe.remote()

    def arrived(self) -> None:
        """Record that the probe has begun."""
        if self._sent_s is not None:
            self._last_ms = int((time.monotonic() - self._sent_s) * 1000)
            self._sent_s = None

    @property
    def queue_ms(self) -> int:
        """Waiting time of the last probe, or of the current one if longer."""
        sent_s = self._sent_s
        waited_ms = 0 if sent_s is None else int((time.monotonic() - sent_s) * 1000)
        return max(self._last_ms, waited_ms)


class HostingAgent:
    """One agent process: hosts at most one task at a time, and tasks of one tenant only.

    Args:
        mesh: Name of the mesh.
        supervisor_name: Name of the supervisor's actor. The agent reports by the verb `AgentVerbs.report`. Kinds: `report`
            (`AgentStatus`), `checkpoint` (`StateSnapshot`), `blocked` and `unblocked` (None).
        namespace: Ray namespace of that actor.
        agent: This agent's id.
    """

    def __init__(self, mesh: str, supervisor_name: str, namespace: str, agent: str) -> None:
        keep_connected()
        context = ray.get_runtime_context()
        self._mesh = mesh
        self._agent = AgentId(agent)
        self._node = NodeName(context.get_node_id())
        self._gpu_ids = tuple(map(str, ray.get_gpu_ids()))
        self._process = psutil.Process()
        self._hosted: HostedTask | None = None
        self._is_settled = False  #: True: what was loaded before the first task is excluded from garbage collection.
        self._spoiled = ""  #: Why this process can host no further task.
        self._lock, self._host_lock = threading.Lock(), threading.Lock()
        self._answers: OrderedDict[tuple[TaskId, int], HostedOrFailed] = OrderedDict()
        self._stops: OrderedDict[tuple[TaskId, int], Stopped] = OrderedDict()
        self._end: Ended | None = None  #: End of the last task that was released with it.
        self._blocked = 0
        self._probe = QueueProbe(context.current_actor)
        self._sender = ReportSender(
            RaySupervisorClient(supervisor_name, namespace, self._agent), self._periodic_report, period_s=METRICS_PERIOD_MS / 1000
        )
        self._sender.start()

    # -- the object: default group -------------------------------------------------------------------------------------

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the task's object, plain or `async def`.

        `method` is a method name or a `call_name`. A late call with a `call_name` cannot reach the task that is hosted next.

        Raises:
            NothingHosted: The agent hosts no task, or not the one that was called.
            NoSuchMethod: The object has no such method.
            CallPreempted: The task was asked to stop.
        """
        hosted = self._hosted
        if hosted is None:
            raise self._nothing(method)
        return hosted.call(method, args, kwargs)

    def call_named(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method that Ray's task name names: `agent.call_named.options(name=call_name(…)).remote(…)`.

        A method name as an argument would be pickled, sent and read with every call: 0.1 ms, a sixth of a call without
        arguments. Ray sends the task's name anyway and shows it in its own views.
        """
        hosted = self._hosted
        name = ray.get_runtime_context().get_task_name() or ""
        if hosted is None:
            raise self._nothing(name)
        return hosted.call(name, args, kwargs)

    def stream(self, method: str, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Call a generator method, plain or async. Callers set `num_returns="streaming"`. Raises as `call` does."""
        hosted = self._hosted
        if hosted is None:
            raise self._nothing(method)
        yield from hosted.stream(method, args, kwargs)

    @ray.method(num_returns=2)
    def run(self, task: TaskId, attempt: int) -> tuple[Ended, Any]:
        """Call the command's entry method once; repeated calls return the same answer. Release the object if it ended cleanly.

        Returns:
            How it ended (read it, or wait for `ended`), and its value when the value is too large for `Ended.result` (pass it on
            unread). Errors of user code are not raised; Ray raises when a large value cannot be pickled.
        """
        key = task, attempt
        with self._lock:
            known, hosted = self._end_of(key), self._hosted
        if known is not None:
            return known, None
        if hosted is None or (hosted.task, hosted.attempt) != key:  # It was stopped meanwhile; its stop is the answer.
            return Ended(task=TaskId(""), attempt=0, error=str(self._nothing("run"))), None
        ended, value = hosted.run()
        released = hosted.release()
        if released is None:
            return ended, value
        with self._lock:
            self._spoiled = self._spoiled or released.spoiled or ""
            if self._hosted is hosted:
                self._hosted = None
            self._end = released
        self._sender.forget(task, attempt)
        return released, None

    def host(self, command: HostCommand) -> HostedOrFailed:
        """Build the task's object and restore its saved state. Idempotent per attempt."""
        with self._host_lock:  # With more threads than one, the same command may run here twice.
            with self._lock:
                known = self._known(command)
                if known is not None:
                    return known
                command = _with_address(command, self._node) if command.needs_address else command
                self._hosted = hosted = HostedTask(command, self._agent, self._sends(command))
            self._sender.set_period(command.metrics_period_ms / 1000)
            answer = self._built(hosted, command)
            with self._lock:
                if isinstance(answer, Failed) and self._hosted is hosted:
                    self._hosted = None
                return _remember(self._answers, (command.task, command.attempt), answer)

    def probe(self) -> None:
        """Answer the agent's own periodic call; its waiting time measures the queue."""
        self._probe.arrived()

    # -- commands: the control group -------------------------------------------------------------------------------------

    @ray.method(concurrency_group="control")
    def stop(self, command: StopCommand) -> Stopped:
        """Stop the task within the command's time limits and save its state. Idempotent per attempt."""
        key = command.task, command.attempt
        with self._lock:
            hosted = self._hosted
            is_here = hosted is not None and (hosted.task, hosted.attempt) == key
            if key in self._stops or not is_here or hosted is None:
                known = self._stops.get(key)
                return known or _remember(self._stops, key, not_here(command.task, command.attempt, self._spoiled, self._end_of(key)))
        stopped = hosted.stop(command)
        with self._lock:
            self._spoiled = self._spoiled or stopped.why
            if self._hosted is hosted and stopped.how is not StopHow.STILL_RUNNING:
                self._hosted = None
            _remember(self._stops, key, stopped)
        self._sender.forget(command.task, command.attempt)
        return stopped

    @ray.method(concurrency_group="control")
    def report(self) -> AgentStatus:
        return self._status()

    @ray.method(concurrency_group="control")
    def ping(self) -> str:
        return self._agent

    @ray.method(concurrency_group="watch")
    def wait_end(self) -> None:
        """Block for ever: Ray raises at the caller when the process ends."""
        threading.Event().wait()

    # -- internals -----------------------------------------------------------------------------------------------------

    def _status(self) -> AgentStatus:
        hosted = self._hosted
        with self._process.oneshot():
            cpu, rss_bytes = self._process.cpu_percent() / 100, self._process.memory_info().rss
        status = AgentStatus(
            agent=self._agent,
            task=None if hosted is None else hosted.task,
            attempt=0 if hosted is None else hosted.attempt,
            at_ms=time.time_ns() // 1_000_000,
            pid=os.getpid(),
            node=self._node,
            gpu_ids=self._gpu_ids,
            cpu=cpu,
            rss_bytes=rss_bytes,
            queue_ms=self._probe.queue_ms,
        )
        return status if hosted is None else hosted.described(status, is_blocked=self._blocked > 0)

    def _end_of(self, key: tuple[TaskId, int]) -> Ended | None:
        return self._end if self._end is not None and (self._end.task, self._end.attempt) == key else None

    def _known(self, command: HostCommand) -> HostedOrFailed | None:
        """Return the earlier answer, or why the command cannot be carried out. The caller holds the lock."""
        hosted = self._hosted
        if (command.task, command.attempt) in self._stops:
            return self._failed(command, Reason.PREEMPTED, "it was already stopped")
        if (command.task, command.attempt) in self._answers:
            return self._answers[command.task, command.attempt]
        if self._spoiled:
            return self._failed(command, Reason.START_FAILED, f"the process can host no further task: {self._spoiled}")
        if hosted is not None:
            return self._failed(command, Reason.START_FAILED, f"the agent hosts task {hosted.task}, attempt {hosted.attempt}")
        return None

    def _built(self, hosted: HostedTask, command: HostCommand) -> HostedOrFailed:
        """Build the object; on failure, release everything of it."""
        reason = Reason.CODE_UNAVAILABLE
        try:
            cls = pickle.loads(command.code)  # noqa: S301 - the tenant's own bytes, in the tenant's own process
            handlers = handlers_of(cls) if command.handlers is None else pickle.loads(command.handlers)  # noqa: S301 - the same
            self._settle_in()
            reason = Reason.USER_ERROR
            restored, methods = hosted.build(cls, handlers if isinstance(handlers, StateHandlers) else StateHandlers(), command.saved)
            address = (hosted.address() or command.environment[LEADER_ADDRESS]) if command.needs_address else ""
        except CallPreempted as stopped:
            return self._failed(command, Reason.PREEMPTED, str(stopped))  # `stop` releases the object.
        except BaseException as error:  # noqa: BLE001 - any error of user code is reported
            return self._let_go_of(hosted, command, _reason_of(error, reason), error)
        return Hosted(
            task=command.task,
            attempt=command.attempt,
            agent=self._agent,
            pid=os.getpid(),
            node=self._node,
            methods=methods,
            restored=restored.how,
            why=restored.why,
            unrestored=restored.unrestored,
            address=address,
        )

    def _settle_in(self) -> None:
        """Exclude everything loaded before the first task, modules above all, from garbage collection.

        The collection at a task's end then skips it: 30 ms with Ray alone, ten times that with a large library, and a preemptor
        would wait for it. Garbage of later tasks is not frozen and stays collectable.
        """
        if not self._is_settled:  # Not `gc.get_freeze_count`, which counts the objects one by one, milliseconds each time.
            self._is_settled = True
            gc.freeze()

    def _let_go_of(self, hosted: HostedTask, command: HostCommand, reason: Reason, error: BaseException) -> Failed:
        serialized = serialize_error(error)
        error.__traceback__ = None  # Its frames hold the partly built object.
        spoiled = hosted.let_go()
        with self._lock:
            self._spoiled = self._spoiled or spoiled
        return self._failed(
            command, reason, serialized.words, traceback=serialized.traceback, pickled=serialized.pickled, reusable=not spoiled
        )

    def _failed(self, command: HostCommand, reason: Reason, detail: str, **more: Any) -> Failed:
        more.setdefault("reusable", not self._spoiled and self._hosted is None)
        return Failed(task=command.task, attempt=command.attempt, agent=self._agent, reason=reason, detail=detail, **more)

    def _sends(self, command: HostCommand) -> Callable[[str, Any], None]:
        def send(kind: str, payload: Any) -> None:
            self._blocked += {"blocked": 1, "unblocked": -1}.get(kind, 0)
            self._sender.send(command.task, command.attempt, kind, payload)

        self._blocked = 0
        return send

    def _periodic_report(self) -> AgentStatus:
        hosted = self._hosted
        self._probe.send(is_wanted=hosted is not None and hosted.takes_calls)
        return self._status()

    def _nothing(self, method: str) -> NothingHosted:
        return NothingHosted(f"{method}: agent {self._agent} hosts no task; ask the mesh where the task runs now")


def _remember(answers: OrderedDict[tuple[TaskId, int], A], key: tuple[TaskId, int], answer: A) -> A:
    answers[key] = answer
    while len(answers) > ANSWERS_MAX:
        answers.popitem(last=False)
    return answer


def _with_address(command: HostCommand, node: NodeName) -> HostCommand:
    """Add a free address of this machine, for an object that does not choose one itself."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # untyped in Ray
    host = next(str(row["NodeManagerAddress"]) for row in rows if row["NodeID"] == node)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return replace(command, environment={LEADER_ADDRESS: f"{shown}:{port}", **command.environment})


def _reason_of(error: BaseException, otherwise: Reason) -> Reason:
    """Return the reason of a failed build."""
    if isinstance(error, GetTimeoutError):
        return Reason.WAITING_FOR_INPUTS
    if isinstance(error, ObjectLostError):
        return Reason.VALUE_LOST
    return Reason.UPSTREAM_FAILED if isinstance(error, RayError) else otherwise


#: The actor class. Typed as Any: Ray's types know neither concurrency groups nor what an actor's handle answers.
Agent: Any = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups={"control": 4, "watch": 1})(HostingAgent)  # type: ignore[call-overload]  # see above
