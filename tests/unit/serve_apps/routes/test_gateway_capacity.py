"""Refusal of graphs that no mesh could ever run, and the states of runs that wait, over HTTP on stores in memory."""

from dataclasses import replace

import pytest

import dag
from dag.errors import ApiError
from dag.run.states import RunState
from federation.configured_meshes import ConfiguredMeshes
from federation.manual_mesh import ManualMesh
from federation.mesh_conditions import Drain
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, TenantTree
from mesh.core.ids import MeshId, PoolName, StageId
from mesh.core.node_sizes import sizes_of
from mesh.core.resources import ResourceSet
from mesh.stages.messages import StageStarted
from serve_apps.gateway_fixtures import EAST, RESEARCH, STANDARD, GatewayWorld, spec_of

WEST = MeshId("west")
TWO_CPUS = ResourceSet.of({"cpu": 2})


def record(mesh, *, cpu=4, nodes=(TWO_CPUS, TWO_CPUS), **fields):
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": cpu}))
    fields = {"labels": {"zone": mesh}, "cluster": f"of {mesh}", "shared": True, **fields}
    return MeshRecord(mesh=mesh, pools=(pool,), nodes=sizes_of(nodes), **fields)


def joined(*records, **of_world):
    """Return a federation of these meshes."""
    world = GatewayWorld(**of_world)
    for one in records:
        ManualMesh(world.store, one)
    return world


def asking(cpus=3, run="big", **options):
    spec = spec_of("load", "train", id=run)
    spec["nodes"]["train"]["options"] = {"num_cpus": cpus, **options}
    return spec


def never(run="big"):
    """Return a graph of one node that waits for a node of 3 CPUs."""
    spec = spec_of("train", id=run, wait_for_capacity=True)
    spec["nodes"]["train"]["options"] = {"num_cpus": 3}
    return spec


def refused(world, spec, path="/v1/runs"):
    answer = world.http(RESEARCH).post(path, json=spec)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "no_mesh_fits"
    assert world.runs.summary(spec["id"]) is None
    return [(problem["place"], problem["problem"]) for problem in answer.json()["problems"]]


def accepted(world, spec):
    return world.http(RESEARCH).post("/v1/runs", json=spec).status_code == 202


def state(world, run="big"):
    coordinator = world.coordinator()
    coordinator.step(0)
    coordinator.tick()
    line = world.http(RESEARCH).get(f"/v1/runs/{run}").json()
    assert line["state"] == world.http(RESEARCH).get(f"/v1/runs/{run}/summary").json()["state"]
    return line["state"], line["reason"]


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/plan"])
def test_work_larger_than_any_node_is_refused(path):
    problems = refused(joined(record(EAST), record(WEST, cpu=2, nodes=(TWO_CPUS,))), asking(), path)
    assert problems[:2] == [
        ("/nodes/train", "east: needs {cpu: 3} on one node, more than any of its nodes has when empty (2 of {cpu: 2})"),
        ("/nodes/train", "west: needs {cpu: 3}, more than any pool holds when empty (general {cpu: 2})"),
    ]
    assert "--wait-for-capacity" in dict(problems)[""]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(asking(1, mesh="wset"), "wset: no mesh of this name has joined; did you mean west?", id="an unknown mesh"),
        pytest.param(asking(1, labels={"zone": "moon"}), "east: ", id="labels of no mesh"),
        pytest.param(asking(1, resources={"lamp": 1}), "no mesh has lamp; there is cpu", id="a resource of no mesh"),
        pytest.param(asking(7), "east: needs {cpu: 7}, more than any pool", id="more than any pool"),
    ],
)
def test_work_is_refused_that_asks_for(spec, words):
    assert refused(joined(record(EAST), record(WEST)), spec)[0][1].startswith(words)


def test_nodes_of_a_kind_are_refused_together():
    spec = asking()
    spec["nodes"].update({f"train-{number}": spec["nodes"]["train"] for number in range(3)})
    assert refused(joined(record(EAST)), spec)[1] == ("/nodes/train", "the same holds for 3 other nodes, such as train-0")


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(joined, id="no mesh has joined at all"),
        pytest.param(
            lambda: joined(configured_meshes=ConfiguredMeshes(meshes={EAST: record(EAST, cpu=2)})),
            id="none has joined, and the file has small ones",
        ),
        pytest.param(lambda: joined(record(EAST, nodes=())), id="a mesh does not know its nodes yet"),
        pytest.param(lambda: joined(record(EAST, cpu=5)), id="a pool has more than its nodes, which may still come"),
        pytest.param(lambda: joined(record(EAST, nodes=(TWO_CPUS, ResourceSet.of({"cpu": 3})))), id="one node is large enough"),
        pytest.param(
            lambda: joined(record(EAST), configured_meshes=ConfiguredMeshes(meshes={m: record(m, nodes=()) for m in (EAST, WEST)})),
            id="the file names a mesh that has not joined",
        ),
    ],
)
def test_work_is_accepted_while(world):
    assert accepted(world(), asking())


def test_a_draining_mesh_is_judged_by_its_size():
    small, large = joined(record(EAST)), joined(record(EAST, nodes=(ResourceSet.of({"cpu": 4}),)))
    for world in (small, large):
        world.registry.drain(EAST, Drain())
    assert refused(small, asking())[0][1].startswith("east: needs {cpu: 3} on one node")
    assert accepted(large, asking())
    assert state(large) == ("WAITING", "MESH_DRAINING")


def test_a_repeat_of_accepted_work_is_not_refused():
    world = GatewayWorld()
    assert accepted(world, asking())
    ManualMesh(world.store, record(EAST))
    assert world.http(RESEARCH).post("/v1/runs", json=asking()).status_code == 200
    waits = {**asking(), "wait_for_capacity": True}
    assert world.http(RESEARCH).post("/v1/runs", json=waits).status_code == 200


def test_waiting_work_is_blocked_until_a_mesh_that_fits_joins():
    world = joined(record(EAST))
    spec = never()
    (blocked,) = world.http(RESEARCH).post("/v1/plan", json=spec).json()["blocked"]
    assert blocked["reason"] == "NO_NODE_FITS"
    assert accepted(world, spec)
    assert state(world) == ("BLOCKED", "NO_NODE_FITS")
    large = ManualMesh(world.store, record(WEST, nodes=(ResourceSet.of({"cpu": 4}),)))
    assert state(world)[0] == "WAITING"
    large.acquire(RESEARCH, STANDARD, ResourceSet.of({"cpu": 3}))
    claimed = world.store.claim(large.session, StageId("big.1"), large.lease(RESEARCH, STANDARD))
    started = StageStarted(stage=StageId("big.1"), mesh=WEST, incarnation=1, cluster="c", slots=1, token=1)
    world.store.report(claimed.claim, 1, (started,))
    assert state(world) == ("RUNNING", None)


def test_a_run_waits_while_any_part_of_it_may_pass():
    world = joined(record(EAST), record(WEST, nodes=(ResourceSet.of({"cpu": 4}),)))
    world.registry.drain(WEST, Drain())
    spec = spec_of("never", "b", id="big", wait_for_capacity=True)
    spec["nodes"]["b"]["args"] = ["x"]
    spec["nodes"]["never"]["options"], spec["nodes"]["b"]["options"] = {"num_cpus": 5}, {"num_cpus": 3}
    assert accepted(world, spec)
    assert state(world) == ("WAITING", "MESH_DRAINING")
    world.registry.undrain(WEST)
    assert state(world)[0] == "WAITING"


def test_the_list_filters_by_the_state_that_it_shows():
    world = joined(record(EAST))
    assert accepted(world, never(run="never"))
    assert accepted(world, spec_of("a", id="soon"))
    world.coordinator().step(0)

    def listed(state):
        return [line["id"] for line in world.http(RESEARCH).get("/v1/runs", params={"state": state}).json()["runs"]]

    assert (listed("WAITING"), listed("BLOCKED"), listed("RUNNING")) == (["soon"], ["never"], [])


def test_python_client_waits_for_capacity_on_request():
    world = joined(record(EAST))
    graph = dag.task(len, num_cpus=3).bind("four")
    with pytest.raises(ApiError) as refused:
        world.client(RESEARCH).submit(graph, id="big")
    assert (refused.value.code, refused.value.problems[0][0]) == ("no_mesh_fits", "/nodes/len")
    run = world.client(RESEARCH).submit(graph, id="big", wait_for_capacity=True)
    state(world)
    assert (run.status, run.progress().state) == (RunState.BLOCKED, RunState.BLOCKED)


def test_nodes_that_no_node_holds_together_are_several_stages():
    nodes = (ResourceSet.of({"cpu": 4}), ResourceSet.of({"cpu": 1, "lamp": 1}))
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 5, "lamp": 1}))
    world = joined(replace(record(EAST, nodes=nodes), pools=(pool,)))
    tree = world.store.snapshot().tree
    quotas = {(STANDARD, "cpu"): Quota(nominal=90_000), (STANDARD, "lamp"): Quota(nominal=90_000)}
    world.store.configure(TenantTree([replace(tenant, quotas=quotas) for tenant in tree.tenants.values()]))
    spec = spec_of("load", "clean", "train", id="big")
    for node, asked in (("load", {"num_cpus": 4}), ("clean", {"num_cpus": 2}), ("train", {"num_cpus": 1, "resources": {"lamp": 1}})):
        spec["nodes"][node]["options"] = asked
    stages = world.http(RESEARCH).post("/v1/plan", json=spec).json()["stages"]
    assert [(stage["nodes"], stage["slot"]["cpu"]["amount"], stage["level"]) for stage in stages] == [
        (["load", "clean"], 4, 0),
        (["train"], 1, 1),
    ]
