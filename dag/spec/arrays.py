"""Arrays as the root plans them: each becomes parts, which are nodes of their own, and a last node under the array's own name.

A part calls the function for its share of the elements. So parts are placed, sent, moved, retried and lost as all nodes are, on all
meshes. A part of an array over another array reads only the part with its number: its elements go on while others have not begun.
The last node has the state of the whole. It reads the parts only if somebody reads the array as a list.

A `$reduce` becomes a tree: a leaf for each part of its list, and steps of at most `arity` values. The last step has its own name.

The spec that the store keeps has one row for an array, so the same tasks are made whenever a run is loaded.

Source: ADR 0055.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dag.spec.array_forms import arity_of, array_key, is_stream, items_of, parts_of
from dag.spec.forms import literal_bytes, scalar_bytes
from mesh.core.ids import NodeId
from mesh.stages.arrays import EACH, REDUCE, SLICES, STREAM, joined, nothing, part_name, share
from mesh.stages.call_shapes import Form, Shape
from mesh.stages.calls import Calls, numbers

_JOINED, _NOTHING = (f"call:{function.__module__}:{function.__qualname__}" for function in (joined, nothing))


def has_arrays(shapes: Iterable[Shape]) -> bool:
    """Return whether a graph with these shapes has arrays."""
    return any(array_key(form) is not None for shape in shapes for form in (*shape.args, *shape.kwargs.values()))


class ExpandedSize(NamedTuple):
    """Size of what the arrays of a graph become."""

    parts: int  #: Nodes: parts, and steps of `$reduce`.
    literal_bytes: int  #: Literals beside the arrays, counted at each part.
    largest: NodeId  #: The array with the most of these bytes,
    parts_of_largest: int  #: and its parts.


def expanded_size(calls: Calls) -> ExpandedSize:
    """Return the size of what `expanded` would make of the arrays, without making it.

    Args:
        calls: In topological order, parameters filled in; one of them has an array.
    """
    arrays = [_array_in(shape) for shape in calls.shapes]
    beside = [_bytes_beside(shape, array) if array is not None else 0 for shape, array in zip(calls.shapes, arrays, strict=True)]
    shape_of, inputs, input_ptr = calls.shape.tolist(), calls.inputs.tolist(), calls.input_ptr.tolist()
    parts: dict[int, int] = {}
    sizes: dict[int, tuple[int, int]] = {}
    for place, shape in enumerate(shape_of):
        array = arrays[shape]
        if array is None:
            continue
        source = _source_of(array, inputs[input_ptr[place] + array.hole], arrays, shape_of) if array.hole is not None else None
        count = parts_of(array.form) if source is None else parts[source]
        if EACH in array.form:
            parts[place] = count
        else:
            count = _steps_of(count, arity_of(array.form))
        values = calls.values[calls.value_ptr[place] : calls.value_ptr[place + 1]]
        sizes[place] = count * (beside[shape] + sum(map(scalar_bytes, values))), count
    largest = max(sizes, key=sizes.__getitem__)
    every = sizes.values()
    return ExpandedSize(sum(count for _, count in every), sum(taken for taken, _ in every), calls.ids[largest], sizes[largest][1])


def _steps_of(leaves: int, arity: int) -> int:
    """Return the number of nodes of a `$reduce`."""
    steps, level = leaves, leaves
    while level > 1:
        level = -(-level // arity)
        steps += level
    return steps


def _bytes_beside(shape: Shape, array: _Array) -> int:
    """Return the size of the literals of a shape without its array, in bytes."""
    slots: list[tuple[int | str, Form]] = [*enumerate(shape.args), *shape.kwargs.items()]
    return sum(literal_bytes(form) for slot, form in slots if slot != array.slot)


def _source_of(array: _Array, source: int, arrays: Sequence[_Array | None], shape_of: Sequence[int]) -> int | None:
    """Return the array that this one follows part by part, if its list is one; else None: the list is read as a whole."""
    of_source = arrays[shape_of[source]]
    follows = of_source is not None and EACH in of_source.form and "parts" not in array.form
    return source if follows else None


def expanded(calls: Calls, kinds: int, outputs: frozenset[NodeId]) -> tuple[Calls, list[int]]:
    """Return the nodes with the parts of arrays, and the kinds of the nodes that end arrays.

    Such a kind has its place behind those of the graph; the list has the kind that it is made of.

    Args:
        calls: In topological order, parameters filled in; so is the result.
        kinds: Number of kinds that the graph has.
        outputs: The nodes whose values the user gets.
    """
    expansion = _Expansion(calls, kinds, outputs)
    expansion.run()
    return expansion.result(), list(expansion.last_kinds)


class _Array:
    """An argument of a call that is an array."""

    def __init__(self, slot: int | str, form: dict[str, Any], uses: int) -> None:
        self.slot = slot  #: Position or name of the argument.
        self.form = form
        self.items = items_of(form)
        is_ref = isinstance(self.items, dict) and self.items.keys() == {"$ref"} and uses == 1
        self.hole: int | None = self.items["$ref"] if is_ref else None
        """Number of the input that is the list, if the call reads that input nowhere else; else None."""


def _array_in(shape: Shape) -> _Array | None:
    slots: list[tuple[int | str, Form]] = [*enumerate(shape.args), *shape.kwargs.items()]
    for slot, form in slots:
        if array_key(form) is not None:
            items = items_of(form)
            hole = items.get("$ref") if isinstance(items, dict) else None
            return _Array(slot, form, sum(_uses(each, hole) for _, each in slots) if hole is not None else 0)
    return None


def _uses(form: Form, hole: int) -> int:
    """Return how often a form names an input."""
    if type(form) is list:
        return sum(_uses(part, hole) for part in form)
    if type(form) is not dict:
        return 0
    if "$ref" in form:
        return int(form["$ref"] == hole)
    if "$list" in form:
        first, count = form["$list"]
        return int(first <= hole < first + count)
    return sum(_uses(part, hole) for part in form.values())


class _Expansion:
    """Appends nodes to columns; numbers of inputs are places in the new columns."""

    def __init__(self, calls: Calls, kinds: int, outputs: frozenset[NodeId]) -> None:
        self._calls = calls
        self._kinds = kinds
        self._outputs = outputs
        self._arrays = [_array_in(shape) for shape in calls.shapes]
        self._shape_of: list[int] = calls.shape.tolist()
        self._inputs, self._input_ptr = calls.inputs.tolist(), calls.input_ptr.tolist()
        self._after, self._after_ptr = calls.after.tolist(), calls.after_ptr.tolist()
        self._value_ptr: list[int] = calls.value_ptr.tolist()
        self._whole: list[int] = []  #: New place of each node.
        self._parts: dict[int, list[int]] = {}  #: New places of the parts of each array.
        self._read_whole = self._nodes_read_whole()
        self.last_kinds: dict[int, int] = {}
        self._functions: dict[str, int] = {function: place for place, function in enumerate(calls.functions)}
        self._shapes: list[Shape] = list(calls.shapes)
        self._made: dict[Hashable, int] = {}  #: Places of the shapes that were made here.
        self._ids: list[str] = []
        self._rows: tuple[list[int], list[int], list[int]] = ([], [], [])  #: Function, shape and kind.
        self._new_inputs: list[int] = []
        self._values: list[Any] = []
        self._ordered: list[tuple[int, int]] = []

    def run(self) -> None:
        """Append all nodes."""
        for place in range(len(self._calls)):
            array = self._arrays[self._shape_of[place]]
            if array is None:
                self._whole.append(self._append_call(place, self._calls.ids[place], self._shape_of[place], self._old_inputs(place)))
            elif EACH in array.form:
                self._append_each(place, array)
            else:
                self._append_reduce(place, array)

    def result(self) -> Calls:
        """Return the columns."""
        return Calls(
            ids=tuple(map(NodeId, self._ids)),
            functions=tuple(self._functions),
            shapes=tuple(self._shapes),
            function=numbers(self._rows[0]),
            shape=numbers(self._rows[1]),
            kind=numbers(self._rows[2]),
            inputs=numbers(self._new_inputs),
            values=self._values,
            ordered=numbers(waits for waits, _ in self._ordered),
            after=numbers(needed for _, needed in self._ordered),
        )

    # -- arrays --------------------------------------------------------------------------------------------------------

    def _append_each(self, place: int, array: _Array) -> None:
        own = self._calls.ids[place]
        parts = [
            self._append_call(place, part_name(own, number), self._shape_with(place, array, form), inputs)
            for number, (form, inputs) in enumerate(self._tasks_of(place, array, {}))
        ]
        self._parts[place] = parts
        if place in self._read_whole:
            pieces: Form = [{"$list": [0, len(parts)]}] if len(parts) > 1 else [[{"$ref": 0}]]
            last = self._append(own, _JOINED, self._made_shape(repr(pieces), Shape.counted(pieces, {})), self._last_kind(place))
            self._new_inputs += parts
        else:
            last = self._append(own, _NOTHING, self._made_shape("", Shape((), {})), self._last_kind(place))
            self._ordered += [(last, part) for part in parts]
        self._whole.append(last)

    def _append_reduce(self, place: int, array: _Array) -> None:
        own, arity = self._calls.ids[place], arity_of(array.form)
        tasks = list(self._tasks_of(place, array, {"arity": arity}))
        if len(tasks) == 1:
            form, inputs = tasks[0]
            self._whole.append(self._append_call(place, own, self._shape_with(place, array, {**form, "step": "only"}), inputs))
            return
        level = [
            self._append_call(place, part_name(own, number), self._shape_with(place, array, {**form, "step": "leaf"}), inputs)
            for number, (form, inputs) in enumerate(tasks)
        ]
        number = len(level)
        while len(level) > arity:
            above = []
            for first in range(0, len(level), arity):
                above.append(self._append_step(place, array, part_name(own, number), level[first : first + arity], "inner"))
                number += 1
            level = above
        self._whole.append(self._append_step(place, array, own, level, "last"))

    def _tasks_of(self, place: int, array: _Array, more: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], list[int]]]:
        """Yield the form of the argument of each part, and its inputs."""
        key = EACH if EACH in array.form else REDUCE
        kept = {**more, **({"star": True} if array.form.get("star") else {})}
        inputs, hole, items = self._old_inputs(place), array.hole, array.items
        source = self._source(place, array)
        if source is not None and hole is not None:
            for part in self._parts[source]:
                yield {key: items, **kept}, [*inputs[:hole], part, *inputs[hole + 1 :]]
            return
        count = parts_of(array.form)
        for number in range(count):
            if isinstance(items, list):
                span = share(len(items), number, count)
                yield {key: items[span.start : span.stop], "span": [span.start, len(items)], **kept}, inputs
            elif SLICES in items:
                first = share(items["of"], number, count).start
                yield {key: items[SLICES][number], "span": [first, items["of"]], **kept}, inputs
            else:
                streams = {STREAM: True} if is_stream(array.form) and hole is not None else {}
                yield {key: items, "share": [number, count], **streams, **kept}, inputs

    def _source(self, place: int, array: _Array) -> int | None:
        """Return the array whose parts are read one by one, by its place in the graph; None: the list is read as a whole."""
        if array.hole is None:
            return None
        return _source_of(array, self._inputs[self._input_ptr[place] + array.hole], self._arrays, self._shape_of)

    def _nodes_read_whole(self) -> set[int]:
        """Return the arrays that somebody reads as a list, by their places in the graph."""
        found = {place for place, node in enumerate(self._calls.ids) if node in self._outputs}
        for place, shape in enumerate(self._shape_of):
            array = self._arrays[shape]
            inputs = self._inputs[self._input_ptr[place] : self._input_ptr[place + 1]]
            if array is not None and array.hole is not None and self._source(place, array) is not None:
                inputs = [*inputs[: array.hole], *inputs[array.hole + 1 :]]
            found.update(inputs)
        return found

    # -- columns -------------------------------------------------------------------------------------------------------

    def _old_inputs(self, place: int) -> list[int]:
        """Return the new places of a node's inputs."""
        return [self._whole[need] for need in self._inputs[self._input_ptr[place] : self._input_ptr[place + 1]]]

    def _append_call(self, place: int, name: str, shape: int, inputs: Sequence[int]) -> int:
        """Append a call of the function of a node."""
        calls = self._calls
        new = self._append(name, calls.functions[int(calls.function[place])], shape, int(calls.kind[place]))
        self._new_inputs += inputs
        self._values += calls.values[self._value_ptr[place] : self._value_ptr[place + 1]]
        self._ordered += [(new, self._whole[need]) for need in self._after[self._after_ptr[place] : self._after_ptr[place + 1]]]
        return new

    def _append_step(self, place: int, array: _Array, name: str, partials: Sequence[int], step: str) -> int:
        """Append a step of a `$reduce` that reads other steps in place of the list."""
        shape, hole = self._calls.shapes[self._shape_of[place]], array.hole
        inputs = self._old_inputs(place)
        if hole is not None:  # Nothing else reads the list.
            del inputs[hole]
        refs: Form = {"$list": [len(inputs), len(partials)]} if len(partials) > 1 else [{"$ref": len(inputs)}]
        form = {REDUCE: refs, "arity": arity_of(array.form), "step": step}
        args = [form if slot == array.slot else _without(each, hole) for slot, each in enumerate(shape.args)]
        kwargs = {slot: form if slot == array.slot else _without(each, hole) for slot, each in shape.kwargs.items()}
        key = (self._shape_of[place], repr(form))
        made = self._made_shape(key, Shape(tuple(args), kwargs, len(inputs) + len(partials), shape.values))
        return self._append_call(place, name, made, [*inputs, *partials])

    def _append(self, name: str, function: str, shape: int, kind: int) -> int:
        self._ids.append(name)
        for column, number in zip(self._rows, (self._functions.setdefault(function, len(self._functions)), shape, kind), strict=True):
            column.append(number)
        return len(self._ids) - 1

    def _shape_with(self, place: int, array: _Array, form: dict[str, Any]) -> int:
        """Return the place of the shape of a node with another argument in place of the array."""
        shape = self._calls.shapes[self._shape_of[place]]
        args = tuple(form if slot == array.slot else each for slot, each in enumerate(shape.args))
        kwargs = {slot: form if slot == array.slot else each for slot, each in shape.kwargs.items()}
        return self._made_shape((self._shape_of[place], repr(form)), Shape(args, kwargs, shape.inputs, shape.values))

    def _made_shape(self, key: Hashable, shape: Shape) -> int:
        place = self._made.get(key)
        if place is None:
            place = self._made[key] = len(self._shapes)
            self._shapes.append(shape)
        return place

    def _last_kind(self, place: int) -> int:
        kind = int(self._calls.kind[place])
        if kind not in self.last_kinds:
            self.last_kinds[kind] = self._kinds + len(self.last_kinds)
        return self.last_kinds[kind]


def _without(form: Form, hole: int | None) -> Form:
    """Return a form whose inputs are numbered without this one, which it does not name."""
    if hole is None:
        return form
    if type(form) is list:
        return [_without(part, hole) for part in form]
    if type(form) is not dict:
        return form
    if "$ref" in form:
        return {**form, "$ref": form["$ref"] - (form["$ref"] > hole)}
    if "$list" in form:
        first, count = form["$list"]
        return {"$list": [first - (first > hole), count]}
    return {key: _without(part, hole) for key, part in form.items()}
