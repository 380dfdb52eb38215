"""Output of a runner's tasks on its way to the outbox: limited for all tasks together, with the last lines of each that runs.

The last lines go into the failure of a task whose worker died: the worker could report nothing itself.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from mesh.core.ids import NodeId, StageId
from mesh.ray.user_code.node_output import take_unread
from mesh.ray.user_code.output_lines import ByteBudget, cost_of
from mesh.stages.messages import Failure, NodeOutput

#: Budget of all tasks of a runner: bytes at once, and bytes that come back each second.
BURST_BYTES, BYTES_PER_S = 4 << 20, 256 << 10
#: Most last lines that a failure shows.
LAST_LINES_MAX = 20


def with_last_lines(failure: Failure, lines: Sequence[str]) -> Failure:
    """Return the failure of a lost worker with the last lines of its output, after those that the failure has already."""
    if not lines:
        return failure
    lead = failure.traceback or f"{failure.type_name}: {failure.message}\nThe last lines of its output:"
    return replace(failure, traceback="\n".join((lead, *(f"  {line}" for line in lines[-LAST_LINES_MAX:]))))


class OutputRelay:
    """Relay of one runner.

    Args:
        put: Takes each message.
        now_s: When the relay begins, by the clock of `take`; seconds.
    """

    def __init__(self, put: Callable[[NodeOutput], None], now_s: float = 0.0) -> None:
        self.folder: Path | None = None  #: The mesh's watch folder on this node.
        self._put = put
        self._budget = ByteBudget(BURST_BYTES, BYTES_PER_S, now_s)
        #: Attempt, last lines and the next line's number of each task that has printed.
        self._last: dict[StageId, dict[NodeId, tuple[int, deque[str], int]]] = {}

    def take(self, outputs: Iterable[NodeOutput], now_s: float) -> None:
        """Pass the lines on, as far as the budget allows. `now_s`: any clock that only goes forward."""
        for given in outputs:
            output = self._note(given)
            size_bytes = sum(map(cost_of, output.lines))
            if size_bytes <= self._budget.left(now_s):
                self._budget.spend(size_bytes)
                self._put(output)

    def last_lines(self, stage: StageId, node: NodeId, attempt: int, now_s: float) -> Sequence[str]:
        """Return the last lines of a task whose worker has died; none: it has printed nothing.

        Lines that the dead worker has not sent are read from its files, if it was on this node, and passed on.
        """
        if self.folder is not None:
            with contextlib.suppress(Exception):  # The tenant's code can write to these files, and the failure must be reported.
                self.take(take_unread(self.folder, stage, node, attempt), now_s)
        of_attempt, lines, _ = self._last.get(stage, {}).pop(node, (attempt, (), 1))
        return tuple(lines) if of_attempt == attempt else ()

    def forget(self, stage: StageId, nodes: Iterable[NodeId]) -> None:
        """Drop the last lines of tasks that have returned."""
        last = self._last.get(stage)
        if last:
            for node in nodes:
                last.pop(node, None)

    def end(self, stage: StageId) -> None:
        """Drop the last lines of all tasks of the stage."""
        self._last.pop(stage, None)

    def _note(self, output: NodeOutput) -> NodeOutput:
        """Note the last lines of the task; return the output with a number after those of its earlier lines.

        Members of a job, and Ray's own retries, count their lines from 1 in each process.
        """
        of_stage = self._last.setdefault(output.stage, {})
        attempt, lines, number = of_stage.get(output.node, (0, deque[str](), 1))
        if attempt != output.attempt:
            lines, number = deque[str](maxlen=LAST_LINES_MAX), 1
        lines.extend(output.lines)
        number = max(number, output.number)
        of_stage[output.node] = output.attempt, lines, number + len(output.lines)
        return output if number == output.number else replace(output, number=number)
