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
from functools import partial
from itertools import islice, takewhile

from federation.child.books import Books
from federation.child.guard import NEVER, Guard
from federation.child.purse import Purse
from federation.child.tenure import Tenure
from federation.dispatch import EXPLAINED_MAX, StageQueue
from mesh import admission_events as events
from mesh.admission_decisions import AcquireLease, AdmissionDecision, ExplainWaiting, ReleaseLease, StartWorkload
from mesh.admission_events import AdmissionEvent
from mesh.ids import StageId
from mesh.reasons import Reason


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
    guard: Guard
    start: Callable[[StartWorkload], list[AdmissionDecision]]
    _undone: deque[AcquireLease | StartWorkload] = field(default_factory=deque)
    _unexplained: dict[StageId, ExplainWaiting] = field(default_factory=dict)
    """The last word of why each waits, as far as it was not told."""
    _told: dict[StageId, ExplainWaiting] = field(default_factory=dict)
    """Why each waits, as the store has it. The words change with every stage that ends, and are kept with a change of the reason alone."""
    _is_at_work: bool = False

    @property
    def is_done(self) -> bool:
        """All that was decided has been carried out, but for words to those who wait."""
        return not self._undone

    def clear(self) -> None:
        """What was decided is void."""
        self._undone.clear()
        self._unexplained.clear()
        self._told.clear()

    def tell_again(self) -> None:
        """The store may have forgotten what it was told: with the next words each that waits is explained again."""
        self._unexplained = {**self._told, **self._unexplained}
        self._told.clear()

    def take(self, *happened: AdmissionEvent) -> None:
        """Let admission decide, and carry out what it decides; what comes up meanwhile has its turn after it."""
        for event in happened:
            if isinstance(event, events.WorkloadWithdrawn):
                self._forget(event.workload)
        self._note(self.books.admission.handle(*happened))
        if not self._is_at_work:
            self.go_on()
            self.guard(partial(self.explain, 1))

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

    def _note(self, decisions: Iterable[AdmissionDecision]) -> None:
        for decision in decisions:
            if isinstance(decision, ReleaseLease):
                came_free = self.purse.put_back(decision.workload)
                if came_free is not None:
                    self._note(self.books.admission.handle(came_free))
            elif isinstance(decision, ExplainWaiting):
                self._note_reason(decision)
            else:
                self._undone.append(decision)

    def _note_reason(self, decision: ExplainWaiting) -> None:
        told = self._told.get(decision.workload)
        if told is not None and told.reason is decision.reason:
            self._unexplained.pop(decision.workload, None)
        else:
            self._unexplained[decision.workload] = decision

    def _forget(self, stage: StageId) -> None:
        """It waits no longer, or is to be explained as if it had come now."""
        self._unexplained.pop(stage, None)
        self._told.pop(stage, None)

    def _work_off(self) -> None:
        done, admission = 0, self.books.admission
        while self._undone and not self.guard.has_to_stop(done):
            decision, done = self._undone.popleft(), done + 1
            if isinstance(decision, StartWorkload):
                self._forget(decision.workload)
                follows = self.start(decision)
            else:
                follows = admission.handle(self.purse.acquire(decision))
            if self.books.admission is not admission:  # The session was lost meanwhile: what was decided under it is void.
                return
            self._note(follows)

    def explain(self, done: int = 0) -> None:
        """Tell those who wait why; `done`: so many steps were taken before, so there may be no time for any of it.

        Raises:
            SessionLost: And whatever else `StageQueue.explain` may raise, but that it never takes the words.
        """
        while self._unexplained and not self.guard.has_to_stop(done):
            alike, reason, detail = self._first_alike()
            stages = tuple(stage for stage in alike if stage in self.books.admission.workloads and stage not in self.books.running)
            if stages:
                with contextlib.suppress(*NEVER):  # Words for people hold nobody up.
                    self.queue.explain(self.tenure.held(), stages, reason, detail)
                self._told.update({stage: self._unexplained[stage] for stage in stages})
                done += 1
            for stage in alike:
                self._unexplained.pop(stage, None)

    def _first_alike(self) -> tuple[list[StageId], Reason, str]:
        """The first that were not told, as far as they wait for the same."""
        untold = self._unexplained.values()
        first = next(iter(untold))
        alike = takewhile(lambda one: (one.reason, one.detail) == (first.reason, first.detail), untold)
        return [one.workload for one in islice(alike, EXPLAINED_MAX)], first.reason, first.detail
