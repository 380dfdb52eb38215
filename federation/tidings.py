"""What a mesh has to tell of its stages, and has not told yet: in the order in which it came, however long the store does not answer.

What the store refuses for good would hold up all that comes after it: then the stage is told to be lost, and stops. Where it
refuses because it knows the claim no more, nothing more is told, and the stage stops as well.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from federation.adoption import StageNote
from federation.blobs import BlobStore
from federation.books import Books
from federation.dispatch import Claim, StageQueue
from federation.errors import StaleFence
from federation.guard import NEVER, Guard
from federation.running_stage import RunningStage, lost_stage
from mesh.hosting import LAST_WORD, HostReport, StageHost
from mesh.messages import StageMessage
from mesh.reasons import Reason

log = structlog.get_logger(__name__)

#: Batch number of the word that a stage has started; the host's reports count on from there.
STARTED = 1


@dataclass(slots=True, kw_only=True)
class Tidings:
    """Of one mesh."""

    books: Books
    queue: StageQueue
    blobs: BlobStore
    host: StageHost
    guard: Guard
    _untold: deque[Callable[[], bool | None]] = field(default_factory=deque)
    """What returns False is not over: it goes on where it was, after a heartbeat."""

    def __bool__(self) -> bool:
        return bool(self._untold)

    def clear(self) -> None:
        """There is nothing to tell: the session under which it would have been told is lost."""
        self._untold.clear()

    def add_start(self, running: RunningStage, holder: int, note: StageNote) -> None:
        """The stage has started; `holder`: of its values."""
        started = note.started(running.claim, holder, self.books.record.cluster)
        self._untold.append(lambda: self._tell_of(running, STARTED, (started,), {}))

    def add_report(self, running: RunningStage, report: HostReport) -> None:
        """What the host tells of it."""
        messages, blobs = running.in_its_words(report.messages), dict(report.blobs)
        self._untold.append(lambda: self._tell_of(running, STARTED + report.number, messages, blobs))

    def add_loss(self, claim: Claim, reason: Reason) -> None:
        """Nothing runs under the claim."""
        self._untold.append(lambda: self.tell_lost(claim, reason))

    def then(self, work: Callable[[], None]) -> None:
        """To be done when all that came before has been told."""
        self._untold.append(work)

    def tell(self) -> None:
        """Tell all of it, or as much as there is time for before a heartbeat is due; what fails stays the first.

        Raises:
            StoreUnavailable: And whatever else the store may raise.
        """
        done = 0
        while self._untold and not self.guard.has_to_stop(done):
            if self._untold[0]() is False:
                return
            if self._untold:
                self._untold.popleft()
            done += 1

    def tell_in_turn(self) -> None:
        """Tell, unless this is called from within telling: then it comes in turn anyway."""
        if len(self._untold) == 1:
            self.tell()

    def tell_lost(self, claim: Claim, reason: Reason) -> None:
        """Give the claim back: its answer or its end got lost on the way, its runner is dead, or what it told is never taken."""
        with contextlib.suppress(StaleFence):  # Its run was forgotten since we asked.
            self.queue.report(claim, LAST_WORD, (lost_stage(claim, reason),))

    def disown(self, running: RunningStage) -> None:
        """The store knows of no such claim. What it took stays on the books until the host says that it has stopped: whoever
        counted it as free before would let two stages run on one unit of quota."""
        running.is_disowned = True
        stage = running.claim.stage
        if self.books.running.get(stage) is running:  # Else the host has told its end already, and that comes in turn.
            log.warning("a stage is no longer ours", mesh=self.books.record.mesh, stage=stage)
            running.give_way(self.host)

    def _tell_of(self, running: RunningStage, batch: int, messages: tuple[StageMessage, ...], blobs: dict[str, bytes]) -> bool:
        """`blobs`: that have not been put yet. Is it over?"""
        try:
            if not running.is_disowned:
                if not self._put(running, blobs):
                    return False
                self.queue.report(running.claim, batch, messages)
        except StaleFence:
            self.disown(running)
        except NEVER as refused:
            self._give_up(running, str(refused))
        self.host.confirm(running.claim.stage, batch - STARTED)
        return True

    def _put(self, running: RunningStage, blobs: dict[str, bytes]) -> bool:
        """One after the other; is none left?"""
        done = 0
        while blobs and not self.guard.has_to_stop(done):
            sha256, content = next(iter(blobs.items()))
            self.blobs.put(running.run, sha256, content)
            del blobs[sha256]
            done += 1
        return not blobs

    def _give_up(self, running: RunningStage, why: str) -> None:
        """The root will never hear what became of the stage: it is lost, so that it is tried again elsewhere and others are heard."""
        log.error("a report is refused for good; its stage is lost", mesh=self.books.record.mesh, stage=running.claim.stage, why=why)
        self.tell_lost(running.claim, Reason.REPORT_REFUSED)
        self.disown(running)
