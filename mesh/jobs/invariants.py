"""Invariants of every job, checked by tests after each event."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.core.counting import counted
from mesh.jobs.controller import JobController
from mesh.jobs.members import members_of
from mesh.jobs.records import JobRecord
from mesh.jobs.spec import BasicPolicy, CleanPolicy
from mesh.jobs.states import MemberState, ScheduleState, Stage

_UP = (Stage.STARTING, Stage.RUNNING)
_STARTED = (MemberState.STARTING, MemberState.RUNNING)


def violations(controller: JobController) -> list[str]:
    """Return a message per broken invariant; empty when all hold."""
    return [f"{job.job}: {text}" for job in controller.jobs.values() for text in (*_of_places(job), *_of_order(job), *_of_ends(job))]


def _of_places(job: JobRecord) -> Iterator[str]:
    if tuple(job.members) != members_of(job.spec):
        yield "its members differ from its spec"
    for record in job.members.values():
        if record.holds_placement and record.node is None:
            yield f"{record.member} holds a place without a node"
        if record.state is MemberState.UNPLACED and record.node is not None:
            yield f"{record.member} has a node but no place"
        if record.failures > job.spec.restart_limit + 1:
            yield f"{record.member} was restarted beyond the limit"
    if job.stage in _UP and not job.may_start:
        yield f"it is {job.stage.value} without places for its leader and {counted(job.spec.workers_needed, 'worker')}"
    if job.stage in _UP and job.spec.basic_policy is BasicPolicy.GANG and job.workers_placed < job.spec.workers_num:
        yield "a part of its gang has no place"
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING) and any(record.holds_placement for record in job.members.values()):
        yield f"it is {job.stage.value} and holds places"


def _of_order(job: JobRecord) -> Iterator[str]:
    if job.is_over:
        return
    workers = [record.member for record in job.workers if record.state in _STARTED]
    if workers and job.leader.state is not MemberState.RUNNING:
        yield f"{workers[0]} was started before the leader was up"
    if (job.leader.state is MemberState.RUNNING) != (job.leader_address is not None):
        yield "it has an address of a leader that is not up, or none of one that is"
    if job.stage is Stage.PENDING and any(record.attempt for record in job.members.values()):
        yield "a member was started before the job had places"


def _of_ends(job: JobRecord) -> Iterator[str]:
    if (job.schedule_state is ScheduleState.SCHEDULED_FAILED) and job.stage is not Stage.FAILED:
        yield "it can never be placed but has not failed"
    if not job.is_over:
        return
    states = {record.state for record in job.members.values()}
    if states & {MemberState.UNPLACED, MemberState.PLACED}:
        yield "it is over, but a member still waits"
    if job.spec.clean_pod_policy is not CleanPolicy.NONE and states & set(_STARTED):
        yield "it is over, but a member runs without a stop order"
    if job.spec.clean_pod_policy is CleanPolicy.ALL and states & {MemberState.SUCCEEDED, MemberState.GIVEN_UP}:
        yield "it is over, but something of a member is retained"
