"""Placement reservations of workers that wait for their leader."""

from __future__ import annotations

import json

from scheduled_mesh import POOL, RULES, Mesh, cpus, starts

from mesh.core.ids import JobId, NodeName
from mesh.tasks import events
from mesh.tasks.events import ReservedPlacement
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings

JOB = JobId("job")


def one_node() -> Mesh:
    made = Mesh(SchedulerSettings(rules=RULES))
    made.node("n1", cpus(2))
    made.pool(cpus(2))
    return made


def keep(mesh: Mesh, count: int, until_ms: int = 1_000) -> list[object]:
    places = tuple(ReservedPlacement(prefix=f"job:actors:{index}:", node=NodeName("n1"), resources=cpus(1)) for index in range(count))
    return list(mesh.send(events.PlacementsReserved, job=JOB, pool=POOL, places=places, until_ms=until_ms, attempt=1))


def submit_worker(mesh: Mesh, index: int) -> list[object]:
    return list(mesh.submit(f"job:actors:{index}:1", policy="node_affinity", node=NodeName("n1"), job=JOB))


def test_a_place_of_a_worker_goes_to_the_worker_only():
    mesh = one_node()
    keep(mesh, 2)
    assert starts(mesh.submit("plain", priority=10)) == []
    assert starts(submit_worker(mesh, 0)) == [("job:actors:0:1", "PLACED")]
    assert starts(submit_worker(mesh, 1)) == [("job:actors:1:1", "PLACED")]


def test_a_leader_that_does_not_come_up_in_time_blocks_nobody():
    mesh = one_node()
    keep(mesh, 2)
    mesh.submit("plain")
    mesh.now_ms += 1_000
    assert starts(mesh.send(events.Ticked)) == [("plain", "PLACED")]


def test_released_places_of_a_job_are_free_at_once():
    mesh = one_node()
    keep(mesh, 2)
    mesh.submit("plain")
    assert starts(keep(mesh, 0)) == [("plain", "PLACED")]
    assert mesh.scheduler.state.job_reservations == {}


def test_a_place_that_somebody_has_already_is_not_kept():
    mesh = one_node()
    mesh.run("plain")
    keep(mesh, 2)
    assert len(mesh.scheduler.state.job_reservations[JOB].kept) == 1


def test_places_go_with_their_node_and_over_a_snapshot():
    mesh = one_node()
    keep(mesh, 2)
    mesh.scheduler = MeshScheduler.from_snapshot(json.loads(json.dumps(mesh.scheduler.to_snapshot())))
    assert starts(mesh.submit("plain")) == []
    mesh.send(events.NodeLeft, node=NodeName("n1"))
    assert starts(mesh.node("n1", cpus(2))) == [("plain", "PLACED")]
