"""Arrays of a run as users see them: one node with a state, made of the states of its parts, and its elements by state.

A part is a node to the run machine, and nothing that a user has written. So what is shown has the array in place of its parts. Pure.

Source: ADR 0055.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dag.run.node_facts import STATES, Rows
from dag.run.node_table import NodeRecord, NodeTable
from dag.run.states import NODE_ENDS, NodeState
from dag.spec.array_forms import array_key, elements_of, is_stream, items_of
from dag.spec.spec import DagSpec
from mesh.core.ids import NodeId
from mesh.stages.arrays import EACH, array_of, is_part, ranges_of, share, stream_share, stream_starts
from mesh.stages.messages import FailedElement

#: Order in which the state of one part stands for an array that has not ended.
_FIRST = (NodeState.RUNNING, NodeState.ASSIGNED, NodeState.BLOCKED)
#: Characters of the indices of failed elements in the view of an array.
INDICES_CHARS_MAX = 500


def shown_name(node: NodeId) -> NodeId:
    """Return the node that a user has written: the array of a part."""
    return NodeId(array_of(node))


def shown_counts(nodes: NodeTable) -> dict[NodeState, int]:
    """Return the number of nodes per state, an array as one, without states that no node has."""
    arrays = nodes.arrays()
    if not arrays:
        return nodes.counts()
    counts = Counter({state: count for state, count in nodes.counts().items() if count})
    for array, parts in arrays.items():
        counts.subtract(STATES[number] for number in nodes.columns.state[parts].tolist())
        counts[nodes.at(array).state] -= 1
        counts[shown_state_of(nodes, array)] += 1
    return {state: counts[state] for state in STATES if counts[state]}


def shown_rows(nodes: NodeTable) -> Iterator[tuple[int, NodeState]]:
    """Yield the row and the shown state of each node that a user has written."""
    arrays = nodes.arrays()
    for row, name in enumerate(nodes.names):
        if not is_part(name):
            yield row, shown_state_of(nodes, row) if row in arrays else nodes.at(row).state


def shown_state_of(nodes: NodeTable, array: int) -> NodeState:
    """Return the state of an array, by its row."""
    own, parts = nodes.at(array).state, nodes.arrays().get(array)
    if parts is None or own is NodeState.SUCCEEDED:
        return own
    found = nodes.states_of(parts)
    if own in NODE_ENDS:
        return NodeState.FAILED if NodeState.FAILED in found else own
    if own not in (NodeState.WAITING, NodeState.ASSIGNED):
        return own
    if NodeState.SUCCEEDED in found:
        return NodeState.RUNNING
    return next((state for state in _FIRST if state in found), own)


@dataclass(frozen=True, slots=True)
class Element:
    """Element of an array."""

    index: int
    state: NodeState
    attempt: int
    type_name: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayCounts:
    """Elements of an array by state."""

    node: NodeId
    state: NodeState
    parts: int
    elements: int | None  #: None: not known yet.
    counts: Mapping[NodeState, int]  #: Until their number is known: those that have succeeded while their list grew.
    failed: str  #: Indices of failed elements, like `3, 7-9`; cut to `INDICES_CHARS_MAX`.


class ArrayElements:
    """Elements of one array.

    Args:
        nodes: The nodes of the run.
        spec: Its graph.
        array: A node whose function is called for each element.
    """

    def __init__(self, nodes: NodeTable, spec: DagSpec, array: NodeId) -> None:
        self._nodes = nodes
        self._row = nodes.row(array)
        self._parts: Rows = nodes.arrays().get(self._row, np.zeros(0, np.intp))
        self.of = _elements_in(nodes, spec, self._row, self._parts)
        self._is_stream = _is_stream(spec, array)

    def counts(self) -> ArrayCounts:
        """Return the elements by state."""
        found: Counter[NodeState] = Counter()
        failed: list[int] = []
        if self.of is None and self._is_stream:
            found.update(self._ended_so_far())
        elif self.of is not None:
            for span, part in self._each_part():
                done = self._failed_of(part)
                if part.state is NodeState.FAILED:
                    lost = len(done) or len(span)
                    failed += [element.index for element in done] or span
                    found[NodeState.FAILED] += lost
                    found[NodeState.SUCCEEDED] += len(span) - lost
                    continue
                ended = round((part.progress or 0.0) * len(span)) if part.state not in NODE_ENDS else 0
                running = int(part.state is NodeState.RUNNING and ended < len(span))
                found[NodeState.SUCCEEDED] += ended
                found[NodeState.RUNNING] += running
                found[NodeState.ASSIGNED if running else part.state] += len(span) - ended - running
        words = ranges_of(sorted(failed))
        return ArrayCounts(
            node=self._nodes.names[self._row],
            state=shown_state_of(self._nodes, self._row),
            parts=len(self._parts),
            elements=self.of,
            counts={state: count for state, count in found.items() if count},
            failed=words if len(words) <= INDICES_CHARS_MAX else f"{words[:INDICES_CHARS_MAX].rpartition(',')[0]}, …",
        )

    def page(self, state: NodeState | None, after: int, limit: int) -> list[Element]:
        """Return the first elements with a greater index, in one state or all; of a part that has not ended, by its own state."""
        found: list[Element] = []
        for span, part in self._each_part():
            if span.stop <= after + 1 or (state is not None and part.state not in (state, NodeState.FAILED)):
                continue
            failed = {element.index: element for element in self._failed_of(part)}
            for index in span[max(0, after + 1 - span.start) :]:
                one = _element(index, part, failed)
                if state in (None, one.state):
                    found.append(one)
                    if len(found) >= limit:
                        return found
        return found

    def _each_part(self) -> Iterator[tuple[range, NodeRecord]]:
        span_of = stream_share if self._is_stream else share
        for number, row in enumerate(self._parts.tolist()):
            yield span_of(self.of or 0, number, len(self._parts)), self._nodes.at(row)

    def _ended_so_far(self) -> Counter[NodeState]:
        """Return the elements of parts that ran before the length of their list was known: all of these parts are full."""
        starts = stream_starts(len(self._parts))
        ended = self._nodes.are(self._nodes.columns.state[self._parts[:-1]], (NodeState.SUCCEEDED,))
        return Counter({NodeState.SUCCEEDED: sum(starts[number + 1] - starts[number] for number in np.flatnonzero(ended).tolist())})

    @staticmethod
    def _failed_of(part: NodeRecord) -> tuple[FailedElement, ...]:
        return part.failure.elements if part.failure is not None else ()


def _element(index: int, part: NodeRecord, failed: Mapping[int, FailedElement]) -> Element:
    if part.state is not NodeState.FAILED:
        return Element(index, part.state, part.attempt)
    if index in failed:
        return Element(index, NodeState.FAILED, failed[index].attempt, failed[index].type_name, failed[index].message)
    if failed:  # All others of the part have returned.
        return Element(index, NodeState.SUCCEEDED, part.attempt)
    failure = part.failure
    words = (failure.type_name, failure.message) if failure is not None else ("", "")
    return Element(index, NodeState.FAILED, part.attempt, *words)


def arrays_in(nodes: NodeTable, spec: DagSpec) -> list[NodeId]:
    """Return the nodes whose function is called for each element of a list."""
    if not nodes.arrays():
        return []
    return [nodes.names[row] for row in nodes.arrays() if _each_form(spec, nodes.names[row]) is not None]


def _each_form(spec: DagSpec, node: NodeId) -> dict[str, object] | None:
    place = spec.calls.place_of.get(node)
    if place is None:
        return None
    shape = spec.calls.shapes[int(spec.calls.shape[place])]
    return next((form for form in (*shape.args, *shape.kwargs.values()) if array_key(form) == EACH), None)


def _is_stream(spec: DagSpec, node: NodeId) -> bool:
    """Return whether the parts of an array, or of the one whose parts it follows, may begin before their list is complete."""
    while (form := _each_form(spec, node)) is not None and not is_stream(form):
        items = items_of(form)
        if "parts" in form or not isinstance(items, dict) or items.keys() != {"$ref"}:
            return False
        node = spec.calls.inputs_of(spec.calls.place_of[node])[items["$ref"]]
    return form is not None


def _elements_in(nodes: NodeTable, spec: DagSpec, row: int, parts: Rows) -> int | None:
    form = _each_form(spec, nodes.names[row])
    written = elements_of(form) if form is not None else None
    if written is not None:
        return written
    if row in nodes.rare and nodes.rare[row].elements is not None:
        return nodes.rare[row].elements
    failures = (nodes.rare[part].failure for part in parts.tolist() if part in nodes.rare)
    return next((failure.of for failure in failures if failure is not None and failure.of is not None), None)
