"""Arguments of the tasks of a chunk, from the values of tasks before them and of nodes outside of the chunk.

A value that code could change is unpickled anew for each reader, or read from Ray anew. So no reader sees what another one has changed,
as in Ray. Plain values cannot change: all readers get the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import ray
from ray.exceptions import RayError

from mesh.core.ids import NodeId
from mesh.core.values import Encoding
from mesh.ray.worker.chunk_calls import ChunkCall, Reference
from mesh.ray.worker.execution import EncodedValue, TaskCall, arguments_of
from mesh.ray.worker.exporting import unpack
from mesh.stages.call_shapes import PLAIN, Form, Shape, blobs_of, filled

#: Types of values that no code can change.
_FIXED = PLAIN | {bytes}
#: Types that stand for a value to all its readers; any other object belongs to the task that read it.
_SHARED = _FIXED | {EncodedValue}
_ENCODINGS = {encoding.value: encoding for encoding in Encoding}
_ABSENT = object()
#: Arguments of a task that are plain inputs and values: each an input or not, and its number. None: they have another form.
_Simple = tuple[tuple[bool, int], ...] | None


class ChunkValues:
    """Values that the tasks of one chunk read.

    Args:
        references: Values that came beside the call, or references to them, by node or by the SHA-256 of a pickled argument.
    """

    def __init__(self, call: ChunkCall, references: Mapping[str, Reference]) -> None:
        self._call, self._references = call, references
        inside, outside = len(call.nodes), len(call.outside)
        #: By the number of an input; those of nodes outside are negative, so they count from the end.
        self._known: list[Any] = [_ABSENT] * (inside + outside)
        for place, node in enumerate(call.outside):
            if node in call.values:
                data, encoding = call.values[node]
                self._known[~place] = EncodedValue(data, _ENCODINGS[encoding])
        self._blobs: dict[str, Any] = {}  #: Large pickled arguments that were fetched.
        self._simple = [_simple(shape) for shape in call.shapes]
        self._inputs = [0, *accumulate([call.shapes[shape].inputs for shape in call.shape])]
        self._plain = [0, *accumulate([call.shapes[shape].values for shape in call.shape])]

    def note(self, task: int, value: Any, data: bytes, encoding: Encoding) -> None:
        """Record the value of a task, with its bytes."""
        self._known[task] = value if type(value) in _FIXED else EncodedValue(data, encoding)

    def simple_arguments(self, task: int) -> list[Any] | None:
        """Return the arguments of a task, if each is a whole input or a plain value, by position; else None.

        Raises:
            ValueUnreadable: An input cannot be unpickled here.
        """
        call = self._call
        simple = self._simple[call.shape[task]]
        if simple is None:
            return None
        first, known = self._inputs[task], self._known
        args: list[Any] = []
        for is_input, number in simple:
            if is_input:
                number = call.inputs[first + number]  # noqa: PLW2901  the argument's own number
                value = known[number]
                if type(value) is EncodedValue:
                    value = self._unpacked(number, value)
                elif value is _ABSENT:
                    return None
                args.append(value)
            else:
                args.append(call.plain[self._plain[task] + number])
        return args

    def _unpacked(self, number: int, value: EncodedValue) -> Any:
        unpacked = unpack(value.data, value.encoding)
        if type(unpacked) in _FIXED:
            self._known[number] = unpacked
        return unpacked

    def arguments(self, task: int, call: TaskCall, *, is_program: bool) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments of a task.

        Args:
            call: The task; its arguments are not read.
            is_program: See `arguments_of`.

        Raises:
            Exception: A value cannot be read here, or has not the part that an argument names.
        """
        args = self.simple_arguments(task)
        if args is not None:
            return args, {}
        shape, numbers = self._call.shapes[self._call.shape[task]], self._numbers(task)
        names = [self._name(number) for number in numbers]
        plain = self._call.plain[self._plain[task] : self._plain[task + 1]]
        named: dict[str, Any] = {
            name: self._known[number] for name, number in zip(names, numbers, strict=True) if self._known[number] is not _ABSENT
        }
        formed = call._replace(
            args=tuple([filled(form, names, plain) for form in shape.args]),
            kwargs={name: filled(form, names, plain) for name, form in shape.kwargs.items()},
        )
        return arguments_of(formed, {**named, **self._blobs}, is_program=is_program)

    def fetch(self, task: int) -> tuple[str, str] | None:
        """Get the large inputs of a task from Ray; return the id in Ray and the message of one that is lost."""
        references = self._references
        if not references:
            return None
        unread = [number for number in dict.fromkeys(self._numbers(task)) if type(self._known[number]) not in _SHARED]
        numbers = [number for number in unread if self._name(number) in references]
        for number in numbers:
            got = self._get(self._name(number))
            if isinstance(got, tuple):
                return got
            self._known[number] = got[0]
        if self._call.large_blobs:
            shape = self._call.shapes[self._call.shape[task]]
            for sha256 in [name for form in (*shape.args, *shape.kwargs.values()) for name in blobs_of(form)]:
                if sha256 in references and sha256 not in self._blobs:
                    got = self._get(sha256)
                    if isinstance(got, tuple):
                        return got
                    self._blobs[sha256] = got[0]
        return None

    def _get(self, name: str) -> list[Any] | tuple[str, str]:
        """Return the value in a list, or what is lost."""
        try:
            return [ray.get(self._references[name])]
        except RayError as gone:
            cause = getattr(gone, "cause", None) or gone
            return getattr(cause, "object_ref_hex", None) or self._references[name].hex(), str(gone)

    def behind(self, task: int) -> list[int]:
        """Return the tasks of this chunk that must succeed before this one."""
        return [number for number in (*self._numbers(task), *self._call.after.get(task, ())) if number >= 0]

    def _numbers(self, task: int) -> list[int]:
        return self._call.inputs[self._inputs[task] : self._inputs[task + 1]]

    def _name(self, number: int) -> NodeId:
        return self._call.nodes[number] if number >= 0 else self._call.outside[~number]


def _simple(shape: Shape) -> _Simple:
    if shape.kwargs:
        return None
    found = [_hole(form) for form in shape.args]
    return None if None in found else tuple([hole for hole in found if hole is not None])


def _hole(form: Form) -> tuple[bool, int] | None:
    """Return whether the hole is an input, and its number; None: the form is more than a hole."""
    if type(form) is dict and len(form) == 1:
        if "$ref" in form:
            return True, form["$ref"]
        if "$value" in form:
            return False, form["$value"]
    return None
