"""Which mesh each node goes to: routing asked once per kind of node, near its inputs where it has any.

Nodes are taken in topological order. Two nodes with the same demand whose inputs lie on the same meshes get the same
answer, so a fan of ten thousand asks once. A node below one that no mesh takes is left for later: its place depends on
where that one goes.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from dag.compiling import NodePlan
from dag.events import Blockage, NodesPlaced, Placement
from federation.routing import Demand, Refused, Routed, route
from federation.snapshot import Snapshot
from mesh.ids import MeshId, NodeId, TenantPath


class Unplaced(Protocol):
    """What planning asks of a run; the run machine answers."""

    plans: Mapping[NodeId, NodePlan]

    def unplaced(self) -> tuple[NodeId, ...]:
        """See `RunMachine.unplaced`."""
        ...

    def mesh_of(self, node: NodeId) -> MeshId | None:
        """See `RunMachine.mesh_of`."""
        ...

    def value_at(self, node: NodeId) -> MeshId | None:
        """See `RunMachine.value_at`."""
        ...


def place(run: Unplaced, tenant: TenantPath, snapshot: Snapshot) -> NodesPlaced:
    """Route every unplaced node that can be routed now, on one snapshot."""
    waiting = run.unplaced()
    left = set(waiting)
    where: dict[NodeId, MeshId] = {}
    answers: dict[tuple[object, ...], Routed | Refused] = {}
    placements: dict[NodeId, Placement] = {}
    blockages: dict[NodeId, Blockage] = {}
    for node in waiting:
        plan = run.plans[node]
        if any(need in left for need in (*plan.inputs, *plan.after)):
            continue
        near, pinned = _inputs_at(run, plan, where)
        answer = _ask(answers, plan, tenant, near, pinned, snapshot)
        if isinstance(answer, Routed):
            where[node] = answer.mesh
            left.discard(node)
            placements[node] = Placement(mesh=answer.mesh, why=why(answer))
        else:
            blockages[node] = Blockage(reason=answer.reason, detail=answer.detail)
    return NodesPlaced(placements=placements, blockages=blockages)


def why(answer: Routed) -> str:
    """The decision in one line: the reason for the mesh, and what each other mesh said."""
    others = "; ".join(f"{verdict.mesh}: {verdict.detail}" for verdict in answer.verdicts if verdict.mesh != answer.mesh and verdict.reason)
    own = f"{answer.reason.value} {answer.mesh}/{answer.pool}"
    return f"{own} ({others})" if others else own


def _inputs_at(run: Unplaced, plan: NodePlan, where: Mapping[NodeId, MeshId]) -> tuple[Counter[MeshId], MeshId | None]:
    near: Counter[MeshId] = Counter()
    pinned = None
    for need in plan.inputs:
        mesh = where.get(need) or run.mesh_of(need)
        if mesh is not None:
            near[mesh] += 1
        pinned = pinned or run.value_at(need)
    return near, pinned


def _ask(
    answers: dict[tuple[object, ...], Routed | Refused],
    plan: NodePlan,
    tenant: TenantPath,
    near: Counter[MeshId],
    pinned: MeshId | None,
    snapshot: Snapshot,
) -> Routed | Refused:
    nearest = tuple(sorted(near, key=lambda mesh: (-near[mesh], mesh)))
    kind = (plan.resources, tuple(sorted(plan.labels.items())), plan.mesh, pinned, nearest)
    if kind not in answers:
        demand = Demand(tenant=tenant, slot=plan.resources, labels=dict(plan.labels), mesh=plan.mesh or pinned, near=dict(near))
        answer = route(demand, snapshot)
        if isinstance(answer, Refused) and pinned is not None and plan.mesh is None:
            # The mesh that has the value takes nothing; elsewhere the value is computed again.
            answer = route(Demand(tenant=tenant, slot=plan.resources, labels=dict(plan.labels), near=dict(near)), snapshot)
        answers[kind] = answer
    return answers[kind]
