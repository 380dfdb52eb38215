"""Laws of placement on meshes: labels hold, needs go first, and the stages of shared out and parted runs never wait in a circle."""

from __future__ import annotations

from itertools import count

import networkx as nx
from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.function_times import FunctionTimes
from dag.planning import place
from dag.run.stages import split
from dag.spec.plans import NodePlan
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.resources import ResourceSet
from mesh.stages.spec import TaskSpec

TREE = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=1_000_000)})])
ZONES = ("east", "north", "west")


class Graph:
    """A run of which nothing is placed."""

    def __init__(self, plans):
        self.plans = plans

    def unplaced(self, _now_ms):
        return tuple(self.plans)

    def mesh_of(self, _node):
        return None

    def value_at(self, _node):
        return None

    def size_of(self, _node):
        return None


@st.composite
def graphs(draw):
    """Return a graph of lanes: every node of a level may need nodes of the level before, by value or by order."""
    plans, before = {}, []
    for level in range(draw(st.integers(1, 4))):
        here = [f"n{level}.{number}" for number in range(draw(st.integers(1, 40)))]
        function = f"call:m:f{draw(st.integers(0, 1))}"
        zone = draw(st.sampled_from((None, None, *ZONES)))
        step = draw(st.integers(1, 3))
        for number, node in enumerate(here):
            needs = tuple(dict.fromkeys(before[at % len(before)] for at in range(number, number + step, 2))) if before else ()
            is_ordered = draw(st.booleans()) if number == 0 else False
            cpus = 2 if number % 7 == 3 else 1
            task = TaskSpec(
                node=node,
                attempt=1,
                function=function,
                inputs=() if is_ordered else needs,
                after=needs if is_ordered else (),
                resources=ResourceSet.of({"cpu": cpus}),
            )
            plans[node] = NodePlan(task=task, labels={"zone": zone} if zone else {})
        before = here
    return Graph(plans)


@st.composite
def federations(draw):
    views = []
    for zone in ZONES[: draw(st.integers(1, 3))]:
        cpus = draw(st.integers(2, 8))
        used = draw(st.integers(0, cpus))
        pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": cpus}), used=ResourceSet.of({"cpu": used}))
        record = MeshRecord(mesh=zone, labels={"zone": zone}, pools=(pool,), cluster=f"c-{zone}")
        waiting = draw(st.integers(0, 2))
        views.append(MeshView(record=record, incarnation=1, alive=True, heartbeat_age_ms=0, waiting=waiting, claimed=int(used > 0)))
    return FederationSnapshot(at_ms=0, tree=TREE, meshes=tuple(views))


@st.composite
def known_times(draw):
    times = FunctionTimes()
    for number in range(2):
        times.note("acme", f"call:m:f{number}", "east", draw(st.sampled_from((0, 300, 4_000))), draw(st.sampled_from((None, 10, 2**28))))
    return times


@given(graphs(), federations(), known_times())
@settings(max_examples=examples(150), deadline=None)
def test_stages_of_a_placed_run_keep_labels_and_order(graph, snapshot, times):
    answer = place(graph, "acme", snapshot, times=times, now_ms=0)
    placed = answer.placements
    assert sorted(answer.order) == sorted(placed)
    assert all(graph.plans[node].labels.get("zone", where.mesh) == where.mesh for node, where in placed.items())
    needs = {node: [*graph.plans[node].task.inputs, *graph.plans[node].task.after] for node in placed}
    position = {node: number for number, node in enumerate(answer.order)}
    edges = [(need, node) for node in placed for need in needs[node] if need in placed]
    assert all(position[need] < position[node] for need, node in edges)
    where = {node: placement.mesh for node, placement in placed.items()}
    parts = {node: (placement.part, None) for node, placement in placed.items()}
    stages = split(answer.order, edges, where, map(str, count(1)), parts)
    assert sorted(node for stage in stages for node in stage.nodes) == sorted(placed)
    stage_of = {node: stage.stage for stage in stages for node in stage.nodes}
    between = nx.DiGraph((stage_of[need], stage_of[node]) for need, node in edges if stage_of[need] != stage_of[node])
    assert nx.is_directed_acyclic_graph(between)
