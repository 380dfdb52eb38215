"""Reconciliation of jobs between controller and scheduler: placement rounds, members' tasks, and members' events.

The controller (`mesh.jobs.controller`) decides which member starts or stops. Each attempt of a member is a task of the
scheduler, on the node that a round (`mesh.jobs.scheduler.allocate`) found for it. Task events are not passed on to the
controller: when a member's task changes, the reconciler reads the task's state and reports the difference. A recovered supervisor
therefore reads each member once and has missed nothing.

All work runs in rounds of the event loop of its own, after the batch that caused it: the scheduler is never called while it
handles another call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from mesh.core.ids import JobId, NodeName, PoolName, TaskId
from mesh.core.random_stream import RandomStream
from mesh.core.reasons import Reason
from mesh.core.task_spec import AT_WORK, TERMINAL, TaskState
from mesh.jobs.decisions import JobDecision, RefuseJob, ReportJob, StartMember, StopMember
from mesh.jobs.events import (
    JobEvent,
    JobForgotten,
    JobsTicked,
    JobSubmitted,
    JobTerminated,
    MemberFailed,
    MemberLost,
    MemberStarted,
    MemberStopped,
    MemberSucceeded,
    NodeGone,
)
from mesh.jobs.members import Member, environment, member_of_task, member_request, member_task, replica_of
from mesh.jobs.records import ACTIVE, JobRecord, MemberRecord
from mesh.jobs.spec import JobSpec
from mesh.jobs.states import MemberState
from mesh.jobs.views import JobView, view_of
from mesh.policies.policy import Policy
from mesh.ray.local.agent_messages import JobPayload
from mesh.ray.local.status_values import RequestRefused
from mesh.ray.local.store.task_index import TaskEntry
from mesh.ray.local.store.task_payloads import TaskPayloads, job_folder
from mesh.ray.local.supervision_errors import JobUnknown
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.supervisor.job_rounds import JobRounds
from mesh.tasks.decisions import Decision
from mesh.tasks.events import (
    AgentLost,
    Event,
    GroupGone,
    NodeJoined,
    NodeLeft,
    NodeUseSeen,
    PlacementsReserved,
    PoolConfigured,
    ReservedPlacement,
    SlotReleased,
    TaskCancelled,
    TaskEnded,
    TaskRefused,
    TaskStopped,
    TaskSubmitted,
)

log = structlog.get_logger(__name__)

#: Number of ended jobs that are remembered.
ENDED_MAX = 1_000
#: Events after which there is more room somewhere.
_ROOM_CAME = (NodeJoined, NodeUseSeen, PoolConfigured, TaskEnded, TaskStopped, TaskRefused, AgentLost, GroupGone, SlotReleased)
_STARTS = (TaskState.READY, TaskState.SWAP)
#: Reasons that cost a member its place; the member gets another place, and the failure does not count.
_PLACE_LOST = frozenset({Reason.NAMED_NODE_GONE, Reason.NAMED_NODE_TOO_SMALL, Reason.NO_NODE_FITS, Reason.POOL_TOO_SMALL})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Settings of job placement."""

    period_s: float = 1.0  #: Seconds between two rounds while a member waits for a place; new room starts a round at once.
    may_grow: bool = False  #: True: nodes may be added, so a job that fits none of today's nodes waits instead of failing.
    room_wait_ms: int = 5_000  #: Time that a member waits for room that others took; after it the member gets another place.
    leader_wait_ms: int = 120_000  #: Time that the workers' places stay reserved while their leader starts.


class JobReconciler:
    """Reconciles the jobs of one mesh. Call methods on the supervisor's event loop."""

    def __init__(
        self, loop: ControlLoop, payloads: TaskPayloads, policy_of: Callable[[str], Policy], settings: JobSettings, seed: int
    ) -> None:
        self._loop = loop
        self._payloads = payloads
        self._settings = settings
        self._rounds = JobRounds(loop, policy_of, RandomStream(seed), may_grow=settings.may_grow)
        self._changed: dict[TaskId, None] = {}  #: Tasks of members to reconcile, oldest first.
        self._gone: list[NodeName] = []
        self._needs_round = True
        self._is_due = asyncio.Event()
        self.on_report: Callable[[ReportJob], None] = lambda _: None

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, payload: JobPayload) -> RequestRefused | None:
        """Submit a job. Idempotent for the same spec. Returns the refusal, if any."""
        if spec.job not in self._loop.jobs.jobs:
            self._payloads.submit_job(spec.job, payload)
        decisions = self._send(JobSubmitted(at_ms=self._now_ms(), spec=spec))
        self._needs_round = True
        self._is_due.set()
        refused = next((decision for decision in decisions if isinstance(decision, RefuseJob)), None)
        return RequestRefused(reason=refused.reason, detail=refused.detail) if refused is not None else None

    def terminate(self, job: JobId) -> None:
        """Terminate the job; does nothing when it is over. Raises `JobUnknown`."""
        self._record(job)
        self._send(JobTerminated(at_ms=self._now_ms(), job=job))

    def view(self, job: JobId) -> JobView:
        """Return the job's status. Raises `JobUnknown`."""
        return view_of(self._record(job))

    def views(self) -> list[JobView]:
        """Return all remembered jobs, oldest first."""
        return [view_of(record) for record in self._loop.jobs.jobs.values()]

    async def until_over(self, job: JobId, timeout_s: float) -> None:
        """Wait until the job is over and cleaned up, or until the timeout."""
        self._record(job)
        await self._loop.until(job_folder(job), lambda: self._is_done(job), timeout_s)

    def _is_done(self, job: JobId) -> bool:
        record = self._loop.jobs.jobs.get(job)
        return record is None or (record.is_over and not record.is_stopping)

    def _record(self, job: JobId) -> JobRecord:
        record = self._loop.jobs.jobs.get(job)
        if record is None:
            raise JobUnknown(job, tuple(self._loop.jobs.jobs))
        return record

    # -- rounds --------------------------------------------------------------------------------------------------------

    def hear(self, events: Sequence[Event], decisions: Sequence[Decision], _took_ms: float) -> None:
        """Record a batch of the scheduler: what to reconcile in the next round."""
        if not self._loop.jobs.jobs:
            return
        for fact in (*events, *decisions):
            task = getattr(fact, "task", None)
            if task is not None and member_of_task(task) is not None:
                self._changed[task] = None
            if isinstance(fact, NodeLeft):
                self._gone.append(fact.node)
            self._needs_round = self._needs_round or isinstance(fact, _ROOM_CAME)
        if self._changed or self._gone or (self._needs_round and self._rounds.needs_places()):
            self._is_due.set()

    def recover(self) -> None:
        """After a restart of the supervisor, reconcile every member that may run."""
        for job, record in self._members():
            if record.state in ACTIVE:
                self._changed[member_task(job.job, record.member, record.attempt)] = None
        self._is_due.set()

    async def run(self) -> None:
        """Run for ever: on changes, when a member may start again, and once a period while members wait."""
        while True:
            pause_s = self._pause_s()
            try:
                await asyncio.wait_for(self._is_due.wait(), pause_s)
            except asyncio.TimeoutError:
                self._needs_round = True
            self._is_due.clear()
            try:
                self.turn()
            except Exception:
                log.exception("the reconciliation of jobs failed")
                await asyncio.sleep(self._settings.period_s)

    def turn(self) -> None:
        """Reconcile all changes, then place the members that have no place."""
        gone, self._gone = self._gone, []
        if gone:
            self._send(*(NodeGone(at_ms=self._now_ms(), node=node) for node in gone))
        changed, self._changed = self._changed, {}
        for task in changed:
            self._look_at(task)
        for task in self._overdue():
            self._look_at(task)
        wakes_ms = self._loop.jobs.wakes_ms()
        if wakes_ms is not None and wakes_ms <= self._now_ms():
            self._send(JobsTicked(at_ms=self._now_ms()))
        if self._needs_round and self._rounds.needs_places():
            self._needs_round = False
            for event in self._rounds.run():
                self._send(event)
        self._reserve_placements()
        self._forget_old()

    def _reserve_placements(self) -> None:
        """Reserve the places of workers that wait for their leader; release reservations that are no longer wanted."""
        reservations = self._loop.scheduler.state.job_reservations
        for job in dict.fromkeys((*reservations, *self._loop.jobs.jobs)):
            record, kept = self._loop.jobs.jobs.get(job), reservations.get(job)
            places = _places_of(record) if record is not None else ()
            if places == (kept.wanted if kept is not None else ()):
                continue
            pool = record.spec.pool if record is not None else kept.pool if kept is not None else PoolName("")
            attempt, at_ms = record.leader.attempt if record is not None else 0, self._now_ms()
            is_same = kept is not None and kept.attempt == attempt
            until_ms = kept.until_ms if kept is not None and is_same else at_ms + self._settings.leader_wait_ms
            self._loop.send(PlacementsReserved(at_ms=at_ms, job=job, pool=pool, places=places, until_ms=until_ms, attempt=attempt))

    def _pause_s(self) -> float | None:
        """Return the time until work is due without a change; None: never."""
        now_ms = self._now_ms()
        until_ms = [wakes_ms] if (wakes_ms := self._loop.jobs.wakes_ms()) is not None else []
        if self._rounds.needs_places():
            until_ms.append(self._rounds.last_ms + int(self._settings.period_s * 1000))
        until_ms += [row.submitted_ms + self._settings.room_wait_ms for _, row in self._that_wait()]
        return max(0.0, (min(until_ms) - now_ms) / 1000) + 0.001 if until_ms else None

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _send(self, *events: JobEvent) -> list[JobDecision]:
        decisions = self._loop.send_to_jobs(*events)
        for decision in decisions:
            if isinstance(decision, StartMember):
                self._start(decision.job, decision.member, decision.attempt, decision.node, dict(decision.env))
            elif isinstance(decision, StopMember):
                self._stop(decision)
            elif isinstance(decision, ReportJob):
                log.info(
                    "job",
                    job=decision.job,
                    stage=decision.stage.value,
                    schedule_state=decision.schedule_state.value,
                    detail=decision.detail,
                )
                self.on_report(decision)
        for job in {decision.job for decision in decisions}:
            self._settle(job)
        return decisions

    def _start(self, job: JobId, member: Member, attempt: int, node: NodeName, env: dict[str, str]) -> None:
        spec = self._record(job).spec
        request = self._loop.prioritised(member_request(spec, member, node, attempt))
        self._payloads.submit_member(request.task, job, member.role, env, is_leader=member.is_leader)
        self._loop.send(TaskSubmitted(at_ms=self._now_ms(), request=request))
        self._changed[request.task] = None
        self._is_due.set()

    def _stop(self, decision: StopMember) -> None:
        task = member_task(decision.job, decision.member, decision.attempt)
        if decision.has_ended:
            self._loop.task_index.forget(task)
            self._payloads.forget(task)
        else:
            self._cancel(task)
        self._changed[task] = None
        self._is_due.set()

    def _cancel(self, task: TaskId) -> None:
        row = self._loop.task_index.tasks.get(task)
        if row is not None and row.state not in TERMINAL:
            self._loop.send(TaskCancelled(at_ms=self._now_ms(), task=task, keep_state=False))

    def _settle(self, job: JobId) -> None:
        """Wake waiters after a change of the job; release its payloads when it is over."""
        record = self._loop.jobs.jobs.get(job)
        if record is not None and record.is_over and not any(member.state in ACTIVE for member in record.records):
            self._payloads.job_is_over(job)
        self._loop.wake(job_folder(job))

    # -- members -------------------------------------------------------------------------------------------------------

    def _look_at(self, task: TaskId) -> None:
        """Report the state of one attempt of a member to the controller, if it is new."""
        named = member_of_task(task)
        job = self._loop.jobs.jobs.get(named[0]) if named is not None else None
        record = job.members.get(named[1]) if job is not None and named is not None else None
        if job is None or record is None or named is None or record.attempt != named[2] or record.state not in ACTIVE:
            return
        event = self._events_of(job, record, task, self._loop.task_index.tasks.get(task))
        if event is not None:
            self._send(event)
            self._settle(job.job)

    def _events_of(self, job: JobRecord, record: MemberRecord, task: TaskId, row: TaskEntry | None) -> JobEvent | None:
        about: dict[str, Any] = {"at_ms": self._now_ms(), "job": job.job, "member": record.member, "attempt": record.attempt}
        if row is None:
            return self._events_of_absent(job, record, about)
        if row.state in TERMINAL:
            return self._events_of_end(job, record, row, about)
        if record.state is MemberState.STOPPING:
            if (
                task not in self._loop.task_index.stops
            ):  # The supervisor died between journaling the decision and passing it to the scheduler.
                self._cancel(task)
            return None
        if row.preemptions:
            held = self._loop.scheduler.state.records.get(task)
            if held is not None and held.stopping is not None:
                return None  # The task is being stopped; its loss is reported when its room is free.
            return self._lose(task, about, "it was preempted by more urgent work")
        state = self._state_of(task, row)
        if state in AT_WORK:
            return MemberStarted(**about, address=self._payloads.address(task)) if record.state is MemberState.STARTING else None
        if state in _STARTS or not self._has_waited(row):
            return None
        return self._lose(task, about, f"its room on node {record.node} was taken: {row.detail}")

    def _events_of_absent(self, job: JobRecord, record: MemberRecord, about: dict[str, Any]) -> JobEvent | None:
        """Return the event for a task that the index does not have: cleaned up, forgotten, or never submitted."""
        if record.state is MemberState.STOPPING:
            return MemberStopped(**about)
        if record.state is MemberState.STARTING and record.node is not None:
            address = None if record.member.is_leader else job.leader_address
            self._start(job.job, record.member, record.attempt, record.node, environment(job.spec, record.member, address))
            return None
        return MemberLost(**about, detail="its task is unknown")

    def _events_of_end(self, job: JobRecord, record: MemberRecord, row: TaskEntry, about: dict[str, Any]) -> JobEvent:
        if row.state is TaskState.SUCCEEDED:
            if record.member.is_leader:
                self._payloads.keep_job_result(job.job, row.request.task)
            return MemberSucceeded(**about)
        if row.state is TaskState.CANCELLED:
            return MemberStopped(**about)
        words = f"{row.reason.value}: {row.detail}" if row.reason is not None else row.detail
        if row.reason in _PLACE_LOST:
            return MemberLost(**about, detail=words)
        if record.member.is_leader:
            self._payloads.keep_job_result(job.job, row.request.task)  # The leader's exception is the cause if the job fails.
        return MemberFailed(**about, detail=words)

    def _lose(self, task: TaskId, about: dict[str, Any], words: str) -> MemberLost:
        self._cancel(task)
        return MemberLost(**about, detail=words)

    # -- waiting for room ----------------------------------------------------------------------------------------------

    def _members(self) -> Iterator[tuple[JobRecord, MemberRecord]]:
        return ((job, record) for job in tuple(self._loop.jobs.jobs.values()) for record in job.records)

    def _that_wait(self) -> list[tuple[TaskId, TaskEntry]]:
        """Return the starting members whose task still waits for room."""
        found = []
        for job, record in self._members():
            if record.state is MemberState.STARTING:
                task = member_task(job.job, record.member, record.attempt)
                row = self._loop.task_index.tasks.get(task)
                if row is not None and self._state_of(task, row) not in (*AT_WORK, *_STARTS, *TERMINAL):
                    found.append((task, row))
        return found

    def _state_of(self, task: TaskId, row: TaskEntry) -> TaskState:
        """Return the scheduler's state of the task, which is more detailed than the index's while the task is not over."""
        tasks = self._loop.scheduler.state.tasks
        return row.state if row.state in TERMINAL or task not in tasks else tasks.state_of(task)

    def _overdue(self) -> list[TaskId]:
        return [task for task, row in self._that_wait() if self._has_waited(row)]

    def _has_waited(self, row: TaskEntry) -> bool:
        return row.reason in _PLACE_LOST or self._now_ms() - row.submitted_ms >= self._settings.room_wait_ms

    # -- the end -------------------------------------------------------------------------------------------------------

    def _forget_old(self) -> None:
        over = [job for job, record in self._loop.jobs.jobs.items() if record.is_over and self._is_done(job)]
        for job in over[: max(0, len(over) - ENDED_MAX)]:
            self._send(JobForgotten(at_ms=self._now_ms(), job=job))
            if job not in self._loop.jobs.jobs:
                self._payloads.forget_job(job)

    def _now_ms(self) -> int:
        return self._loop.clock.now_ms()


def _places_of(job: JobRecord) -> tuple[ReservedPlacement, ...]:
    """Return the places of workers that have no task yet."""
    waiting = [record for record in job.workers if record.state is MemberState.PLACED]
    return tuple(
        ReservedPlacement(
            prefix=member_task(job.job, record.member, 0)[:-1],
            node=record.node,
            resources=replica_of(job.spec, record.member.role).resources,
        )
        for record in waiting
        if record.node is not None
    )
