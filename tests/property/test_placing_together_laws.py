"""Laws of graphs that are placed as columns: meshes, words, order and stages are those of nodes that are placed one by one."""

from __future__ import annotations

import json

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.function_times import FunctionTimes
from dag.planning import place
from dag.run.machine import RunMachine
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord
from dag.spec.plans import plans_of
from dag.spec.spec import parse
from federation.quota.policies import NO_SETTINGS, QueueSettings, ResourceGroup
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.resources import ResourceSet

FLAVORS = ("standard", "spot")
ZONES = ("east", "west")
#: As a federation's file makes them: all its flavors, in an order.
ORDERS = (FLAVORS, FLAVORS[::-1], FLAVORS[:1])
IN_ORDER = tuple(QueueSettings(groups=(ResourceGroup(resources=("cpu",), flavors=order),)) for order in ORDERS)


@st.composite
def graphs(draw):
    """Return a graph: any node may read or follow earlier ones, and options differ."""
    nodes = {}
    for number in range(draw(st.integers(1, 12))):
        earlier = draw(st.lists(st.integers(0, number - 1), max_size=4, unique=True)) if number else []
        reads = draw(st.integers(0, len(earlier)))
        node = {"call": f"m:f{draw(st.integers(0, 1))}", "args": [{"$ref": f"n{at}"} for at in earlier[:reads]]}
        node["after"] = [f"n{at}" for at in earlier[reads:]]
        node["options"] = draw(st.sampled_from(({}, {}, {"num_cpus": 2}, {"labels": {"zone": "east"}}, {"priority": 3})))
        nodes[f"n{number}"] = node
    outputs = {"last": {"$ref": f"n{len(nodes) - 1}"}}
    return parse(json.dumps({"spec": "dag/1", "tenant": "acme", "nodes": nodes, "outputs": outputs}).encode())


@st.composite
def federations(draw):
    """Return meshes with pools of one flavor or two, of which the tenant has enough, or a little."""
    views = []
    quotas = {(flavor, "cpu"): Quota(nominal=draw(st.sampled_from((1_000_000, 2_000)))) for flavor in FLAVORS}
    for zone in ZONES[: draw(st.integers(1, 2))]:
        cpus = draw(st.integers(1, 8))
        used = ResourceSet.of({"cpu": draw(st.integers(0, cpus))})
        flavors = draw(st.sampled_from((FLAVORS, FLAVORS, FLAVORS[:1], FLAVORS[1:])))
        capacity = ResourceSet.of({"cpu": cpus})
        pools = tuple(PoolRecord(pool=f"of-{flavor}", flavor=flavor, capacity=capacity, used=used) for flavor in flavors)
        record = MeshRecord(mesh=zone, labels={"zone": zone}, pools=pools, cluster=f"c-{zone}")
        views.append(
            MeshView(
                record=record,
                incarnation=1,
                alive=draw(st.sampled_from((True, True, False))),
                heartbeat_age_ms=0,
                waiting=draw(st.integers(0, 2)),
            )
        )
    tree = TenantTree([Tenant(path="acme", parent=None, quotas=quotas)])
    return FederationSnapshot(at_ms=0, tree=tree, meshes=tuple(views))


@st.composite
def known_times(draw):
    times = FunctionTimes()
    for number in range(draw(st.integers(0, 2))):
        times.note("acme", f"call:m:f{number}", "east", draw(st.sampled_from((0, 300, 4_000))))
    return times


def machine_of(plans):
    record = RunRecord(run="r", tenant="acme", digest="", spec=b"", created_ms=0, nodes=NodeTable(plans))
    return RunMachine(record, plans, runtime_env={}, on_error="fail_fast")


@given(graphs(), federations(), known_times(), st.sampled_from((*IN_ORDER, NO_SETTINGS)))
@settings(max_examples=examples(300), deadline=None)
def test_columns_are_placed_as_single_nodes_are(spec, snapshot, times, of_tenant):
    columns = plans_of(spec)
    placed, made = [], []
    for plans in (columns, dict(columns)):
        machine = machine_of(plans)
        answer = place(machine, "acme", snapshot, settings=of_tenant, times=times, now_ms=0)
        placed.append((dict(answer.placements), dict(answer.blockages), answer.order))
        machine.handle((answer,), 0)
        record = machine.record
        stages = [(stage.stage, stage.mesh, stage.level, stage.nodes, stage.width, stage.why_here) for stage in record.stages.values()]
        made.append((stages, [(node.state, node.mesh, node.stage, node.detail) for node in map(record.nodes.__getitem__, columns)]))
    assert placed[0] == placed[1]
    assert made[0] == made[1]
