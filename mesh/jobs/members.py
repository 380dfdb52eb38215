"""Members of a job: identity, rank, environment, and the task of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.core.ids import JobId, NodeName, TaskId
from mesh.core.task_spec import TaskRequest
from mesh.errors import JobSpecError
from mesh.jobs.spec import LEADER, JobSpec, ReplicaSpec, WorkerSetSpec

LEADER_ADDRESS = "SCHEDULEMESH_LEADER_ADDRESS"


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """The leader, or one worker of a set."""

    role: str  #: `leader`, or the name of the worker set.
    index: int = 0  #: Index within its set, from 0.

    @property
    def is_leader(self) -> bool:
        """Whether the member is the leader, whose address the workers get."""
        return self.role == LEADER

    def __str__(self) -> str:
        return LEADER if self.is_leader else f"{self.role}-{self.index}"


THE_LEADER = Member(LEADER)


def members_of(spec: JobSpec) -> tuple[Member, ...]:
    """Return all members: the leader, then the workers set by set. The index in this order is a member's rank."""
    return (THE_LEADER, *(Member(workers.name, index) for workers in spec.worker_sets for index in range(workers.counts)))


def replica_of(spec: JobSpec, role: str) -> ReplicaSpec | WorkerSetSpec:
    """Return the spec of the members with this role.

    Raises:
        JobSpecError: The job has no such role.
    """
    if role == LEADER:
        return spec.leader
    for workers in spec.worker_sets:
        if workers.name == role:
            return workers
    raise JobSpecError(f"job {spec.job} has no worker set {role!r}; it has {', '.join(each.name for each in spec.worker_sets) or 'none'}")


def selector_of(spec: JobSpec, role: str) -> Mapping[str, str]:
    """Return the required node labels: the job's, overridden by the role's."""
    return {**spec.selector, **replica_of(spec, role).selector}


def rank_of(spec: JobSpec, member: Member) -> int:
    """Return 0 for the leader, then the workers set by set; unchanged by restarts.

    Raises:
        JobSpecError: The job has no such member.
    """
    if member.is_leader:
        return 0
    before = 1
    for workers in spec.worker_sets:
        if workers.name == member.role and 0 <= member.index < workers.counts:
            return before + member.index
        before += workers.counts
    raise JobSpecError(f"job {spec.job} has no member {member}")


def environment(spec: JobSpec, member: Member, leader_address: str | None) -> dict[str, str]:
    """Return the member's environment variables. `SCHEDULEMESH_WORLD_SIZE` counts all members that the job declares, up or not."""
    variables = {
        "SCHEDULEMESH_JOB": str(spec.job),
        "SCHEDULEMESH_ROLE": member.role,
        "SCHEDULEMESH_RANK": str(rank_of(spec, member)),
        "SCHEDULEMESH_WORLD_SIZE": str(1 + spec.workers_num),
    }
    if leader_address is not None:
        variables[LEADER_ADDRESS] = leader_address
    return variables


def member_task(job: JobId, member: Member, attempt: int) -> TaskId:
    """Return the task id of one attempt. Each attempt is its own task: the controller counts restarts, not the scheduler."""
    return TaskId(f"{job}:{member.role}:{member.index}:{attempt}")


def member_of_task(task: TaskId) -> tuple[JobId, Member, int] | None:
    """Return job, member and attempt of a task named by `member_task`; None for any other."""
    parts = task.rsplit(":", 3)
    if len(parts) != 4 or not (parts[2].isdecimal() and parts[3].isdecimal()):  # noqa: PLR2004  job, role, index, attempt
        return None
    return JobId(parts[0]), Member(parts[1], int(parts[2])), int(parts[3])


def member_request(spec: JobSpec, member: Member, node: NodeName, attempt: int) -> TaskRequest:
    """Return the task of one attempt of a member: on the node that the round chose and no other."""
    return TaskRequest(
        task=member_task(spec.job, member, attempt),
        pool=spec.pool,
        resources=replica_of(spec, member.role).resources,
        label=spec.label,
        tenant=spec.tenant,
        priority=float(spec.priority),
        selector=selector_of(spec, member.role),
        policy="node_affinity",
        node=node,
        job=spec.job,
        role=member.role,
    )
