"""Shapes of the arguments of calls: their forms, with holes for what differs from call to call.

A shape has the form of arguments (`mesh.stages.spec`) with holes in it:

    {"$ref": 0, "path": […]}   the call's first input; inputs are numbered by their first use, arguments from left to right
    {"$list": [1, 3]}          a list of three inputs that are used for the first time: the second, third and fourth
    {"$value": 0}              the call's first plain value: a whole argument that is a text, a number, true, false or null

Equal arguments have one shape: a whole argument that is plain is always a hole, and a list of two or more new inputs always a `$list`.
So the columns of a graph can be compared and hashed without its forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mesh.core.ids import NodeId

#: An argument form, see `mesh.stages.spec`.
Form = Any
#: Types of a plain value.
PLAIN = frozenset({str, int, float, bool, type(None)})
#: Most inputs of a call.
INPUTS_MAX = 1_000_000
#: Shortest list of new inputs that is a `$list`.
_LIST_MIN = 2


class BadColumns(ValueError):
    """Wrong columns: an array of another length, a shape with a wrong hole or a simpler form. `steps` leads to the place."""

    def __init__(self, steps: tuple[str | int, ...], words: str) -> None:
        super().__init__(words)
        self.steps = steps


@dataclass(frozen=True, slots=True)
class Shape:
    """Form of the arguments of a call, with holes for its inputs and plain values."""

    args: tuple[Form, ...]
    kwargs: dict[str, Form]
    inputs: int = 0  #: Number of its inputs.
    values: int = 0  #: Number of its plain values.

    @classmethod
    def checked(cls, args: Sequence[Form], kwargs: Mapping[str, Form]) -> Shape:
        """Return the shape of a client with its holes counted. Raises BadColumns if equal arguments have a simpler shape."""
        holes = _Holes()
        for index, form in enumerate(args):
            holes.count(form, ("args", index))
        for name, form in kwargs.items():
            holes.count(form, ("kwargs", name))
        return cls(tuple(args), dict(kwargs), holes.inputs, holes.values)

    @classmethod
    def counted(cls, args: Sequence[Form], kwargs: Mapping[str, Form]) -> Shape:
        """Return a shape that this project has made, with its holes counted; its arguments may be plain, as parameters are.

        Raises:
            BadColumns: It has too many inputs.
        """
        inputs = values = 0
        pending: list[Form] = [*args, *kwargs.values()]
        while pending:
            part = pending.pop()
            if type(part) is list:
                pending.extend(part)
            elif type(part) is dict:
                if "$ref" in part:
                    inputs = max(inputs, part["$ref"] + 1)
                elif "$list" in part:
                    inputs = max(inputs, sum(part["$list"]))
                elif "$value" in part:
                    values = max(values, part["$value"] + 1)
                else:
                    pending.extend(part.values())
        if inputs > INPUTS_MAX:
            raise BadColumns((), f"a call has {INPUTS_MAX} inputs at most, not {inputs}")
        return cls(tuple(args), dict(kwargs), inputs, values)


class _Holes:
    """Counts the holes of a shape, in reading order."""

    def __init__(self) -> None:
        self.inputs = self.values = 0

    def count(self, argument: Form, place: tuple[str | int, ...]) -> None:
        if type(argument) in PLAIN:
            raise BadColumns(place, 'is a plain value; put it among the values, with {"$value": number} here')
        if type(argument) is dict and "$value" in argument:
            if argument != {"$value": self.values} or type(argument["$value"]) is not int:
                raise BadColumns(place, f'must be {{"$value": {self.values}}}: values are numbered from 0, in reading order')
            self.values += 1
            return
        self._count_inputs(argument, place)

    def _count_inputs(self, argument: Form, place: tuple[str | int, ...]) -> None:
        pending: list[tuple[Form, tuple[str | int, ...]]] = [(argument, place)]
        while pending:
            part, steps = pending.pop()
            if type(part) is list:
                if is_run(part, self.inputs):
                    raise BadColumns(steps, f'must be {{"$list": [{self.inputs}, {len(part)}]}}: a list of new inputs')
                pending.extend((part[index], (*steps, index)) for index in range(len(part) - 1, -1, -1))
            elif type(part) is dict:
                if "$ref" in part:
                    self._count_ref(part, steps)
                elif "$list" in part:
                    self._count_list(part, steps)
                elif "$value" in part:
                    raise BadColumns(steps, "`$value` stands for a whole argument only")
                else:
                    pending.extend((below, (*steps, key)) for key, below in reversed(part.items()))

    def _count_ref(self, part: dict[str, Form], steps: tuple[str | int, ...]) -> None:
        number = part["$ref"]
        if type(number) is not int or not 0 <= number <= self.inputs:
            raise BadColumns(steps, f"`$ref` must be a number from 0 to {self.inputs}: inputs are numbered by their first use")
        self.inputs += number == self.inputs

    def _count_list(self, part: dict[str, Form], steps: tuple[str | int, ...]) -> None:
        run = part["$list"]
        is_pair = type(run) is list and len(run) == 2 and type(run[0]) is type(run[1]) is int  # noqa: PLR2004
        if len(part) > 1 or not is_pair or run[0] != self.inputs or run[1] < _LIST_MIN:
            raise BadColumns(steps, f'must be {{"$list": [{self.inputs}, count]}}: new inputs, {_LIST_MIN} or more')
        if self.inputs + run[1] > INPUTS_MAX:
            raise BadColumns(steps, f"a call has {INPUTS_MAX} inputs at most; give a smaller count")
        self.inputs += run[1]


def is_run(parts: list[Form], first: int) -> bool:
    """Return whether the list has two or more holes for inputs from this number on, and nothing else."""
    return len(parts) >= _LIST_MIN and all(
        type(part) is dict and len(part) == 1 and type(number := part.get("$ref")) is int and number == first + place
        for place, part in enumerate(parts)
    )


class ShapeWriter:
    """Makes the shape of one call from its forms: a node that is read becomes the number of its first use."""

    def __init__(self) -> None:
        self.inputs: dict[Any, int] = {}  #: Each input to its number.
        self.values: list[Any] = []

    def argument(self, form: Form, read: Callable[[Form], Any]) -> Form:
        """Return the part of the shape for a whole argument.

        Args:
            read: Returns the node that a `$ref` names.
        """
        if type(form) in PLAIN:
            self.values.append(form)
            return {"$value": len(self.values) - 1}
        return self._part(form, read)

    def run(self, nodes: Sequence[Any]) -> Form | None:
        """Return the part of the shape for a list of nodes that are new and different; None: they are not, or too few."""
        first = len(self.inputs)
        if len(nodes) < _LIST_MIN or len(set(nodes)) < len(nodes) or not self.inputs.keys().isdisjoint(nodes):
            return None
        self.inputs.update(zip(nodes, range(first, first + len(nodes)), strict=True))
        return {"$list": [first, len(nodes)]}

    def _part(self, form: Form, read: Callable[[Form], Any]) -> Form:
        """Recursive: callers bound the depth."""
        if type(form) is list:
            first = len(self.inputs)
            parts = [self._part(part, read) for part in form]
            return {"$list": [first, len(parts)]} if is_run(parts, first) else parts
        if type(form) is dict:
            if "$ref" in form:
                return {**form, "$ref": self.number(read(form["$ref"]))}
            return {key: self._part(part, read) for key, part in form.items()}
        return form

    def number(self, node: Any) -> int:
        """Return the number of an input; the next one when it is new."""
        return self.inputs.setdefault(node, len(self.inputs))


def filled(form: Form, inputs: Sequence[NodeId], values: Sequence[Any]) -> Form:
    """Return the form with the names of its inputs and its plain values. Recursive: shapes are shallow."""
    if type(form) is dict:
        if "$ref" in form:
            return {**form, "$ref": inputs[form["$ref"]]}
        if "$list" in form:
            first, count = form["$list"]
            return [{"$ref": node} for node in inputs[first : first + count]]
        if "$value" in form:
            return values[form["$value"]]
        return {key: filled(part, inputs, values) for key, part in form.items()}
    if type(form) is list:
        return [filled(part, inputs, values) for part in form]
    return form


def blobs_of(form: Form) -> Iterator[str]:
    """Return the hashes named by `{"$blob": …}` objects anywhere in an argument form."""
    pending = [form]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if len(part) == 1 and isinstance(part.get("$blob"), str):
                yield part["$blob"]
            else:
                pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)
