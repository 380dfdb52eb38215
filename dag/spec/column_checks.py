"""Checks of a graph that comes as columns from an untrusted client: the same problems, in the same words, as for JSON.

Arrays are checked as arrays. Tables have few entries; each is checked once, at the first node that uses it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dag.errors import SpecError
from dag.spec.call_names import problem_of_call
from dag.spec.checks import (
    EDGES_MAX,
    FILLED_BYTES_MAX,
    LITERAL_BYTES_MAX,
    NAMES,
    NODES_MAX,
    SHAPE_BYTES_MAX,
    UNNAMED_BLOB,
    WHEN_WITHOUT_AFTER,
    HeadChecks,
    Problem,
    filled_words,
)
from dag.spec.columns import GraphColumns, blobs_of_message, unpacked
from dag.spec.control import ON_SUCCESS, conds_of, is_control, problems_of, with_gates
from dag.spec.document import GraphHead, ProgramSpec, program_of, validated
from dag.spec.forms import SHA256, scalar_bytes
from dag.spec.graph import Graph, order_of
from dag.spec.options import NodeOptions
from dag.spec.strict_json import is_writable, pointer, read_with_doubles
from mesh.core.counting import counted
from mesh.core.functions import PROGRAM, key_of
from mesh.core.ids import NodeId
from mesh.stages.call_shapes import PLAIN, BadColumns, Shape, filled
from mesh.stages.calls import Calls, Numbers, array_of, json_of

#: Characters of a wrong name, and wrong names, that a message shows.
_SHOWN_MAX = 200
_FUNCTION_RULE = "write call:module:qualname, blob:sha256 or program:command"


class ColumnChecks:
    """The checks of one message. `problems` come in the order of their discovery."""

    def __init__(self, message: bytes) -> None:
        self.problems: list[Problem] = []
        self.has_circle = False
        self.head: GraphHead | None = None
        self.options: tuple[NodeOptions, ...] = ()
        self._raw = unpacked(message)

    def run(self) -> GraphColumns | None:
        """Find all problems; return the columns if there are none.

        Raises:
            SpecError: The message is so wrong that nothing more can be said of the graph.
        """
        try:
            return self._checked()
        except BadColumns as wrong:
            raise SpecError(((_place(wrong, ""), str(wrong)),)) from None

    def _checked(self) -> GraphColumns | None:
        head_json = self._read("graph", dict)
        if head_json.keys() & {"nodes", "blobs"}:
            raise SpecError((("/graph", "holds `nodes` or `blobs`, which are columns in this form"),))
        ids = self._ids()
        functions, shapes, options = self._tables()
        columns = self._calls(ids, functions, shapes, len(options))
        blobs = blobs_of_message(self._raw)
        checks = _GraphChecks(head_json, columns)
        self.head, problems = validated(GraphHead, head_json)
        self.problems += problems
        self.options = self._checked_options(options, columns)
        checks.run(blobs, self.options if len(self.options) == len(options) else ())
        self.problems += checks.problems
        self.has_circle = checks.has_circle
        if self.head is None or self.problems:
            return None
        given = tuple(option.model_dump(exclude_defaults=True) for option in self.options)
        return GraphColumns(head=self.head.as_json(), calls=columns, options=given, blobs=blobs)

    def _read(self, name: str, kind: type) -> Any:
        """Return a JSON part of the message. Raises SpecError if it is not of this type."""
        try:
            value, doubles = read_with_doubles(self._raw[name])
        except SpecError as wrong:
            raise SpecError(
                tuple((place if name == "graph" and place else f"/{name}{place}", words) for place, words in wrong.problems)
            ) from None
        self.problems += doubles if name == "graph" else ((f"/{name}{place}", words) for place, words in doubles)
        if type(value) is not kind:
            raise SpecError(((f"/{name}", f"must be a JSON {'object' if kind is dict else 'list'}"),))
        return value

    def _ids(self) -> tuple[NodeId, ...]:
        text: str = self._raw["ids"]
        if not text:
            raise SpecError((("/nodes", "is empty; a graph has at least one node and one output"),))
        count = text.count("\n") + 1
        if count > NODES_MAX:
            raise SpecError((("/nodes", f"{counted(count, 'node')}; a graph has {NODES_MAX} at most"),))
        ids = text.split("\n")
        if len(set(ids)) != count:
            seen: set[str] = set()
            twice = [node for node in ids if node in seen or seen.add(node)]  # type: ignore[func-returns-value]  # notes it
            raise SpecError(tuple((pointer("/nodes", node[:_SHOWN_MAX]), "two nodes have this id") for node in twice[:_SHOWN_MAX]))
        return tuple(ids)  # type: ignore[arg-type]  # ids are text

    def _tables(self) -> tuple[list[str], list[Shape], list[Any]]:
        tables = self._read("tables", dict)
        unknown = [name for name in tables if name not in ("functions", "shapes", "options")]
        problems = [(pointer("/tables", name), "unknown key; known are functions, shapes, options") for name in unknown]
        lists = {name: tables.get(name) for name in ("functions", "shapes", "options")}
        problems += [
            (f"/tables/{name}", "must be a list with an entry or more")
            for name, table in lists.items()
            if not table or type(table) is not list
        ]
        if problems:
            raise SpecError(tuple(problems))
        functions, shapes, options = lists["functions"], lists["shapes"], lists["options"]
        assert functions is not None and shapes is not None and options is not None  # noqa: S101, PT018  narrows the types
        problems += [
            (f"/tables/functions/{place}", "must be text") for place, function in enumerate(functions) if type(function) is not str
        ]
        found: list[Shape] = []
        for place, shape in enumerate(shapes):
            if type(shape) is not list or len(shape) != 2 or type(shape[0]) is not list or type(shape[1]) is not dict:  # noqa: PLR2004  args and kwargs
                problems.append((f"/tables/shapes/{place}", "must be a list of args, a list, and kwargs, an object"))
                continue
            try:
                found.append(Shape.checked(shape[0], shape[1]))
            except BadColumns as wrong:
                problems.append((_place(wrong, f"/tables/shapes/{place}"), str(wrong)))
        if problems:
            raise SpecError(tuple(problems))
        return functions, found, options

    def _calls(self, ids: tuple[NodeId, ...], functions: list[str], shapes: list[Shape], options: int) -> Calls:
        count, raw = len(ids), self._raw
        function, shape, kind = (array_of(raw, name, count) for name in ("function", "shape", "kind"))
        for name, places, size in (("function", function, len(functions)), ("shape", shape, len(shapes)), ("kind", kind, options)):
            if places.max() >= size:
                raise SpecError(((f"/{name}", f"{places.max()} is no place in a table of {size}"),))
            unused = np.nonzero(np.bincount(places, minlength=size) == 0)[0]
            if len(unused):
                table = "options" if name == "kind" else f"{name}s"
                raise SpecError(((f"/tables/{table}/{unused[0]}", "no node uses this entry; leave it out"),))
        users = np.bincount(shape, minlength=len(shapes)).tolist()
        reads = sum(each.inputs * used for each, used in zip(shapes, users, strict=True))
        if reads > EDGES_MAX:
            raise SpecError((("/nodes", f"{counted(reads, 'edge')}; a graph has {EDGES_MAX} at most"),))
        inputs = array_of(raw, "inputs", reads)
        after = array_of(raw, "after")
        if len(after) % 2:
            raise SpecError((("/after", f"has {len(after)} numbers; it must have pairs"),))
        for name, places in (("inputs", inputs), ("after", after)):
            if len(places) and places.max() >= count:
                raise SpecError(((f"/{name}", f"{places.max()} is no place of a node; there are {counted(count, 'node')}"),))
        ordered = after[::2]
        if np.any(ordered[1:] < ordered[:-1]):
            raise SpecError((("/after", "the pairs must be in the order of their first numbers"),))
        values = self._values(sum(each.values * used for each, used in zip(shapes, users, strict=True)))
        calls = Calls(
            ids=ids,
            functions=tuple(functions),
            shapes=tuple(shapes),
            function=function,
            shape=shape,
            kind=kind,
            inputs=inputs,
            values=values,
            ordered=ordered,
            after=after[1::2],
        )
        calls = _with_control(calls)
        needed, waiting = calls.edges()
        edges = np.sort(waiting * count + needed)
        if np.any(edges[1:] == edges[:-1]):
            raise SpecError((("/inputs", "a node names another node twice among its inputs and those in `after`"),))
        return calls

    def _values(self, count: int) -> list[Any]:
        if "values" not in self._raw:
            values: list[Any] = []
        else:
            text: bytes = self._raw["values"]
            try:
                values = json.loads(text.decode(), parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as broken:
                raise SpecError((("/values", f"not JSON: {str(broken) or 'nested too deep'}"),)) from None
            if type(values) is not list:
                raise SpecError((("/values", "must be a JSON list"),))
            if not set(map(type, values)) <= PLAIN:
                place = next(place for place, value in enumerate(values) if type(value) not in PLAIN)
                raise SpecError(((f"/values/{place}", "must be text, a number, true, false or null"),))
            may_hold_halves = b"\\u" in text
            for place, value in enumerate(values):
                if type(value) is float and not math.isfinite(value):
                    raise SpecError(((f"/values/{place}", "this number is larger than a float can be"),))
                if may_hold_halves and type(value) is str and not is_writable(value):
                    raise SpecError(((f"/values/{place}", "this text holds half of a surrogate pair, which no file or store can keep"),))
        if len(values) != count:
            raise SpecError((("/values", f"has {counted(len(values), 'value')}; it must have {count}"),))
        return values

    def _checked_options(self, options: list[Any], calls: Calls) -> tuple[NodeOptions, ...]:
        first = _first_users(calls.kind)
        found = []
        for place, given in enumerate(options):
            model, problems = validated(NodeOptions, given, place=pointer("/nodes", calls.ids[first[place]]) + "/options")
            self.problems += problems
            found.append(model)
        return tuple(model for model in found if model is not None)


class _GraphChecks(HeadChecks):
    """The checks of a graph whose columns have the right form."""

    def __init__(self, head: Mapping[str, Any], calls: Calls) -> None:
        super().__init__(head, calls.place_of)
        self._calls = calls

    def run(self, blobs: Mapping[str, bytes], options: Sequence[NodeOptions]) -> None:
        """Find all problems."""
        calls = self._calls
        self._check_options(options)
        if NAMES.fullmatch("\n".join(calls.ids)) is None:
            self._check_names("nodes", calls.ids)
        self._check_head()
        self._check_functions()
        self._check_programs()
        self._check_shapes()
        self._check_blobs(blobs)
        needed, waiting = calls.edges()
        if self._check_edges(len(needed)) and order_of(len(calls), needed, waiting) is None:
            self._check_order(graph_of(calls))
        elif conds := conds_of(calls):
            self._check_decisions(graph_of(calls), conds)
        self._check_filled()

    def _check_options(self, options: Sequence[NodeOptions]) -> None:
        """Check the options that mean something for some nodes only."""
        calls = self._calls
        tolerant = [number for number, each in enumerate(options) if each.when not in (None, ON_SUCCESS)]
        for place in np.flatnonzero(np.isin(calls.kind, tolerant)).tolist() if tolerant else ():
            if not calls.after_of(place):
                self._send(f"{pointer('/nodes', calls.ids[place])}/options/when", WHEN_WITHOUT_AFTER)
        controls = [number for number, function in enumerate(calls.functions) if is_control(function)]
        for place in np.flatnonzero(np.isin(calls.function, controls)).tolist() if controls and options else ():
            self._check_control_options(calls.ids[place], options[calls.kind[place]].given())

    def _check_functions(self) -> None:
        calls, first = self._calls, _first_users(self._calls.function)
        for number, function in enumerate(calls.functions):
            kind, _, name = function.partition(":")
            place = pointer("/nodes", calls.ids[first[number]])
            if kind == "call":
                problem = problem_of_call(name)
                if problem is not None:
                    self._send(f"{place}/call", problem)
            elif is_control(function):
                continue  # Checked with the arguments.
            elif kind == "program":
                continue  # See `_check_programs`.
            elif kind != "blob" or not SHA256.fullmatch(name):
                self._send(
                    f"{place}/function",
                    f"{function[:_SHOWN_MAX]!r} is no function; {_FUNCTION_RULE}",
                )
            else:
                self._named_blobs.setdefault(name, f"{place}/function")

    def _check_programs(self) -> None:
        calls = self._calls
        programs = [number for number, function in enumerate(calls.functions) if function.startswith(PROGRAM)]
        for at in np.nonzero(np.isin(calls.function, programs))[0].tolist() if programs else ():
            call, place = calls.call(at), f"{pointer('/nodes', calls.ids[at])}/program"
            program, problems = validated(ProgramSpec, program_of(call.args, call.kwargs), place=place)
            self.problems += problems
            if program is not None and call.function != key_of(program.command):
                self._send(place, f"{call.function[:_SHOWN_MAX]!r} is not the key of the command; it is {key_of(program.command)!r}")

    def _check_shapes(self) -> None:
        """Check each shape at the first node that has it. The literals of a shape count at each node that has it."""
        calls, first = self._calls, _first_users(self._calls.shape)
        counts = np.bincount(calls.shape).tolist()
        size = shape_size = 0
        for number, shape in enumerate(calls.shapes):
            place = first[number]
            shape_size += len(json_of([shape.args, shape.kwargs])) * counts[number]
            where = pointer("/nodes", calls.ids[place])
            parts = [(f"{where}/args/{index}", form) for index, form in enumerate(shape.args)]
            parts += [(pointer(f"{where}/kwargs", name), form) for name, form in shape.kwargs.items()]
            inputs = _FirstOnly(calls.inputs_of(place))
            _, taken = self._check_arguments(((at, filled(form, inputs, ())) for at, form in parts if not _is_hole(form)), counts[number])
            size += taken * counts[number]
        if size > FILLED_BYTES_MAX:
            self._send("/nodes", f"their arguments: {filled_words(size)}")
        if shape_size > SHAPE_BYTES_MAX:
            words = f"{shape_size / 2**20:.0f} MiB without plain values where nodes use them, {SHAPE_BYTES_MAX >> 20} MiB at most"
            self._send("/nodes", f"their arguments: {words}; let one node return the repeated part, and read it with one $ref")
        large = [place for place, value in enumerate(calls.values) if type(value) is str and scalar_bytes(value) > LITERAL_BYTES_MAX]
        for place in large:
            node = int(np.searchsorted(calls.value_ptr, place, side="right")) - 1
            self._check_size(pointer("/nodes", calls.ids[node]), scalar_bytes(calls.values[place]))

    def _check_blobs(self, given: Mapping[str, bytes]) -> None:
        for sha256 in given:
            if sha256 not in self._named_blobs:
                self._send(pointer("/blobs", sha256), UNNAMED_BLOB)
        self._check_named_blobs(given)


class _FirstOnly(tuple[NodeId, ...]):
    """Inputs of a node; a slice of them, which fills a `$list`, is its first one: the others need no second check."""

    __slots__ = ()

    def __getitem__(self, place: Any) -> Any:
        return (super().__getitem__(place.start),) if isinstance(place, slice) else super().__getitem__(place)


def graph_of(calls: Calls) -> Graph:
    """Return the nodes with their dependencies."""
    return Graph(dict(zip(calls.ids, calls.needs(), strict=True)))


def _with_control(calls: Calls) -> Calls:
    """Check the nodes that the root does itself; return the calls with the edges that they imply. Raises SpecError."""
    functions = [number for number, function in enumerate(calls.functions) if is_control(function)]
    problems: list[Problem] = []
    for place in np.flatnonzero(np.isin(calls.function, functions)).tolist():
        call = calls.call(place)
        problems += [(pointer("/nodes", calls.ids[place]), words) for words in problems_of(call.function, call.args, call.kwargs)]
    if problems:
        raise SpecError(tuple(problems[:_SHOWN_MAX]))
    return with_gates(calls)


def _place(wrong: BadColumns, place: str) -> str:
    for step in wrong.steps:
        place = pointer(place, step)
    return place


def _is_hole(form: Any) -> bool:
    """Return whether a whole argument is a plain value or a node: nothing is left to check in it."""
    return type(form) is dict and len(form) == 1 and ("$value" in form or "$ref" in form)


def _first_users(places: Numbers) -> list[int]:
    """Return the first node that uses each entry of a table; every entry has one."""
    first: npt.NDArray[np.intp] = np.unique(places, return_index=True)[1]
    return list(map(int, first))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number; send null or text")
