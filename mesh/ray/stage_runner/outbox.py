"""Messages of a runner, kept until a listener has received and confirmed them.

A batch that was handed out is kept, since the listener may die before it passes the batch on. A new listener gets all unconfirmed
batches again with their old numbers, by which the store recognizes batches that it has accepted already.

While the root is away, nothing is confirmed. The kept bytes are bounded: beyond a limit no further task begins (`has_room`). Nothing
is dropped, since tasks that have begun will end. The process of the mesh holds the same batches, so the bound holds for it as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import structlog

from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.values import StoredValue
from mesh.core.wire import encode
from mesh.stages.messages import NodeFailed, NodeGrew, NodeOutput, StageEnded, StageMessage

log = structlog.get_logger(__name__)

#: A stage, the number of the batch (counts up from 1 for each stage), its messages as JSON, and the bytes that belong to them by their
#: SHA-256; and the nodes that finished.
Batch = tuple[StageId, int, list[bytes], dict[str, bytes], list["Finished"]]
#: A finished node of a run, and its value: as a pickle when it is small, its address when it was stored. None: it is not kept, or was lost.
Finished = tuple[RunId, NodeId, bytes | StoredValue | None]


#: Messages that follow each other closely are handed out together, with at most this delay: each batch costs as much as several small
#: tasks. The first message after a pause, failures and ends are not delayed. Seconds.
GATHER_S = 0.02
#: Bytes of unconfirmed batches from which on no further task of the runner begins.
BYTES_MAX = 64 * 2**20
_URGENT = (NodeFailed, NodeGrew, StageEnded)
#: Limit for the output of nodes that is not confirmed; further output is left out. Bytes.
OUTPUT_BYTES_MAX = 4 << 20


class Outbox:
    """Messages in order, by stage. One thread writes, others wait.

    Args:
        bytes_max: See `BYTES_MAX`.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0  #: Sum over all messages that are not confirmed.
        self._when_room: Callable[[], None] | None = None  #: To be called when bytes are confirmed.
        self._fresh: dict[StageId, tuple[list[bytes], dict[str, bytes], list[Finished]]] = {}  #: Not handed out yet.
        self._again: list[Batch] = []  #: For a new listener.
        self._kept: dict[StageId, dict[int, Batch]] = {}  #: Handed out and not confirmed, by number.
        self._numbers: dict[StageId, int] = {}  #: The last of each stage.
        self._ended: set[StageId] = set()
        self._listener = 0
        self._new_events = threading.Condition()
        self._is_urgent = False
        self._taken_at = 0.0  #: Seconds, monotonic.
        self._output_bytes: dict[StageId, dict[int, int]] = {}  #: Unconfirmed output, by stage and number of the batch.

    def put(self, message: StageMessage | NodeOutput, blobs: dict[str, bytes] | None = None, finished: Iterable[Finished] = ()) -> None:
        """Add a message, the bytes that must be stored before it is read, and the nodes that finished with it."""
        data = encode(message)
        with self._new_events:
            if isinstance(message, NodeOutput) and not self._takes_output(message.stage, len(data)):
                return
            finished = tuple(finished)
            self._bytes += len(data) + _size(blobs or {}, finished)
            is_first = not self._fresh
            messages, kept, nodes = self._fresh.setdefault(message.stage, ([], {}, []))
            messages.append(data)
            if blobs:
                kept.update(blobs)
            nodes.extend(finished)
            if isinstance(message, _URGENT):
                self._is_urgent = True
            if isinstance(message, StageEnded):
                self._ended.add(message.stage)
            if is_first or self._is_urgent:
                self._new_events.notify_all()

    def _takes_output(self, stage: StageId, size_bytes: int) -> bool:
        """Count output of a stage for its next batch; return whether there is room for it."""
        if sum(sum(sizes.values()) for sizes in self._output_bytes.values()) + size_bytes > OUTPUT_BYTES_MAX:
            return False
        sizes, number = self._output_bytes.setdefault(stage, {}), self._numbers.get(stage, 0) + 1
        sizes[number] = sizes.get(number, 0) + size_bytes
        return True

    def take(self, wait_s: float, listener: int = 0) -> list[Batch]:
        """Return all batches, waiting up to `wait_s` for the first; empty when none came.

        Args:
            wait_s: Seconds.
            listener: Number of the caller: a number above all earlier ones is a new listener. Earlier listeners get nothing any more.
        """
        with self._new_events:
            if listener > self._listener:
                self._listener = listener
                self._again = [batch for batches in self._kept.values() for batch in batches.values()]
                self._new_events.notify_all()
            self._new_events.wait_for(lambda: self._listener == listener and bool(self._fresh or self._again), timeout=wait_s)
            rest_s = self._taken_at + GATHER_S - time.monotonic()
            if self._fresh and rest_s > 0:
                self._new_events.wait_for(lambda: self._is_urgent, timeout=rest_s)
            return self._hand_out() if self._listener == listener else []

    def _hand_out(self) -> list[Batch]:
        taken, self._again = self._again, []
        for stage, (messages, blobs, nodes) in self._fresh.items():
            number = self._numbers[stage] = self._numbers.get(stage, 0) + 1
            batch = stage, number, messages, blobs, nodes
            self._kept.setdefault(stage, {})[number] = batch
            taken.append(batch)
        self._fresh, self._is_urgent, self._taken_at = {}, False, time.monotonic()
        return taken

    def confirm(self, heard: Mapping[StageId, int]) -> list[StageId]:
        """Drop these stages' batches up to these numbers. Return the stages that have ended and have no unconfirmed message."""
        over, when_room = [], None
        with self._new_events:
            for stage, number in heard.items():
                kept = self._kept.get(stage, {})
                for passed_on in [kept_number for kept_number in kept if kept_number <= number]:
                    *_, messages, blobs, nodes = kept.pop(passed_on)
                    self._bytes -= sum(map(len, messages)) + _size(blobs, nodes)
                    self._output_bytes.get(stage, {}).pop(passed_on, None)
                if not kept:
                    self._kept.pop(stage, None)
                    if stage in self._ended and stage not in self._fresh:
                        self._ended.discard(stage)
                        self._numbers.pop(stage, None)
                        self._output_bytes.pop(stage, None)
                        over.append(stage)
            if self._bytes < self._bytes_max:
                when_room, self._when_room = self._when_room, None
        if when_room is not None:
            when_room()
        return over

    def has_room(self, then: Callable[[], None]) -> bool:
        """Return whether a task may begin. False: too many bytes are unconfirmed; `then` is called when they are confirmed."""
        with self._new_events:
            if self._bytes < self._bytes_max:
                return True
            if self._when_room is None:
                remedy = "see whether the mesh reaches the root; no further task begins before"
                log.warning("the root has not confirmed the reports of a runner", bytes=self._bytes, remedy=remedy)
            self._when_room = then
            return False

    def has_ended(self, stage: StageId) -> bool:
        """Return whether the stage's end was added, and is not confirmed."""
        with self._new_events:
            return stage in self._ended


def _size(blobs: Mapping[str, bytes], finished: Iterable[Finished]) -> int:
    return sum(map(len, blobs.values())) + sum(len(value) for *_, value in finished if isinstance(value, bytes))
