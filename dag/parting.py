"""Order of nodes, and parts of large stages.

Nodes stand in the order of their upward rank: the longest way to the end first. A stage keeps that order, so the critical path goes
first on its mesh.

Lanes that do not depend on each other are packed into parts, each a stage of its own: a mesh that runs dry can take a part that
another mesh has not begun. Lanes are the weakly connected components of the nodes of one mesh and level (ADR 0007), so parts wait for
each other no more than the whole would. Pure.

Source: ADR 0054.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dag.placement.shape import border_levels, components
from dag.run.events import Placement
from dag.sharing_out import Candidate, Links
from dag.spec.plans import NodePlan
from mesh.core.ids import MeshId, NodeId

#: Most parts of the nodes of one mesh and level.
PARTS_MAX = 8
#: The least of one part: times that it fills the slots of its mesh, and run times of its nodes together.
ROUNDS_MIN, WORK_MS_MIN = 2, 10_000


def most_urgent_first(plans: Sequence[NodePlan], links: Links) -> list[NodeId]:
    """Return the nodes by upward rank, the highest first; each after its needs, and in the given order where ranks are equal.

    Args:
        plans: In topological order.
    """
    ranks: dict[NodeId, float] = {plan.task.node: 0.0 for plan in plans}
    for plan in reversed(plans):
        task = plan.task
        ranks[task.node] += max(1.0, links.times.run_ms(links.tenant, task.function))
        for need in (*task.inputs, *task.after):
            if need in ranks:
                ranks[need] = max(ranks[need], ranks[task.node])
    return sorted(ranks, key=lambda node: -ranks[node])


def in_more_parts(candidates: Iterable[Candidate], placements: Mapping[NodeId, Placement], links: Links) -> dict[NodeId, Placement]:
    """Return the placements with the nodes of large stages in several parts, where more than one mesh accepts the nodes.

    Args:
        placements: In the order of the nodes, with the parts that routing made.
    """
    of_node = {one.node: one for one in candidates}
    needs = {node: (*one.plan.task.inputs, *one.plan.task.after) for node, one in of_node.items()}
    place_of = {node: (placed.mesh, placed.part, of_node[node].plan.task.gang) for node, placed in placements.items()}
    levels = border_levels(placements, needs, place_of)
    groups: dict[tuple[object, ...], list[NodeId]] = {}
    for node in placements:
        groups.setdefault((*place_of[node], levels[node]), []).append(node)
    parted = dict(placements)
    number = 1 + max((placed.part for placed in placements.values()), default=0)
    for nodes in groups.values():
        count = _parts_for(nodes, of_node, placements[nodes[0]].mesh, links)
        if count < 2 or of_node[nodes[0]].plan.task.gang is not None:  # noqa: PLR2004  one part is the stage itself
            continue
        for part in _packed(nodes, needs, count, of_node, links)[1:]:  # The first keeps its part.
            for node in part:
                parted[node] = replace(placements[node], part=number)
            number += 1
    return parted


def _parts_for(nodes: Sequence[NodeId], of_node: Mapping[NodeId, Candidate], mesh: MeshId, links: Links) -> int:
    """Return how many parts these nodes of a mesh should be."""
    work_ms = sum(links.times.run_ms(links.tenant, of_node[node].plan.task.function) for node in nodes)
    if work_ms < 2 * WORK_MS_MIN or not any(len(of_node[node].accepting) > 1 for node in nodes):
        return 1
    slots = 1
    for accepted in of_node[nodes[0]].accepting:
        if accepted.view.record.mesh == mesh:
            needs = of_node[nodes[0]].plan.task.resources
            slots = min([accepted.pool.capacity[name] // units for name, units in needs.items()], default=len(nodes))
    return min(PARTS_MAX, len(nodes) // (ROUNDS_MIN * max(1, slots)), int(work_ms // WORK_MS_MIN))


def _packed(
    nodes: Sequence[NodeId], needs: Mapping[NodeId, Iterable[NodeId]], count: int, of_node: Mapping[NodeId, Candidate], links: Links
) -> list[list[NodeId]]:
    """Pack the lanes of the nodes into parts of about the same work, the most urgent lanes first."""
    lane_of = components(nodes, needs)
    lanes: dict[NodeId, list[NodeId]] = {}
    for node in nodes:
        lanes.setdefault(lane_of[node], []).append(node)
    work = {node: max(1.0, links.times.run_ms(links.tenant, of_node[node].plan.task.function)) for node in nodes}
    target, done = sum(work.values()) / count, 0.0
    parts: list[list[NodeId]] = [[]]
    for lane in lanes.values():
        if parts[-1] and done >= target * len(parts):
            parts.append([])
        parts[-1] += lane
        done += sum(work[node] for node in lane)
    return parts
