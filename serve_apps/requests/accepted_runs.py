"""Runs that this replica has taken in of late, kept for a store that loses its last writes after it has answered.

A submission is answered when the store has it; at `D0` that is not on any disk yet. What a replica has answered it keeps for a while, and
stores again when the ledger has begun another epoch: the same id and graph is the same run, so what was not lost stays as it is. Lost is
what nobody keeps: where the replica ends within the same seconds as the server, and what is older, or more, than is kept.

Source: references of the protocol §5 (submit), ADR 0028.
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
from dag.runs import RunRecord, RunStore
from dag.states import RUN_ENDS
from mesh.clock import Clock
from mesh.errors import MeshError

log = structlog.get_logger(__name__)

#: How long a run is kept; never longer than ended ones are in the store, or one that was retired there would run again.
KEPT_MS = 120_000
#: How often it is looked whether the store has lost something; learning lasts much longer.
LOOK_S = 1.0
#: All that is kept, graphs and code.
KEPT_BYTES_MAX = 64 << 20
#: What the record of a node takes beside the graph, about.
_NODE_BYTES = 1_000


@dataclass(slots=True, kw_only=True)
class _Kept:
    record: RunRecord
    blobs: dict[str, bytes]
    accepted_ms: int
    epoch: int  #: Of the ledger, when the run was last known to be stored.

    @property
    def size_bytes(self) -> int:
        return len(self.record.spec) + sum(map(len, self.blobs.values())) + _NODE_BYTES * len(self.record.nodes)


class AcceptedRuns:
    """Of one replica; safe to use from many threads.

    Args:
        epoch: Asks for the present one; cheap.
        kept_ms: How long ended runs are kept in the store, if that is shorter than `KEPT_MS`.
    """

    def __init__(self, runs: RunStore, *, epoch: Callable[[], int], clock: Clock, kept_ms: int = KEPT_MS) -> None:
        self._runs = runs
        self._epoch = epoch
        self._clock = clock
        self._kept_ms = min(KEPT_MS, kept_ms)
        self._guard = threading.Lock()
        self._kept: deque[_Kept] = deque()  #: The oldest first.
        self._size_bytes = 0

    def create(self, record: RunRecord, blobs: dict[str, bytes], *, epoch: int) -> bool:
        """Store a new run, and keep it; see `RunStore.create`.

        Args:
            epoch: Of the ledger, before.
        """
        created = self._runs.create(record, blobs)
        if created or self._goes_on(record):  # One that has ended may be retired while it is kept here, and would run again.
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
        """Store again what another epoch may have lost; how many runs were lost and are back.

        Raises:
            StoreUnavailable: Look again later.
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
            log.warning("a run that the store has lost does not fit now; it is tried again", run=kept.record.run, error=str(full))
            return False
        except (RunConflict, KeyConflict) as taken:
            log.warning("a run that the store has lost cannot come back", run=kept.record.run, error=str(taken))
            was_lost = False
        if was_lost:
            log.warning("a run that the store has lost is stored again", run=kept.record.run)
        kept.epoch = epoch
        return was_lost

    def _drop_old(self) -> None:
        oldest_ms = self._clock.monotonic_ms() - self._kept_ms
        while self._kept and (self._kept[0].accepted_ms <= oldest_ms or self._size_bytes > KEPT_BYTES_MAX):
            self._size_bytes -= self._kept.popleft().size_bytes


async def look_after(accepted: AcceptedRuns) -> None:
    """Look again and again, until this is cancelled; whatever the store answers, the next look comes."""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            await run_in_threadpool(accepted.look)
        except MeshError as gone:
            log.warning("accepted runs cannot be looked after now", error=str(gone))
        except Exception:  # whatever breaks over one run must not end the look after all others
            log.exception("accepted runs cannot be looked after")
