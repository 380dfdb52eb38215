"""Reports of an agent to the supervisor, sent on a thread of their own so that user code never waits.

A status report is sent once and forgotten. Other messages are sent until the supervisor acknowledges them, so they survive its
restart; of checkpoints only the last one waits. The supervisor may therefore receive one twice. Each names its task, since a
late message finds the process at another one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import ray
from ray.exceptions import RayError, RayTaskError

from mesh.core.ids import AgentId, TaskId
from mesh.ray.local.agent_messages import AgentStatus
from mesh.ray.local.verbs import AgentVerbs, send

#: Seconds between two checks for acknowledgement, and before a message is sent again.
AGAIN_S = 0.5
#: Limit of unacknowledged messages: a supervisor that comes back is not flooded.
OUT_MAX = 16


class Receipt(str, Enum):
    """State of a sent message."""

    OUT = "OUT"
    """Not acknowledged yet."""
    TAKEN = "TAKEN"
    """The supervisor has the message."""
    LOST = "LOST"
    """The message was lost; the supervisor is away."""


class SupervisorClient(Protocol):
    """Client of the supervisor."""

    def send(self, task: TaskId | None, attempt: int, kind: str, payload: Any) -> Callable[[], Receipt]:
        """Send a message; return a function that checks its state. Does not wait, does not raise."""
        ...


class RaySupervisorClient:
    """Client of a supervisor by the name of its actor, which is looked up again after a failure."""

    def __init__(self, name: str, namespace: str, agent: AgentId) -> None:
        self._name, self._namespace, self._agent = name, namespace, agent
        self._supervisor: Any = None

    def send(self, task: TaskId | None, attempt: int, kind: str, payload: Any) -> Callable[[], Receipt]:
        try:
            if self._supervisor is None:
                self._supervisor = ray.get_actor(self._name, namespace=self._namespace)
            reported = send(self._supervisor, AgentVerbs.report, self._agent, task, attempt, kind, payload)
        except (ValueError, RayError):  # No actor has this name now, or its location cannot be read.
            self._supervisor = None
            return lambda: Receipt.LOST
        return lambda: self._became(reported)

    def _became(self, reported: Any) -> Receipt:
        ready, _ = ray.wait([reported], timeout=0)
        if not ready:
            return Receipt.OUT
        try:
            ray.get(reported)
        except RayTaskError:
            return Receipt.TAKEN  # The supervisor is alive and raised: sending again would raise again.
        except RayError:
            self._supervisor = None
            return Receipt.LOST
        return Receipt.TAKEN


@dataclass(frozen=True, slots=True)
class _Message:
    task: TaskId
    attempt: int
    kind: str
    payload: Any


class ReportSender:
    """Sends an agent's reports. Started with the agent, ends with its process.

    Args:
        client: Client of the supervisor.
        report: Makes the periodic report.
        period_s: Seconds between two reports; may be set later.
    """

    def __init__(self, client: SupervisorClient, report: Callable[[], AgentStatus], *, period_s: float) -> None:
        self._client = client
        self._report = report
        self._period_s = period_s
        self._due_s = time.monotonic() + period_s
        self._lock = threading.Lock()
        self._waiting: deque[_Message] = deque()
        self._out: list[tuple[_Message, Callable[[], Receipt]]] = []
        self._reported: Callable[[], Receipt] | None = None
        self._wake = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._turn, name="teller", daemon=True).start()

    def set_period(self, period_s: float) -> None:
        """Set the period; the next report is one period away."""
        with self._lock:
            self._period_s, self._due_s = period_s, time.monotonic() + period_s
        self._wake.set()

    def send(self, task: TaskId, attempt: int, kind: str, payload: Any) -> None:
        """Queue a message. A checkpoint replaces a waiting checkpoint of the same attempt."""
        message = _Message(task, attempt, kind, payload)
        with self._lock:
            if kind == "checkpoint":
                self._waiting = deque(one for one in self._waiting if (one.kind, one.task, one.attempt) != (kind, task, attempt))
            self._waiting.append(message)
        self._wake.set()

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop all messages of the attempt, because its stop was answered."""
        with self._lock:
            self._waiting = deque(one for one in self._waiting if (one.task, one.attempt) != (task, attempt))
            self._out = [(one, receipt) for one, receipt in self._out if (one.task, one.attempt) != (task, attempt)]

    def turn_once(self) -> float:
        """Send due messages; return the seconds until the next call is needed."""
        now_s = time.monotonic()
        self._look_at_receipts()
        with self._lock:
            ready = [self._waiting.popleft() for _ in range(min(len(self._waiting), OUT_MAX - len(self._out)))]
            is_due = now_s >= self._due_s
            if is_due:
                self._due_s = now_s + self._period_s
        sent = [(message, self._client.send(message.task, message.attempt, message.kind, message.payload)) for message in ready]
        with self._lock:
            self._out += sent
        # Send no report while the last one is unacknowledged.
        if is_due and (self._reported is None or self._reported() is not Receipt.OUT):
            report = self._report()
            self._reported = self._client.send(report.task, report.attempt, "report", report)
        with self._lock:
            rest_s = max(0.0, self._due_s - time.monotonic())
            return min(rest_s, AGAIN_S) if self._out or self._waiting else rest_s

    def _look_at_receipts(self) -> None:
        """Remove acknowledged messages; put lost ones back to the front."""
        with self._lock:
            receipts = [(message, receipt, receipt()) for message, receipt in self._out]
            self._out = [(message, receipt) for message, receipt, became in receipts if became is Receipt.OUT]
            lost = [message for message, _, became in receipts if became is Receipt.LOST]
            newer = {(one.task, one.attempt) for one in self._waiting if one.kind == "checkpoint"}
            self._waiting.extendleft(one for one in reversed(lost) if one.kind != "checkpoint" or (one.task, one.attempt) not in newer)

    def _turn(self) -> None:
        while True:
            rest_s = self.turn_once()
            self._wake.wait(rest_s)
            self._wake.clear()
