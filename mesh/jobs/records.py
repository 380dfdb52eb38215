"""What the controller keeps of a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.errors import IllegalTransition
from mesh.ids import JobId, NodeName
from mesh.jobs.decisions import ReportJob
from mesh.jobs.members import THE_LEADER, Member, members_of
from mesh.jobs.snapshots import JobSnapshot
from mesh.jobs.spec import JobSpec
from mesh.jobs.states import (
    MEMBER_TRANSITIONS,
    SCHEDULE_TRANSITIONS,
    STAGE_TRANSITIONS,
    TERMINAL_STAGES,
    MemberState,
    ScheduleState,
    Stage,
)
from mesh.reasons import Reason

_M = MemberState

#: A member in one of these holds its node.
WITH_PLACE = frozenset({_M.PLACED, _M.STARTING, _M.RUNNING})
#: Something of it runs, or may.
ACTIVE = frozenset({_M.STARTING, _M.RUNNING, _M.STOPPING})


@dataclass(slots=True, kw_only=True)
class MemberRecord:
    """The leader, or one worker. Invariants: it has a node when it holds a place, and none when it is unplaced; `attempt` never falls."""

    member: Member
    state: MemberState = MemberState.UNPLACED
    node: NodeName | None = None  #: Where it is; of one that has ended, where it was.
    attempt: int = 0  #: Starts so far; the number of the present one.
    failures: int = 0
    not_before_ms: int = 0  #: It is not started again earlier.
    detail: str = ""  #: What became of its last attempt.
    keeps_place: bool = False  #: While it is stopped: it is to start again on the same node.

    def move(self, state: MemberState) -> None:
        """Go on to `state`. Raises `IllegalTransition` where the table has no such move."""
        if state not in MEMBER_TRANSITIONS[self.state]:
            raise IllegalTransition(f"member {self.member} (attempt {self.attempt}) cannot go from {self.state.value} to {state.value}")
        self.state = state

    def unplace(self) -> None:
        """Its node is no longer its own."""
        self.move(MemberState.UNPLACED)
        self.node, self.keeps_place = None, False

    @property
    def holds_place(self) -> bool:
        """Nobody else may have its room."""
        return self.state in WITH_PLACE or (self.state is MemberState.STOPPING and self.keeps_place)


@dataclass(slots=True, kw_only=True)
class JobRecord:
    """A job. Only the controller writes it."""

    spec: JobSpec
    arrival: int
    submitted_ms: int
    since_ms: int  #: Of the present stage.
    records: tuple[MemberRecord, ...] = ()  #: In the order of ranks; empty: it is new, and they are made.
    stage: Stage = Stage.PENDING
    schedule_state: ScheduleState = ScheduleState.UNSCHEDULED
    incarnation: int = 1
    leader_address: str | None = None  #: None: no leader is up, so no worker may start.
    reason: Reason | None = None
    detail: str = ""
    told: ReportJob | None = None  #: What was last reported.
    members: dict[Member, MemberRecord] = field(init=False)  #: The same records by member.

    def __post_init__(self) -> None:
        self.records = self.records or tuple(MemberRecord(member=member) for member in members_of(self.spec))
        self.members = {record.member: record for record in self.records}

    @property
    def job(self) -> JobId:
        """Its id."""
        return self.spec.job

    @property
    def leader(self) -> MemberRecord:
        """The one that comes up first."""
        return self.members[THE_LEADER]

    @property
    def workers(self) -> tuple[MemberRecord, ...]:
        """All the others."""
        return self.records[1:]

    @property
    def is_over(self) -> bool:
        """It has succeeded or failed."""
        return self.stage in TERMINAL_STAGES

    @property
    def is_stopping(self) -> bool:
        """Something of it is still being stopped."""
        return any(record.state is MemberState.STOPPING for record in self.records)

    @property
    def workers_placed(self) -> int:
        """Workers with a place, and those that are done."""
        return sum(record.holds_place or record.state is MemberState.SUCCEEDED for record in self.workers)

    @property
    def workers_up(self) -> int:
        """Workers that run, and those that are done."""
        return sum(record.state in (MemberState.RUNNING, MemberState.SUCCEEDED) for record in self.workers)

    @property
    def workers_left(self) -> int:
        """Workers that are not given up."""
        return sum(record.state is not MemberState.GIVEN_UP for record in self.workers)

    @property
    def may_start(self) -> bool:
        """The leader and enough workers have places."""
        return self.leader.holds_place and self.workers_placed >= self.spec.workers_needed

    def move(self, stage: Stage, at_ms: int) -> None:
        """Go on to `stage`. Raises `IllegalTransition` where the table has no such move."""
        if stage not in STAGE_TRANSITIONS[self.stage]:
            raise IllegalTransition(f"job {self.job} cannot go from {self.stage.value} to {stage.value}; {self._story()}")
        self.stage, self.since_ms = stage, at_ms

    def judge(self) -> None:
        """Set the schedule state to what the places say. Raises `IllegalTransition` where the table has no such move."""
        if not self.may_start:
            state = ScheduleState.UNSCHEDULED
        elif self.workers_placed < self.workers_left:
            state = ScheduleState.SCHEDULED_PARTLY
        else:
            state = ScheduleState.SCHEDULED_SUCCEED
        self.set_schedule_state(state)

    def set_schedule_state(self, state: ScheduleState) -> None:
        """Raises `IllegalTransition` where the table has no such move."""
        if state is not self.schedule_state and state not in SCHEDULE_TRANSITIONS[self.schedule_state]:
            raise IllegalTransition(f"job {self.job} cannot go from {self.schedule_state.value} to {state.value}; {self._story()}")
        self.schedule_state = state

    def snapshot(self) -> JobSnapshot:
        """What a round of the scheduler needs to know of it; while it is being stopped to be placed anew, that it wants nothing yet."""
        waits = self.stage is Stage.RESCHEDULING and self.is_stopping
        return JobSnapshot(
            spec=self.spec,
            arrival=self.arrival,
            incarnation=self.incarnation,
            schedule_state=self.schedule_state,
            places={member: record.node for member, record in self.members.items() if record.holds_place and record.node is not None},
            unseen=frozenset(member for member, record in self.members.items() if record.state is MemberState.PLACED),
            unplaced=tuple(member for member, record in self.members.items() if record.state is MemberState.UNPLACED and not waits),
            done=sum(record.state is MemberState.SUCCEEDED for record in self.workers),
        )

    def _story(self) -> str:
        told = ", ".join(f"{record.member} {record.state.value} (attempt {record.attempt})" for record in self.records)
        return f"its members: {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBook:
    """All that a controller keeps."""

    jobs: tuple[JobRecord, ...]
    arrivals: int
