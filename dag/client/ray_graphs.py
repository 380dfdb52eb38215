"""Graphs that were written with Ray's own `ray.dag`, as nodes.

Only their structure is read: functions, arguments, options. The walk needs no recursion, so a long chain is no problem once Ray has bound
it. `InputNode` becomes parameters: `inp["day"]`, `inp.day` and `inp[0]` those named `day` and `0`, the whole input the one named `input`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dag.client.actors import actor_of_ray
from dag.client.from_ray import foreign
from dag.client.placeholders import Param, param
from dag.client.tasks import Node, Options
from dag.errors import GraphTypeError

#: Name of the parameter that stands for the whole `InputNode`.
WHOLE_INPUT = "input"


def is_ray_graph(value: Any) -> bool:
    """Return whether the value is a node of Ray's own graphs."""
    return _kind(value) != ""


class RayGraph:
    """Translates nodes of Ray's graphs; each becomes one node, also across several outputs."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}  #: Translations of nodes of Ray, by `id`.
        self._kept: list[Any] = []  #: The nodes of Ray, so that no other object gets the `id` of one.
        self._settings: dict[tuple[int, str], Options] = {}

    def outputs_of(self, given: Any) -> Any:
        """Return the outputs of a graph: one node, or those of a `MultiOutputNode` in a list.

        Raises:
            GraphTypeError: A part of the graph has no counterpart here; names it.
        """
        if _kind(given) == "MultiOutputNode":
            return [self._output(each) for each in given.get_args()]
        return self._output(given)

    def _output(self, given: Any) -> Node:
        made = self._translated(given) if is_ray_graph(given) else given
        if isinstance(made, Param):
            raise GraphTypeError(f"{made!r}, an input of the graph, is no output: bind a function to it")
        return made  # type: ignore[no-any-return]  # what is no node, the compiler refuses

    def _translated(self, last: Any) -> Any:
        """Return the node of a node of Ray; what it needs is translated before it."""
        pending = [last]
        while pending:
            node = pending[-1]
            if id(node) in self._made:
                pending.pop()
                continue
            needs = [need for need in _needs_of(node) if id(need) not in self._made]
            if needs:
                pending += reversed(needs)
                continue
            self._made[id(node)] = self._made_of(node)
            self._kept.append(node)
            pending.pop()
        return self._made[id(last)]

    def _made_of(self, node: Any) -> Any:
        kind = _kind(node)
        if kind == "InputNode":
            return param(WHOLE_INPUT)
        if kind == "InputAttributeNode":
            return param(str(node.key))
        args = tuple(self._replaced(value) for value in node.get_args())
        kwargs = {name: self._replaced(value) for name, value in node.get_kwargs().items()}
        if kind == "ClassNode":
            return actor_of_ray(node, args, kwargs)
        if kind == "ClassMethodNode":
            actor, method = self._actor_of(node)
            return getattr(actor, method).options(**node.get_options()).bind(*args, **kwargs)
        if kind != "FunctionNode":
            raise GraphTypeError(f"{kind} {foreign(node)}")
        body, options = node._body, node.get_options()  # noqa: SLF001  Ray has no public name for the function
        key = id(body), repr(sorted(options.items()))
        if key not in self._settings:
            self._kept.append(body)
            self._settings[key] = Options().changed(options, body)
        return Node(body, args, kwargs, self._settings[key])

    def _actor_of(self, node: Any) -> tuple[Any, str]:
        """Return the actor of a call, and its method. Raises GraphTypeError for an actor of the user's own cluster."""
        parent = node.get_other_args_to_resolve()["parent_class_node"]
        if not is_ray_graph(parent):
            raise GraphTypeError(f"ClassMethodNode {node._method_name}: its actor {foreign(parent)}")  # noqa: SLF001  as below
        return self._made[id(parent)], node._method_name  # noqa: SLF001  Ray has no public name for it

    def _replaced(self, value: Any) -> Any:
        """Return an argument with nodes in place of Ray's. Recursive: Ray has pickled the containers, so they are shallow."""
        if is_ray_graph(value):
            return self._made[id(value)]
        if type(value) in (list, tuple, dict) and next(iter(_found_in([value])), None) is not None:
            if type(value) is dict:
                return {key: self._replaced(part) for key, part in value.items()}
            return type(value)(self._replaced(part) for part in value)
        return value


def of_ray(outputs: Any) -> Any:
    """Return the outputs of a graph with nodes in place of Ray's; others unchanged. Raises GraphTypeError."""
    graph = RayGraph()
    if is_ray_graph(outputs):
        return graph.outputs_of(outputs)
    if isinstance(outputs, Mapping) and any(map(is_ray_graph, outputs.values())):
        return {name: graph.outputs_of(each) if is_ray_graph(each) else each for name, each in outputs.items()}
    if isinstance(outputs, (list, tuple)) and any(map(is_ray_graph, outputs)):
        return [graph.outputs_of(each) if is_ray_graph(each) else each for each in outputs]
    return outputs


def _kind(value: Any) -> str:
    """Return the class of a node of Ray's graphs; empty for other values."""
    kind = type(value)
    return kind.__name__ if str(kind.__module__).startswith("ray.dag.") else ""


def _needs_of(node: Any) -> list[Any]:
    """Return the nodes of Ray that must be translated before; those of a kind without counterpart are not looked into.

    A call needs its actor, and the call of it that was bound before.
    """
    if _kind(node) not in ("FunctionNode", "ClassNode", "ClassMethodNode"):
        return []
    before = node.get_other_args_to_resolve().values() if _kind(node) == "ClassMethodNode" else ()
    return _found_in([*before, *node.get_args(), *node.get_kwargs().values()])


def _found_in(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    pending = list(reversed(values))
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if is_ray_graph(value):
            found.append(value)
        elif type(value) in (list, tuple, dict) and id(value) not in seen:
            seen.add(id(value))
            pending += reversed(list(value.values()) if type(value) is dict else list(value))
    return found
