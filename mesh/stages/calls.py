"""Calls of functions as columns: one value for a thousand calls instead of a thousand objects.

Most calls of a graph share their function and the shape of their arguments, and differ in the nodes that they read and in a few plain
values. So a call is a row of numbers: its function and its shape, each a place in a table, then its inputs and its plain values.
`mesh.stages.call_shapes` describes shapes.

Source: compressed sparse rows, as graph libraries store edges; ADR 0053.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mesh.core.counting import counted
from mesh.core.ids import NodeId
from mesh.stages.call_shapes import BadColumns, Form, Shape, blobs_of, filled

Numbers = npt.NDArray[np.uint32]


def numbers(values: Iterable[int]) -> Numbers:
    """Return a column of these numbers."""
    return np.fromiter(values, dtype=np.uint32)


class Call(NamedTuple):
    """A call as a row."""

    function: str
    args: tuple[Form, ...]
    kwargs: dict[str, Form]
    inputs: tuple[NodeId, ...]  #: Nodes that the call reads, each once, in the order of first use.
    after: tuple[NodeId, ...]  #: Nodes that it waits for without their values.
    kind: int


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls as columns; the entries at one place of all columns describe one call.

    A number below `len(ids)` names a call of these columns, a larger one a node of `outside`.
    """

    ids: tuple[NodeId, ...]
    functions: tuple[str, ...]  #: `call:module:qualname` or `blob:<sha256>`.
    shapes: tuple[Shape, ...]
    function: Numbers  #: Place in `functions` of each call.
    shape: Numbers  #: Place in `shapes` of each call.
    kind: Numbers  #: Place in a table of the owner: options, or what these ask for.
    inputs: Numbers  #: Nodes that each call reads, each once, in the order of first use: as many as its shape has.
    values: Sequence[Any] = ()  #: Plain values of each call: as many as its shape has.
    ordered: Numbers = field(default_factory=lambda: np.zeros(0, np.uint32))  #: Calls that wait for a node without its value, in order,
    after: Numbers = field(default_factory=lambda: np.zeros(0, np.uint32))  #: and the node that each waits for.
    outside: tuple[NodeId, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def input_ptr(self) -> npt.NDArray[np.int64]:
        """Return the place in `inputs` where those of each call begin, and their number as the last one."""
        return _ends(self.shapes, [shape.inputs for shape in self.shapes], self.shape)

    @cached_property
    def value_ptr(self) -> npt.NDArray[np.int64]:
        """Return the place in `values` where those of each call begin, and their number as the last one."""
        return _ends(self.shapes, [shape.values for shape in self.shapes], self.shape)

    @cached_property
    def after_ptr(self) -> npt.NDArray[np.int64]:
        """Return the place in `after` where those of each call begin, and their number as the last one."""
        return np.searchsorted(self.ordered, np.arange(len(self) + 1))

    @cached_property
    def place_of(self) -> dict[NodeId, int]:
        """Return the place of each call."""
        return {node: place for place, node in enumerate(self.ids)}

    @cached_property
    def _rows(self) -> _Rows:
        return _Rows(self)

    def inputs_of(self, place: int) -> tuple[NodeId, ...]:
        """Return the nodes that a call reads, each once, in the order of first use."""
        return self._rows.inputs(place)

    def after_of(self, place: int) -> tuple[NodeId, ...]:
        """Return the nodes that a call waits for without their values."""
        return self._rows.after(place)

    def call(self, place: int) -> Call:
        """Return a call as a row."""
        rows = self._rows
        shape, inputs, values = self.shapes[rows.shape[place]], rows.inputs(place), rows.values(place)
        return Call(
            self.functions[rows.function[place]],
            tuple([filled(form, inputs, values) for form in shape.args]),
            {name: filled(form, inputs, values) for name, form in shape.kwargs.items()} if shape.kwargs else {},
            inputs,
            rows.after(place),
            rows.kind[place],
        )

    def row(self, place: int) -> tuple[int, int, tuple[NodeId, ...], Sequence[Any]]:
        """Return the places of a call's function and shape in their tables, the nodes that it reads, and its plain values."""
        rows = self._rows
        return rows.function[place], rows.shape[place], rows.inputs(place), rows.values(place)

    def alike(self, place: int) -> tuple[int, int]:
        """Return a key that calls of the same function and kind have in common."""
        rows = self._rows
        return rows.function[place], rows.kind[place]

    def kind_of(self, place: int) -> int:
        """Return the kind of a call."""
        return self._rows.kind[place]

    def function_of(self, node: NodeId) -> str:
        """Return the function of a call."""
        return self.functions[self._rows.function[self.place_of[node]]]

    def function_names(self) -> Iterator[str]:
        """Yield the function of each call."""
        return map(self.functions.__getitem__, self._rows.function)

    def edges(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return all edges as (nodes that are waited for, calls that wait): those for values first, then those for order."""
        readers = np.repeat(np.arange(len(self)), np.diff(self.input_ptr))
        return np.concatenate((self.inputs, self.after)).astype(np.int64), np.concatenate((readers, self.ordered)).astype(np.int64)

    def needs(self) -> Iterator[tuple[NodeId, ...]]:
        """Yield the nodes that each call reads or waits for, each once."""
        rows = self._rows
        return (rows.inputs(place) + rows.after(place) for place in range(len(self)))

    def blobs(self) -> frozenset[str]:
        """Return the hashes of the pickled bytes that the calls name: functions, and arguments that JSON cannot carry."""
        code = (function.removeprefix("blob:") for function in self.functions if function.startswith("blob:"))
        forms = (form for shape in self.shapes for form in (*shape.args, *shape.kwargs.values()))
        return frozenset((*code, *(sha256 for form in forms for sha256 in blobs_of(form))))

    def with_order(self, ordered: Numbers, after: Numbers) -> Calls:
        """Return the calls with other edges for the order alone: calls that wait, in order, and the node that each waits for."""
        return replace(self, ordered=ordered, after=after)

    def take(self, places: npt.NDArray[np.int64]) -> Calls:
        """Return some of the calls as columns of their own, in this order. Nodes for the order alone are kept only among these calls."""
        number = len(places)
        own = np.full(len(self) + len(self.outside), -1, np.int64)
        own[places] = np.arange(number)
        inputs = self.inputs[_gathered(self.input_ptr, places)].astype(np.int64)
        foreign = np.unique(inputs[own[inputs] < 0])
        own[foreign] = np.arange(number, number + len(foreign))
        ordered, after = self.ordered, self.after
        if len(ordered):
            waits, needed = own[ordered].astype(np.uint32), own[after].astype(np.uint32)  # A node outside has a large number, or -1.
            kept = np.nonzero((waits < number) & (needed < number))[0]
            by_call = kept[np.argsort(waits[kept], kind="stable")]
            ordered, after = waits[by_call], needed[by_call]
        functions, function = _part_of(self.functions, self.function[places])
        shapes, shape = _part_of(self.shapes, self.shape[places])
        values = [self.values[place] for place in _gathered(self.value_ptr, places).tolist()] if len(self.values) else ()
        return Calls(
            ids=tuple([self.ids[place] for place in places.tolist()]),
            functions=functions,
            shapes=shapes,
            function=function,
            shape=shape,
            kind=self.kind[places],
            inputs=own[inputs].astype(np.uint32),
            values=values,
            ordered=ordered,
            after=after,
            outside=tuple([self._name(place) for place in foreign.tolist()]),
        )

    def _name(self, number: int) -> NodeId:
        return self.ids[number] if number < len(self.ids) else self.outside[number - len(self.ids)]


class _Rows:
    """Rows of columns: lists of Python's integers, which are cheaper to read one by one than arrays."""

    def __init__(self, calls: Calls) -> None:
        self._names = calls.ids + calls.outside
        self.function: list[int] = calls.function.tolist()
        self.shape: list[int] = calls.shape.tolist()
        self.kind: list[int] = calls.kind.tolist()
        self._inputs, self._input_ptr = calls.inputs.tolist(), calls.input_ptr.tolist()
        self._values, self._value_ptr = calls.values, calls.value_ptr.tolist()
        self._after, self._after_ptr = calls.after.tolist(), calls.after_ptr.tolist() if len(calls.after) else None

    def inputs(self, place: int) -> tuple[NodeId, ...]:
        names = self._names
        return tuple([names[number] for number in self._inputs[self._input_ptr[place] : self._input_ptr[place + 1]]])

    def values(self, place: int) -> Sequence[Any]:
        return self._values[self._value_ptr[place] : self._value_ptr[place + 1]]

    def after(self, place: int) -> tuple[NodeId, ...]:
        if self._after_ptr is None:
            return ()
        names = self._names
        return tuple([names[number] for number in self._after[self._after_ptr[place] : self._after_ptr[place + 1]]])


def _ends(table: Sequence[Shape], counts: list[int], places: Numbers) -> npt.NDArray[np.int64]:
    ends = np.zeros(len(places) + 1, np.int64)
    if len(table):
        np.cumsum(np.array(counts, np.int64)[places], out=ends[1:])
    return ends


def _gathered(ptr: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of all entries of these rows, row after row."""
    starts, counts = ptr[places], ptr[places + 1] - ptr[places]
    ends = np.cumsum(counts)
    rows: npt.NDArray[np.int64] = np.repeat(starts - (ends - counts), counts)
    return rows + np.arange(len(rows))


def _part_of(table: tuple[Any, ...], places: Numbers) -> tuple[tuple[Any, ...], Numbers]:
    """Return the entries of a table that are used, in the order of the table, and the places in it."""
    used = np.unique(places)
    if len(used) == len(table):
        return table, places
    return tuple(table[place] for place in used.tolist()), np.searchsorted(used, places).astype(np.uint32)


_U32 = np.dtype("<u4")


def packed(calls: Calls) -> dict[str, Any]:
    """Return the columns, without the tables, as text, bytes of arrays and JSON. A column that is left out is empty, or all 0."""
    found: dict[str, Any] = {"ids": "\n".join(calls.ids)}
    for name, places in (("function", calls.function), ("shape", calls.shape), ("kind", calls.kind)):
        if places.any():
            found[name] = raw_of(places)
    if len(calls.inputs):
        found["inputs"] = raw_of(calls.inputs)
    if len(calls.values):
        found["values"] = json_of(list(calls.values))
    if len(calls.after):
        found["after"] = raw_of(np.stack((calls.ordered, calls.after), axis=1))
    return found


def unpacked(raw: Mapping[str, Any], functions: Sequence[str], shapes: Sequence[Sequence[Any]], outside: tuple[NodeId, ...] = ()) -> Calls:
    """Return the calls of columns that this project has packed: only lengths and shapes are checked. Raises BadColumns, ValueError."""
    ids = tuple(map(NodeId, raw["ids"].split("\n")))
    after = array_of(raw, "after")
    calls = Calls(
        ids=ids,
        functions=tuple(functions),
        shapes=tuple([Shape.counted(args, kwargs) for args, kwargs in shapes]),
        function=array_of(raw, "function", len(ids)),
        shape=array_of(raw, "shape", len(ids)),
        kind=array_of(raw, "kind", len(ids)),
        inputs=array_of(raw, "inputs"),
        values=json.loads(raw["values"]) if "values" in raw else (),
        ordered=after[::2],
        after=after[1::2],
        outside=outside,
    )
    if len(calls.inputs) != calls.input_ptr[-1] or len(calls.values) != calls.value_ptr[-1]:
        raise BadColumns(("inputs",), "the shapes have other numbers of inputs or values")
    return calls


def array_of(raw: Mapping[str, Any], name: str, count: int | None = None) -> Numbers:
    """Return an array of a flat map; zeros, if it is left out.

    Args:
        count: How many numbers it must have; None: any number of them.

    Raises:
        BadColumns: Its length is wrong.
    """
    data = raw.get(name)
    if data is None:
        return np.zeros(count or 0, np.uint32)
    if len(data) % _U32.itemsize:
        raise BadColumns((name,), f"{counted(len(data), 'byte')} are no array of 32-bit integers")
    found: Numbers = np.frombuffer(data, _U32).astype(np.uint32, copy=False)
    if count is not None and len(found) != count:
        raise BadColumns((name,), f"has {len(found)} numbers; it must have {count}")
    return found


def json_of(value: Any) -> bytes:
    """Return plain data as JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def raw_of(places: npt.NDArray[Any]) -> bytes:
    """Return the bytes of an array."""
    return bytes(places.astype(_U32, copy=False).tobytes())
