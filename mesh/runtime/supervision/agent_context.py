"""What a task's own code may ask and tell: `mesh.current_task()`."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from mesh.counting import counted
from mesh.ids import TaskId
from mesh.reasons import Reason
from mesh.runtime.supervision.agent_errors import NoCurrentTask, TaskPreempted
from mesh.runtime.supervision.pickled_code import pickled_within
from mesh.saved_state import Checkpoint, Snapshot, SnapshotLevel

#: To whom the context tells something: kind and payload.
Tell = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFacts:
    """What the mesh knows of a task's work by itself."""

    progress: float | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_bytes: bytes | None = None
    refused: str = ""  #: Why the last checkpoint was not kept.


class TaskContext:
    """One attempt of one task, as its own code sees it. Any thread of the process may use it.

    `report_progress` and `save_checkpoint` are also points where the task stops when it has to give way: they keep what
    they were given first and raise `TaskPreempted` then. A loop that saves a checkpoint after each step loses no step::

        task = mesh.current_task()
        state = task.last_checkpoint() or State()
        while not state.is_done:
            state = step(state)
            task.save_checkpoint(state, progress=state.done / state.steps)
    """

    def __init__(self, *, task: TaskId, attempt: int, saved: Snapshot | None, saved_bytes_max: int, tell: Tell) -> None:
        self.task = task
        self.attempt = attempt  #: From 1.
        self._bytes_max = saved_bytes_max
        self._tell = tell
        self._lock = threading.Lock()
        self._stop_reason: Reason | None = None
        self._has_noticed = False
        self._kept_s = time.monotonic()
        self._facts = KeptFacts()
        if saved is not None:
            self._facts = KeptFacts(progress=saved.progress, checkpoint=saved.checkpoint, checkpoint_bytes=saved.checkpoint_bytes)

    def report_progress(self, fraction: float) -> None:
        """Tell how far the task is, from 0 to 1.

        Raises:
            ValueError: Not from 0 to 1.
            TaskPreempted: The task has to give way.
        """
        _check_fraction(fraction)
        with self._lock:
            self._facts = replace(self._facts, progress=fraction)
        self.stop_if_asked()

    def save_checkpoint(self, value: Any, *, progress: float | None = None) -> bool:
        """Keep `value`, so that a later attempt can go on from here. It replaces the one before.

        Returns:
            False when it is larger than the task's limit: the one before stays, and the task's snapshot says why.

        Raises:
            TypeError: It cannot be pickled, or holds an ObjectRef (which is gone when this process ends).
            ValueError: The progress is not from 0 to 1.
            TaskPreempted: The task has to give way; the value is kept.
        """
        if progress is not None:
            _check_fraction(progress)
        pickled = pickled_within(value, self._bytes_max, what="a checkpoint")
        with self._lock:
            snapshot = self._keep(pickled, progress)
        if snapshot is not None:
            self._tell("checkpoint", snapshot)
        self.stop_if_asked()
        return snapshot is not None

    def last_checkpoint(self) -> Any:
        """The last one that was kept, of this attempt or an earlier one, unpickled anew; None when there is none."""
        pickled = self._facts.checkpoint_bytes
        return None if pickled is None else pickle.loads(pickled)  # noqa: S301 - the tenant's own bytes, in the tenant's own process

    @property
    def progress(self) -> float | None:
        """As it was reported last; None when it never was."""
        return self._facts.progress

    def should_stop(self) -> bool:
        """Has the task to give way? A method that sees True and returns is taken to have given way, not to have finished."""
        asked = self._stop_reason is not None
        self._has_noticed = self._has_noticed or asked
        return asked

    def stop_if_asked(self) -> None:
        """A point where the task stops.

        Raises:
            TaskPreempted: It has to give way.
        """
        if self.should_stop():
            raise TaskPreempted(f"task {self.task} is asked to stop: {self._stop_reason and self._stop_reason.value}")

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Within it the task waits for something that another task makes, and the mesh shows it so."""
        self._tell("blocked", None)
        try:
            yield
        finally:
            self._tell("unblocked", None)

    # -- the agent's side ----------------------------------------------------------------------------------------------

    def ask_to_stop(self, reason: Reason) -> None:
        """From now on every stopping point stops. The first reason holds."""
        self._stop_reason = self._stop_reason or reason

    @property
    def has_noticed(self) -> bool:
        """Has the task's code seen that it is to stop?"""
        return self._has_noticed

    @property
    def facts(self) -> KeptFacts:
        """What is kept by now."""
        return self._facts

    @property
    def unkept_ms(self) -> int:
        """Since the last checkpoint of this attempt, or its start."""
        return int((time.monotonic() - self._kept_s) * 1000)

    def _keep(self, pickled: bytes | None, progress: float | None) -> Snapshot | None:
        """Under the lock: take the checkpoint in. None when it was too large."""
        facts = self._facts
        progress = facts.progress if progress is None else progress
        if pickled is None:
            refused = f"the last checkpoint is larger than {counted(self._bytes_max, 'byte')} and was not kept"
            self._facts = replace(facts, progress=progress, refused=refused)
            return None
        number = 1 if facts.checkpoint is None else facts.checkpoint.number + 1
        checkpoint = Checkpoint(number=number, at_ms=time.time_ns() // 1_000_000, size_bytes=len(pickled), progress=progress)
        self._facts = KeptFacts(progress=progress, checkpoint=checkpoint, checkpoint_bytes=pickled)
        self._kept_s = time.monotonic()
        return Snapshot(
            task=self.task,
            attempt=self.attempt,
            at_ms=checkpoint.at_ms,
            level=SnapshotLevel.DEFAULT,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_bytes=pickled,
        )


@dataclass(slots=True)
class _Process:
    """A process hosts one task at most, so its context is the process's own: threads that the user starts see it as well."""

    present: TaskContext | None = None


_process = _Process()


def current_task() -> TaskContext:
    """The task whose code calls this.

    Raises:
        NoCurrentTask: This process hosts no task.
    """
    if _process.present is None:
        raise NoCurrentTask("no task runs in this process; `current_task()` works in the methods of a class that an agent hosts")
    return _process.present


def make_current(context: TaskContext | None) -> None:
    """For the agent: whose process this is now."""
    _process.present = context


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress goes from 0 to 1, and {fraction!r} is beyond")
