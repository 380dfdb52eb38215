"""Graphs that grow: a function returns nodes in place of a value, and they are added to the graph of its run.

A worker sends a line with the node and its attempt, and then the nodes as columns (`dag.spec.columns`) whose only output is the value. The
root checks them as it checks a submission. A node `child` that `parent` returned is named `parent~child`; no name of a client has a `~`.

The node that returned them becomes one of the root's own, `control:grown`: it reads the output of these nodes, and has its value. So the
nodes behind it wait as before. New nodes without needs take over what their parent waited for, where that decides whether they run:
those of cleanup are cleanup.

The store keeps the graph as it was submitted, and each growth beside it. `grown` makes one graph of them. Pure.

Source: ADR 0064; continuations of Ray's former Workflow library, join apps of Parsl.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from dag.errors import SpecError
from dag.spec.columns import GraphColumns
from dag.spec.control import GROWN, ON_SUCCESS, When
from dag.spec.forms import escaped, filled
from dag.spec.options import NodeOptions
from dag.spec.spec import DagSpec, kept_form, load, parse_columns
from mesh.core.counting import counted
from mesh.core.ids import NodeId
from mesh.stages.call_shapes import Shape
from mesh.stages.calls import Calls, Numbers

#: Between the name of a node and the names of the nodes that it returned.
BETWEEN = "~"
#: Longest name of a parent that stands whole before its children's; of a longer one a hash does.
_PARENT_CHARS_MAX = 80
_HASH_CHARS = 16
_SMALLER = "pass large arguments as values of nodes, or as addresses of files"
_OF_PARENT = Shape(args=({"$ref": 0},), kwargs={}, inputs=1, values=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthLimits:
    """Limits on what functions may add to the graph of their run."""

    nodes_max: int = 10_000  #: Nodes that one node returns.
    total_max: int = 50_000  #: Nodes that all nodes of a run return.
    depth_max: int = 100  #: Growths within each other: a node of the submitted graph returns nodes at depth 1.
    bytes_max: int = 8 * 2**20  #: Bytes of the nodes that one node returns, with their pickled functions and arguments.
    total_bytes_max: int = 64 * 2**20  #: As `bytes_max`, of all nodes of a run.

    def problem_of(self, growth: Growth, before: Sequence[Growth]) -> str | None:
        """Return why the graph may not grow so, with the remedy; None: it may."""
        if growth.nodes > self.nodes_max:
            remedy = "return fewer, or map a function over a list (dag.map), which is one node"
            return f"returned {counted(growth.nodes, 'node')}; a node may return {self.nodes_max} at most: {remedy}"
        if growth.depth > self.depth_max:
            remedy = "end the recursion earlier, or let one function do several of its steps"
            return f"returned nodes at depth {growth.depth}; graphs may grow to depth {self.depth_max}: {remedy}"
        total = growth.nodes + sum(each.nodes for each in before)
        if total > self.total_max:
            remedy = "end the recursion earlier, or map functions over lists (dag.map), which are one node each"
            return f"returned nodes with which the graph has grown by {total}; a run may grow by {self.total_max}: {remedy}"
        size_bytes = growth.size_bytes + sum(each.size_bytes for each in before)
        if size_bytes > self.total_bytes_max:
            words = f"the graph has grown by {counted(size_bytes, 'byte')}; a run may grow by {self.total_bytes_max}"
            return f"returned nodes with which {words}: {_SMALLER}"
        return None

    def check_size(self, size_bytes: int) -> None:
        """Raise SpecError if what a node returned has too many bytes."""
        if size_bytes > self.bytes_max:
            raise SpecError((("", f"the nodes have {counted(size_bytes, 'byte')}, {self.bytes_max} at most: {_SMALLER}"),))


GROWTH_LIMITS = GrowthLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Nodes that the function of a node has returned."""

    node: NodeId  #: The node that returned them.
    depth: int  #: 1: a node of the submitted graph has returned them.
    nodes: int  #: How many they are.
    size_bytes: int  #: Bytes that came from the worker, with pickled functions and arguments.
    columns: bytes  #: As `dag.spec.spec.kept_form` returns them.

    def packed(self) -> bytes:
        """Return the growth as the store keeps it."""
        return bytes(msgpack.packb([self.node, self.depth, self.nodes, self.size_bytes, self.columns]))

    @classmethod
    def unpacked(cls, row: bytes) -> Growth:
        """Return a growth from its stored form. Raises ValueError if it is damaged."""
        node, depth, nodes, size_bytes, columns = msgpack.unpackb(row)
        return cls(node=NodeId(node), depth=depth, nodes=nodes, size_bytes=size_bytes, columns=columns)

    def names(self) -> tuple[NodeId, ...]:
        """Return the names of the added nodes, in their order."""
        return tuple(child_name(self.node, child) for child in _graph_in(self.columns).calls.ids)

    def value_of(self) -> NodeId:
        """Return the node whose value becomes that of the node that returned it."""
        (output,) = _graph_in(self.columns).outputs.values()
        return child_name(self.node, output.node)


def child_name(parent: NodeId, child: str) -> NodeId:
    """Return the name of a node that another one has returned."""
    return NodeId(f"{_family_of(parent)}{BETWEEN}{child}")


def _family_of(parent: NodeId) -> str:
    """Return what stands before the names of the nodes that this one returns."""
    if len(parent) <= _PARENT_CHARS_MAX:
        return parent
    return f"{BETWEEN}{hashlib.sha256(parent.encode()).hexdigest()[:_HASH_CHARS]}"


def depth_of(node: NodeId, growths: Iterable[Growth]) -> int:
    """Return how many growths within each other the node comes from; 0: it was submitted."""
    family, between, _ = node.rpartition(BETWEEN)
    return next((each.depth for each in growths if _family_of(each.node) == family), 0) if between else 0


def graph_returned(data: bytes, node: NodeId, attempt: int) -> DagSpec:
    """Return the checked nodes that a worker has sent.

    Raises:
        SpecError: They are not of this attempt of the node, or are no graph with one output; lists all problems.
        CycleError: They run in a circle.
    """
    line, _, message = data.partition(b"\n")
    if line != b"%s %d" % (node.encode(), attempt):
        raise SpecError((("", f"the bytes are not those of attempt {attempt} of node {node}"),))
    spec = parse_columns(message)
    outputs = tuple(spec.outputs.values())
    if len(outputs) != 1 or outputs[0].path:
        raise SpecError((("/outputs", "the value is that of one node; name one, without a path"),))
    return spec


def growth_of(node: NodeId, spec: DagSpec, size_bytes: int, before: Sequence[Growth]) -> Growth:
    """Return the growth by the nodes of a checked graph.

    Args:
        size_bytes: Bytes that came from the worker.
        before: The growths of the run so far.
    """
    depth = depth_of(node, before) + 1
    return Growth(node=node, depth=depth, nodes=len(spec.calls), size_bytes=size_bytes, columns=kept_form(spec))


@lru_cache(maxsize=1024)
def _graph_in(columns: bytes) -> DagSpec:
    """Return the graph of a growth; with each growth of a run, all earlier ones are read again."""
    return load(columns)


def grown(spec: DagSpec, growths: Sequence[Growth]) -> DagSpec:
    """Return the graph with all nodes that were returned, those behind the others."""
    if not growths:
        return spec
    building = _Building(spec)
    for growth in growths:
        building.add(growth)
    return building.result()


class _Building:
    """Appends the nodes of growths to the columns of a graph. Numbers of nodes are places in all columns."""

    def __init__(self, spec: DagSpec) -> None:
        self._spec = spec
        self._parts: list[Calls] = []
        self._firsts: list[int] = []  #: Place of the first node of each part.
        self._ids: list[NodeId] = []
        self._functions: dict[str, int] = {}
        self._function: list[Numbers] = []
        self._shapes: dict[str, tuple[int, Shape]] = {}
        self._shape: list[Numbers] = []
        self._options: dict[str, int] = {}
        self._option_at: list[tuple[NodeOptions, Mapping[str, Any]]] = []
        self._kind: list[Numbers] = []
        self._has_tolerant = False
        self._place_of: dict[NodeId, int] = {}
        self._value_of: dict[int, int] = {}  #: Each node that returned others, to the node whose value it has.
        self._after: dict[int, list[int]] = {}  #: Nodes that each waits for in order.
        self._append(spec, tuple(spec.calls.ids), spec.calls.shapes)

    def add(self, growth: Growth) -> None:
        """Append the nodes of a growth, and let their parent have the value of their output."""
        child, first = _graph_in(growth.columns), len(self._ids)
        params = {name: escaped(value) for name, value in child.params.items()}
        shapes = tuple(_without_params(shape, params) for shape in child.calls.shapes) if params else child.calls.shapes
        self._append(child, growth.names(), shapes)
        (output,) = child.outputs.values()
        parent = self._place_of[growth.node]
        self._pass_on_order(parent, child.calls, first)
        self._value_of[parent] = first + child.calls.place_of[NodeId(output.node)]

    def _append(self, spec: DagSpec, ids: tuple[NodeId, ...], shapes: tuple[Shape, ...]) -> None:
        calls, first = spec.calls, len(self._ids)
        functions = [self._functions.setdefault(function, len(self._functions)) for function in calls.functions]
        places = [self._shapes.setdefault(repr((shape.args, shape.kwargs)), (len(self._shapes), shape))[0] for shape in shapes]
        kinds = [self._kind_of(options, given) for options, given in zip(spec.options, spec.columns.options, strict=True)]
        for column, table, into in (
            (calls.function, functions, self._function),
            (calls.shape, places, self._shape),
            (calls.kind, kinds, self._kind),
        ):
            into.append(np.array(table, np.uint32)[column])
        self._place_of.update(zip(ids, range(first, first + len(ids)), strict=True))
        self._ids += ids
        self._parts.append(calls)
        self._firsts.append(first)
        for ordered, needed in zip(calls.ordered.tolist(), calls.after.tolist(), strict=True):
            self._after.setdefault(first + ordered, []).append(first + needed)

    def _kind_of(self, options: NodeOptions, given: Mapping[str, Any]) -> int:
        """Return the place of options in their table."""
        self._has_tolerant = self._has_tolerant or options.when not in (None, ON_SUCCESS)
        key = json.dumps(given, sort_keys=True)
        place = self._options.setdefault(key, len(self._options))
        if place == len(self._option_at):
            self._option_at.append((options, given))
        return place

    # -- cleanup -------------------------------------------------------------------------------------------------------

    def _pass_on_order(self, parent: int, children: Calls, first: int) -> None:
        """Let children without needs run when their parent did, if it is cleanup: although the run stops."""
        cleanup = self._cleanup() if self._has_tolerant else set()
        waited_for = self._after.pop(parent, [])
        if parent not in cleanup:
            return
        sources = (first + np.flatnonzero(np.diff(children.input_ptr) + np.diff(children.after_ptr) == 0)).tolist()
        when = self._option_at[self._kind_at(parent)][0].when or ON_SUCCESS
        if when == ON_SUCCESS:
            need = next(each for each in (*self._inputs_of(parent), *waited_for) if each in cleanup)
            self._after.update({source: [need] for source in sources})
            return
        self._set_when(parent, ON_SUCCESS)
        for source in sources:
            self._after[source] = list(waited_for)
            self._set_when(source, when)

    def _cleanup(self) -> set[int]:
        """Return the tolerant nodes and all that follows from them."""
        tolerant = np.array([options.when not in (None, ON_SUCCESS) for options, _ in self._option_at], np.bool_)
        found = set(np.flatnonzero(tolerant[np.concatenate(self._kind)]).tolist())
        followers: dict[int, list[int]] = {}
        for calls, first in zip(self._parts, self._firsts, strict=True):
            readers = np.repeat(np.arange(len(calls)), np.diff(calls.input_ptr))
            for need, reader in zip((calls.inputs.astype(np.int64) + first).tolist(), (readers + first).tolist(), strict=True):
                followers.setdefault(need, []).append(reader)
        for reader, needs in (*self._after.items(), *((parent, [value]) for parent, value in self._value_of.items())):
            for need in needs:
                followers.setdefault(need, []).append(reader)
        pending = list(found)
        while pending:
            fresh = {each for each in followers.get(pending.pop(), ()) if each not in found}
            found |= fresh
            pending += fresh
        return found

    def _inputs_of(self, node: int) -> list[int]:
        part, place = self._part_of(node)
        calls, first = self._parts[part], self._firsts[part]
        return [first + need for need in calls.inputs[calls.input_ptr[place] : calls.input_ptr[place + 1]].tolist()]

    def _part_of(self, node: int) -> tuple[int, int]:
        """Return the part that has the node, and its place there."""
        part = bisect_right(self._firsts, node) - 1
        return part, node - self._firsts[part]

    def _kind_at(self, node: int) -> int:
        part, place = self._part_of(node)
        return int(self._kind[part][place])

    def _set_when(self, node: int, when: When) -> None:
        options, given = self._option_at[self._kind_at(node)]
        part, place = self._part_of(node)
        self._kind[part][place] = self._kind_of(options.model_copy(update={"when": when}), {**given, "when": when})

    # -- the whole -----------------------------------------------------------------------------------------------------

    def result(self) -> DagSpec:
        """Return the whole graph."""
        grew = self._functions.setdefault(GROWN, len(self._functions))
        function, shape = np.concatenate(self._function), np.concatenate(self._shape)
        inputs = np.concatenate([calls.inputs.astype(np.int64) + first for calls, first in zip(self._parts, self._firsts, strict=True)])
        values = [value for calls in self._parts for value in calls.values]
        input_ptr = _joined([calls.input_ptr for calls in self._parts])
        value_ptr = _joined([calls.value_ptr for calls in self._parts])
        parents = np.array(sorted(self._value_of), np.int64)
        function[parents], shape[parents] = grew, len(self._shapes)
        drop = np.zeros(len(inputs), np.bool_)
        for parent in parents.tolist():
            drop[input_ptr[parent] : input_ptr[parent + 1]] = True
        before = np.concatenate([[0], np.cumsum(~drop)])
        inputs = np.insert(inputs[~drop], before[input_ptr[parents]], [self._value_of[parent] for parent in parents.tolist()])
        for parent in reversed(parents.tolist()):
            del values[value_ptr[parent] : value_ptr[parent + 1]]
        order = [(node, need) for node in sorted(self._after) for need in self._after[node]]
        pairs = np.array(order, np.uint32).reshape(-1, 2)
        calls = Calls(
            ids=tuple(self._ids),
            functions=tuple(self._functions),
            shapes=(*(shape for _, shape in self._shapes.values()), _OF_PARENT),
            function=function.astype(np.uint32),
            shape=shape.astype(np.uint32),
            kind=np.concatenate(self._kind).astype(np.uint32),
            inputs=inputs.astype(np.uint32),
            values=values,
            ordered=pairs[:, 0],
            after=pairs[:, 1],
        )
        options = tuple(given for _, given in self._option_at)
        columns = GraphColumns(head=self._spec.columns.head, calls=calls, options=options, blobs=self._spec.columns.blobs)
        return replace(self._spec, columns=columns, options=tuple(model for model, _ in self._option_at))


def _without_params(shape: Shape, params: Mapping[str, Any]) -> Shape:
    return replace(
        shape,
        args=tuple(filled(form, params) for form in shape.args),
        kwargs={name: filled(form, params) for name, form in shape.kwargs.items()},
    )


def _joined(pointers: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return row pointers of columns that stand one after the other."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(ptr) for ptr in pointers]))])
