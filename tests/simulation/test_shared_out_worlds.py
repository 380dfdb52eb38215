"""Simulation of a fan on two meshes of different size, with the real coordinator, planner, children and ledger."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from dag.run.runs import RunRecord
from dag.run.states import NodeState, RunState
from dag.spec.spec import digest, parse
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, RunId, TenantPath
from mesh.core.resources import ResourceSet
from simulator.world import Faults, World

ACME, STANDARD = TenantPath("acme"), FlavorName("standard")
STEPS_MAX = 8_000
NODES = 160


def world(seed: int, faults: Faults | None = None, *, quota: int = 10) -> World:
    def mesh(name: str, cpus: int) -> MeshRecord:
        pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": cpus}))
        return MeshRecord(mesh=MeshId(name), labels={"zone": name}, pools=(pool,), cluster=f"cluster-{name}")

    quotas = {(STANDARD, "cpu"): Quota(nominal=quota * 10_000)}
    tree = TenantTree((Tenant(path=ACME, parent=None, quotas=quotas, functions=("*",)),))
    return World(seed, tree, (mesh("east", 4), mesh("west", 2)), faults or Faults())


def run_fan(through: World, zone: str | None = None, *, name: str = "fan", count: int = NODES) -> RunRecord:
    """Run a fan of independent nodes to its end."""
    while len(through.store.snapshot().meshes) < len(through.meshes):
        through.step()
    options = {"options": {"labels": {"zone": zone}}} if zone else {}
    nodes = {f"n{number}": {"call": "work:do", "args": [], **options} for number in range(count)}
    spec = {"spec": "dag/1", "id": name, "tenant": ACME, "nodes": nodes, "outputs": {"n0": {"$ref": "n0"}}}
    body = json.dumps(spec).encode()
    through.runs.create(
        RunRecord(run=RunId(name), tenant=ACME, digest=digest(parse(body)), spec=body, created_ms=through.clock.wall_ms()), {}
    )
    for _ in range(STEPS_MAX):
        through.step()
        assert through.store.audit() == ()
        if not through.runs.active():
            break
    record = through.ended[-1]
    assert (record.run, record.state) == (name, RunState.SUCCEEDED), f"seed {through.seed}"
    return record


@pytest.mark.seeds(2)
def test_a_fan_is_shared_out_and_ends_earlier_than_on_one_mesh(seed: int) -> None:
    record, alone = run_fan(world(seed)), run_fan(world(seed), zone="east")
    counts = Counter(kept.mesh for kept in record.nodes.values())
    assert counts[MeshId("east")] > counts[MeshId("west")] > NODES // 6
    assert record.ended_ms - record.created_ms < alone.ended_ms - alone.created_ms


@pytest.mark.seeds(2)
def test_a_shared_out_fan_outlives_lost_meshes(seed: int) -> None:
    record = run_fan(world(seed, Faults(kill=0.002, pause=0.002, coordinator_crash=0.002, budget=2)))
    assert {kept.state for kept in record.nodes.values()} == {NodeState.SUCCEEDED}


@pytest.mark.seeds(2)
def test_a_fan_is_shared_out_once_its_run_times_are_known(seed: int) -> None:
    through = world(seed)
    records = [run_fan(through, name=name, count=36) for name in ("first", "second")]
    assert [len({kept.mesh for kept in record.nodes.values()}) for record in records] == [1, 2]


@pytest.mark.seeds(4)
def test_fans_in_a_row_are_shared_out_alike(seed: int) -> None:
    """The second begins before the meshes have reported the end of the first, and while they still hold all of the quota."""
    through = world(seed, quota=6)
    for name in ("first", "second", "third"):
        counts = Counter(kept.mesh for kept in run_fan(through, name=name).nodes.values())
        assert counts[MeshId("east")] > counts[MeshId("west")] > NODES // 5, name
