"""API for a task's own code, `mesh.current_task()`: the same for an object of a local mesh and for a function in a stage."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mesh.core.counting import counted
from mesh.core.ids import TaskId
from mesh.core.reasons import Reason
from mesh.core.saved_state import Checkpoint, SnapshotLevel, StateSnapshot
from mesh.errors import MeshError
from mesh.ray.user_code.bounded_pickle import pickled_within

#: Called with kind and payload of each report.
Send = Callable[[str, Any], None]


class NoCurrentTask(MeshError):
    """`current_task` was called in a process that runs no task."""


class TaskPreempted(BaseException):
    """Raised inside user code at a stopping point, so that only `finally` blocks run.

    Not an `Exception`, like `KeyboardInterrupt` and `asyncio.CancelledError`: training loops catch `Exception` and continue
    with the next batch, and they must stop here. Code that needs to clean up catches this class by name and raises it again.
    It never leaves the process: callers of an agent see `CallPreempted`, and a stage runs the node again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFacts:
    """Progress and last checkpoint of a task, as its own calls set them."""

    progress: float | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_bytes: bytes | None = None
    refused: str = ""  #: Why the last checkpoint was not kept.


class TaskContext:
    """One attempt of one task, as its own code sees it: a task of a local mesh, or a node of a graph. Thread-safe.

    `report_progress` and `save_checkpoint` are also stopping points: when the task is asked to stop, they first save their
    arguments, then raise `TaskPreempted`. A loop that saves a checkpoint after each step loses no step::

        task = mesh.current_task()
        state = task.last_checkpoint() or State()
        while not state.is_done:
            state = step(state)
            task.save_checkpoint(state, progress=state.done / state.steps)

    Args:
        saved: State that an earlier attempt left.
        saved_bytes_max: Largest pickled checkpoint.
        send: Gets `checkpoint` with a `StateSnapshot`, `blocked` and `unblocked`.
        load: Returns the pickled checkpoint of earlier attempts, when `saved` is not known at the start; called when the code asks.
    """

    def __init__(
        self,
        *,
        task: str,
        attempt: int,
        saved: StateSnapshot | None,
        saved_bytes_max: int,
        send: Send,
        load: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.task = TaskId(task)
        self.attempt = attempt  #: Counted from 1.
        self._bytes_max = saved_bytes_max
        self._send = send
        self._load = load
        self._is_used = False
        self._lock = threading.Lock()
        self._stop_reason: Reason | None = None
        self._has_noticed = False
        self._kept_s = time.monotonic()
        self._facts = KeptFacts()
        if saved is not None:
            self._facts = KeptFacts(progress=saved.progress, checkpoint=saved.checkpoint, checkpoint_bytes=saved.checkpoint_bytes)

    def report_progress(self, done: float, of: float = 1.0) -> None:
        """Report the task's progress: `report_progress(0.25)`, or `report_progress(25, of=100)`.

        Raises:
            ValueError: It is not from 0 to 1, or from 0 to `of`.
            TaskPreempted: The task was asked to stop.
        """
        if not of > 0:
            raise ValueError(f"progress must be a part of a number above 0, got {done!r} of {of!r}")
        fraction = done / of
        _check_fraction(fraction)
        with self._lock:
            self._facts = replace(self._facts, progress=fraction)
        self.stop_if_asked()

    def save_checkpoint(self, value: Any, *, progress: float | None = None) -> bool:
        """Save `value` as the checkpoint that a later attempt resumes from. It replaces the checkpoint before.

        Returns:
            False when the value is larger than the task's limit: the checkpoint before stays, and the task's snapshot says why.

        Raises:
            TypeError: The value cannot be pickled, or holds an ObjectRef (which is gone when this process ends).
            ValueError: The progress is not from 0 to 1.
            TaskPreempted: The task was asked to stop; the value is saved.
        """
        if progress is not None:
            _check_fraction(progress)
        pickled = pickled_within(value, self._bytes_max, what="a checkpoint")
        with self._lock:
            snapshot = self._keep(pickled, progress)
        if snapshot is not None:
            self._send("checkpoint", snapshot)
        self.stop_if_asked()
        return snapshot is not None

    def last_checkpoint(self) -> Any:
        """Return a fresh copy of the last saved checkpoint, of this attempt or an earlier one; None when there is none."""
        pickled = self._facts.checkpoint_bytes
        if pickled is None:
            pickled = self._load()
        return None if pickled is None else pickle.loads(pickled)  # noqa: S301 - the tenant's own bytes, in the tenant's own process

    @property
    def progress(self) -> float | None:
        """Last reported progress; None before the first report."""
        return self._facts.progress

    def should_stop(self) -> bool:
        """Return whether the task was asked to stop, by a preemption or a cancel. A method that sees True and returns counts as stopped,
        not as finished.
        """
        asked = self._stop_reason is not None
        self._has_noticed = self._has_noticed or asked
        return asked

    def stop_if_asked(self) -> None:
        """Stop here if the task was asked to stop.

        Raises:
            TaskPreempted: The task was asked to stop.
        """
        if self.should_stop():
            raise TaskPreempted(f"task {self.task} is asked to stop: {self._stop_reason and self._stop_reason.value}")

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Mark the task as waiting for the output of another task while the context is open."""
        self._send("blocked", None)
        try:
            yield
        finally:
            self._send("unblocked", None)

    # -- the side of the agent, or of the worker of a stage ------------------------------------------------------------

    @property
    def is_used(self) -> bool:
        """Whether the task's code has asked for this object."""
        return self._is_used

    def use(self) -> TaskContext:
        """Return this object to the task's code."""
        self._is_used = True
        return self

    def ask_to_stop(self, reason: Reason) -> None:
        """Make every stopping point raise from now on. The first reason stays."""
        self._stop_reason = self._stop_reason or reason

    @property
    def has_noticed(self) -> bool:
        """Whether the task's code has seen the request to stop."""
        return self._has_noticed

    @property
    def facts(self) -> KeptFacts:
        """Progress and checkpoint so far."""
        return self._facts

    @property
    def unkept_ms(self) -> int:
        """Milliseconds since the last checkpoint of this attempt, or its start."""
        return int((time.monotonic() - self._kept_s) * 1000)

    def _of_element(self, index: int) -> TaskContext:
        """Return the context of an element, if this task is a part of an array."""
        return TaskContext(
            task=f"{self.task}[{index}]", attempt=self.attempt, saved=None, saved_bytes_max=self._bytes_max, send=_send_nothing
        )

    def _asked_to_stop_too(self, element: TaskContext) -> TaskContext:
        """Return the context of an element, which stops when this part is asked to."""
        if self._stop_reason is not None:
            element.ask_to_stop(self._stop_reason)
        return element

    def _keep(self, pickled: bytes | None, progress: float | None) -> StateSnapshot | None:
        """Record the checkpoint; return None when it is too large. The caller holds the lock."""
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
        return StateSnapshot(
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
    """Context of the one task that this process runs; global, so that threads of user code see it too."""

    present: TaskContext | None = None
    make: Callable[[], TaskContext] | None = None  #: Makes the context when code asks for it.
    element: Callable[[], TaskContext] | None = None  #: Returns the context of the element that runs, while a part of an array does.
    guard: threading.Lock = field(default_factory=threading.Lock)


_process = _Process()


def current_task() -> TaskContext:
    """Return the task whose code calls this.

    Raises:
        NoCurrentTask: This process runs no task.
    """
    return part_task() if _process.element is None else _process.element()


def part_task() -> TaskContext:
    """Return the task that this process runs; for code of an element, the part of the array. Raises NoCurrentTask."""
    if _process.make is not None:
        with _process.guard:
            if _process.make is not None:
                _process.present, _process.make = _process.make(), None
    if _process.present is None:
        raise NoCurrentTask("no task runs in this process; call `current_task()` in methods of a class that an agent hosts, or in a node")
    return _process.present.use()


def make_current(context: TaskContext | None) -> None:
    """Set the task that this process runs; called by the agent, and by the worker of a stage."""
    _process.present, _process.make = context, None


def make_current_when_asked(make: Callable[[], TaskContext]) -> None:
    """Set the task that this process runs; its context is made when code asks for it, since most code never does."""
    _process.present, _process.make = None, make


@contextmanager
def elements_of(first: int) -> Iterator[list[int]]:
    """While a part of an array runs, give code that asks for its task one of its element. Its checkpoints are not kept.

    Args:
        first: Index of the part's first element.

    Yields:
        A list whose only entry is the place of the element that runs.
    """
    running = [0]
    asked: dict[int, TaskContext] = {}

    def task() -> TaskContext:
        place, part = running[0], part_task()
        if place not in asked:
            asked.clear()
            asked[place] = part._of_element(first + place)  # noqa: SLF001  a part and its elements are one
        return part._asked_to_stop_too(asked[place]).use()  # noqa: SLF001  the same

    _process.element = task
    try:
        yield running
    finally:
        _process.element = None


def _send_nothing(_kind: str, _payload: Any) -> None:
    """Take the reports of an element's task."""


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress must be from 0 to 1, got {fraction!r}")
