"""Output reporter: what a mesh's nodes print, on its way to the logs of their runs.

Output goes before the reports on its stage that came with or after it, so a node's last lines are in the log when its end is known. But
no report waits for a log: output that the store does not take now stays here, up to a limit, and is tried again later. Output of a stage
whose end is reported, or whose claim is gone, is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import structlog

from federation.child.guard import NEVER
from federation.child.running_stage import RunningStage
from federation.errors import FederationError, StaleFence, StoreUnavailable
from federation.run_log import RunLog
from mesh.core.clock import Clock
from mesh.core.ids import MeshId, StageId
from mesh.stages.messages import NodeOutput

log = structlog.get_logger(__name__)

#: Limit on the characters of all output that waits; the oldest is dropped.
WAITING_MAX = 4 << 20
#: Pause after a failed call, ms.
REST_MS = 5_000
#: Pause between two calls for output alone, ms: the calls of a mesh are limited, and its reports need them.
PAUSE_MS = 50
#: Characters of one call, about.
CALL_MAX = 256 << 10
#: A failed call that took this long met a store that does not answer, and no other call is made now; ms.
SLOW_MS = 500


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    running: RunningStage
    batch: int
    output: tuple[NodeOutput, ...]

    @property
    def size(self) -> int:
        return sum(len(line) + 16 for each in self.output for line in each.lines)


@dataclass(slots=True, kw_only=True)
class OutputReporter:
    """Output reporter of one mesh.

    Args:
        run_log: None: all output is dropped.
    """

    mesh: MeshId
    run_log: RunLog | None
    clock: Clock
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _failed: list[_Waiting] = field(default_factory=list)  #: Output of the last call, if it failed; the store may have taken it.
    _size: int = 0
    _rests_until_ms: int = 0
    _next_ms: int = 0

    def add(self, running: RunningStage, batch: int, output: tuple[NodeOutput, ...]) -> None:
        """Keep output of the stage until it is sent. `batch`: number of the report that it came with."""
        if self.run_log is None or not output or running.is_disowned:
            return
        waiting = _Waiting(running, batch, output)
        self._waiting.append(waiting)
        self._size += waiting.size
        while self._size > WAITING_MAX and self._waiting:
            self._size -= self._waiting.popleft().size

    def send(self, *, at_once: bool = False) -> None:
        """Send what waits, unless the store refused some a moment ago.

        Args:
            at_once: A report is about to follow, so the output goes first even if the last call was just before.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        began_ms = self.clock.monotonic_ms()
        if began_ms < (self._rests_until_ms if at_once else max(self._rests_until_ms, self._next_ms)):
            return
        while self._waiting:
            running, sent = self._waiting[0].running, self._of_one_call()
            try:
                if not running.is_disowned and self.run_log is not None:
                    output = tuple(chain.from_iterable(waiting.output for waiting in sent))
                    self.run_log.append(running.claim, sent[-1].batch, output)
            except (StaleFence, *NEVER) as refused:
                log.warning("output of a stage is dropped", mesh=self.mesh, stage=running.claim.stage, why=str(refused))
            except FederationError as gone:
                now_ms = self.clock.monotonic_ms()
                self._rests_until_ms, self._failed = now_ms + REST_MS, sent
                if isinstance(gone, StoreUnavailable) and now_ms - began_ms >= SLOW_MS:
                    raise
                return
            self._keep(waiting for waiting in self._waiting if waiting not in sent)
            began_ms = self.clock.monotonic_ms()
            self._next_ms = began_ms + PAUSE_MS

    def _of_one_call(self) -> list[_Waiting]:
        """Return the oldest output and what follows of its stage, up to the size of a call.

        A call that failed is repeated as it was: the store tells a repeated call by its number.
        """
        if self._failed and self._failed[0] is self._waiting[0]:
            return self._failed
        running, found, size = self._waiting[0].running, list[_Waiting](), 0
        for waiting in self._waiting:
            if waiting.running is running:
                size += waiting.size
                if found and size > CALL_MAX:
                    break
                found.append(waiting)
        return found

    def _keep(self, waiting: Iterable[_Waiting]) -> None:
        self._waiting = deque(waiting)
        self._size = sum(one.size for one in self._waiting)

    def drop(self, stage: StageId) -> None:
        """Drop output of a stage whose end is reported."""
        self._keep(waiting for waiting in self._waiting if waiting.running.claim.stage != stage)

    def clear(self) -> None:
        """Drop all output, since the session is lost."""
        self._keep(())
