"""What a mesh has to tell of its stages, and has not told yet: in the order in which it came, however long the store does not answer.

A store that fails may have lost what it has answered last. So what was told is kept for a while (`told_batches`), and told again when the
ledger begins an epoch, or when the store does not have what came before. It takes in each batch once, however often it is told.

What the store refuses for good would hold up all that comes after it: then the stage is told to be lost, and stops. Where it
refuses because it knows the claim no more, nothing more is told, and the stage stops as well.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import structlog

from federation.blobs import BlobStore
from federation.child.adoption import StageNote
from federation.child.books import Books
from federation.child.guard import NEVER, Guard
from federation.child.running_stage import RunningStage, lost_stage
from federation.child.told_batches import ToldBatch, ToldBatches
from federation.dispatch import RESUMED_MAX, Claim, ClaimStanding, HeldClaim, StageQueue
from federation.errors import EarlierReportsLost, StaleFence
from mesh.hosting import LAST_WORD, HostReport, StageHost
from mesh.ids import RunId, StageId
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
    _told: ToldBatches = field(default_factory=ToldBatches)
    _doubtful: dict[StageId, RunningStage] = field(default_factory=dict)  #: Of whose claims the store has to say how they stand.
    _unasked: dict[StageId, RunningStage] = field(default_factory=dict)  #: Those of them about which it has to be asked now.
    _untold: deque[Callable[[], bool | None]] = field(default_factory=deque)
    """What returns False is not over: it goes on where it was, after a heartbeat."""

    def __bool__(self) -> bool:
        return bool(self._untold)

    def clear(self) -> None:
        """There is nothing to tell: the session under which it would have been told is lost."""
        self._untold.clear()
        self._told.clear()
        self._doubtful.clear()
        self._unasked.clear()

    def add_start(self, running: RunningStage, holder: int, note: StageNote) -> None:
        """The stage has started; `holder`: of its values."""
        started = note.started(running.claim, holder, self.books.record.cluster)
        self._untold.append(lambda: self._tell_of(running, STARTED, (started,), {}, {}))

    def add_report(self, running: RunningStage, report: HostReport) -> None:
        """What the host tells of it."""
        messages, unput = running.in_its_words(report.messages), dict(report.blobs)
        self._untold.append(lambda: self._tell_of(running, STARTED + report.number, messages, report.blobs, unput))

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
            first = self._untold[0]
            if first() is False:
                if not self._untold or self._untold[0] is first:
                    return
            elif self._untold:
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
        if self._doubtful.get(stage) is running:
            del self._doubtful[stage]
        if self.books.running.get(stage) is running:  # Else the host has told its end already, and that comes in turn.
            log.warning("a stage is no longer ours", mesh=self.books.record.mesh, stage=stage)
            running.give_way(self.host)

    def tell_again(self) -> None:
        """The ledger has begun an epoch, and may have lost what it had answered: before anything else, it is asked what it has of each
        claim, makes those again that it has lost, and is told once more what it has not got."""
        self._told.drop_old(self.guard.clock.monotonic_ms())
        self.doubt((*self._told.stages(), *self.books.running.values()))

    def doubt(self, stages: Iterable[RunningStage]) -> None:
        """Perhaps the store does not know these claims: it is asked, before anything else is told."""
        fresh = {one.claim.stage: one for one in stages if not one.is_disowned}
        if fresh and not self._unasked:
            self._untold.appendleft(self._ask)
        self._doubtful.update(fresh)
        self._unasked.update(fresh)

    def ask_again(self) -> None:
        """About claims on stages that the store did not know: while the ledger learns, they may be submitted again."""
        self.doubt(tuple(self._doubtful.values()))

    def tell_end_again(self, claim: Claim) -> bool:
        """The store says that the claim is open. Was its end told and is kept? Then that comes next, and the claim is not lost."""
        again = deque(self._told.of(claim))
        if not again or not again[-1].closes:
            return False
        self._untold.appendleft(partial(self._tell_once_more, again))
        return True

    def _ask(self) -> bool:
        """How doubtful claims stand, as many at once as one call takes; is none left?"""
        done = 0
        while self._unasked and not self.guard.has_to_stop(done):
            asked = tuple(islice(self._unasked.values(), RESUMED_MAX))
            standings = self.queue.resume(self.guard.tenure.held(), tuple(self._held(stage) for stage in asked))
            again: deque[ToldBatch] = deque()
            for stage, standing in zip(asked, standings, strict=True):
                del self._unasked[stage.claim.stage]
                again += self._heed(stage, standing)
            if again:  # Before anything else, but whatever of it there is no time for now.
                self._untold.insert(1, partial(self._tell_once_more, again))
            done += 1
        return not self._unasked

    def _held(self, stage: RunningStage) -> HeldClaim:
        """A claim that was told to its end takes nothing any more, whatever has become of its lease."""
        told = self._told.of(stage.claim)
        has_ended = bool(told) and told[-1].closes
        lease = None if has_ended else stage.paid_by
        return HeldClaim(claim=stage.claim, spec=stage.spec, lease=lease, is_whole=stage.is_whole, has_ended=has_ended)

    def _heed(self, stage: RunningStage, standing: ClaimStanding) -> Iterable[ToldBatch]:
        """What has to be told again."""
        if standing.may_come:
            return ()
        if not standing.is_current:
            self._let_go(stage)
            return ()
        if self._doubtful.get(stage.claim.stage) is stage:
            del self._doubtful[stage.claim.stage]
        return (batch for batch in self._told.of(stage.claim) if not batch.taken or batch.taken > standing.batch)

    def _tell_of(
        self, running: RunningStage, batch: int, messages: tuple[StageMessage, ...], blobs: dict[str, bytes], unput: dict[str, bytes]
    ) -> bool:
        """`unput`: those of its blobs that have not been put yet. Is it over?"""
        try:
            if self._doubtful.get(running.claim.stage) is running:  # Kept, and told when the store knows the stage.
                self._keep(running, batch, 0, messages, blobs)
            elif not running.is_disowned:
                if not self._put(running.run, unput):
                    return False
                running.taken = self.queue.report(running.claim, batch, messages, after=running.taken)
                running.is_questioned = False
                self._keep(running, batch, running.taken, messages, blobs)
        except EarlierReportsLost:
            before = deque(self._told.of(running.claim))
            running.taken = 0  # What is not kept any more is not told again: its nodes run again, and what follows is taken in.
            self._untold.appendleft(partial(self._tell_once_more, before))
            return False
        except StaleFence:
            if not running.is_questioned:  # Lost or closed? Then what came before is told again, or nothing more.
                running.is_questioned = True
                self.doubt((running,))
                return False
            self._let_go(running)
        except NEVER as refused:
            self._give_up(running, str(refused))
        self.host.confirm(running.claim.stage, batch - STARTED)
        return True

    def _keep(self, running: RunningStage, batch: int, taken: int, messages: tuple[StageMessage, ...], blobs: dict[str, bytes]) -> None:
        now_ms = self.guard.clock.monotonic_ms()
        self._told.keep(ToldBatch.of(running, number=batch, taken=taken, messages=messages, blobs=dict(blobs), now_ms=now_ms))

    def _tell_once_more(self, again: deque[ToldBatch]) -> bool:
        """One after the other; is none left? A batch goes when it has been answered, so what fails stays the first."""
        done = 0
        while again and not self.guard.has_to_stop(done):
            batch, unput = again[0], dict(again[0].blobs)
            try:
                if not self._put(batch.stage.run, unput):
                    return False
                batch.stage.taken = max(batch.stage.taken, self.queue.report(batch.claim, batch.number, batch.messages))
            except StaleFence:
                self._let_go(batch.stage)
            except NEVER as refused:
                log.warning("what was told before is refused", mesh=self.books.record.mesh, stage=batch.claim.stage, why=str(refused))
            again.popleft()
            done += 1
        return not again

    def _let_go(self, running: RunningStage) -> None:
        """Somebody has closed the claim, or the store has lost it and it cannot be made again."""
        if not running.is_disowned:
            self.disown(running)
        self._told.drop(running.claim)

    def _put(self, run: RunId, blobs: dict[str, bytes]) -> bool:
        """One after the other; is none left?"""
        done = 0
        while blobs and not self.guard.has_to_stop(done):
            sha256, content = next(iter(blobs.items()))
            self.blobs.put(run, sha256, content)
            del blobs[sha256]
            done += 1
        return not blobs

    def _give_up(self, running: RunningStage, why: str) -> None:
        """The root will never hear what became of the stage: it is lost, so that it is tried again elsewhere and others are heard."""
        log.error("a report is refused for good; its stage is lost", mesh=self.books.record.mesh, stage=running.claim.stage, why=why)
        self.tell_lost(running.claim, Reason.REPORT_REFUSED)
        self.disown(running)
