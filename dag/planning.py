"""Which mesh each node goes to: routing asked once per kind of node, near its inputs where it has any.

Nodes are taken in topological order. Meshes are asked once per kind of node, and two nodes of a kind with as many bytes on
the same meshes get the same answer, so a fan of ten thousand asks once. A node below one that no mesh takes is left for
later: its place depends on where that one goes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from dag.compiling import NodePlan
from dag.events import Blockage, NodesPlaced, Placement
from federation.estimates import COST_RULES, CostRules
from federation.quota.policies import NO_SETTINGS, QueueSettings
from federation.routing.demand import RoutingRequest
from federation.routing.headroom import Headroom
from federation.routing.route import Routed, RouteRefused, choose
from federation.routing.survey import Survey, survey
from federation.routing.verdicts import MeshVerdict
from federation.snapshot import FederationSnapshot
from mesh.ids import MeshId, NodeId, TenantPath

#: What a value weighs that nobody has measured: it was not stored, or is not computed yet.
SIZE_UNKNOWN_BYTES = 1_024
#: Meshes whose words stand in a placement; of the others only how many there are.
OTHERS_SHOWN = 8


class Unplaced(Protocol):
    """What planning asks of a run; the run machine answers."""

    plans: Mapping[NodeId, NodePlan]

    def unplaced(self, now_ms: int) -> tuple[NodeId, ...]:
        """See `RunMachine.unplaced`."""
        ...

    def mesh_of(self, node: NodeId) -> MeshId | None:
        """See `RunMachine.mesh_of`."""
        ...

    def value_at(self, node: NodeId) -> MeshId | None:
        """See `RunMachine.value_at`."""
        ...

    def size_of(self, node: NodeId) -> int | None:
        """See `RunMachine.size_of`."""
        ...


def place(
    run: Unplaced,
    tenant: TenantPath,
    snapshot: FederationSnapshot,
    rules: CostRules = COST_RULES,
    settings: QueueSettings = NO_SETTINGS,
    *,
    now_ms: int,
) -> NodesPlaced:
    """Route every unplaced node that can be routed now, on one snapshot.

    Args:
        settings: Of the tenant: in which order its flavors are tried, and how far.
        now_ms: By the clock that the run machine is told; that of the snapshot is the store's.
    """
    waiting = run.unplaced(now_ms)
    left = set(waiting)
    alike = _alike(run, waiting) if settings.flavors else {}
    where: dict[NodeId, MeshId] = {}
    asked = _Asked(tenant, snapshot, rules, settings)
    placements: dict[NodeId, Placement] = {}
    blockages: dict[NodeId, Blockage] = {}
    for node in waiting:
        plan = run.plans[node]
        if any(need in left for need in (*plan.inputs, *plan.after)):
            continue
        near, pinned = _inputs_at(run, plan, where)
        answer, words = asked.answer(plan, near, pinned, alike.get(node, 1))
        if isinstance(answer, Routed):
            where[node] = answer.mesh
            left.discard(node)
            placements[node] = Placement(mesh=answer.mesh, why=words)
        else:
            blockages[node] = Blockage(reason=answer.reason, detail=words)
    return NodesPlaced(placements=placements, blockages=blockages)


def keep_back(run: Unplaced, blockage: Blockage, *, now_ms: int) -> NodesPlaced:
    """No mesh is asked: nothing of the run may start now, for the reason that is given. `now_ms` as for `place`."""
    waiting = run.unplaced(now_ms)
    left = set(waiting)
    first = [node for node in waiting if not any(need in left for need in (*run.plans[node].inputs, *run.plans[node].after))]
    return NodesPlaced(blockages=dict.fromkeys(first, blockage))


def why(answer: Routed) -> str:
    """The decision in one line: the reason for the mesh, and what each other mesh said that had something against it."""
    telling = [verdict for verdict in answer.verdicts if verdict.mesh != answer.mesh and (verdict.reason is not None or verdict.wait_ms)]
    others = [f"{verdict.mesh}: {_words(verdict)}" for verdict in telling[:OTHERS_SHOWN]]
    if len(telling) > OTHERS_SHOWN:
        others.append(f"{len(telling) - OTHERS_SHOWN} others")
    own = f"{answer.reason.value} {answer.mesh}/{answer.pool}"
    if answer.flavor_why:
        own = f"{own}: {answer.flavor_why}"
    return f"{own} ({'; '.join(others)})" if others else own


def _words(verdict: MeshVerdict) -> str:
    """What the mesh said, with how long the work would wait there; of a mesh that refuses, its words alone."""
    return f"{verdict.detail}, for about {verdict.wait_ms} ms" if verdict.accepts and verdict.wait_ms else verdict.detail


def _inputs_at(run: Unplaced, plan: NodePlan, where: Mapping[NodeId, MeshId]) -> tuple[Counter[MeshId], MeshId | None]:
    """Bytes of the inputs by mesh, and the mesh that one of them cannot leave."""
    near: Counter[MeshId] = Counter()
    pinned = None
    for need in plan.inputs:
        mesh = where.get(need) or run.mesh_of(need)
        if mesh is not None:
            size_bytes = run.size_of(need)
            near[mesh] += SIZE_UNKNOWN_BYTES if size_bytes is None else size_bytes
        pinned = pinned or run.value_at(need)
    return near, pinned


def _kind(plan: NodePlan) -> tuple[object, ...]:
    return plan.resources, tuple(sorted(plan.labels.items()))


def _alike(run: Unplaced, waiting: Iterable[NodeId]) -> dict[NodeId, int]:
    """How many nodes of its kind could run beside each one: those that stand as many steps behind what is placed."""
    steps: dict[NodeId, int] = {}
    kinds: dict[NodeId, tuple[object, ...]] = {}
    for node in waiting:
        plan = run.plans[node]
        steps[node] = 1 + max((steps[need] for need in (*plan.inputs, *plan.after) if need in steps), default=0)
        kinds[node] = (steps[node], *_kind(plan))
    counted = Counter(kinds.values())
    return {node: counted[kind] for node, kind in kinds.items()}


class _Asked:
    """What the meshes have been asked already on one snapshot."""

    def __init__(self, tenant: TenantPath, snapshot: FederationSnapshot, rules: CostRules, settings: QueueSettings) -> None:
        self._tenant = tenant
        self._settings = settings
        self._snapshot = snapshot
        self._headroom = Headroom(snapshot)
        self._rules = rules
        self._surveys: dict[tuple[object, ...], Survey] = {}
        self._answers: dict[tuple[object, ...], tuple[Routed | RouteRefused, str]] = {}

    def answer(self, plan: NodePlan, near: Counter[MeshId], pinned: MeshId | None, pieces: int) -> tuple[Routed | RouteRefused, str]:
        """Where the node goes or why it goes nowhere, and that in words."""
        kind = _kind(plan)
        key = (*kind, plan.mesh, pinned, pieces, tuple(sorted(near.items())))
        if key not in self._answers:
            answer = choose(self._survey(kind, plan, plan.mesh or pinned), near, pieces=pieces)
            if isinstance(answer, RouteRefused) and pinned is not None and plan.mesh is None:
                # The mesh that has the value takes nothing; elsewhere the value is computed again.
                answer = choose(self._survey(kind, plan, None), near, pieces=pieces)
            self._answers[key] = answer, why(answer) if isinstance(answer, Routed) else answer.detail
        return self._answers[key]

    def _survey(self, kind: tuple[object, ...], plan: NodePlan, mesh: MeshId | None) -> Survey:
        key = (*kind, mesh)
        if key not in self._surveys:
            demand = RoutingRequest(tenant=self._tenant, slot=plan.resources, labels=dict(plan.labels), mesh=mesh, settings=self._settings)
            self._surveys[key] = survey(demand, self._snapshot, self._rules, self._headroom)
        return self._surveys[key]
