"""Decision queue: admission's decisions that are still to be carried out.

One decision leads to the next: a granted lease starts a stage, a refusal frees room for another stage. The child carries the
decisions out in order until a heartbeat is due, and continues after the heartbeat. So one tenant's long queue never costs the mesh
the session that keeps all work alive.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile

from federation.child.child_session import ChildSession
from federation.child.child_state import ChildState
from federation.child.guard import NEVER, Guard
from federation.child.lease_client import LeaseClient
from federation.child.running_stage import RunningStage
from federation.dispatch import EXPLAINED_MAX, StageQueue
from federation.leases import ROWS_MAX
from mesh.core.ids import StageId
from mesh.core.reasons import Reason
from mesh.stages import admission_events as events
from mesh.stages.admission_decisions import (
    AcquireLease,
    AdmissionDecision,
    ExplainWaiting,
    GrowWorkload,
    ReleaseLease,
    StartWorkload,
)
from mesh.stages.admission_events import AdmissionEvent
from mesh.stages.messages import StageResized


@dataclass(slots=True, kw_only=True)
class DecisionQueue:
    """Decision queue of one mesh.

    Args:
        start: Starts a stage that has room and a lease; returns admission's next decisions.
        grow: Gives a running stage more slots.
    """

    child_state: ChildState
    lease_client: LeaseClient
    child_session: ChildSession
    queue: StageQueue
    guard: Guard
    start: Callable[[StartWorkload], list[AdmissionDecision]]
    grow: Callable[[GrowWorkload], None]
    _undone: deque[AcquireLease | StartWorkload | GrowWorkload] = field(default_factory=deque)
    _unexplained: dict[StageId, ExplainWaiting] = field(default_factory=dict)
    """The latest reason of each waiting stage, if not yet reported."""
    _explained: dict[StageId, ExplainWaiting] = field(default_factory=dict)
    """The reason of each waiting stage in the store. The details change whenever a stage ends; only a new reason is reported."""
    _asked: frozenset[StageId] = frozenset()  #: Stages for which the ledger was asked together, since the last pass.
    _is_at_work: bool = False

    @property
    def is_done(self) -> bool:
        """All decisions are carried out; reports of reasons may still be pending."""
        return not self._undone

    def clear(self) -> None:
        """Drop all decisions, since the session is lost."""
        self._undone.clear()
        self._unexplained.clear()
        self._explained.clear()

    def report_again(self) -> None:
        """Report the reasons of all waiting stages again, since the store may have lost them."""
        self._unexplained = {**self._explained, **self._unexplained}
        self._explained.clear()

    def take(self, *happened: AdmissionEvent) -> None:
        """Pass the events to admission and carry out its decisions. Events that occur meanwhile are handled after these."""
        for event in happened:
            if isinstance(event, events.WorkloadWithdrawn):
                self._forget(event.workload)
        self._note(self.child_state.admission.handle(*happened))
        if not self._is_at_work:
            self.go_on()
            self.guard(partial(self.explain, 1))

    def end(self, stage: StageId) -> None:
        """Release the room and quota of a stage that has stopped. An orphan stage holds only quota, unknown to admission."""
        if stage in self.child_state.admission.workloads:
            self.take(events.WorkloadEnded(workload=stage))
        elif self.lease_client.put_back(stage):
            self.take(events.RoomMayHaveCome())

    def retire(self, running: RunningStage, slots: int, resized: StageResized) -> None:
        """Release the room and quota of slots that a running stage has given back."""
        stage = running.claim.stage
        workload = self.child_state.admission.workloads.get(stage)
        if workload is not None:
            left = workload.slots - slots
            came_free = self.lease_client.shrink(stage, workload.offer.slot.times(left))
            known = events.UsefulSlotsKnown(workload=stage, slots=running.useful)
            retired = events.SlotsRetired(workload=stage, slots=left, gone=resized.gone, groups=resized.groups)
            self.take(known, retired, *([came_free] if came_free is not None else []))

    def go_on(self) -> None:
        """Carry out the remaining decisions until a heartbeat is due."""
        if not self._is_at_work:
            self._is_at_work = True
            try:
                self._work_off()
            finally:
                self._is_at_work = False

    def _note(self, decisions: Iterable[AdmissionDecision]) -> None:
        for decision in decisions:
            if isinstance(decision, ReleaseLease):
                came_free = self.lease_client.put_back(decision.workload)
                if came_free is not None:
                    self._note(self.child_state.admission.handle(came_free))
            elif isinstance(decision, ExplainWaiting):
                self._note_reason(decision)
            else:
                self._undone.append(decision)

    def _note_reason(self, decision: ExplainWaiting) -> None:
        explained = self._explained.get(decision.workload)
        if explained is not None and explained.reason is decision.reason:
            self._unexplained.pop(decision.workload, None)
        else:
            self._unexplained[decision.workload] = decision

    def _forget(self, stage: StageId) -> None:
        """Forget the stage's reason, so that the next one is reported."""
        self._unexplained.pop(stage, None)
        self._explained.pop(stage, None)

    def _work_off(self) -> None:
        done, admission, self._asked = 0, self.child_state.admission, frozenset()
        while self._undone and not self.guard.has_to_stop(done):
            decision, done = self._undone.popleft(), done + 1
            if isinstance(decision, StartWorkload):
                self._forget(decision.workload)
                follows = self.start(decision)
            elif isinstance(decision, GrowWorkload):
                self.grow(decision)
                continue
            elif not admission.is_asked(decision):
                continue
            else:
                self._ask_together(decision)
                follows = admission.handle(self.lease_client.acquire(decision))
            if self.child_state.admission is not admission:  # The session was lost meanwhile, so its decisions are void.
                return
            self._note(follows)

    def _ask_together(self, decision: AcquireLease) -> None:
        """Ask the ledger once for this and the following decisions, unless an earlier call included it."""
        if decision.workload not in self._asked:
            following = (
                one
                for one in islice(self._undone, ROWS_MAX - 1)
                if isinstance(one, AcquireLease) and self.child_state.admission.is_asked(one)
            )
            together = (decision, *following)
            self._asked = frozenset(one.workload for one in together)
            self.lease_client.ask_together(together)

    def explain(self, done: int = 0) -> None:
        """Report to the store why stages wait.

        Args:
            done: Steps taken before in this pass; they count against the time until the next heartbeat.

        Raises:
            SessionLost: The session is lost. Other errors of `StageQueue.explain` pass through, but refusals for good are ignored.
        """
        while self._unexplained and not self.guard.has_to_stop(done):
            alike, reason, detail = self._first_alike()
            stages = tuple(
                stage for stage in alike if stage in self.child_state.admission.workloads and stage not in self.child_state.running
            )
            if stages:
                with contextlib.suppress(*NEVER):  # A refused explanation must not delay work.
                    self.queue.explain(self.child_session.held(), stages, reason, detail)
                self._explained.update({stage: self._unexplained[stage] for stage in stages})
                done += 1
            for stage in alike:
                self._unexplained.pop(stage, None)

    def _first_alike(self) -> tuple[list[StageId], Reason, str]:
        """Return the first unreported stages that wait for the same reason."""
        unreported = self._unexplained.values()
        first = next(iter(unreported))
        alike = takewhile(lambda one: (one.reason, one.detail) == (first.reason, first.detail), unreported)
        return [one.workload for one in islice(alike, EXPLAINED_MAX)], first.reason, first.detail
