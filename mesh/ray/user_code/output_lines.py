"""Lines of a node's output: how they are cut, counted and limited on their way to the run's log. Pure.

A node that prints without end must fill neither the runner nor the store. So each attempt has a budget of bytes, a burst that refills
slowly. Lines that exceed the budget are left out of the middle: the first and the last lines of each look at the output are kept. Lines are
numbered before any is left out, so the numbers show how many are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mesh.core.counting import counted
from mesh.core.ids import NodeId, StageId
from mesh.stages.messages import OUTPUT_CHARS_MAX, OUTPUT_LINES_MAX, NodeOutput

Stream = Literal["stdout", "stderr"]

#: Budget of one attempt: bytes at once, and bytes that come back each second.
NODE_BURST_BYTES, NODE_BYTES_PER_S = 256 << 10, 8 << 10
#: With less budget than this, a look at the output waits; bytes.
LOOK_BYTES_MIN = 1 << 10
#: Budget of the last look of an attempt, whatever was printed before; bytes.
LAST_BYTES = 16 << 10
#: Bytes that a line costs beside its text.
LINE_BYTES = 16
#: Approximate most bytes of one `NodeOutput`.
MESSAGE_BYTES_MAX = 64 << 10
#: Ray writes lines with these prefixes into a worker's files, for its own log monitor.
_OF_RAY = (b":task_name:", b":actor_name:", b":job_id:")


class ByteBudget:
    """Bytes that may pass: a burst that refills at a fixed rate.

    Args:
        burst_bytes: Most bytes at once.
        bytes_per_s: Bytes that come back each second.
        now_s: Any clock that only goes forward; seconds.
    """

    def __init__(self, burst_bytes: int, bytes_per_s: int, now_s: float) -> None:
        self._burst_bytes, self._bytes_per_s = burst_bytes, bytes_per_s
        self._left, self._seen_s = float(burst_bytes), now_s

    def left(self, now_s: float) -> int:
        """Return the bytes that may pass now."""
        self._left = min(self._burst_bytes, self._left + (now_s - self._seen_s) * self._bytes_per_s)
        self._seen_s = now_s
        return int(self._left)

    def spend(self, size_bytes: int) -> None:
        """Take bytes from the budget; it may go below zero."""
        self._left -= size_bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """Lines of one look: those from its beginning, the number of lines left out, and those from its end."""

    first: tuple[str, ...]
    left_out: int = 0
    last: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Cost of the lines: see `cost_of`."""
        return sum(map(cost_of, (*self.first, *self.last)))


def lines_in(data: bytes) -> list[str]:
    r"""Return the lines of the bytes as text; a last line may lack its end.

    Of text that `\r` overwrites only the last version stays, as on a terminal. Bytes that are not UTF-8 are shown as `\xff`. A line that
    is too long is cut.
    """
    found = data.removesuffix(b"\n").split(b"\n") if data else []
    return [_text_of(line) for line in found if not line.startswith(_OF_RAY)]


def _text_of(line: bytes) -> str:
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    if len(shown) <= OUTPUT_CHARS_MAX // 4:  # A byte becomes four characters at most.
        return shown.decode(errors="backslashreplace")
    text = shown.decode(errors="backslashreplace")
    if len(text) <= OUTPUT_CHARS_MAX:
        return text
    kept = text[: OUTPUT_CHARS_MAX - 64]
    return f"{kept} ... {counted(len(text) - len(kept), 'character')} left out"


def cost_of(line: str) -> int:
    """Return the bytes that a line takes of a budget."""
    return len(line) + LINE_BYTES


def keep_within(first: Sequence[str], left_out: int, last: Sequence[str], allowed_bytes: int) -> Kept:
    """Return the lines that fit into the budget, from both ends; the lines between are left out.

    Args:
        first: Lines from the beginning of the output.
        left_out: Number of lines between `first` and `last` that were not read.
        last: Lines from its end.
    """
    if not left_out:
        first, last = [*first, *last], ()
        if sum(map(cost_of, first)) <= allowed_bytes:
            return Kept(tuple(first))
    kept_first = list(_fitting(first, allowed_bytes // 2))
    rest = [*first[len(kept_first) :], *last] if not left_out else last
    kept_last = list(_fitting(reversed(rest), allowed_bytes - sum(map(cost_of, kept_first))))[::-1]
    return Kept(tuple(kept_first), len(first) + left_out + len(last) - len(kept_first) - len(kept_last), tuple(kept_last))


def _fitting(lines: Sequence[str] | Iterator[str], allowed_bytes: int) -> Iterator[str]:
    for line in lines:
        allowed_bytes -= cost_of(line)
        if allowed_bytes < 0:
            return
        yield line


def messages_of(kept: Kept, stream: Stream, stage: StageId, node: NodeId, attempt: int, number: int, at_ms: int) -> list[NodeOutput]:
    """Return the lines as messages of bounded size. `number`: of the first line."""
    messages = []
    for start, lines in ((number, kept.first), (number + len(kept.first) + kept.left_out, kept.last)):
        for offset, part in _parts_of(lines):
            output = NodeOutput(
                stage=stage, node=node, attempt=attempt, number=start + offset, at_ms=at_ms, stream=stream, lines=tuple(part)
            )
            messages.append(output)
    return messages


def _parts_of(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    start, size_bytes = 0, 0
    for index, line in enumerate(lines):
        if index > start and (size_bytes + cost_of(line) > MESSAGE_BYTES_MAX or index - start == OUTPUT_LINES_MAX):
            yield start, lines[start:index]
            start, size_bytes = index, 0
        size_bytes += cost_of(line)
    if len(lines) > start:
        yield start, lines[start:]
