"""Items of an array among the arguments of a node, as `dag.client.arrays` puts them there and the compiler writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dag.client.placeholders import Param, Part
from dag.client.tasks import Node

#: Something that stands for a list which is not there yet.
Placeholder = Node | Part | Param


class ArraySource:
    """The items of an array among the arguments of a node.

    Attributes:
        items: A node, a part or a parameter, or something that can be sliced.
        arity: Values that a step of a reduction takes; None: no reduction, the function gets one element.
        is_star: Whether the function gets the parts of an element as its arguments.
        parts: The most parts; None: as many as are usual.
        is_stream: Whether parts may begin before the list is complete.
    """

    __slots__ = ("arity", "is_star", "is_stream", "items", "parts")

    def __init__(
        self,
        items: Placeholder | Sequence[Any],
        *,
        arity: int | None = None,
        is_star: bool = False,
        parts: int | None = None,
        is_stream: bool = False,
    ) -> None:
        self.items = items
        self.arity = arity
        self.is_star = is_star
        self.parts = parts
        self.is_stream = is_stream

    @property
    def needs(self) -> tuple[Node, ...]:
        """The node whose value, or a part of it, is the list."""
        if isinstance(self.items, Part):
            return (self.items.node,)
        return (self.items,) if isinstance(self.items, Node) else ()
