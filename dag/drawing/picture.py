"""Pictures of graphs: nodes by level, each with state, mesh and stage; groups of alike nodes if there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dag.workflows.wfformat import type_of
from mesh.core.counting import counted

#: Nodes that are drawn one by one; of more, alike nodes of a level are drawn as one box with their number.
SINGLE_MAX = 120
#: Groups of one level; the smaller ones beyond are drawn as one.
GROUPS_MAX = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """Node of a graph, with what is known of its run."""

    node: str
    needs: tuple[str, ...] = ()
    state: str = ""
    mesh: str = ""
    stage: str = ""
    started_ms: int = 0
    finished_ms: int = 0
    elements: int = 0  #: Number of elements of an array; 0: it is none, or has none, or their number is not known yet.
    control: str = ""  #: `cond`, `sleep` or `wait_signal` if the root does the node itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Box of a picture: a node, or several alike nodes of a level."""

    id: str
    label: str
    level: int
    mesh: str
    stage: str
    states: tuple[tuple[str, int], ...]  #: Number of nodes by state, the most first.
    count: int = 1
    control: str = ""  #: As for its nodes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Boxes and the arrows between them."""

    title: str
    nodes: int
    edges: int
    boxes: tuple[Box, ...]  #: By level.
    arrows: tuple[tuple[str, str, int], ...]  #: From, to, and number of edges.

    @property
    def meshes(self) -> tuple[str, ...]:
        """The meshes, by name."""
        return tuple(sorted({box.mesh for box in self.boxes if box.mesh}))


def levels_of(nodes: Sequence[GraphNode]) -> dict[str, int]:
    """Return for each node the number of nodes on the longest way to it. Needs that are not among the nodes do not count."""
    needs = {one.node: one.needs for one in nodes}
    level: dict[str, int] = {}
    for start in needs:
        pending = [start]
        while pending:
            node = pending[-1]
            missing = [need for need in needs[node] if need in needs and need not in level] if node not in level else []
            if missing:
                pending += missing
            else:
                level.setdefault(node, max([level[need] + 1 for need in needs[node] if need in needs], default=0))
                pending.pop()
    return level


def picture_of(title: str, nodes: Sequence[GraphNode], single_max: int = SINGLE_MAX) -> Picture:
    """Return the picture of a graph without circles.

    Args:
        single_max: Most nodes that are drawn one by one.
    """
    level = levels_of(nodes)
    box_of = _grouped(nodes, level) if len(nodes) > single_max else {one.node: one.node for one in nodes}
    members: dict[str, list[GraphNode]] = {}
    for one in sorted(nodes, key=lambda one: level[one.node]):
        members.setdefault(box_of[one.node], []).append(one)
    arrows = Counter((box_of[need], box_of[one.node]) for one in nodes for need in one.needs if need in box_of)
    return Picture(
        title=title,
        nodes=len(nodes),
        edges=sum(arrows.values()),
        boxes=tuple(_box(box, of_box, level[of_box[0].node]) for box, of_box in members.items()),
        arrows=tuple((source, target, count) for (source, target), count in arrows.items()),
    )


def _grouped(nodes: Iterable[GraphNode], level: dict[str, int]) -> dict[str, str]:
    """Return the box of each node: nodes of a level with the same mesh and type, and one box for all rare ones of a level."""
    keys = {one.node: (level[one.node], one.mesh, kind_of(one.node)) for one in nodes}
    counts = Counter(keys.values())
    by_level: dict[int, list[tuple[int, str, str]]] = {}
    for key, _ in counts.most_common():
        by_level.setdefault(key[0], []).append(key)
    rare = {key for of_level in by_level.values() for key in of_level[GROUPS_MAX - 1 :] if len(of_level) > GROUPS_MAX}
    return {node: f"{at}/{mesh}/others" if (at, mesh, kind) in rare else f"{at}/{mesh}/{kind}" for node, (at, mesh, kind) in keys.items()}


def kind_of(node: str) -> str:
    """Return what alike nodes have in common: their name without a number at the end."""
    return type_of(node).rstrip("0123456789").rstrip("_-") or node


def _label(node: GraphNode) -> str:
    return f"{node.node}: {counted(node.elements, 'element')}" if node.elements else node.node


def _box(box: str, nodes: Sequence[GraphNode], level: int) -> Box:
    first = nodes[0]
    stages = {one.stage for one in nodes}
    return Box(
        id=box,
        label=_label(first) if len(nodes) == 1 else box.rpartition("/")[2],
        level=level,
        mesh=first.mesh,
        stage=first.stage if len(stages) == 1 else "",
        states=tuple(Counter(one.state for one in nodes if one.state).most_common()),
        count=len(nodes),
        control=first.control if len({one.control for one in nodes}) == 1 else "",
    )
