"""How an agent tells the supervisor: on a thread of its own, never in the way of the user's code.

A report is told once and forgotten. A checkpoint and an end are told until the supervisor has taken them, so they survive its
restart; of checkpoints only the last one waits. The supervisor may therefore hear one twice.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from mesh.ids import TaskId

#: How soon it is looked again whether a message was taken, and a message that was not is told again.
AGAIN_S = 0.5
#: Messages that are told at once, at most: a supervisor that is away is not flooded when it comes back.
OUT_MAX = 16


class Receipt(str, Enum):
    """What became of a message."""

    OUT = "OUT"
    """Not answered yet."""
    TAKEN = "TAKEN"
    """The supervisor has it."""
    LOST = "LOST"
    """It was not taken; the supervisor is away, or said no."""


class SupervisorDoor(Protocol):
    """The way to the supervisor."""

    def tell(self, attempt: int, kind: str, payload: Any) -> Callable[[], Receipt]:
        """Send a message; the answer asks what has become of it. Does not wait, does not raise."""
        ...


@dataclass(frozen=True, slots=True)
class _Message:
    task: TaskId | None
    attempt: int
    kind: str
    payload: Any


class Teller:
    """Tells. Started with the agent, ends with its process.

    Args:
        door: To the supervisor.
        report: Makes the periodic report: the task, its attempt and the report itself.
        period_s: Between two reports; may be set later.
    """

    def __init__(self, door: SupervisorDoor, report: Callable[[], tuple[int, Any]], *, period_s: float) -> None:
        self._door = door
        self._report = report
        self._period_s = period_s
        self._due_s = time.monotonic() + period_s
        self._lock = threading.Lock()
        self._waiting: deque[_Message] = deque()
        self._out: list[tuple[_Message, Callable[[], Receipt]]] = []
        self._reported: Callable[[], Receipt] | None = None
        self._wake = threading.Event()

    def start(self) -> None:
        """Begin; the thread is a daemon."""
        threading.Thread(target=self._turn, name="teller", daemon=True).start()

    def set_period(self, period_s: float) -> None:
        """From now on; the next report is one period away."""
        with self._lock:
            self._period_s, self._due_s = period_s, time.monotonic() + period_s
        self._wake.set()

    def tell(self, task: TaskId, attempt: int, kind: str, payload: Any) -> None:
        """Have it told, soon. A checkpoint takes the place of an earlier one of its attempt that waits still."""
        message = _Message(task, attempt, kind, payload)
        with self._lock:
            if kind == "checkpoint":
                self._waiting = deque(one for one in self._waiting if (one.kind, one.task, one.attempt) != (kind, task, attempt))
            self._waiting.append(message)
        self._wake.set()

    def forget(self, task: TaskId, attempt: int) -> None:
        """Nothing of the attempt has to be told any more: its stop was answered."""
        with self._lock:
            self._waiting = deque(one for one in self._waiting if (one.task, one.attempt) != (task, attempt))
            self._out = [(one, receipt) for one, receipt in self._out if (one.task, one.attempt) != (task, attempt)]

    def turn_once(self) -> float:
        """Tell what is due; how many seconds may pass until the next turn."""
        now_s = time.monotonic()
        self._look_at_receipts()
        with self._lock:
            ready = [self._waiting.popleft() for _ in range(min(len(self._waiting), OUT_MAX - len(self._out)))]
            is_due = now_s >= self._due_s
            if is_due:
                self._due_s = now_s + self._period_s
        sent = [(message, self._door.tell(message.attempt, message.kind, message.payload)) for message in ready]
        with self._lock:
            self._out += sent
        # A supervisor that has not answered the last report does not get another on top of it.
        if is_due and (self._reported is None or self._reported() is not Receipt.OUT):
            attempt, report = self._report()
            self._reported = self._door.tell(attempt, "report", report)
        with self._lock:
            rest_s = max(0.0, self._due_s - time.monotonic())
            return min(rest_s, AGAIN_S) if self._out or self._waiting else rest_s

    def _look_at_receipts(self) -> None:
        """What was taken is done with; what was lost goes back to the front."""
        with self._lock:
            told = [(message, receipt, receipt()) for message, receipt in self._out]
            self._out = [(message, receipt) for message, receipt, became in told if became is Receipt.OUT]
            lost = [message for message, _, became in told if became is Receipt.LOST]
            newer = {(one.task, one.attempt) for one in self._waiting if one.kind == "checkpoint"}
            self._waiting.extendleft(one for one in reversed(lost) if one.kind != "checkpoint" or (one.task, one.attempt) not in newer)

    def _turn(self) -> None:
        while True:
            rest_s = self.turn_once()
            self._wake.wait(rest_s)
            self._wake.clear()
