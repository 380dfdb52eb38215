"""Records of the job controller."""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.core.ids import JobId, NodeName
from mesh.core.reasons import Reason
from mesh.errors import IllegalTransition
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

_M = MemberState

#: States in which a member holds its node.
WITH_PLACE = frozenset({_M.PLACED, _M.STARTING, _M.RUNNING})
#: States in which something of the member runs, or may run.
ACTIVE = frozenset({_M.STARTING, _M.RUNNING, _M.STOPPING})


@dataclass(slots=True, kw_only=True)
class MemberRecord:
    """The leader, or one worker. Invariants: it has a node when it holds a place, and none when unplaced; `attempt` never decreases."""

    member: Member
    state: MemberState = MemberState.UNPLACED
    node: NodeName | None = None  #: Current node, or the last one of an ended member.
    attempt: int = 0  #: Number of starts, and number of the current attempt.
    failures: int = 0
    not_before_ms: int = 0  #: End of its restart pause.
    detail: str = ""  #: Result of its last attempt.
    keeps_placement: bool = False  #: Set while it is stopped in order to start again on the same node.

    def move(self, state: MemberState) -> None:
        """Change the state.

        Raises:
            IllegalTransition: The table has no such transition.
        """
        if state not in MEMBER_TRANSITIONS[self.state]:
            raise IllegalTransition(f"member {self.member} (attempt {self.attempt}) cannot go from {self.state.value} to {state.value}")
        self.state = state

    def unplace(self) -> None:
        """Release the member's node."""
        self.move(MemberState.UNPLACED)
        self.node, self.keeps_placement = None, False

    @property
    def holds_placement(self) -> bool:
        """Whether the member's resources are reserved."""
        return self.state in WITH_PLACE or (self.state is MemberState.STOPPING and self.keeps_placement)


@dataclass(slots=True, kw_only=True)
class JobRecord:
    """A job. Only the controller writes it."""

    spec: JobSpec
    arrival: int
    submitted_ms: int
    since_ms: int  #: Start of the current stage.
    records: tuple[MemberRecord, ...] = ()  #: In order of ranks; empty: created for a new job.
    stage: Stage = Stage.PENDING
    schedule_state: ScheduleState = ScheduleState.UNSCHEDULED
    incarnation: int = 1
    leader_address: str | None = None  #: None: no leader is up, so no worker may start.
    reason: Reason | None = None
    detail: str = ""
    reported: ReportJob | None = None  #: Last report.
    members: dict[Member, MemberRecord] = field(init=False)  #: The same records by member.

    def __post_init__(self) -> None:
        self.records = self.records or tuple(MemberRecord(member=member) for member in members_of(self.spec))
        self.members = {record.member: record for record in self.records}

    @property
    def job(self) -> JobId:
        """Id of the job."""
        return self.spec.job

    @property
    def leader(self) -> MemberRecord:
        """Record of the leader."""
        return self.members[THE_LEADER]

    @property
    def workers(self) -> tuple[MemberRecord, ...]:
        """Records of the workers."""
        return self.records[1:]

    @property
    def is_over(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.stage in TERMINAL_STAGES

    @property
    def is_stopping(self) -> bool:
        """Whether a member is still being stopped."""
        return any(record.state is MemberState.STOPPING for record in self.records)

    @property
    def workers_placed(self) -> int:
        """Number of workers that have a place or have succeeded."""
        return sum(record.holds_placement or record.state is MemberState.SUCCEEDED for record in self.workers)

    @property
    def workers_up(self) -> int:
        """Number of workers that run or have succeeded."""
        return sum(record.state in (MemberState.RUNNING, MemberState.SUCCEEDED) for record in self.workers)

    @property
    def workers_left(self) -> int:
        """Number of workers that are not given up."""
        return sum(record.state is not MemberState.GIVEN_UP for record in self.workers)

    @property
    def may_start(self) -> bool:
        """Whether the leader and enough workers have places."""
        return self.leader.holds_placement and self.workers_placed >= self.spec.workers_needed

    def move(self, stage: Stage, at_ms: int) -> None:
        """Change the stage.

        Raises:
            IllegalTransition: The table has no such transition.
        """
        if stage not in STAGE_TRANSITIONS[self.stage]:
            raise IllegalTransition(f"job {self.job} cannot go from {self.stage.value} to {stage.value}; {self._past()}")
        self.stage, self.since_ms = stage, at_ms

    def judge(self) -> None:
        """Update the schedule state from the places.

        Raises:
            IllegalTransition: The table has no such transition.
        """
        if not self.may_start:
            state = ScheduleState.UNSCHEDULED
        elif self.workers_placed < self.workers_left:
            state = ScheduleState.SCHEDULED_PARTLY
        else:
            state = ScheduleState.SCHEDULED_SUCCEED
        self.set_schedule_state(state)

    def set_schedule_state(self, state: ScheduleState) -> None:
        """Change the schedule state.

        Raises:
            IllegalTransition: The table has no such transition.
        """
        if state is not self.schedule_state and state not in SCHEDULE_TRANSITIONS[self.schedule_state]:
            raise IllegalTransition(f"job {self.job} cannot go from {self.schedule_state.value} to {state.value}; {self._past()}")
        self.schedule_state = state

    def snapshot(self) -> JobSnapshot:
        """Return the job for a round of the scheduler. While it is stopped for rescheduling, it has no unplaced members."""
        waits = self.stage is Stage.RESCHEDULING and self.is_stopping
        return JobSnapshot(
            spec=self.spec,
            arrival=self.arrival,
            incarnation=self.incarnation,
            schedule_state=self.schedule_state,
            places={member: record.node for member, record in self.members.items() if record.holds_placement and record.node is not None},
            unseen=frozenset(member for member, record in self.members.items() if record.state is MemberState.PLACED),
            unplaced=tuple(member for member, record in self.members.items() if record.state is MemberState.UNPLACED and not waits),
            done=sum(record.state is MemberState.SUCCEEDED for record in self.workers),
        )

    def _past(self) -> str:
        members = ", ".join(f"{record.member} {record.state.value} (attempt {record.attempt})" for record in self.records)
        return f"its members: {members}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobControllerState:
    """The controller's whole state."""

    jobs: tuple[JobRecord, ...]
    arrivals: int
