"""Arrays in Python: one function over the elements of a list, as one node. `mesh.stages.arrays` describes how they run."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any

from dag.client.array_source import ArraySource, Placeholder
from dag.client.placeholders import Param, Part
from dag.client.tasks import Node, Task, name_of, task
from dag.client.writing import placeholders_in
from dag.errors import GraphTypeError
from mesh.core.functions import is_generator
from mesh.stages.arrays import ARITY_USUAL, ELEMENTS_MAX, PARTS_MAX, as_list, gathered
from mesh.stages.call_shapes import PLAIN

#: Types that are sliced as they are; others are copied into a list.
_SLICED = (list, tuple, range)


def map(  # noqa: A001  Python's own word, used as `dag.map`
    function: Any, items: Placeholder | Iterable[Any], /, *args: Any, parts: int | None = None, **kwargs: Any
) -> Node:
    """Return a node whose value is the list of `function(item, *args, **kwargs)` for each item, in the order of the items.

    The array is one node, whatever its length. Its elements run in parts, on all meshes that accept them; those of a part run one after
    the other in one process. An element that fails makes the node fail, after the other elements of its part; a retry of the node
    (`retries`) runs only the elements that have not succeeded.

    Args:
        function: A plain function, a `@ray.remote` function or a task; its options are those of each part.
        items: A list, any other iterable, a node that returns one, a part of its value, or a parameter: the length may be known at run
            time only.
        args: Further arguments, the same for each element; nodes among them are read.
        parts: The most parts, and so the most elements that run at once; by default 256, and 1,024 of more than 65,536 elements.

    Raises:
        GraphTypeError: The function cannot be a task, or the items are not a list.
    """
    return _array(function, _source(items, parts=_whole("parts", parts, PARTS_MAX)), args, kwargs)


def starmap(function: Any, items: Placeholder | Iterable[Any], /, *, parts: int | None = None, **kwargs: Any) -> Node:
    """Return a node as `map` does, of `function(*item, **kwargs)`: each item is a list or tuple of arguments. Raises as `map`."""
    source = _source(items, is_star=True, parts=_whole("parts", parts, PARTS_MAX))
    return _array(function, source, (), kwargs)


def reduce(function: Any, items: Placeholder | Iterable[Any], /, *, arity: int = ARITY_USUAL) -> Node:
    """Return a node whose value is what `function` makes of all items, at most `arity` at a time, as a tree.

    The function gets a list of values and returns one value of the same kind. It must not matter how the list is grouped; the order of the
    values is kept. A step begins when its own values are there: it does not wait for the rest of an array.
    Of an empty list, the value is `function([])`.

    Args:
        function: As for `map`.
        items: As for `map`; an array, mostly.
        arity: The most values of one call, 2 or more.

    Raises:
        GraphTypeError: As `map`; or the arity is wrong.
    """
    if type(arity) is not int or arity < 2:  # noqa: PLR2004  a step of one value would have no end
        raise GraphTypeError(f"reduce takes an arity of 2 or more, not {arity!r}")
    return _array(function, _source(items, arity=arity), (), {})


def gather(*nodes: Any) -> Node:
    """Return a node whose value is the list of the values of these nodes."""
    for each in nodes:
        if not isinstance(each, Node):
            raise GraphTypeError(f"gather takes nodes, not {each!r}; give dag.gather(first, second)")
    node: Node = task(gathered, name="gather", num_cpus=0).bind(list(nodes))
    return node


def _array(function: Any, source: ArraySource, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    wrapped: Task = function if isinstance(function, Task) else task(function)
    if wrapped.settings.num_returns is not None:
        raise GraphTypeError(f"{name_of(wrapped.function)}: an array has one value, its list, and no num_returns")
    return Node(wrapped.function, (source, *args), kwargs, wrapped.settings)


def _source(items: Any, *, arity: int | None = None, is_star: bool = False, parts: int | None = None) -> ArraySource:
    """Return the source of an array; its parts begin while a generator among the nodes still yields. Raises GraphTypeError."""
    found = _items(items)
    is_stream = isinstance(found, Node) and found.settings.num_returns is None and is_generator(found.function)
    return ArraySource(found, arity=arity, is_star=is_star, parts=parts, is_stream=is_stream)


def _items(items: Any) -> Placeholder | Sequence[Any]:
    """Return the items as a node, or as something that can be sliced. Raises GraphTypeError."""
    if isinstance(items, (Node, Part, Param)):
        return items
    if isinstance(items, Task) or callable(items):
        raise GraphTypeError(f"{items!r} is a function; the items of an array come second: dag.map(function, items)")
    try:
        listed: Sequence[Any] = items if isinstance(items, _SLICED) else as_list(items)
    except TypeError as wrong:
        raise GraphTypeError(str(wrong)) from None
    if len(listed) > ELEMENTS_MAX:
        raise GraphTypeError(f"an array has {ELEMENTS_MAX} elements at most, not {len(listed)}; let each element be a piece of the list")
    if isinstance(listed, range) or PLAIN.issuperset(kinds := set(builtins.map(type, listed))):
        return listed
    if kinds == {Node}:
        return gather(*listed)
    if next(placeholders_in(list(listed), 0), None) is not None:
        raise GraphTypeError("an item of the array holds a node beside other values; let a node return the whole list")
    return listed


def _whole(name: str, number: int | None, most: int) -> int | None:
    if number is not None and (type(number) is not int or not 1 <= number <= most):
        raise GraphTypeError(f"{name} must be a whole number from 1 to {most}, not {number!r}")
    return number
