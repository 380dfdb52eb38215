"""A graph as columns: what a Python client sends, what the store keeps, and what plans are made from.

A message is one flat msgpack map. Its arrays are little-endian 32-bit integers without signs; what is left of the graph is JSON.

    graph      JSON    `dag/1` without `nodes` and `blobs`
    ids        text    the ids of the nodes, one a line
    tables     JSON    {"functions": ["call:m:f", "blob:<sha256>", "program:<command>", "control:cond"],
                       "shapes": [[args, kwargs], …], "options": [{…}, …]}
    function, shape, kind
               array   place of each node's function, shape and options in their table; left out: 0 for all nodes
    inputs     array   nodes that each node reads, by place: as many as its shape has
    values     JSON    list of the plain values of each node: as many as its shape has
    after      array   pairs: a node, and a node that it waits for without its value
    blobs      bytes   the pickled bytes one after the other
    blob_sizes array   their sizes

`mesh.stages.call_shapes` describes shapes. Everything is bounded by the size of the message: the map holds no other map and no list.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np

from dag.errors import SpecError
from dag.spec.control import as_json, is_control
from dag.spec.document import program_of
from dag.spec.forms import sha256_of
from dag.spec.strict_json import TWICE, pointer
from mesh.core.counting import counted
from mesh.core.functions import PROGRAM
from mesh.stages.call_shapes import Form, Shape, ShapeWriter
from mesh.stages.calls import Calls, array_of, json_of, numbers, packed, raw_of

#: Media type of a message.
MEDIA_TYPE = "application/vnd.schedulemesh.dag+msgpack"
#: The keys of a message, with their types.
KEYS: Mapping[str, type] = {
    "graph": bytes,
    "ids": str,
    "tables": bytes,
    "function": bytes,
    "shape": bytes,
    "kind": bytes,
    "inputs": bytes,
    "values": bytes,
    "after": bytes,
    "blobs": bytes,
    "blob_sizes": bytes,
}
_NEEDED = ("graph", "ids", "tables")
_WORDS_OF_TYPE: Mapping[type, str] = {bytes: "bytes", str: "text"}


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphColumns:
    """A graph as columns. `calls.kind` is the place of a node's options in `options`."""

    head: Mapping[str, Any]  #: `dag/1` as plain JSON, without its nodes and blobs.
    calls: Calls
    options: tuple[Mapping[str, Any], ...]
    blobs: Mapping[str, bytes] = field(default_factory=dict)  #: Pickled bytes by their SHA-256.

    def packed(self, *, with_blobs: bool = True) -> bytes:
        """Return the message."""
        calls = self.calls
        tables = {
            "functions": calls.functions,
            "shapes": [[shape.args, shape.kwargs] for shape in calls.shapes],
            "options": self.options,
        }
        message: dict[str, Any] = {"graph": json_of(self.head), "tables": json_of(tables), **packed(calls)}
        if with_blobs and self.blobs:
            message["blobs"] = b"".join(self.blobs.values())
            message["blob_sizes"] = raw_of(numbers(map(len, self.blobs.values())))
        return bytes(msgpack.packb(message))

    def as_json(self) -> dict[str, Any]:
        """Return the graph as `dag/1` in plain JSON, with the blobs as base64."""
        nodes = {node: self._node(place) for place, node in enumerate(self.calls.ids)}
        outputs = self.head["outputs"]
        rest = {key: value for key, value in self.head.items() if key != "outputs"}
        blobs = {sha256: base64.b64encode(data).decode() for sha256, data in self.blobs.items()}
        return {**rest, "nodes": nodes, "outputs": outputs, **({"blobs": blobs} if blobs else {})}

    def _node(self, place: int) -> dict[str, Any]:
        call = self.calls.call(place)
        kind, _, name = call.function.partition(":")
        described: dict[str, Any]
        if is_control(call.function):
            described = as_json(call.function, call.args)
        elif call.function.startswith(PROGRAM):
            described = {"program": program_of(call.args, call.kwargs)}
        else:
            described = {"call": name} if kind == "call" else {"function": {"$blob": name}}
            described |= {"args": list(call.args), "kwargs": call.kwargs}
        described["after"] = list(call.after)
        described["options"] = dict(self.options[call.kind])
        return {key: value for key, value in described.items() if value or key == "sleep"}


class ColumnsBuilder:
    """Appends nodes to columns, each after the nodes that it names, or with the places of all nodes known beforehand."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        self.shapes: dict[str, int] = {}
        self.options: dict[str, int] = {}
        self._shape_table: list[Shape] = []
        self._options_table: list[Mapping[str, Any]] = []
        self.ids: list[str] = []
        self.function: list[int] = []
        self.shape: list[int] = []
        self.kind: list[int] = []
        self.inputs: list[int] = []
        self.values: list[Any] = []
        self.ordered: list[int] = []
        self.after: list[int] = []

    def function_at(self, function: str) -> int:
        """Return the place of a function in its table."""
        return self.functions.setdefault(function, len(self.functions))

    def options_at(self, options: Mapping[str, Any]) -> int:
        """Return the place of options in their table."""
        key = json.dumps(options, sort_keys=True) if options else ""
        place = self.options.setdefault(key, len(self.options))
        if place == len(self._options_table):
            self._options_table.append(options)
        return place

    def shape_at(self, args: list[Form], kwargs: dict[str, Form], written: ShapeWriter) -> int:
        """Return the place of a shape in its table."""
        key = repr((args, kwargs))  # As exact as JSON for plain data, and a third of its time.
        place = self.shapes.setdefault(key, len(self.shapes))
        if place == len(self._shape_table):
            self._shape_table.append(Shape(tuple(args), kwargs, len(written.inputs), len(written.values)))
        return place

    def append(self, node: str, function: int, shape: int, kind: int) -> None:
        """Append a node; the caller appends its inputs and values."""
        self.ids.append(node)
        self.function.append(function)
        self.shape.append(shape)
        self.kind.append(kind)

    def calls(self) -> Calls:
        """Return the columns."""
        return Calls(
            ids=tuple(self.ids),  # type: ignore[arg-type]  # ids are text; NodeId() of each would cost more than its node
            functions=tuple(self.functions),
            shapes=tuple(self._shape_table),
            function=np.array(self.function, np.uint32),
            shape=np.array(self.shape, np.uint32),
            kind=np.array(self.kind, np.uint32),
            inputs=np.array(self.inputs, np.uint32),
            values=self.values,
            ordered=np.array(self.ordered, np.uint32),
            after=np.array(self.after, np.uint32),
        )

    def options_table(self) -> tuple[Mapping[str, Any], ...]:
        """Return the options that `Calls.kind` refers to."""
        return tuple(self._options_table)


def unpacked(message: bytes) -> dict[str, Any]:
    """Return the flat map of a message; its keys and their types are those of `KEYS`.

    Raises:
        SpecError: Lists all problems of its form.
    """
    try:
        raw = msgpack.unpackb(message, max_array_len=0, max_map_len=len(KEYS), object_pairs_hook=_once, ext_hook=_no_extension)
    except (ValueError, TypeError, msgpack.UnpackException) as broken:
        raise SpecError((("", f"not a msgpack map of columns: {broken or type(broken).__name__}"),)) from None
    if not isinstance(raw, dict):
        raise SpecError((("", "must be a msgpack map: a graph as columns"),))
    problems: list[tuple[str, str]] = []
    for name, value in raw.items():
        wanted = KEYS.get(name)
        if wanted is None:
            problems.append((pointer("", str(name)[:200]), f"unknown key; known are {', '.join(KEYS)}"))
        elif type(value) is not wanted:
            problems.append((f"/{name}", f"must be {_WORDS_OF_TYPE[wanted]}"))
    problems += [(f"/{name}", "is missing") for name in _NEEDED if name not in raw]
    if problems:
        raise SpecError(tuple(problems))
    return raw


def blobs_of_message(raw: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the pickled bytes by their SHA-256. Raises SpecError if the sizes do not add up."""
    sizes, data = array_of(raw, "blob_sizes"), raw.get("blobs", b"")
    size = int(sizes.sum(dtype=np.int64))
    if size != len(data):
        raise SpecError((("/blob_sizes", f"the sizes add up to {counted(size, 'byte')}, `blobs` has {len(data)}"),))
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    parts = (data[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True))
    return {sha256_of(part): part for part in parts}


def _once(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(TWICE)
    return found


def _no_extension(code: int, _data: bytes) -> Iterator[Any]:
    raise ValueError(f"the extension type {code} means nothing here")
