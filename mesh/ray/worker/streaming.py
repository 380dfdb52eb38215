"""Elements of a generator that are handed out while it goes on, so that parts of an array begin before the last element is there.

A thread hands out the elements of one part after the other, as they are complete. It never keeps the generator waiting: the task needs a
slot, and what it would wait for needs one too. While enough elements wait for a slot, no more are handed out; the parts that got none read
the whole list at its end. So an error here costs nothing but time, and hands out no more.

The runner keeps what is handed out, so it outlives the worker. A later attempt of the generator has to yield the elements again that parts
have read. Only values that JSON restores exactly are compared: pickles of equal values differ from process to process.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mesh.core.counting import counted
from mesh.core.ids import NodeId, StageId
from mesh.ray.user_code.bounded_pickle import pickled_if_small
from mesh.ray.worker.exporting import as_json
from mesh.ray.worker.plain_calls import elements_taken_by
from mesh.stages.arrays import UNKNOWN, Piece, Span

#: Pause after which the worker asks again whether elements are wanted; seconds.
ASK_EVERY_S = 0.15
#: Largest pickle of the elements of a part that is handed out; bytes. A part with more reads the whole list.
BLOCK_BYTES_MAX = 64 * 2**20
#: Longest wait for the thread at the end of the generator; seconds.
END_S_MAX = 5.0


#: Elements that were read of earlier attempts, with their digests.
Read = Sequence[tuple[Span, bytes]]


class StreamChanged(Exception):
    """A later attempt of a generator has yielded other elements than those that were read before the first one failed."""


class HandingOut:
    """Hands out the elements of one attempt of a task.

    Args:
        runner: Handle of the runner.
        spans: Elements by part, as they become complete.
        read: Elements that were read of earlier attempts, with their digests. Nothing behind others is handed out.
        check: Raises an error if a value may not leave the task.
    """

    def __init__(
        self,
        runner: Any,
        stage: StageId,
        node: NodeId,
        attempt: int,
        spans: Sequence[Span],
        read: Read,
        check: Callable[[Any], None],
    ) -> None:
        self._runner, self._stage, self._node, self._attempt = runner, stage, node, attempt
        self._spans, self._read, self._check = spans, read, check
        self._elements: list[Any] = []
        self._more, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="elements", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def take(self, elements: list[Any]) -> None:
        """Note that the list has grown."""
        self._elements = elements
        self._more.set()

    def end(self) -> None:
        """Hand out no more."""
        self._over.set()
        self._more.set()
        self._thread.join(END_S_MAX)

    def _work(self) -> None:
        # The parts read the whole list, where any error of such a value shows.
        with contextlib.suppress(Exception):
            wants = True
            for span in self._spans:
                if not self._comes(span):
                    return
                while not wants:
                    if self._over.wait(ASK_EVERY_S):
                        return
                    wants = self._tell(NodeId(""), None, b"")
                check_repeated(self._elements, [one for one in self._read if one[0].stop <= span.stop])
                self._read = [one for one in self._read if one[0].stop > span.stop]
                values = self._elements[span.first : span.stop]
                self._check(values)
                data = pickled_if_small(Piece(span.first, UNKNOWN, values), BLOCK_BYTES_MAX)
                if data is not None:
                    wants = self._tell(span.part, digest_of(values), data)

    def _comes(self, span: Span) -> bool:
        """Wait until the elements are there; False: the generator has ended before."""
        while True:
            self._more.clear()
            if self._over.is_set():
                return False
            if len(self._elements) >= span.stop:
                return True
            self._more.wait()

    def _tell(self, part: NodeId, digest: bytes | None, data: bytes) -> bool:
        # A future, not `ray.get`: Ray would give the CPUs of a task that waits in `ray.get` to another.
        answer = self._runner.hand_out.remote(self._stage, self._node, self._attempt, part, digest, data).future()
        return bool(answer.result())


@contextlib.contextmanager
def handed_out(
    runner: Any, stage: StageId, node: NodeId, attempt: int, spans: Sequence[Span], read: Read, check: Callable[[Any], None]
) -> Iterator[None]:
    """Hand out the elements of the generator that the body calls. Arguments as for `HandingOut`."""
    if not spans:
        yield
        return
    handing = HandingOut(runner, stage, node, attempt, spans, read, check)
    handing.begin()
    try:
        with elements_taken_by(handing.take):
            yield
    finally:
        handing.end()


def digest_of(values: list[Any]) -> bytes | None:
    """Return a hash of the values, the same in each process; None: JSON does not restore them exactly."""
    text = as_json(values)
    return None if text is None else hashlib.sha256(text).digest()


def check_repeated(values: Any, read: Read) -> None:
    """Check that a list has the elements that were read of an earlier attempt.

    Raises:
        StreamChanged: It has not.
    """
    elements = values if isinstance(values, list) else []
    for span, digest in sorted(read):
        if len(elements) < span.stop or digest_of(elements[span.first : span.stop]) != digest:
            where = f"element {span.first}" if span.stop == span.first + 1 else f"elements {span.first} to {span.stop - 1}"
            found = counted(len(elements), "element")
            raise StreamChanged(
                f"yielded {found}, and not the {where} that {span.part} has read of an earlier attempt: a generator whose elements are "
                "mapped must yield the same ones in each attempt; if it cannot, return a list"
            )
