"""Nodes of a run in groups: nodes that are named alike, with their number by state. An array is a group of its own, of its elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dag.drawing.picture import kind_of
from dag.run.array_states import ArrayCounts, shown_state_of
from dag.run.node_facts import STATES
from dag.run.node_table import NodeTable
from dag.run.states import NODE_ENDS, NodeState
from mesh.core.ids import NodeId
from mesh.stages.arrays import is_part

#: Groups of a run that are shown.
GROUPS_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that are named alike, or the elements of an array."""

    name: str  #: Their common name; of a single node its id.
    is_array: bool = False
    total: int | None  #: Nodes or elements; None: the length of the array is not known yet.
    counts: Mapping[NodeState, int]  #: Number by state.
    part: float = 0.0  #: Part that running nodes have done by their own report, as a number of nodes.

    @property
    def done(self) -> float:
        """Number of nodes that have succeeded, with the parts of running ones."""
        return self.counts.get(NodeState.SUCCEEDED, 0) + self.part

    @property
    def failed(self) -> int:
        """Number of nodes or elements that failed for good."""
        return self.counts.get(NodeState.FAILED, 0)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the group is left to do."""
        return self.total is not None and sum(self.counts.get(state, 0) for state in NODE_ENDS) >= self.total


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Nodes of a graph by their common names; made once for a graph."""

    ids: Sequence[NodeId]
    names: Sequence[str]  #: By number.
    number: NDArray[np.intp]  #: Number of the name of each node.

    @classmethod
    def of(cls, ids: Sequence[NodeId]) -> NodeNames:
        """Return the common names of these nodes, in the order of the first node of each."""
        numbers: dict[str, int] = {}
        number = np.fromiter((numbers.setdefault(kind_of(node), len(numbers)) for node in ids), np.intp, len(ids))
        return cls(ids, tuple(numbers), number)


def groups_of(nodes: NodeTable, named: NodeNames, arrays: Iterable[ArrayCounts]) -> list[NodeGroup]:
    """Return the groups of a run, in the order of the graph.

    Args:
        arrays: The arrays that are groups of their own; any other is one node of its name.
    """
    rows = nodes.rows(named.ids)
    states = nodes.columns.state[rows].astype(np.intp)
    own = {array.node: array for array in arrays}
    place_of_row = {row: place for place, row in enumerate(rows.tolist())} if nodes.arrays() else {}
    for row in nodes.arrays():
        if row in place_of_row:
            states[place_of_row[row]] = STATES.index(shown_state_of(nodes, row))
    is_own = np.fromiter((node in own for node in named.ids), np.bool_, len(named.ids)) if own else np.zeros(len(rows), np.bool_)
    table = np.bincount((named.number * len(STATES) + states)[~is_own], minlength=len(named.names) * len(STATES))
    table = table.reshape(len(named.names), len(STATES))
    parts = _parts_done(nodes, named, own)
    places = np.flatnonzero(~is_own)
    numbers, firsts = np.unique(named.number[places], return_index=True)
    found: list[tuple[int, NodeGroup]] = []
    for number, place in zip(numbers.tolist(), places[firsts].tolist(), strict=True):
        counts = {state: count for state, count in zip(STATES, table[number].tolist(), strict=True) if count}
        total = sum(counts.values())
        name = named.names[number] if total > 1 else named.ids[place]
        found.append((place, NodeGroup(name=name, total=total, counts=counts, part=parts.get(number, 0.0))))
    for place in np.flatnonzero(is_own).tolist():
        array = own[named.ids[place]]
        found.append((place, NodeGroup(name=array.node, is_array=True, total=array.elements, counts=array.counts)))
    return [group for _, group in sorted(found, key=lambda each: each[0])]


def _parts_done(nodes: NodeTable, named: NodeNames, own: Mapping[NodeId, ArrayCounts]) -> dict[int, float]:
    """Return what the running nodes of each name have reported as done, by the number of the name."""
    number_of = {name: number for number, name in enumerate(named.names)}
    found: defaultdict[int, float] = defaultdict(float)
    for row, rare in nodes.rare.items():
        node = nodes.names[row]
        if rare.progress and nodes.at(row).state is NodeState.RUNNING and not is_part(node) and node not in own:
            found[number_of[kind_of(node)]] += rare.progress
    return found


def failed_first(groups: Sequence[NodeGroup], shown: int) -> list[NodeGroup]:
    """Return so many groups: those with failures first, then the others in their order.

    If there are more, groups that run stay before those that wait, and these before those that have ended.
    """

    def urgency(group: NodeGroup) -> int:
        if group.failed:
            return 0
        if group.counts.get(NodeState.RUNNING) or group.part:
            return 1
        return 3 if group.has_ended else 2

    chosen = {place for place, _ in sorted(enumerate(groups), key=lambda each: urgency(each[1]))[:shown]}
    kept = [group for place, group in enumerate(groups) if place in chosen]
    return sorted(kept, key=lambda group: not group.failed)
