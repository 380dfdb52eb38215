"""Speed of routing a graph: no Redis, no Ray, one snapshot in and a mesh for every node out.

Times are this process's processor time, because routing waits for nothing. A *kind* is a shape with its label requirements. Meshes
are filtered once per kind and compared once per place of inputs, so the last graph is the worst case.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from dag.planning import place
from dag.spec.plans import NodePlan
from federation.estimates import Pace
from federation.mesh_conditions import MeshCondition
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, TenantPath
from mesh.core.resources import ResourceSet
from mesh.stages.spec import TaskSpec

MESHES, NODES, TURNS = 100, 1_000, 5
#: Kinds of nodes, inputs of each.
GRAPHS = ((1, 0), (10, 0), (10, 3), (50, 3))
MS_MAX = 1_000.0
_TENANT, _FLAVOR = TenantPath("acme"), FlavorName("standard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one graph; median over the turns."""

    meshes: int
    nodes: int
    kinds: int
    inputs: int
    placed: int
    place_ms: float

    @property
    def is_within(self) -> bool:
        """Return whether the limit for a thousand nodes holds."""
        return self.place_ms <= MS_MAX


class _Graph:
    """Run without placed nodes; inputs are drawn from the nodes before."""

    def __init__(self, nodes: int, kinds: int, inputs: int) -> None:
        random_stream = random.Random(1)  # noqa: S311  a graph, no secret
        self.plans: dict[NodeId, NodePlan] = {}
        self._sizes: Mapping[NodeId, int] = {NodeId(f"n{number}"): random_stream.randint(1, 10**9) for number in range(nodes)}
        for number, node in enumerate(self._sizes):
            before = tuple(dict.fromkeys(NodeId(f"n{random_stream.randrange(number)}") for _ in range(inputs if number else 0)))
            slot = ResourceSet.of({"cpu": 1 + number % kinds % 8})
            labels = {"zone": f"!z{number % kinds % 10}"}
            task = TaskSpec(node=node, attempt=1, function="call:m:f", inputs=before, resources=slot)
            self.plans[node] = NodePlan(task=task, labels=labels)

    def unplaced(self, _now_ms: int) -> tuple[NodeId, ...]:
        """Return all nodes."""
        return tuple(self.plans)

    def mesh_of(self, _node: NodeId) -> MeshId | None:
        """Return None: no node is placed."""
        return None

    def value_at(self, _node: NodeId) -> MeshId | None:
        """Return None: no value is computed."""
        return None

    def size_of(self, node: NodeId) -> int | None:
        """Return a size as if all nodes had run before."""
        return self._sizes[node]


def measure(turns: int = TURNS, *, meshes: int = MESHES, nodes: int = NODES) -> list[Found]:
    """Route every graph on one snapshot."""
    snapshot = _snapshot(meshes)
    return [_measure(turns, snapshot, _Graph(nodes, kinds, inputs), kinds, inputs) for kinds, inputs in GRAPHS]


def table(found: list[Found]) -> Table:
    """Return the results as a table."""
    shown = Table(title="routing of a graph on one snapshot", title_justify="left", box=None, pad_edge=False)
    for column in ("meshes", "nodes", "kinds", "inputs of each", "placed", "processor time", "within"):
        shown.add_column(column, justify="right", no_wrap=True)
    for side in found:
        counts = (f"{side.meshes:,}", f"{side.nodes:,}", str(side.kinds), str(side.inputs), f"{side.placed:,}")
        shown.add_row(*counts, f"{side.place_ms:,.1f} ms", "yes" if side.is_within else "NO")
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    names = (*Found.__slots__, "is_within")
    return {"name": "routing", "sides": [{name: getattr(side, name) for name in names} for side in found]}


def _measure(turns: int, snapshot: FederationSnapshot, graph: _Graph, kinds: int, inputs: int) -> Found:
    times_ms, placed = [], 0
    for _ in range(turns):
        begun_ns = time.process_time_ns()
        placed = len(place(graph, _TENANT, snapshot, now_ms=0).placements)
        times_ms.append((time.process_time_ns() - begun_ns) / 1e6)
    return Found(
        meshes=len(snapshot.meshes),
        nodes=len(graph.plans),
        kinds=kinds,
        inputs=inputs,
        placed=placed,
        place_ms=statistics.median(times_ms),
    )


def _snapshot(meshes: int) -> FederationSnapshot:
    random_stream = random.Random(2)  # noqa: S311  the same
    tree = TenantTree([Tenant(path=_TENANT, parent=None, quotas={(_FLAVOR, "cpu"): Quota(nominal=10**9)})])
    views = []
    for number in range(meshes):
        capacity, used = ResourceSet.of({"cpu": 64}), ResourceSet.of({"cpu": random_stream.randint(0, 64)})
        pool = PoolRecord(pool=PoolName("general"), flavor=_FLAVOR, capacity=capacity, used=used)
        record = MeshRecord(mesh=MeshId(f"m{number:03}"), labels={"zone": f"z{number % 10}"}, pools=(pool,), cluster="c")
        views.append(
            MeshView(
                record=record,
                incarnation=1,
                alive=True,
                heartbeat_age_ms=0,
                waiting=random_stream.randint(0, 9),
                claimed=random_stream.randint(0, 9),
                condition=MeshCondition(pace=Pace(run_ms=random_stream.randint(10, 9_000))),
            )
        )
    return FederationSnapshot(at_ms=1, tree=tree, meshes=tuple(views))
