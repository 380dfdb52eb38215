"""Arrays: one function over the elements of a list, as parts that are tasks of their own. Pure.

An array is a call with one argument of a form of its own. A client writes

    {"$each": items, "star": true, "parts": 64}      the function is called for each element; `star`: with its parts as arguments
    {"$reduce": items, "arity": 16}                  the function turns lists of at most 16 values into one, until one is left

`items` is a list, `{"$slices": [...], "of": n}` (the list in pieces as `slices` cuts it), or any other form, whose list is known at run
time only. The root makes tasks of it (`dag.spec.arrays`). In their arguments, the form also says what the list is:

    "share": [k, parts]   share k of the whole list       "span": [first, of]   a piece of a list of `of` elements
    neither               the `Piece` that a part of another array has returned
    "stream": true        beside "share": the share is that of `stream_share`, and the part may read a `Piece` of these elements, handed
                          out while the node that makes the list goes on
    "step": "leaf", "inner", "last" or "only"             place of a task in the tree of a `$reduce`; inner ones read `Partial`s

Source: ADR 0055; Slurm's job arrays and Airflow's mapped tasks for the idea.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from mesh.core.ids import NodeId
from mesh.stages.calls import Calls

EACH, REDUCE, SLICES, STREAM = "$each", "$reduce", "$slices", "stream"
#: Parts of an array by default, of one with more than `LONG` elements, and at most.
PARTS_USUAL, PARTS_LONG, PARTS_MAX = 256, 1_024, 10_000
LONG = 65_536
#: Values that a step of a `$reduce` takes by default, and parts of a `$reduce` whose list is known at run time only.
ARITY_USUAL, LEAVES_USUAL = 16, 64
#: Most elements of an array.
ELEMENTS_MAX = 10_000_000
#: Separates the name of an array from the number of a part; no name that a user gives contains it.
PART_MARK = "@"


#: Number of elements of a list that grows.
UNKNOWN = -1


class Piece(NamedTuple):
    """Value of a part of an array: the values of consecutive elements."""

    first: int  #: Index of the first one in the array.
    of: int  #: Number of elements of the array; `UNKNOWN`: they are elements of a list that grows.
    values: list[Any]


class Partial(NamedTuple):
    """Value of an inner step of a `$reduce`: one value, or none of an empty list."""

    values: list[Any]


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """Argument of a part of an array, resolved.

    Args:
        form: The form, with `$each` or `$reduce`.
        source: The items under that key, resolved.
    """

    form: dict[str, Any]
    source: Any

    @property
    def is_reduce(self) -> bool:
        """Whether the function reduces the values."""
        return REDUCE in self.form

    def piece(self) -> Piece:
        """Return the elements of this part.

        Raises:
            TypeError: The value is no list.
        """
        source = self.source
        if isinstance(source, Piece):
            return source
        if "span" in self.form:
            first, of = self.form["span"]
            return Piece(first, of, source)
        whole = as_list(source)
        number, parts = self.form.get("share", (0, 1))
        span = (stream_share if self.form.get(STREAM) else share)(len(whole), number, parts)
        return Piece(span.start, len(whole), whole[span.start : span.stop])


def as_list(value: Any) -> Any:
    """Return the elements of a value as something that can be sliced. Raises TypeError if it has none."""
    if isinstance(value, (list, tuple, range)):
        return value
    if isinstance(value, (str, bytes, dict)):
        raise TypeError(f"an array takes a list, not a {type(value).__name__}; give a list of what each element should be")
    try:
        return list(value)
    except TypeError:
        raise TypeError(f"an array takes a list, not a {type(value).__name__}") from None


def parts_for(count: int, asked: int | None = None) -> int:
    """Return the number of parts of an array of so many elements; `asked`: the most that its author wants."""
    usual = PARTS_LONG if count > LONG else PARTS_USUAL
    return max(1, min(count, usual if asked is None else asked))


def share(count: int, number: int, parts: int) -> range:
    """Return the indices of a part, by its number from 0; the parts differ by one element at most."""
    return range(count * number // parts, count * (number + 1) // parts)


@lru_cache(maxsize=256)
def stream_starts(parts: int) -> tuple[int, ...]:
    """Return the index of the first element of each part of a list whose length is not known.

    No part depends on the length, so each but the last is complete before the list is. The first parts have one element each. A later one
    has a fixed share of the elements before it, the least with which all parts before the last one have `LONG` elements together. The last
    one has all others.
    """
    paces = range(parts, 0, -1)
    pace = paces[min(bisect_left(paces, True, key=lambda pace: _starts(parts, pace)[-1] >= LONG), parts - 1)]
    return _starts(parts, pace)


def _starts(parts: int, pace: int) -> tuple[int, ...]:
    starts = [0]
    for _ in range(parts - 1):
        starts.append(min(ELEMENTS_MAX, starts[-1] + max(1, starts[-1] // pace)))
    return tuple(starts)


def stream_share(count: int, number: int, parts: int) -> range:
    """Return the indices of a part of a list that grew to `count` elements, by its number from 0."""
    starts = stream_starts(parts)
    stop = count if number == parts - 1 else min(starts[number + 1], count)
    return range(min(starts[number], stop), stop)


class Span(NamedTuple):
    """Elements of a list that grows, which one part reads."""

    part: NodeId
    first: int
    stop: int


def spans_in(calls: Calls) -> dict[NodeId, tuple[Span, ...]]:
    """Return the elements that parts read, by the node of the same calls that makes their list, as they become complete.

    The last part of a stream is not among them: it is complete with the list.
    """
    streams = {number: _stream_in((*shape.args, *shape.kwargs.values())) for number, shape in enumerate(calls.shapes)}
    shares = {number: stream for number, stream in streams.items() if stream is not None}
    found: dict[NodeId, list[Span]] = {}
    for place, shape in enumerate(calls.shape.tolist() if shares else ()):
        if shape not in shares:
            continue
        hole, number, parts = shares[shape]
        source, starts = calls.inputs_of(place)[hole], stream_starts(parts)
        if source in calls.place_of and source not in calls.after_of(place):
            spans = found.setdefault(source, [])
            if number < parts - 1:
                spans.append(Span(calls.ids[place], starts[number], starts[number + 1]))
    return {source: tuple(sorted(spans, key=lambda span: span.stop)) for source, spans in found.items()}


def _stream_in(forms: Iterable[Any]) -> tuple[int, int, int] | None:
    """Return the input that a part reads while it grows, the number of the part, and that of all parts."""
    for form in forms:
        if type(form) is dict and form.get(STREAM) and "share" in form:
            number, parts = form["share"]
            return (form[EACH] if EACH in form else form[REDUCE])["$ref"], number, parts
    return None


def slices(items: Sequence[Any], parts: int) -> Iterator[Any]:
    """Yield the list in pieces, as `share` counts them."""
    for number in range(parts):
        span = share(len(items), number, parts)
        yield items[span.start : span.stop]


def part_name(array: str, number: int) -> str:
    """Return the name of a part."""
    return f"{array}{PART_MARK}{number}"


def array_of(node: str) -> str:
    """Return the array that a part belongs to; of any other node its own name."""
    return node.partition(PART_MARK)[0]


def is_part(node: str) -> bool:
    """Return whether the node is a part of an array."""
    return PART_MARK in node


def reduced(argument: ArrayArgument, function: Callable[[list[Any]], Any]) -> Any:
    """Return the value of a step of a `$reduce`.

    Args:
        function: Turns a list of values into one.
    """
    step, arity = argument.form["step"], argument.form["arity"]
    if step in ("leaf", "only"):
        values = list(argument.piece().values)
        values = [function(values[first : first + arity]) for first in range(0, len(values), arity)]
    else:
        values = [value for partial in argument.source for value in partial.values]
    while len(values) > 1:
        values = [_of_group(values[first : first + arity], function) for first in range(0, len(values), arity)]
    if step in ("leaf", "inner"):
        return Partial(values)
    return values[0] if values else function([])


def _of_group(values: list[Any], function: Callable[[list[Any]], Any]) -> Any:
    return values[0] if len(values) == 1 else function(values)


def joined(pieces: Sequence[Piece]) -> list[Any]:
    """Return the values of an array as one list: the function of the node that ends an array which others read whole."""
    return [value for piece in pieces for value in piece.values]


def nothing() -> None:
    """Return None: the function of the node that ends an array whose parts are all that others read."""


def gathered(values: list[Any]) -> list[Any]:
    """Return the list: the function of a node that collects the values of others."""
    return values


def ranges_of(indices: Sequence[int]) -> str:
    """Return indices in ascending order as text: `3, 7-9`."""
    words: list[str] = []
    first = last = None
    for index in [*indices, None]:
        if last is not None and index == last + 1:
            last = index
            continue
        if first is not None:
            words.append(str(first) if first == last else f"{first}-{last}")
        first = last = index
    return ", ".join(words)
