"""What admission has decided and nobody has carried out yet, and the carrying out.

One decision leads to the next: a lease that is granted starts a stage, a refusal frees room for another. All of it is worked off in
order, but not longer than until a heartbeat is due; the rest is done after that one. However much one tenant has queued, the
session by which the work of all lives is renewed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from federation.books import Books
from federation.dispatch import StageQueue
from federation.guard import NEVER, Guard
from federation.purse import Purse
from federation.tenure import Tenure
from mesh import admission_events as events
from mesh.admission_decisions import AcquireLease, AdmissionDecision, ExplainWaiting, ReleaseLease, StartWorkload
from mesh.admission_events import AdmissionEvent
from mesh.clock import Clock
from mesh.ids import StageId

#: So many decisions are carried out before it is asked whether a heartbeat is due, which then goes first.
DONE_AT_ONCE = 16


@dataclass(slots=True, kw_only=True)
class Docket:
    """Of one mesh.

    Args:
        start: Has a stage run that has got its room and its lease; what follows for admission.
    """

    books: Books
    purse: Purse
    tenure: Tenure
    queue: StageQueue
    clock: Clock
    guard: Guard
    start: Callable[[StartWorkload], list[AdmissionDecision]]
    _undone: deque[AcquireLease | StartWorkload] = field(default_factory=deque)
    _unexplained: dict[StageId, ExplainWaiting] = field(default_factory=dict)
    """The last word of why each waits, as far as it was not told."""
    _is_at_work: bool = False

    @property
    def is_done(self) -> bool:
        """All that was decided has been carried out, but for words to those who wait."""
        return not self._undone

    def clear(self) -> None:
        """What was decided is void."""
        self._undone.clear()
        self._unexplained.clear()

    def take(self, *happened: AdmissionEvent) -> None:
        """Let admission decide, and carry out what it decides; what comes up meanwhile has its turn after it."""
        self._note(self.books.admission.handle(*happened))
        self.go_on()

    def end(self, stage: StageId) -> None:
        """Nothing of the stage runs any more. One that admission never knew, since an earlier process let it in, was paid for as well."""
        if stage in self.books.admission.workloads:
            self.take(events.WorkloadEnded(workload=stage))
        elif self.purse.put_back(stage):
            self.take(events.RoomMayHaveCome())

    def go_on(self) -> None:
        """Carry out what is left."""
        if not self._is_at_work:
            self._is_at_work = True
            try:
                self._work_off()
            finally:
                self._is_at_work = False
            self.guard(self._explain_waiting)

    def has_to_stop(self, done: int) -> bool:
        """After so many steps: is it time for a heartbeat?"""
        return done >= DONE_AT_ONCE and self.tenure.due_in_ms(self.clock.monotonic_ms()) == 0

    def _note(self, decisions: Iterable[AdmissionDecision]) -> None:
        for decision in decisions:
            if isinstance(decision, ReleaseLease):
                if self.purse.put_back(decision.workload):
                    self._note(self.books.admission.handle(events.RoomMayHaveCome()))
            elif isinstance(decision, ExplainWaiting):
                self._unexplained[decision.workload] = decision
            else:
                self._undone.append(decision)

    def _work_off(self) -> None:
        done, admission = 0, self.books.admission
        while self._undone and not self.has_to_stop(done):
            decision, done = self._undone.popleft(), done + 1
            follows = self.start(decision) if isinstance(decision, StartWorkload) else admission.handle(self.purse.acquire(decision))
            if self.books.admission is not admission:  # The session was lost meanwhile: what was decided under it is void.
                return
            self._note(follows)

    def _explain_waiting(self) -> None:
        told = 0
        while self._unexplained and not self.has_to_stop(told):
            stage, explanation = next(iter(self._unexplained.items()))
            if stage in self.books.admission.workloads and stage not in self.books.running:
                with contextlib.suppress(*NEVER):  # Words for people hold nobody up.
                    self.queue.explain(self.tenure.held(), stage, explanation.reason, explanation.detail)
                told += 1
            self._unexplained.pop(stage)
