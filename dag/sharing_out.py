"""Sharing out of a run over several meshes: the root's planner on the meshes that routing accepts, with slots for the room there.

Routing has given each node a mesh near its inputs. If the planner finds meshes with which the run would end much earlier, these are taken.
Otherwise all stays together, since each further mesh costs a stage, a claim and transfers.

    slot     one for each time that the needs of a node fit into the room; further ones come free as running stages end
    quota    slots of one flavor are counted over all meshes, so that two meshes do not promise the same quota; beside them, what a mesh
             holds for the tenant and no stage uses, which other meshes cannot be granted now
    time     run times and sizes by function (`dag.function_times`); from one mesh to another `HOP_MS`, and the bytes at the bandwidth

Nodes with other needs use other slots of the same mesh, as if they had room of their own. Pure.

Source: ADR 0054.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from dag.function_times import FunctionTimes
from dag.placement.heuristics import by_rank, in_order
from dag.placement.planner import NODES_MAX, plan
from dag.placement.problem import Interval, Need, Pool, Problem, crossing_share
from dag.placement.ranks import upward
from dag.spec.plans import NodePlan
from federation.estimates import CostRules, transfer_ms, wait_ms
from federation.routing.survey import Acceptance
from mesh.core.ids import FlavorName, MeshId, NodeId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang

#: Time that a value needs from one mesh to another beside its bytes: it is stored, delivered and read.
HOP_MS = 500
#: The least that a run must end earlier for its nodes to go to further meshes; also a tenth of the time on the meshes that routing chose.
GAIN_MS, GAIN_SHARE = 1_000, 0.1
#: Kinds of needs that are planned each with slots of their own; a graph with more kinds stays on the meshes that routing chose.
KINDS_MAX = 16
#: Nodes times pools that are planned; a graph with more stays on the meshes that routing chose.
CHOICES_MAX = 200_000
#: Slots of a pool that are looked at.
SLOTS_MAX = 4_096

SlotKind = tuple[ResourceSet, Gang | None]


class Links(NamedTuple):
    """Everything that is known of times."""

    tenant: TenantPath
    times: FunctionTimes
    rules: CostRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Node to place, with the mesh that routing chose and all meshes that accept it."""

    node: NodeId
    plan: NodePlan
    mesh: MeshId
    accepting: tuple[Acceptance, ...]
    outside: Mapping[NodeId, tuple[MeshId, int]]  #: Inputs that lie on a mesh already, with their bytes.


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOut:
    """Result: the run ends earlier on these meshes."""

    meshes: Mapping[NodeId, MeshId]
    ends_ms: float  #: Estimated end of the last node.
    together_ms: float  #: The same on the meshes that routing chose.


class _Row(NamedTuple):
    """Pool of a mesh for one kind of needs."""

    mesh: MeshId
    kind: SlotKind


class Quota(Protocol):
    """Quota of the tenant of a run."""

    def grantable(self, flavor: FlavorName, resource: str) -> tuple[int, int]:
        """Return the units that the tenant could be granted now, and the most it could ever hold."""
        ...

    def idle_at(self, mesh: MeshId, flavor: FlavorName, resource: str) -> int:
        """Return the units that the mesh holds for the tenant and no stage uses."""
        ...


def share_out(candidates: Sequence[Candidate], quota: Quota, links: Links) -> SharedOut | None:
    """Return meshes on which the run would end much earlier; None: it stays where routing put it.

    Args:
        candidates: In topological order.
    """
    offered = {accepted.view.record.mesh for one in candidates for accepted in one.accepting}
    work_ms = sum(links.times.run_ms(links.tenant, one.plan.task.function) for one in candidates)
    kinds = {_slot_kind(one.plan) for one in candidates}
    if not may_share_out(len(offered), work_ms) or len(kinds) > KINDS_MAX:
        return None
    pools = _pools(candidates, quota)
    if len(candidates) * len(pools) > CHOICES_MAX:
        return None
    problem = _problem(candidates, pools, links)
    rows = {row: number for number, row in enumerate(pools)}
    chosen = [rows[_Row(one.mesh, _slot_kind(one.plan))] for one in candidates]
    together = in_order(problem, by_rank(problem, upward(problem)), fixed=chosen, with_gaps=len(candidates) <= NODES_MAX)
    shared = plan(problem)
    if together.makespan - shared.makespan <= max(GAIN_MS, GAIN_SHARE * together.makespan):
        return None
    where = list(pools)
    meshes = {one.node: where[number].mesh for one, number in zip(candidates, shared.pools, strict=True)}
    return SharedOut(meshes=meshes, ends_ms=shared.makespan, together_ms=together.makespan)


def may_share_out(meshes: int, work_ms: float) -> bool:
    """Return whether a run could end much earlier elsewhere: one mesh leaves no choice, and little work is not worth the transfers.

    Args:
        meshes: Number of meshes that accept any of the nodes.
    """
    return meshes > 1 and work_ms > GAIN_MS


def _slot_kind(plan: NodePlan) -> SlotKind:
    return plan.task.resources, plan.task.gang


def _pools(candidates: Sequence[Candidate], quota: Quota) -> dict[_Row, Pool]:
    """Return the pools of slots. Meshes that routing chose for most nodes get their share of the quota first."""
    chosen = Counter((one.mesh, _slot_kind(one.plan)) for one in candidates)
    counts = Counter(_slot_kind(one.plan) for one in candidates)
    offers: dict[_Row, Acceptance] = {}
    for one in candidates:
        for accepted in one.accepting:
            offers.setdefault(_Row(accepted.view.record.mesh, _slot_kind(one.plan)), accepted)
    pools: dict[_Row, Pool] = {}
    left: dict[tuple[FlavorName, SlotKind], list[int]] = {}
    for row, accepted in sorted(
        offers.items(),
        key=lambda item: (-chosen[item[0].mesh, item[0].kind], -item[1].verdict.grantable_slots, item[0].mesh, repr(item[0].kind)),
    ):
        slot, flavor = slot_of(row.kind), accepted.pool.flavor
        free = left.setdefault((flavor, row.kind), _quota_slots(slot, flavor, quota))
        most = min(counts[row.kind], SLOTS_MAX, free[1], _slots_in(accepted.pool.capacity, slot))
        most = max(most, 1 if chosen[row.mesh, row.kind] else 0)
        idle = min([quota.idle_at(row.mesh, flavor, name) // units for name, units in slot.items()], default=0)
        now = min(_room(accepted, slot, most), idle + max(0, free[0]), most)
        free[0], free[1] = free[0] - max(0, now - idle), free[1] - most
        if most > 0:
            pools[row] = Pool(slots=most, busy=_waits(accepted, now, most))
    return pools


def slot_of(kind: SlotKind) -> ResourceSet:
    """Return the needs of a kind."""
    return kind[0]


def _room(accepted: Acceptance, slot: ResourceSet, most: int) -> int:
    """Return the slots of a pool that are free now. Without a stage all are: the mesh's report is older than the end of its last stage."""
    has_work = accepted.view.claimed or accepted.view.waiting
    return accepted.verdict.free_slots if slot and has_work else most


def _quota_slots(slot: ResourceSet, flavor: FlavorName, quota: Quota) -> list[int]:
    """Return the slots that the tenant's quota allows now, and at most."""
    rows = [(*quota.grantable(flavor, name), units) for name, units in slot.items()]
    now, most = ([row[part] // row[2] for row in rows] for part in (0, 1))
    return [min(now, default=SLOTS_MAX), min(most, default=SLOTS_MAX)]


def _slots_in(capacity: ResourceSet, slot: ResourceSet) -> int:
    return min([capacity[name] // units for name, units in slot.items()], default=SLOTS_MAX)


def _waits(accepted: Acceptance, now: int, most: int) -> tuple[tuple[Interval, ...], ...]:
    """Return for how long each slot is in use: work that waits there goes first, and running stages end one by one."""
    if now >= most and not accepted.view.waiting:
        return ()
    waiting, each = accepted.view.waiting, accepted
    waits = [wait_ms(waiting=waiting + place, room=now, running=each.running, run_ms=each.run_ms) for place in range(most)]
    return tuple((Interval(0, wait),) if wait else () for wait in waits)


def _problem(candidates: Sequence[Candidate], pools: Mapping[_Row, Pool], links: Links) -> Problem:
    numbers = {one.node: number for number, one in enumerate(candidates)}
    of_kind: dict[tuple[object, ...], tuple[float, ...]] = {}
    sizes: dict[str, float] = {}
    hop_ms = float(HOP_MS)

    def crossing_ms(one: Candidate) -> float:
        function = one.plan.task.function
        if function not in sizes:
            sizes[function] = hop_ms + transfer_ms(links.times.size_bytes(links.tenant, function), links.rules)
        return sizes[function]

    run_times, needs = [], []
    for one in candidates:
        accepting = frozenset(accepted.view.record.mesh for accepted in one.accepting)
        key = (_slot_kind(one.plan), one.plan.task.function, accepting)
        if key not in of_kind:
            of_kind[key] = tuple(
                links.times.run_ms(links.tenant, one.plan.task.function, row.mesh) if row.kind == key[0] and row.mesh in accepting else inf
                for row in pools
            )
        run_times.append(of_kind[key])
        inputs = [Need(numbers[need], crossing_ms(candidates[numbers[need]])) for need in one.plan.task.inputs if need in numbers]
        needs.append([*inputs, *(Need(numbers[need], hop_ms) for need in one.plan.task.after if need in numbers)])
    ready_at: list[Sequence[float]] = []
    if any(one.outside for one in candidates):
        at_once = (0.0,) * len(pools)
        ready_at = [_arrivals(one, pools, links.rules) if one.outside else at_once for one in candidates]
    share = crossing_share(pool.slots for pool in pools.values())
    return Problem(pools=tuple(pools.values()), run_times=run_times, needs=needs, ready_at=ready_at, rank_share=share)


def _arrivals(one: Candidate, pools: Mapping[_Row, Pool], rules: CostRules) -> tuple[float, ...]:
    """Return when the inputs that lie on meshes already are at each pool."""
    at: Counter[MeshId] = Counter()
    for mesh, size_bytes in one.outside.values():
        at[mesh] += size_bytes
    total = sum(at.values())
    return tuple(float(HOP_MS + transfer_ms(total - at[row.mesh], rules)) if len(at) > (row.mesh in at) else 0.0 for row in pools)


def in_seconds(span_ms: float) -> str:
    """Return a time in words, in tenths of a second."""
    return f"{round(span_ms / 100) / 10:g} s"
