"""The task that a worker runs: what the runner learns of it while it runs, and how it learns that it is asked to stop.

One thread of the worker, the pulse, reports. It announces a task that runs for a while. For code that uses `mesh.current_task()` it also
sends the newest checkpoint and the progress, and the runner answers whether the stage stops. Code that never asks for its task costs no
call.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.ray.user_code.task_context import TaskContext, TaskPreempted
from mesh.ray.worker.exporting import StorageAway, ValueUnreadable, ValueUnwritable, export_encoded, read_verified

#: Run time after which the start of a task is reported separately; seconds. The start of a shorter task is reported with its end, at
#: no cost.
ANNOUNCE_AFTER_S = 0.3
#: Largest pickled checkpoint of a node.
CHECKPOINT_BYTES_MAX = 256 * 2**20
#: Attempts to read a checkpoint while the storage fails, and the first pause between two of them, which doubles; seconds.
READS_MAX, READ_AGAIN_S = 5, 0.5
_PULSE_S = 0.15
_IDLE_PULSES_MAX = 20
#: Longest pause after which the worker asks again whether the stage stops; seconds.
_ASK_EVERY_S = 0.45
#: Longest wait for the runner when a task fails or stops; seconds. A runner that is gone takes its tasks with it.
FLUSH_S_MAX = 5.0


#: Pause between two reports of the same kind on one node; seconds.
REPORT_EVERY_S = 1.0

#: Address of a checkpoint; and its bytes, when the control store carries them.
Saved = tuple[StoredValue, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Report of a worker to its runner on the running task; None: nothing new."""

    saved: Saved | None = None
    progress: float | None = None
    refused: tuple[Reason, str] | None = None  #: A checkpoint was not kept, or could not be read; the text says why.


class AttemptLost(BaseException):
    """Raised inside user code when the attempt cannot go on, through no fault of the code. `reason`: why.

    Not an `Exception`, like `TaskPreempted`: code that catches it and starts anew would replace a good checkpoint.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[1])


class PresentTask:
    """The task that this worker process runs at the moment.

    Args:
        runner: Actor handle of the runner.
        storage_url: Folder of checkpoints that are too large for the control store.
        announces: Whether it reports the start of a task that runs for a while.
        sleep: Replaces `time.sleep` in tests.
    """

    def __init__(
        self,
        runner: Any,
        *,
        run: RunId,
        stage: StageId,
        node: NodeId,
        attempt: int,
        storage_url: str,
        inline_limit_bytes: int,
        announces: bool = True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.started_ms = time.time_ns() // 1_000_000
        self.context = TaskContext(
            task=node, attempt=attempt, saved=None, saved_bytes_max=CHECKPOINT_BYTES_MAX, send=_send_nothing, load=self._load
        )
        self.runner = runner  #: Actor handle of the runner.
        self._run, self._stage, self._node, self._attempt = run, stage, node, attempt
        self._storage_url, self._inline_limit_bytes = storage_url, inline_limit_bytes
        self._sleep = sleep
        self._began_s = time.monotonic()
        self._is_announced = not announces
        self._lock = threading.Lock()
        self._answer: Future[bool] | None = None
        self._ask_s = 0.0  #: When to ask again, and when the next file may be written; seconds, monotonic.
        self._file_s = 0.0
        self._sent_number = 0
        self._sent_progress: float | None = None
        self._sent_refusal = ""
        self._earlier: tuple[bytes | None] | None = None

    def report(self) -> None:
        """Report what is new; called by the pulse."""
        now_s = time.monotonic()
        if not self._is_announced and now_s - self._began_s >= ANNOUNCE_AFTER_S:
            self._is_announced = True
            with contextlib.suppress(Exception):  # The runner may be gone; the announcement is not needed then.
                self.runner.announce.remote(self._stage, self._node, self._attempt, self.started_ms)
        if self.context.is_used:
            with self._lock:
                if self._answer is None or self._answer.done():
                    self._exchange(now_s, is_last=False)

    def check_goes_on(self) -> None:
        """Raise TaskPreempted if the task's code has returned because it was asked to stop: its value is no result."""
        if self.context.has_noticed:
            raise TaskPreempted(f"{self._node} returned when it was asked to stop")

    def flush(self) -> None:
        """Send the newest checkpoint, and wait until the runner has it, up to `FLUSH_S_MAX`: the task failed or stops."""
        if not self.context.is_used:
            return
        with self._lock, contextlib.suppress(Exception):  # The error of the task matters more than one on the way here.
            self._exchange(float("inf"), is_last=True)
            if self._answer is not None:  # The runner handles calls in their order, so the last answer is that of all calls.
                self._answer.result(FLUSH_S_MAX)

    def _exchange(self, now_s: float, *, is_last: bool) -> None:
        """Send what is new. With nothing new the runner is only asked whether to stop, now and then, and not at the end."""
        saving = self._unsent(now_s)
        if saving == _NOTHING and (is_last or now_s < self._ask_s):
            return
        self._ask_s = now_s + _ASK_EVERY_S
        self._answer = self.runner.pulse.remote(self._stage, self._node, saving).future()
        self._answer.add_done_callback(self._heed)

    def _heed(self, answer: Future[bool]) -> None:
        if answer.exception() is None and answer.result():
            self.context.ask_to_stop(Reason.PREEMPTED)

    def _unsent(self, now_s: float) -> Saving:
        facts = self.context.facts
        saved, refused = None, None
        if facts.checkpoint is not None and facts.checkpoint.number > self._sent_number and facts.checkpoint_bytes is not None:
            is_large = facts.checkpoint.size_bytes > self._inline_limit_bytes
            if not is_large or now_s >= self._file_s:
                self._sent_number = facts.checkpoint.number
                self._file_s = now_s + REPORT_EVERY_S if is_large else self._file_s
                try:
                    saved = self._stored(facts.checkpoint_bytes)
                except ValueUnwritable as unwritable:
                    refused = unwritable.reason, f"a checkpoint of {self._node} was not kept: {unwritable}"
        elif facts.refused and facts.refused != self._sent_refusal:
            self._sent_refusal = facts.refused
            refused = Reason.RESULT_UNSERIALIZABLE, f"{self._node}: {facts.refused}"
        progress = facts.progress if facts.progress != self._sent_progress else None
        self._sent_progress = facts.progress
        return Saving(saved=saved, progress=progress, refused=refused)

    def _stored(self, pickled: bytes) -> Saved:
        """Store the checkpoint. It differs from all other values of the run, so that it can be dropped alone.

        A pickle ends before the bytes that are added: who reads it ignores them.
        """
        return export_encoded(
            pickled + uuid.uuid4().bytes,
            Encoding.PICKLE,
            run=self._run,
            node=self._node,
            storage_url=self._storage_url,
            inline_limit_bytes=self._inline_limit_bytes,
        )

    def _load(self) -> bytes | None:
        """Return the newest checkpoint that an earlier attempt left; Ray's own retries count as attempts here. None when it is lost.

        Raises:
            AttemptLost: The runner is gone, or the storage fails: the checkpoint stays for the next attempt.
        """
        if self._earlier is None:
            last: Saved | None = self._asked(lambda: self.runner.last_checkpoint.remote(self._stage, self._node))
            try:
                self._earlier = (None if last is None else bytes(self._read(last)),)
            except StorageAway as away:
                raise AttemptLost(away.reason, f"the last checkpoint of {self._node} cannot be read now: {away}") from away
            except ValueUnreadable as lost:
                self._earlier = (None,)
                refused = lost.reason, f"the last checkpoint of {self._node} is lost, it starts anew: {lost}"
                self._asked(lambda: self.runner.pulse.remote(self._stage, self._node, Saving(refused=refused)))
        return self._earlier[0]

    def _read(self, saved: Saved) -> bytes | bytearray:
        reads = Retrying(
            retry=retry_if_exception_type(StorageAway),
            stop=stop_after_attempt(READS_MAX),
            wait=wait_exponential(READ_AGAIN_S),
            sleep=self._sleep,
            reraise=True,
        )
        return reads(read_verified, *saved)

    def _asked(self, call: Callable[[], Any]) -> Any:
        """Return the runner's answer, however long it takes: a slow runner is no error of the code that waits.

        Raises:
            AttemptLost: The runner is gone.
        """
        try:
            # A future, not `ray.get`: Ray would give the CPUs of a task that waits in `ray.get` to another.
            return call().future().result()
        except RayError as gone:
            raise AttemptLost(Reason.WORKER_LOST, f"the runner of {self._node} is gone: {gone}") from gone


@dataclass(slots=True)
class Pulse:
    """Thread that reports the present task of this process. It ends when no task has come for a while."""

    present: PresentTask | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    beats: bool = False

    def begin(self, present: PresentTask) -> None:
        self.present = present
        if not self.beats:
            with self.lock:
                if not self.beats:
                    self.beats = True
                    threading.Thread(target=self._pulse, name="pulse", daemon=True).start()

    def _pulse(self) -> None:
        wait, idle = threading.Event(), 0
        while True:
            wait.wait(_PULSE_S)
            present = self.present
            idle = idle + 1 if present is None else 0
            if idle > _IDLE_PULSES_MAX:
                with self.lock:
                    if self.present is None:
                        self.beats = False
                        return
            if present is not None:
                with contextlib.suppress(Exception):  # Without this thread no later task of this worker would report.
                    present.report()


_NOTHING = Saving()


def _send_nothing(_kind: str, _payload: Any) -> None:
    """Take the reports of a context: the pulse reads its facts instead."""
