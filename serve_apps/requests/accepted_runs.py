"""Runs that this replica accepted recently, kept in case the store loses its last writes after it has answered.

A submission is answered when the store has it; at `D0` the run is not on any disk yet. The replica keeps each accepted run for a while
and stores it again when the ledger begins a new epoch. The same id and graph is the same run, so runs that were not lost do not
change. A run is lost if the replica ends within the same seconds as the server, or if it is older or larger than what is kept.

Source: ADR 0028.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from starlette.concurrency import run_in_threadpool

from dag.errors import BacklogFull, KeyConflict, RunConflict, StoreFull
from dag.run.runs import RunRecord, RunStore
from dag.run.states import RUN_ENDS
from mesh.core.clock import Clock
from mesh.core.ids import RunId
from mesh.errors import MeshError

log = structlog.get_logger(__name__)

#: How long a run is kept; never longer than the store keeps ended runs, or a retired run would run again.
KEPT_MS = 120_000
#: Interval of checks for a new epoch; recovery of the ledger lasts much longer.
LOOK_S = 1.0
#: Most bytes kept, graphs and code together.
KEPT_BYTES_MAX = 64 << 20
#: Approximate size of a node's record beside the graph.
_NODE_BYTES = 1_000


@dataclass(slots=True, kw_only=True)
class _Kept:
    record: RunRecord
    blobs: dict[str, bytes]
    accepted_ms: int
    epoch: int  #: Ledger epoch in which the run was last known to be stored.

    @property
    def size_bytes(self) -> int:
        return len(self.record.spec) + sum(map(len, self.blobs.values())) + _NODE_BYTES * len(self.record.nodes)


class AcceptedRuns:
    """Recently accepted runs of one replica; thread-safe.

    Args:
        epoch: Returns the ledger's current epoch; cheap.
        kept_ms: How long the store keeps ended runs, if shorter than `KEPT_MS`.
    """

    def __init__(self, runs: RunStore, *, epoch: Callable[[], int], clock: Clock, kept_ms: int = KEPT_MS) -> None:
        self._runs = runs
        self._epoch = epoch
        self._clock = clock
        self._kept_ms = min(KEPT_MS, kept_ms)
        self._guard = threading.Lock()
        self._kept: deque[_Kept] = deque()  #: Oldest first.
        self._size_bytes = 0

    def create(self, record: RunRecord, blobs: dict[str, bytes], *, epoch: int) -> bool:
        """Store a new run and keep it; see `RunStore.create`.

        Args:
            epoch: Ledger epoch before the call.
        """
        created = self._runs.create(record, blobs)
        if created or self._goes_on(record):  # An ended run may be retired while it is kept here, and would then run again.
            with self._guard:
                kept = _Kept(record=record, blobs=blobs, accepted_ms=self._clock.monotonic_ms(), epoch=epoch)
                self._kept.append(kept)
                self._size_bytes += kept.size_bytes
                self._drop_old()
        return created

    def _goes_on(self, record: RunRecord) -> bool:
        summary = self._runs.summary(record.run)
        return summary is not None and summary.state not in RUN_ENDS

    def look(self) -> int:
        """Store again the runs that a new epoch may have lost; return how many were lost and stored again.

        Raises:
            StoreUnavailable: Try again later.
        """
        with self._guard:
            self._drop_old()
            kept = tuple(self._kept)
        epoch = self._epoch() if kept else 0
        return sum(self._store_again(one, epoch) for one in kept if one.epoch != epoch)

    def _store_again(self, kept: _Kept, epoch: int) -> bool:
        try:
            was_lost = self._runs.create(kept.record, kept.blobs)
        except (BacklogFull, StoreFull) as full:
            log.warning("no room to store a lost run again; will retry", run=kept.record.run, error=str(full))
            return False
        except (RunConflict, KeyConflict) as taken:
            log.warning("a lost run cannot be stored again", run=kept.record.run, error=str(taken))
            was_lost = False
        if was_lost:
            log.warning("stored a lost run again", run=kept.record.run)
        kept.epoch = epoch
        return was_lost

    def drop(self, run: RunId) -> None:
        """Keep a run no longer, because a user has removed it."""
        with self._guard:
            dropped = [one for one in self._kept if one.record.run == run]
            for one in dropped:
                self._kept.remove(one)
                self._size_bytes -= one.size_bytes

    def _drop_old(self) -> None:
        oldest_ms = self._clock.monotonic_ms() - self._kept_ms
        while self._kept and (self._kept[0].accepted_ms <= oldest_ms or self._size_bytes > KEPT_BYTES_MAX):
            self._size_bytes -= self._kept.popleft().size_bytes


async def look_after(accepted: AcceptedRuns) -> None:
    """Check periodically until cancelled. No error of the store ends the checks."""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            await run_in_threadpool(accepted.look)
        except MeshError as gone:
            log.warning("cannot check accepted runs now; will retry", error=str(gone))
        except Exception:  # a failure over one run must not end the checks of all others
            log.exception("cannot check accepted runs")
