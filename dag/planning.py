"""Choice of a mesh for each node: routing says which meshes accept it, and the planner shares a long run out over them.

Routing asks the meshes once per kind of node, and prefers meshes near the node's inputs (`federation.routing`). If the planner finds
meshes with which the run ends much earlier, it decides (`dag.sharing_out`). Nodes stand in the order of their upward rank, so the longest
way to the end goes first on each mesh, and large stages go in parts (`dag.parting`).

Nodes are routed in topological order. Two nodes of a kind with as many bytes on the same meshes get the same answer, so a fan of
ten thousand nodes asks once. Descendants of a node that no mesh takes stay unplaced, because their places depend on its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import NamedTuple, Protocol

from dag.function_times import SIZE_UNKNOWN_BYTES, FunctionTimes
from dag.parting import in_more_parts, most_urgent_first
from dag.placing_together import place_together
from dag.run.events import Blockage, NodesPlaced, Placement
from dag.sharing_out import Candidate, Links, SharedOut, in_seconds, share_out
from dag.spec.plans import NodePlan, Plans, nodes_by_kind
from dag.spec.spec import DagSpec
from federation.estimates import COST_RULES, CostRules
from federation.quota.policies import NO_SETTINGS, QueueSettings
from federation.routing.headroom import Headroom
from federation.routing.route import Routed, RouteRefused, choose
from federation.routing.routing_request import RoutingRequest
from federation.routing.survey import Acceptance, Survey, survey
from federation.routing.verdicts import MeshVerdict
from federation.snapshot import FederationSnapshot
from mesh.core.ids import FlavorName, MeshId, NodeId, TenantPath
from mesh.core.reasons import PASSING, Reason
from mesh.core.resources import ResourceSet

#: Limit on the other meshes whose reasons stand in a placement; more are only counted.
OTHERS_SHOWN = 8


class Unplaced(Protocol):
    """Run state that planning needs; implemented by the run machine."""

    @property
    def plans(self) -> Mapping[NodeId, NodePlan]:
        """Every node of the graph, in topological order."""
        ...

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
    times: FunctionTimes | None = None,
    *,
    now_ms: int,
) -> NodesPlaced:
    """Route every unplaced node that can be routed now, on one snapshot.

    Args:
        settings: The tenant's settings: the order of its flavors, and how far it may go down that order.
        times: Run times of functions; None: all are unknown.
        now_ms: Time of the run machine's clock; the snapshot has the time of the store.
    """
    times = times if times is not None else FunctionTimes()
    waiting = run.unplaced(now_ms)
    asked, links = _Asked(tenant, snapshot, rules, settings), Links(tenant, times, rules)
    flavors = {pool.flavor for view in snapshot.meshes for pool in view.record.pools} if settings.flavors else ()
    has_choice = len(flavors) > 1
    if isinstance(run.plans, Plans) and len(waiting) == len(run.plans):
        together = place_together(run.plans, asked, links, by_flavor=has_choice)
        if together is not None:
            return together
    left = set(waiting)
    alike = _alike(run, waiting) if has_choice else {}
    where: dict[NodeId, MeshId] = {}
    candidates: list[Candidate] = []
    answers: dict[NodeId, tuple[Routed, str]] = {}
    blockages: dict[NodeId, Blockage] = {}
    inputs_at: dict[tuple[NodeId, ...], tuple[Counter[MeshId], MeshId | None]] = {}  #: By inputs, which many nodes have in common.
    for node in waiting:
        plan = run.plans[node]
        inputs = plan.task.inputs
        if not left.isdisjoint(inputs) or not left.isdisjoint(plan.task.after):
            continue
        if inputs not in inputs_at:
            inputs_at[inputs] = _inputs_at(run, plan, where)
        near, pinned = inputs_at[inputs]
        answer, words = asked.answer(plan, near, pinned, alike.get(node, 1))
        if isinstance(answer, Routed):
            where[node] = answer.mesh
            left.discard(node)
            answers[node] = answer, words
            outside = _outside(run, plan, where)
            candidates.append(
                Candidate(node=node, plan=plan, mesh=answer.mesh, accepting=asked.accepting(plan, answer, pinned), outside=outside)
            )
        else:
            blockages[node] = Blockage(reason=answer.reason, detail=words)
    shared = share_out(candidates, asked, links)
    alike_placed: dict[tuple[MeshId, str], Placement] = {}  #: Most nodes of a graph are placed alike.
    placements = {
        node: alike_placed.setdefault((answer.mesh, words), Placement(mesh=answer.mesh, why=words))
        for node, (answer, words) in answers.items()
    }
    if shared is not None:
        placements = _shared_placements(candidates, answers, shared)
    order = most_urgent_first([one.plan for one in candidates], links)
    placements = _in_parts(run, {node: placements[node] for node in order}, asked)
    parted = in_more_parts(candidates, placements, links)
    return NodesPlaced(placements=parted, blockages=blockages, order=tuple(parted))


def _outside(run: Unplaced, plan: NodePlan, where: Mapping[NodeId, MeshId]) -> dict[NodeId, tuple[MeshId, int]]:
    """Return the inputs that lie on a mesh already, or will before this placement has an effect, with their bytes."""
    outside = {}
    for need in plan.task.inputs:
        mesh = run.mesh_of(need) if need not in where else None
        if mesh is not None:
            size_bytes = run.size_of(need)
            outside[need] = mesh, SIZE_UNKNOWN_BYTES if size_bytes is None else size_bytes
    return outside


def _shared_placements(
    candidates: Iterable[Candidate], answers: Mapping[NodeId, tuple[Routed, str]], shared: SharedOut
) -> dict[NodeId, Placement]:
    """Return the placements on the meshes of the planner, with one line of words for all nodes of a mesh that were answered alike."""
    because = f"the run ends in about {in_seconds(shared.ends_ms)}, with fewer meshes in {in_seconds(shared.together_ms)}"
    words: dict[tuple[MeshId, int], str] = {}
    placements = {}
    for one in candidates:
        answer, mesh = answers[one.node][0], shared.meshes[one.node]
        key = mesh, id(answer)
        if key not in words:
            pool = next(accepted.pool.pool for accepted in one.accepting if accepted.view.record.mesh == mesh)
            words[key] = why(replace(answer, mesh=mesh, pool=pool, reason=Reason.EARLIEST_FINISH), because)
        placements[one.node] = Placement(mesh=mesh, why=words[key])
    return placements


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
    if not any(part for part_of in slots.values() for part in part_of.values()):
        return placements
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


def why(answer: Routed, because: str = "") -> str:
    """Return the decision in one line: the reason for the mesh, and the objections of the other meshes.

    Args:
        because: Another reason for the mesh, in words; without it, the reason for the flavor.
    """
    notable = [verdict for verdict in answer.verdicts if verdict.mesh != answer.mesh and (verdict.reason is not None or verdict.wait_ms)]
    others = [f"{verdict.mesh}: {_words(verdict)}" for verdict in notable[:OTHERS_SHOWN]]
    if len(notable) > OTHERS_SHOWN:
        others.append(f"{len(notable) - OTHERS_SHOWN} others")
    own = f"{answer.reason.value} {answer.mesh}/{answer.pool}"
    if because or answer.flavor_why:
        own = f"{own}: {because or answer.flavor_why}"
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
        self._accepting: dict[tuple[object, ...], tuple[Acceptance, ...]] = {}
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

    def accepting(self, plan: NodePlan, answer: Routed, pinned: MeshId | None) -> tuple[Acceptance, ...]:
        """Return the acceptances of the node with the flavor of its answer. A node whose input cannot move stays beside it."""
        only = answer.mesh if plan.mesh is None and pinned == answer.mesh else None
        key = (_kind(plan), plan.priority, plan.mesh, answer.flavor, only)
        if key not in self._accepting:
            asked = self._survey(_kind(plan), plan, plan.mesh)
            of_flavor = (one for one in asked.accepting if one.pool.flavor == answer.flavor or not asked.has_choice)
            self._accepting[key] = tuple(one for one in of_flavor if only in (None, one.view.record.mesh))
        return self._accepting[key]

    def grantable(self, flavor: FlavorName, resource: str) -> tuple[int, int]:
        """Return what the tenant would be granted now, and the most it could ever hold."""
        found = self._headroom.grantable(self._tenant, flavor, resource)
        return found.available, found.potential

    def idle_at(self, mesh: MeshId, flavor: FlavorName, resource: str) -> int:
        """Return what the mesh holds for the tenant and no stage uses."""
        return self._headroom.idle_at(mesh, self._tenant, flavor, resource)

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
