"""Choice of a mesh for each node: routing asks the meshes once per kind of node, and prefers meshes near the node's inputs.

Nodes are placed in topological order. Two nodes of a kind with as many bytes on the same meshes get the same answer, so a fan of
ten thousand nodes asks once. Descendants of a node that no mesh takes stay unplaced, because their places depend on its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import NamedTuple, Protocol

from dag.run.events import Blockage, NodesPlaced, Placement
from dag.spec.plans import NodePlan, nodes_by_kind
from dag.spec.spec import DagSpec
from federation.estimates import COST_RULES, CostRules
from federation.quota.policies import NO_SETTINGS, QueueSettings
from federation.routing.headroom import Headroom
from federation.routing.route import Routed, RouteRefused, choose
from federation.routing.routing_request import RoutingRequest
from federation.routing.survey import Survey, survey
from federation.routing.verdicts import MeshVerdict
from federation.snapshot import FederationSnapshot
from mesh.core.ids import MeshId, NodeId, TenantPath
from mesh.core.reasons import PASSING
from mesh.core.resources import ResourceSet

#: Assumed size of a value that was never measured: it is not stored, or not computed yet.
SIZE_UNKNOWN_BYTES = 1_024
#: Limit on the other meshes whose reasons stand in a placement; more are only counted.
OTHERS_SHOWN = 8


class Unplaced(Protocol):
    """Run state that planning needs; implemented by the run machine."""

    plans: Mapping[NodeId, NodePlan]

    def unplaced(self, now_ms: int) -> tuple[NodeId, ...]:
        """Return the nodes to route, as `RunMachine.unplaced` does."""
        ...

    def mesh_of(self, node: NodeId) -> MeshId | None:
        """Return the mesh of a node, as `RunMachine.mesh_of` does."""
        ...

    def value_at(self, node: NodeId) -> MeshId | None:
        """Return the only mesh with the value, as `RunMachine.value_at` does."""
        ...

    def size_of(self, node: NodeId) -> int | None:
        """Return the size of a value, as `RunMachine.size_of` does."""
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
        settings: The tenant's settings: the order of its flavors, and how far it may go down that order.
        now_ms: Time of the run machine's clock; the snapshot has the time of the store.
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
        if any(need in left for need in (*plan.task.inputs, *plan.task.after)):
            continue
        near, pinned = _inputs_at(run, plan, where)
        answer, words = asked.answer(plan, near, pinned, alike.get(node, 1))
        if isinstance(answer, Routed):
            where[node] = answer.mesh
            left.discard(node)
            placements[node] = Placement(mesh=answer.mesh, why=words)
        else:
            blockages[node] = Blockage(reason=answer.reason, detail=words)
    return NodesPlaced(placements=_in_parts(run, placements, asked), blockages=blockages)


def _in_parts(run: Unplaced, placements: dict[NodeId, Placement], asked: _Asked) -> dict[NodeId, Placement]:
    """Part the nodes of each mesh whose stage would fit nowhere there: its slot covers the largest need of every node.

    Larger nodes go first, each into the first part that still fits with it.
    """
    slots: dict[MeshId, dict[ResourceSet, int]] = {}
    least: dict[MeshId, int] = {}  #: Priority of the least urgent node on each mesh, for which all others have room too.
    for node, placed in placements.items():
        plan = run.plans[node]
        if plan.task.gang is None:
            slots.setdefault(placed.mesh, {})[plan.task.resources] = 0
            least[placed.mesh] = min(least.get(placed.mesh, plan.priority), plan.priority)
    for mesh, part_of in slots.items():
        parts: list[ResourceSet] = []
        together = reduce(ResourceSet.join, part_of)
        if together in part_of or asked.fits(together, mesh, least[mesh]):  # The mesh accepted each of them alone.
            continue
        for slot in sorted(part_of, key=lambda one: (sum(one.values()), repr(one)), reverse=True):
            joined = (kept.join(slot) for kept in parts)
            found = next((number for number, kept in enumerate(joined) if asked.fits(kept, mesh, least[mesh])), len(parts))
            parts[found:] = [parts[found].join(slot) if found < len(parts) else slot, *parts[found + 1 :]]
            part_of[slot] = found
    return {
        node: replace(placed, part=slots[placed.mesh][task.resources]) if (task := run.plans[node].task).gang is None else placed
        for node, placed in placements.items()
    }


class NeverPlaced(NamedTuple):
    """Nodes of a graph that no mesh could ever run as things are."""

    nodes: tuple[str, ...]
    refused: RouteRefused


def never_placed(
    spec: DagSpec, tenant: TenantPath, snapshot: FederationSnapshot, rules: CostRules = COST_RULES, settings: QueueSettings = NO_SETTINGS
) -> tuple[NeverPlaced, ...]:
    """Return the nodes that routing refuses for reasons that do not pass, one entry for each kind of node.

    A federation that no mesh has joined yet refuses nothing for good.
    """
    if not snapshot.meshes:
        return ()
    headroom = Headroom(snapshot)
    found = []
    for kind, nodes in nodes_by_kind(spec).items():
        labels = dict(kind.labels)
        request = RoutingRequest(
            tenant=tenant,
            slot=kind.resources,
            priority=kind.priority,
            gang=kind.gang,
            labels=labels,
            mesh=kind.mesh,
            settings=settings,
        )
        answer = choose(survey(request, snapshot, rules, headroom), {})
        if isinstance(answer, RouteRefused) and answer.reason not in PASSING:
            found.append(NeverPlaced(tuple(nodes), answer))
    return tuple(found)


def keep_back(run: Unplaced, blockage: Blockage, *, now_ms: int) -> NodesPlaced:
    """Block all unplaced nodes for the reason given, without asking any mesh. `now_ms` as for `place`."""
    waiting = run.unplaced(now_ms)
    left = set(waiting)
    first = [node for node in waiting if not any(need in left for need in (*run.plans[node].task.inputs, *run.plans[node].task.after))]
    return NodesPlaced(blockages=dict.fromkeys(first, blockage))


def why(answer: Routed) -> str:
    """Return the decision in one line: the reason for the mesh, and the objections of the other meshes."""
    notable = [verdict for verdict in answer.verdicts if verdict.mesh != answer.mesh and (verdict.reason is not None or verdict.wait_ms)]
    others = [f"{verdict.mesh}: {_words(verdict)}" for verdict in notable[:OTHERS_SHOWN]]
    if len(notable) > OTHERS_SHOWN:
        others.append(f"{len(notable) - OTHERS_SHOWN} others")
    own = f"{answer.reason.value} {answer.mesh}/{answer.pool}"
    if answer.flavor_why:
        own = f"{own}: {answer.flavor_why}"
    return f"{own} ({'; '.join(others)})" if others else own


def _words(verdict: MeshVerdict) -> str:
    """Return the mesh's reason, with the expected wait if the mesh accepts the work."""
    return f"{verdict.detail}, for about {verdict.wait_ms} ms" if verdict.accepts and verdict.wait_ms else verdict.detail


def _inputs_at(run: Unplaced, plan: NodePlan, where: Mapping[NodeId, MeshId]) -> tuple[Counter[MeshId], MeshId | None]:
    """Return the bytes of the inputs by mesh, and the only mesh that has one of them."""
    near: Counter[MeshId] = Counter()
    pinned = None
    for need in plan.task.inputs:
        mesh = where.get(need) or run.mesh_of(need)
        if mesh is not None:
            size_bytes = run.size_of(need)
            near[mesh] += SIZE_UNKNOWN_BYTES if size_bytes is None else size_bytes
        pinned = pinned or run.value_at(need)
    return near, pinned


def _kind(plan: NodePlan) -> tuple[object, ...]:
    return plan.task.resources, plan.task.gang, tuple(sorted(plan.labels.items()))


def _alike(run: Unplaced, waiting: Iterable[NodeId]) -> dict[NodeId, int]:
    """Return, for each node, how many nodes of its kind could run beside it: those at the same distance from placed nodes."""
    steps: dict[NodeId, int] = {}
    kinds: dict[NodeId, tuple[object, ...]] = {}
    for node in waiting:
        plan = run.plans[node]
        steps[node] = 1 + max((steps[need] for need in (*plan.task.inputs, *plan.task.after) if need in steps), default=0)
        kinds[node] = (steps[node], *_kind(plan))
    counted = Counter(kinds.values())
    return {node: counted[kind] for node, kind in kinds.items()}


class _Asked:
    """Answers of the meshes on one snapshot, kept per kind of node."""

    def __init__(self, tenant: TenantPath, snapshot: FederationSnapshot, rules: CostRules, settings: QueueSettings) -> None:
        self._tenant = tenant
        self._settings = settings
        self._snapshot = snapshot
        self._headroom = Headroom(snapshot)
        self._rules = rules
        self._surveys: dict[tuple[object, ...], Survey] = {}
        self._fits: dict[tuple[ResourceSet, MeshId, int], bool] = {}
        self._answers: dict[tuple[object, ...], tuple[Routed | RouteRefused, str]] = {}

    def answer(self, plan: NodePlan, near: Counter[MeshId], pinned: MeshId | None, alike: int) -> tuple[Routed | RouteRefused, str]:
        """Return where the node goes, or why no mesh takes it, with the decision in one line."""
        kind = _kind(plan)
        key = (*kind, plan.priority, plan.mesh, pinned, alike, tuple(sorted(near.items())))
        if key not in self._answers:
            answer = choose(self._survey(kind, plan, plan.mesh or pinned), near, alike=alike)
            if isinstance(answer, RouteRefused) and pinned is not None and plan.mesh is None:
                # The only mesh with the value refuses the node; on another mesh the value is computed again.
                answer = choose(self._survey(kind, plan, None), near, alike=alike)
            self._answers[key] = answer, why(answer) if isinstance(answer, Routed) else answer.detail
        return self._answers[key]

    def fits(self, slot: ResourceSet, mesh: MeshId, priority: int) -> bool:
        """Return whether the mesh accepts work with this slot and priority, now or later."""
        key = slot, mesh, priority
        if key not in self._fits:
            request = RoutingRequest(tenant=self._tenant, slot=slot, priority=priority, mesh=mesh, settings=self._settings)
            verdicts = survey(request, self._snapshot, self._rules, self._headroom).verdicts
            self._fits[key] = any(verdict.could_accept for verdict in verdicts if verdict.mesh == mesh)
        return self._fits[key]

    def _survey(self, kind: tuple[object, ...], plan: NodePlan, mesh: MeshId | None) -> Survey:
        key = (*kind, plan.priority, mesh)
        if key not in self._surveys:
            request = RoutingRequest(
                tenant=self._tenant,
                slot=plan.task.resources,
                priority=plan.priority,
                gang=plan.task.gang,
                labels=dict(plan.labels),
                mesh=mesh,
                settings=self._settings,
            )
            self._surveys[key] = survey(request, self._snapshot, self._rules, self._headroom)
        return self._surveys[key]
