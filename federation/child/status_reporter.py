"""Status reporter: reports of a mesh on its stages, sent in order, however long the store does not respond.

A store that fails may lose writes that it acknowledged. So the mesh keeps sent reports for a while (`sent_reports`) and sends them
again when the ledger begins an epoch, or when the store lacks an earlier batch. The store applies each batch once, however often it is
sent.

A report that the store refuses for good would block all later reports: the mesh then reports the stage as lost, and stops the stage.
If the store no longer knows the claim, the mesh reports nothing more and stops the stage.
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
from federation.child.child_state import ChildState
from federation.child.guard import NEVER, Guard
from federation.child.output_reporter import OutputReporter
from federation.child.running_stage import RunningStage, lost_stage
from federation.child.sent_reports import SentReport, SentReports
from federation.dispatch import RESUMED_MAX, Claim, ClaimStatus, HeldClaim, StageQueue
from federation.errors import EarlierReportsLost, StaleFence
from mesh.core.ids import RunId, StageId
from mesh.core.reasons import Reason
from mesh.stages.hosting import LAST_WORD, HostReport, StageHost
from mesh.stages.messages import StageEnded, StageLost, StageMessage

log = structlog.get_logger(__name__)

#: Batch number of the message that a stage has started; the host's reports count on from there.
STARTED = 1


@dataclass(slots=True, kw_only=True)
class StatusReporter:
    """Status reporter of one mesh."""

    child_state: ChildState
    queue: StageQueue
    blobs: BlobStore
    host: StageHost
    guard: Guard
    output: OutputReporter
    start_delay_ms: int = 0
    """Longest wait of the report of a start for the first report of the stage: a short stage costs the root one report instead of two."""
    _starts: dict[StageId, tuple[int, RunningStage]] = field(default_factory=dict)  #: Unreported starts, and when each is due; by age.
    _sent: SentReports = field(default_factory=SentReports)
    _doubtful: dict[StageId, RunningStage] = field(default_factory=dict)  #: Stages whose claims the store may not know.
    _unverified: dict[StageId, RunningStage] = field(default_factory=dict)  #: Doubtful stages that the mesh has to ask about now.
    _unreported: deque[Callable[[], bool | None]] = field(default_factory=deque)
    """Pending steps. A step that returns False is unfinished, and continues after a heartbeat."""

    def __bool__(self) -> bool:
        return bool(self._unreported or self._starts)

    def clear(self) -> None:
        """Drop all reports, since their session is lost."""
        self._unreported.clear()
        self._starts.clear()
        self.output.clear()
        self._sent.clear()
        self._doubtful.clear()
        self._unverified.clear()

    def add_start(self, running: RunningStage) -> None:
        """Queue the report that the stage has started; it may go together with the first report of the host."""
        if self.start_delay_ms:
            self._starts[running.claim.stage] = self.guard.clock.monotonic_ms() + self.start_delay_ms, running
        else:
            self._queue_start(running)

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return in how many milliseconds the report of a start is due; None: there is none."""
        first = next(iter(self._starts.values()), None)
        return None if first is None else max(0, first[0] - now_ms)

    def report_starts(self, until_ms: int | None = None) -> None:
        """Report the starts that are due at this time; None: all. Raises as `report`."""
        due = [stage for stage, (at_ms, _) in self._starts.items() if until_ms is None or at_ms <= until_ms]
        for stage in due:
            self._queue_start(self._starts.pop(stage)[1])
        self.report()

    def _queue_start(self, running: RunningStage) -> None:
        started = running.started(self.child_state.record.cluster)
        self._unreported.append(lambda: self._report_of(running, STARTED, (started,), {}, {}))

    def add_report(self, running: RunningStage, report: HostReport) -> None:
        """Queue a report of the host."""
        self.output.add(running, STARTED + report.number, report.output)
        messages, unput = running.in_its_words(report.messages), dict(report.blobs)
        if self._starts.pop(running.claim.stage, None) is not None:
            messages = running.started(self.child_state.record.cluster), *messages
        if not messages and report.output:
            self._unreported.append(partial(self._pass_output, running, report.number))
            return
        self._unreported.append(lambda: self._report_of(running, STARTED + report.number, messages, report.blobs, unput))

    def add_loss(self, claim: Claim, reason: Reason) -> None:
        """Queue the report that nothing runs under the claim, instead of that of its start."""
        waiting = self._starts.get(claim.stage)
        if waiting is not None and waiting[1].claim == claim:
            del self._starts[claim.stage]
        self._unreported.append(lambda: self.report_lost(claim, reason))

    def then(self, work: Callable[[], None]) -> None:
        """Queue work to be done after all earlier reports are sent."""
        self._unreported.append(work)

    def report(self) -> None:
        """Send pending reports until a heartbeat is due; a report that fails stays first.

        Raises:
            StoreUnavailable: The store did not respond; other errors of the store pass through.
        """
        done = 0
        while self._unreported and not self.guard.has_to_stop(done):
            first = self._unreported[0]
            if first() is False:
                if not self._unreported or self._unreported[0] is first:
                    return
            elif self._unreported:
                self._unreported.popleft()
            done += 1
        self.output.send()

    def report_in_turn(self) -> None:
        """Send pending reports, unless called from within `report`, which sends them anyway."""
        if len(self._unreported) == 1:
            self.report()

    def report_lost(self, claim: Claim, reason: Reason) -> None:
        """Release the claim: its response or end was lost, its runner is dead, or the store refuses its report."""
        with contextlib.suppress(StaleFence):  # The store has forgotten the run meanwhile.
            self.queue.report(claim, LAST_WORD, (lost_stage(claim, reason),))

    def disown(self, running: RunningStage) -> None:
        """Stop a stage whose claim the store does not know.

        The stage stays in the lease accounting until the host reports its end: earlier, two stages would run on one unit of quota.
        """
        running.is_disowned = True
        stage = running.claim.stage
        if self._doubtful.get(stage) is running:
            del self._doubtful[stage]
        if self.child_state.running.get(stage) is running:  # Otherwise the host has already reported the end, and that step is pending.
            log.warning("a stage stops: the store does not know its claim", mesh=self.child_state.record.mesh, stage=stage)
            running.preempt(self.host)

    def report_again(self) -> None:
        """Reconcile all reports with the store after the ledger has begun an epoch.

        Before anything else the mesh asks for the state of each claim. The store restores the claims that it has lost, and the mesh sends
        again the batches that it lacks.
        """
        self._sent.drop_old(self.guard.clock.monotonic_ms())
        self.doubt((*self._sent.stages(), *self.child_state.running.values()))

    def doubt(self, stages: Iterable[RunningStage]) -> None:
        """Ask the store for the state of these claims before any other report."""
        fresh = {one.claim.stage: one for one in stages if not one.is_disowned}
        if fresh and not self._unverified:
            self._unreported.appendleft(self._ask)
        self._doubtful.update(fresh)
        self._unverified.update(fresh)

    def ask_again(self) -> None:
        """Ask again about claims that the store did not know: while the ledger recovers, their stages may be submitted again."""
        self.doubt(tuple(self._doubtful.values()))

    def report_end_again(self, claim: Claim) -> bool:
        """Queue the stage's end again if it was sent before; False: no end is kept, so the open claim is lost."""
        again = deque(self._sent.of(claim))
        if not again or not again[-1].closes:
            return False
        self._unreported.appendleft(partial(self._report_once_more, again))
        return True

    def _ask(self) -> bool:
        """Ask for the state of doubtful claims, in as few calls as possible; return whether none is left."""
        done = 0
        while self._unverified and not self.guard.has_to_stop(done):
            asked = tuple(islice(self._unverified.values(), RESUMED_MAX))
            statuses = self.queue.resume(self.guard.child_session.held(), tuple(self._held(stage) for stage in asked))
            again: deque[SentReport] = deque()
            for stage, status in zip(asked, statuses, strict=True):
                del self._unverified[stage.claim.stage]
                again += self._heed(stage, status)
            if again:  # Before any other report, except the remaining questions.
                self._unreported.insert(1, partial(self._report_once_more, again))
            done += 1
        return not self._unverified

    def _held(self, stage: RunningStage) -> HeldClaim:
        """Describe the claim for the store. A claim whose end was sent takes nothing any more, whatever became of its lease."""
        sent = self._sent.of(stage.claim)
        has_ended = bool(sent) and sent[-1].closes
        lease = None if has_ended else stage.paid_by
        return HeldClaim(
            claim=stage.claim, spec=stage.spec, lease=lease, is_whole=stage.is_whole, has_ended=has_ended, slots=stage.note.slots
        )

    def _heed(self, stage: RunningStage, status: ClaimStatus) -> Iterable[SentReport]:
        """Apply the claim's state in the store; return the batches to send again."""
        if status.may_come:
            return ()
        if not status.is_current:
            self._let_go(stage)
            return ()
        if self._doubtful.get(stage.claim.stage) is stage:
            del self._doubtful[stage.claim.stage]
        return (batch for batch in self._sent.of(stage.claim) if not batch.taken or batch.taken > status.batch)

    def _report_of(
        self, running: RunningStage, batch: int, messages: tuple[StageMessage, ...], blobs: dict[str, bytes], unput: dict[str, bytes]
    ) -> bool:
        """Send one batch and return whether it is done; `unput` holds its blobs that are not stored yet."""
        try:
            if self._doubtful.get(running.claim.stage) is running:  # Kept, and sent when the store knows the stage.
                self._keep(running, batch, 0, messages, blobs)
            elif not running.is_disowned:
                if not self._put(running.run, unput):
                    return False
                self.output.send(at_once=True)
                running.taken = self.queue.report(running.claim, batch, messages, after=running.taken)
                running.is_questioned = False
                self._keep(running, batch, running.taken, messages, blobs)
        except EarlierReportsLost:
            before = deque(self._sent.of(running.claim))
            running.taken = 0  # Batches no longer kept are lost: their nodes run again, and the store accepts later batches.
            self._unreported.appendleft(partial(self._report_once_more, before))
            return False
        except StaleFence:
            if not running.is_questioned:  # Lost or closed? The answer decides whether earlier batches are sent again.
                running.is_questioned = True
                self.doubt((running,))
                return False
            self._let_go(running)
        except NEVER as refused:
            self._give_up(running, str(refused))
        if any(isinstance(message, (StageEnded, StageLost)) for message in messages):
            self.output.drop(running.claim.stage)
        self.host.confirm(running.claim.stage, batch - STARTED)
        return True

    def _pass_output(self, running: RunningStage, number: int) -> None:
        """Send the output of a report that holds nothing else."""
        self.output.send()
        self.host.confirm(running.claim.stage, number)

    def _keep(self, running: RunningStage, batch: int, taken: int, messages: tuple[StageMessage, ...], blobs: dict[str, bytes]) -> None:
        now_ms = self.guard.clock.monotonic_ms()
        self._sent.keep(SentReport.of(running, number=batch, taken=taken, messages=messages, blobs=dict(blobs), now_ms=now_ms))

    def _report_once_more(self, again: deque[SentReport]) -> bool:
        """Send the batches again, one by one; return whether none is left. A batch stays until it is acknowledged."""
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
                log.warning(
                    "the store refused a batch sent again", mesh=self.child_state.record.mesh, stage=batch.claim.stage, why=str(refused)
                )
            again.popleft()
            done += 1
        return not again

    def _let_go(self, running: RunningStage) -> None:
        """Drop a claim that someone has closed, or that the store has lost and cannot restore."""
        if not running.is_disowned:
            self.disown(running)
        self._sent.drop(running.claim)

    def _put(self, run: RunId, blobs: dict[str, bytes]) -> bool:
        """Store the blobs one by one; return whether none is left."""
        done = 0
        while blobs and not self.guard.has_to_stop(done):
            sha256, content = next(iter(blobs.items()))
            self.blobs.put(run, sha256, content)
            del blobs[sha256]
            done += 1
        return not blobs

    def _give_up(self, running: RunningStage, why: str) -> None:
        """Report the stage as lost, since the store refuses its report for good. The stage runs again elsewhere."""
        log.error("a report is refused for good; its stage is lost", mesh=self.child_state.record.mesh, stage=running.claim.stage, why=why)
        self.report_lost(running.claim, Reason.REPORT_REFUSED)
        self.disown(running)
