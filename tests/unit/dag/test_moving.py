"""Moves of parts from a mesh that has not begun them to a mesh that has run dry."""

from __future__ import annotations

from functools import partial

import pytest
from machine_bed import NOW_MS, Driven

from dag.function_times import FunctionTimes
from dag.moving import BEGIN_ALONE_MS, BEGIN_MS, stage_to_move_alone, stages_to_move
from dag.parting import WORK_MS_MIN
from dag.planning import place
from dag.run.events import NodesPlaced, Placement, StagesMoved
from dag.run.states import StageState
from federation.snapshot import FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

TREE = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=1_000_000)})])
LATER_MS = NOW_MS + BEGIN_MS


def mesh(name, *, used=0, set_aside=0, waiting=0, alive=True, **labels):
    amounts = {"capacity": 4, "used": used, "set_aside": set_aside}
    pool = PoolRecord(pool="general", flavor="standard", **{field: ResourceSet.of({"cpu": cpus}) for field, cpus in amounts.items()})
    record = MeshRecord(mesh=name, labels=labels, pools=(pool,), cluster=f"c-{name}")
    return MeshView(record=record, incarnation=1, alive=alive, heartbeat_age_ms=0, waiting=waiting, claimed=1 if used else 0)


def snapshot_of(*meshes, leases=()):
    return FederationSnapshot(at_ms=LATER_MS, tree=TREE, meshes=meshes, leases=leases)


def lease(*, at, target):
    cpus = ResourceSet.of({"cpu": 4})
    return LeaseView(lease="x", tenant="acme", mesh=at, flavor="standard", amounts=cpus, target=ResourceSet.of({"cpu": target}), token=1)


def parted(*, parts=4, labels=(), **fields):
    """Return a run with a fan in parts of ten nodes on one mesh, of which the mesh has begun the first."""
    nodes = [f"n{number}:" for number in range(10 * parts)]
    run = Driven(*nodes, **{f"n{number}": {"labels": dict(labels)} for number in range(len(nodes))} | fields)
    placed = {f"n{number}": Placement(mesh="east", why="", part=number // 10) for number in range(len(nodes))}
    run.take(NodesPlaced(placements=placed))
    run.start("n0")
    return run


def moved(run, *meshes, run_ms=2_000, now_ms=LATER_MS):
    """Return the first node of each stage that moves."""
    times = FunctionTimes()
    times.note("acme", "call:work:do", "east", run_ms)
    snapshot = snapshot_of(*meshes)
    stages = stages_to_move(run.machine, snapshot, times, now_ms, partial(_placed, snapshot))
    return [run.record.stages[stage].nodes[0] for stage in stages]


def _placed(snapshot, run):
    return place(run, "acme", snapshot, now_ms=0)


FULL, DRY = mesh("east", used=4, waiting=3), mesh("west")


def test_a_dry_mesh_takes_half_of_the_parts_that_wait():
    assert moved(parted(), FULL, DRY) == ["n20", "n30"]


def test_the_last_part_that_waits_moves_too():
    assert moved(parted(parts=2), FULL, DRY) == ["n10"]


def waiting_alone(**fields):
    run = Driven("a:", a=fields)
    run.place(a="east")
    return run


def moved_alone(run, *meshes, after_ms=BEGIN_ALONE_MS, taken=(), leases=()):
    snapshot = snapshot_of(*meshes, leases=leases)
    found = stage_to_move_alone(run.machine, snapshot, NOW_MS + after_ms, partial(_placed, snapshot), taken=taken)
    return found and (run.record.stages[found[0]].nodes, found[1])


def test_a_stage_that_waits_alone_for_room_moves():
    run = waiting_alone()
    assert moved(run, FULL, DRY, run_ms=60_000) == []  # It is no part.
    assert moved_alone(run, FULL, DRY) == (("a",), "west")


@pytest.mark.parametrize(
    ("meshes", "fields"),
    [
        pytest.param((FULL, DRY), {"after_ms": BEGIN_ALONE_MS - 1}, id="before its mesh had time to begin it"),
        pytest.param((mesh("east"), DRY), {}, id="from a mesh with room, where it waits for quota"),
        pytest.param((mesh("east", used=3, set_aside=1), DRY), {}, id="from a mesh whose victims stop for it"),
        pytest.param((FULL, DRY), {"leases": (lease(at="east", target=2),)}, id="from a mesh whose leases a plan changes"),
        pytest.param((FULL, mesh("west", used=4)), {}, id="to a full mesh"),
        pytest.param((FULL, mesh("west", waiting=1)), {}, id="to a mesh with a queue"),
        pytest.param((FULL, mesh("west", alive=False)), {}, id="to a lost mesh"),
        pytest.param((FULL, DRY), {"taken": {"west"}}, id="to a mesh that takes another stage"),
    ],
)
def test_a_stage_that_waits_alone_does_not_move(meshes, fields):
    assert moved_alone(waiting_alone(), *meshes, **fields) is None


@pytest.mark.parametrize("other", [lease(at="west", target=2), lease(at="east", target=4)], ids=["of another mesh", "that no plan changes"])
def test_a_lone_stage_moves_beside_a_lease(other):
    assert moved_alone(waiting_alone(), FULL, DRY, leases=(other,)) == (("a",), "west")


def test_a_lone_stage_moves_if_room_is_made_for_less():
    run = waiting_alone(resources=ResourceSet.of({"cpu": 2}))
    assert moved_alone(run, mesh("east", used=3, set_aside=1), DRY) == (("a",), "west")


def test_a_lone_stage_moves_to_no_mesh_that_refuses_it():
    east = mesh("east", used=4, waiting=1, zone="east")
    assert moved_alone(waiting_alone(labels={"zone": "east"}), east, mesh("west", zone="west")) is None


def test_a_stage_that_waits_alone_moves_once():
    run = waiting_alone()
    run.take(StagesMoved(stages=(run.stage("a").stage,)))
    run.place(a="east")
    assert moved_alone(run, FULL, DRY, after_ms=10 * BEGIN_ALONE_MS) is None


def test_a_stage_beside_others_of_its_run_does_not_move():
    run = Driven("a:", "b:")
    run.place(a="east", b="west")
    assert moved_alone(run, FULL, DRY) is None


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        pytest.param(mesh("west", waiting=1), {}, id="a mesh with a queue"),
        pytest.param(mesh("west", alive=False), {}, id="a lost mesh"),
        pytest.param(mesh("west", used=4), {}, id="a full mesh"),
        pytest.param(DRY, {"now_ms": LATER_MS - 1}, id="a mesh, before the other one had time to begin"),
        pytest.param(DRY, {"run_ms": 100}, id="a mesh, for little work"),
    ],
)
def test_parts_do_not_move_to(other, fields):
    assert moved(parted(), FULL, other, **fields) == []


def test_parts_do_not_move_to_a_mesh_that_refuses_them():
    east = mesh("east", used=4, waiting=3, zone="east")
    assert moved(parted(labels=[("zone", "east")]), east, mesh("west", zone="west")) == []


def mostly_refused(*, run_ms=2_000):
    """Return the parts that move of a run whose second half has a part that the dry mesh refuses in part."""
    run = parted(n25={"labels": {"zone": "east"}})
    return moved(run, mesh("east", used=4, waiting=3, zone="east"), mesh("west", zone="west"), run_ms=run_ms)


def test_a_part_with_a_refused_node_does_not_move():
    assert mostly_refused() == ["n30"]


def test_only_the_work_that_moves_must_be_worth_it():
    too_little_for_one = WORK_MS_MIN // 10 - 1
    assert mostly_refused(run_ms=too_little_for_one) == []


def test_a_node_moves_once_at_most():
    run = parted(parts=2)
    run.take(StagesMoved(stages=(run.stage("n10").stage,)))
    run.take(NodesPlaced(placements={f"n{number}": Placement(mesh="east", why="") for number in range(10, 20)}))
    assert run.stage("n10").state is StageState.QUEUED
    assert moved(run, FULL, DRY, now_ms=10 * LATER_MS) == []


def test_nodes_of_a_moved_stage_get_a_new_attempt():
    run = parted(parts=2)
    stage = run.stage("n10").stage
    run.take(StagesMoved(stages=(stage,)))
    assert run.cancelled() == [stage]
    assert (run.record.stages[stage].state, run.record.stages[stage].reason) == (StageState.STOPPED, Reason.MOVED)
    assert (run.node("n10").attempt, run.node("n10").losses, run.node("n0").attempt) == (2, 0, 1)
    assert run.machine.unplaced(LATER_MS) == tuple(f"n{number}" for number in range(10, 20))


def test_a_stage_that_began_meanwhile_is_not_moved():
    run = parted(parts=2)
    run.take(StagesMoved(stages=(run.stage("n0").stage,)))
    assert run.cancelled() == []
    assert run.stage("n0").state is StageState.RUNNING
