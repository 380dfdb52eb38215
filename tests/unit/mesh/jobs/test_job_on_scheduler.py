"""Members of a job as tasks of the scheduler, on the nodes that the round chose."""

from __future__ import annotations

from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import StartMember
from mesh.jobs.events import JobSubmitted, MembersAllocated, MemberStarted
from mesh.jobs.members import member_of_task, member_request
from mesh.jobs.room import PoolRoom
from mesh.jobs.scheduler import allocate
from mesh.jobs.spec import BasicPolicy, JobSpec, ReplicaSpec, WorkerSetSpec
from mesh.tasks.decisions import StartTask
from mesh.tasks.events import NodeJoined, PoolConfigured, TaskSubmitted
from mesh.tasks.scheduler import MeshScheduler


def cpu(count):
    return ResourceSet.of({"cpu": count})


def test_s38_what_the_round_places_the_mesh_starts_there():
    scheduler, controller = MeshScheduler(), JobController()
    scheduler.handle(
        *(NodeJoined(at_ms=0, node=name, total=cpu(2), labels={"pool": "train"}) for name in ("n1", "n2")),
        PoolConfigured(at_ms=0, spec=PoolSpec(pool="train", capacity=cpu(4), selector={"pool": "train"})),
    )
    spec = JobSpec(
        job="pong",
        pool="train",
        leader=ReplicaSpec(resources=cpu(1)),
        worker_sets=(WorkerSetSpec(name="actors", counts=3, resources=cpu(1)),),
        basic_policy=BasicPolicy.GANG,
    )
    started = {}

    def carry_out(decisions):
        for decision in decisions:
            if isinstance(decision, StartMember):
                request = member_request(spec, decision.member, decision.node, decision.attempt)
                for decided in scheduler.handle(TaskSubmitted(at_ms=1, request=request)):
                    if isinstance(decided, StartTask):
                        job, member, attempt = member_of_task(decided.task)
                        assert (job, decided.node) == ("pong", decision.node)
                        started[str(member)] = decided.node
                        address = "10.0.0.1:7" if member.is_leader else ""
                        event = MemberStarted(at_ms=2, job=job, member=member, attempt=attempt, address=address)
                        carry_out(controller.handle(event))

    carry_out(controller.handle(JobSubmitted(at_ms=0, spec=spec)))
    rooms = {"train": PoolRoom(capacity=cpu(4), free=cpu(4), selector={"pool": "train"})}
    for found in allocate(controller.snapshot(), scheduler.state.table, draw=lambda _: 0, pools=rooms):
        carry_out(controller.handle(MembersAllocated(at_ms=1, allocation=found)))
    assert sorted(started) == ["actors-0", "actors-1", "actors-2", "leader"]
    assert sorted(started.values()) == ["n1", "n1", "n2", "n2"]
