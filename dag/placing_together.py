"""Placement of a whole graph on one mesh, by its columns: no plan is made per node.

Most graphs go to one mesh as a whole. Then the answer of routing depends on the kind of a node, on the number of its inputs, which will
all be on that mesh, and, if flavors have an order, on the number of nodes that could run beside it. So routing is asked once for each
such group, and ranks are computed over the edges. Other cases are None here, and `dag.planning` routes each node: a part that was placed
before, several meshes, kinds that share no slot, work that the planner may share out. Both give the same placements. Pure.

Source: ADR 0057.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dag.function_times import SIZE_UNKNOWN_BYTES
from dag.run.events import NodesPlaced, Placement
from dag.sharing_out import Links, may_share_out
from dag.spec.plans import NodePlan, Plans
from federation.routing.route import Routed, RouteRefused
from federation.routing.survey import Acceptance
from mesh.core.ids import MeshId
from mesh.core.resources import ResourceSet
from mesh.stages.calls import Calls

#: Limit on the groups of nodes that routing is asked about.
GROUPS_MAX = 64


class Answers(Protocol):
    """Answers of the meshes on one snapshot; see `dag.planning`."""

    def answer(self, plan: NodePlan, near: Counter[MeshId], pinned: MeshId | None, alike: int) -> tuple[Routed | RouteRefused, str]:
        """Return where a node goes, with the decision in one line."""
        ...

    def accepting(self, plan: NodePlan, answer: Routed, pinned: MeshId | None) -> tuple[Acceptance, ...]:
        """Return all acceptances of a node with the flavor of its answer."""
        ...

    def fits(self, slot: ResourceSet, mesh: MeshId, priority: int) -> bool:
        """Return whether the mesh accepts work with this slot and priority, now or later."""
        ...


def place_together(plans: Plans, asked: Answers, links: Links, *, by_flavor: bool = False) -> NodesPlaced | None:
    """Place all nodes of a graph of which nothing is placed; None: they do not simply go to one mesh.

    Args:
        by_flavor: Several flavors may do: one with room for all nodes that could run at once goes first.
    """
    calls = plans.calls
    beside = _beside(plans) if by_flavor else np.ones(len(calls), np.int64)
    inputs = np.diff(calls.input_ptr)
    firsts, of_node = _groups(calls.kind.astype(np.int64), inputs, beside)
    if len(firsts) > GROUPS_MAX:
        return None
    mesh: MeshId | None = None
    offered: set[MeshId] = set()
    placements: list[Placement] = []
    kinds: dict[int, NodePlan] = {}
    alike_placed: dict[str, Placement] = {}
    for place in np.sort(firsts).tolist():  # The first node of a graph has no inputs.
        plan, count = plans.sample(place), int(inputs[place])
        near = Counter({mesh: SIZE_UNKNOWN_BYTES * count} if mesh is not None and count else {})
        answer, words = asked.answer(plan, near, None, int(beside[place]))
        if isinstance(answer, RouteRefused) or mesh not in (None, answer.mesh):
            return None
        mesh = answer.mesh
        offered.update(accepted.view.record.mesh for accepted in asked.accepting(plan, answer, None))
        placements.append(alike_placed.setdefault(words, Placement(mesh=mesh, why=words)))
        kinds[calls.kind_of(place)] = plan
    run_ms = [links.times.run_ms(links.tenant, function) for function in calls.functions]
    work_ms = sum(count * ms for count, ms in zip(np.bincount(calls.function, minlength=len(run_ms)).tolist(), run_ms, strict=True))
    if may_share_out(len(offered), work_ms) or (mesh is not None and not _share_slots(kinds.values(), mesh, asked)):
        return None
    order = [calls.ids[place] for place in _by_rank(calls, run_ms)]
    of_group = dict(zip(np.argsort(firsts).tolist(), placements, strict=True))
    if len(alike_placed) == 1:
        return NodesPlaced(placements=dict.fromkeys(order, placements[0]), order=tuple(order))
    where = dict(zip(calls.ids, map(of_group.__getitem__, of_node.tolist()), strict=True))
    return NodesPlaced(placements={node: where[node] for node in order}, order=tuple(order))


def _groups(*columns: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first place of each group, and the group of each place. Places with the same numbers in all columns are a group."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 1) + column
    _, firsts, of_place = np.unique(key, return_index=True, return_inverse=True)
    return firsts, of_place


def _beside(plans: Plans) -> npt.NDArray[np.int64]:
    """Return for each node how many nodes like it could run beside it, itself among them: those as many steps from the start."""
    calls = plans.calls
    steps = [0] * len(calls)
    needed, waiting = calls.edges()
    in_order = np.argsort(waiting, kind="stable")
    for need, reader in zip(needed[in_order].tolist(), waiting[in_order].tolist(), strict=True):
        steps[reader] = max(steps[reader], steps[need] + 1)
    _, of_node = _groups(np.array(plans.slot_kinds(), np.int64)[calls.kind], np.array(steps, np.int64))
    counts: npt.NDArray[np.int64] = np.bincount(of_node)[of_node]
    return counts


def _share_slots(kinds: Iterable[NodePlan], mesh: MeshId, asked: Answers) -> bool:
    """Return whether one slot of the mesh holds any node of these kinds."""
    plans = [plan for plan in kinds if plan.task.gang is None]
    slots = [plan.task.resources for plan in plans]
    if not slots:
        return True
    together = reduce(ResourceSet.join, slots)
    return together in slots or asked.fits(together, mesh, min(plan.priority for plan in plans))


def _by_rank(calls: Calls, run_ms: Sequence[float]) -> list[int]:
    """Return the places of the nodes by upward rank, as `dag.parting.most_urgent_first`."""
    own = np.maximum(1.0, np.array(run_ms, np.float64))[calls.function]
    times = own.tolist()
    behind = [0.0] * len(calls)  #: Rank of the most urgent reader of each node.
    needed, waiting = calls.edges()
    last_first = np.argsort(-waiting, kind="stable")
    for need, reader in zip(needed[last_first].tolist(), waiting[last_first].tolist(), strict=True):
        rank = behind[reader] + times[reader]
        behind[need] = max(behind[need], rank)
    by_rank: list[int] = np.argsort(-(np.array(behind) + own), kind="stable").tolist()
    return by_rank
