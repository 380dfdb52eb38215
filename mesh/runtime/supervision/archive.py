"""The supervisor's memory over its own death: the scheduler and the order book, from a snapshot and the journal since."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from mesh.runtime.supervision.journal_file import JournalFile
from mesh.runtime.supervision.order_book import BookSnapshot, OrderBook
from mesh.scheduling.decisions import Decision
from mesh.scheduling.events import Event
from mesh.scheduling.plain import form_of
from mesh.scheduling.scheduler import MeshScheduler

log = structlog.get_logger(__name__)

_BOOK = form_of(BookSnapshot)


class Archive:
    """The journal of one mesh, and what it replays to.

    Args:
        folder: Of the mesh; one process has it at a time.
    Raises:
        RuntimeDoorError: Another process has it, or it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._file = JournalFile(folder)

    def append(self, version: int, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        """Write a batch down, before anything of it is carried out."""
        self._file.append(version, events, decisions)

    def wants_snapshot(self) -> bool:
        """Has the journal grown long?"""
        return self._file.wants_snapshot()

    def snapshot(self, scheduler: MeshScheduler, book: OrderBook) -> None:
        """Let the whole state stand for the journal until now."""
        kept = {"scheduler": scheduler.to_snapshot(), "book": _BOOK.encode(book.to_snapshot())}
        self._file.snapshot(json.dumps(kept).encode())

    def load(self, fresh: Callable[[], MeshScheduler]) -> tuple[MeshScheduler, OrderBook]:
        """The scheduler and the book as they were.

        Raises:
            JournalError: A line is damaged; the message names the file and the line.
        """
        scheduler, book = fresh(), OrderBook()
        kept = self._file.snapshot_kept()
        if kept is not None:
            parts = json.loads(kept)
            scheduler = MeshScheduler.from_snapshot(parts["scheduler"])
            book = OrderBook.from_snapshot(_BOOK.decode(parts["book"]))
        differs = False
        for batch in self._file.batches():
            decisions = scheduler.handle(*batch.events)
            if tuple(decisions) != tuple(batch.decisions) and not differs:
                # Another release may decide otherwise on the same events. What it decides now is what counts: recovery brings
                # the world in step with it.
                log.warning("the journal replays to other decisions", version=batch.version)
                differs = True
            book.fold(batch.events, decisions)
        return scheduler, book

    def close(self) -> None:
        """Let another process have the folder."""
        self._file.close()
