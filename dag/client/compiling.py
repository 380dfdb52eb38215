"""Compiles the nodes of a graph to a `dag/1` spec."""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from dag.client.from_ray import foreign
from dag.client.pickling import by_value as pickled_by_value
from dag.client.tasks import Node, Task, name_of, signature_of
from dag.client.writing import FormWriter, exact_bytes, nodes_in
from dag.errors import CycleError, GraphTypeError, NotSerializable, SpecError
from dag.spec.graph import circle_in_words
from dag.spec.strict_json import pointer
from mesh.core.ids import NodeId

Outputs = Node | Mapping[str, Node] | Sequence[Node]

#: Name of a single output.
RESULT = "result"
_PARAM_BYTES_MAX = 256 * 1024
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._:\[\]-]+")
_BASE_CHARS_MAX = 180  #: Ids have at most 200 characters; the rest is for a number.


def compile_graph(
    outputs: Outputs,
    *,
    id: str | None = None,  # noqa: A002  the wire's own word
    tenant: str | None = None,
    params: Mapping[str, Any] | None = None,
    on_error: str = "fail_fast",
    by_value: Iterable[ModuleType] = (),
) -> dict[str, Any]:
    """Return the `dag/1` spec of everything that the outputs need: JSON, with the blobs as base64.

    A node's id is its `name` or its function's name, with `-2`, `-3` where that is taken. The needs of a node come before it, its
    arguments from left to right. The same graph gets the same ids in every process.

    Args:
        outputs: One node (called `result`), several (named by their positions, from `0`), or several by name.
        params: Plain JSON data, for specs that take parameters.
        by_value: Modules that workers cannot import; their functions are pickled whole.
    Raises:
        NotSerializable: Functions or arguments cannot be sent; lists every one of them, with node and argument.
        SpecError: No outputs, too many pickled bytes, more than one runtime environment.
        CycleError: A list among the arguments was changed after `.bind`, so that a node needs itself.
        GraphTypeError: An output is not a node, or an item of `by_value` is not a module.
    """
    named = _named(outputs)
    nodes = _in_order(named.values())
    ids = _ids(nodes)
    writer = FormWriter(ids)
    with pickled_by_value(by_value):
        written = {ids[node]: _written(node, ids, writer) for node in nodes}
    _check_params(params or {}, writer.problems)
    if writer.problems:
        raise NotSerializable(tuple(writer.problems))
    spec: dict[str, Any] = {
        "spec": "dag/1",
        "id": id,
        "tenant": tenant,
        "params": dict(params or {}),
        "on_error": on_error,
        "code": _code(nodes, ids),
        "nodes": written,
        "outputs": {name: {"$ref": ids[node]} for name, node in named.items()},
        "blobs": {sha256: base64.b64encode(data).decode() for sha256, data in writer.blobs.items()},
    }
    return {key: value for key, value in spec.items() if value not in (None, {})}


def _named(outputs: Outputs) -> dict[str, Node]:
    if isinstance(outputs, Node):
        return {RESULT: outputs}
    if not isinstance(outputs, (Mapping, Sequence)) or isinstance(outputs, str):
        raise GraphTypeError(f"{_shown(outputs)} is not a node; give a node (made by .bind), a list or a dict of nodes")
    named = dict(outputs) if isinstance(outputs, Mapping) else {str(place): node for place, node in enumerate(outputs)}
    if not named:
        raise SpecError((("/outputs", "no outputs; name at least one node"),))
    for name, node in named.items():
        if not isinstance(node, Node):
            raise GraphTypeError(f"the output {name!r} is {_shown(node)}, not a node; nodes are made by .bind")
    return named


def _shown(given: Any) -> str:
    described = foreign(given)
    if isinstance(given, Task):
        described = "not bound: give f.bind(…)"
    elif callable(given) and not described:
        described = "a function: give what it returns, or a node of it, dag.bind(f, …)"
    return f"{given!r} ({described})" if described else repr(given)


def _in_order(outputs: Iterable[Node]) -> tuple[Node, ...]:
    """Return everything that the outputs need, each node once, after its needs."""
    opened: dict[Node, None] = {}  #: The path from an output to the present node.
    done: dict[Node, None] = {}
    pending: list[tuple[Node, bool]] = [(node, False) for node in reversed(list(outputs))]
    while pending:
        node, are_needs_done = pending.pop()
        if are_needs_done:
            del opened[node]
            done[node] = None
        elif node in opened:
            path = list(opened)
            # Each node on the path needs the next one; values flow in the opposite direction.
            circle = [node, *reversed(path[path.index(node) + 1 :])]
            raise CycleError((("/nodes", circle_in_words([NodeId(repr(each)) for each in circle])),))
        elif node not in done:
            opened[node] = None
            pending.append((node, True))
            pending.extend((need, False) for need in reversed(list(_needs(node))) if need not in done)
    return tuple(done)


def _needs(node: Node) -> Iterator[Node]:
    return nodes_in([*node.args, *node.kwargs.values(), *node.settings.after])


def _ids(nodes: Iterable[Node]) -> dict[Node, NodeId]:
    ids: dict[Node, NodeId] = {}
    taken: dict[str, int] = {}  #: Each name to its last number.
    for node in nodes:
        plain = _NOT_IN_IDS.sub("-", node.settings.name or name_of(node.function)).lstrip(".:[]-")
        base = name = plain[:_BASE_CHARS_MAX].rstrip("-") or "node"
        while name in taken:
            taken[base] += 1
            name = f"{base}-{taken[base]}"
        taken.setdefault(name, 1)
        ids[node] = NodeId(name)
    return ids


def _written(node: Node, ids: Mapping[Node, NodeId], writer: FormWriter) -> dict[str, Any]:
    place, name = pointer("/nodes", ids[node]), ids[node]
    args = [
        writer.argument(value, f"{place}/args/{index}", f"argument {words} of {name}")
        for index, (words, value) in enumerate(zip(_words_of_args(node), node.args, strict=True))
    ]
    kwargs = {
        key: writer.argument(value, pointer(f"{place}/kwargs", key), f"argument {key} of {name}") for key, value in node.kwargs.items()
    }
    described: dict[str, Any] = {
        "function": writer.function(node.function, f"{place}/function"),
        "args": args,
        "kwargs": kwargs,
        "after": list(dict.fromkeys(ids[need] for need in node.settings.after)),
        "options": node.settings.on_the_wire(),
    }
    return {key: value for key, value in described.items() if value}


def _words_of_args(node: Node) -> list[str]:
    """Return the names of the function's positional parameters, or their numbers if the signature is unknown."""
    signature = signature_of(node.function)
    words: list[str] = []
    for parameter in signature.parameters.values() if signature is not None else ():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            words.extend(f"{parameter.name}[{index}]" for index in range(len(node.args) - len(words)))
        elif parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            words.append(parameter.name)
    words.extend(str(index) for index in range(len(words), len(node.args)))
    return words[: len(node.args)]


def _check_params(params: Mapping[str, Any], problems: list[tuple[str, str]]) -> None:
    if not isinstance(params, Mapping):
        raise GraphTypeError(f"params takes a dict of plain data by name, like {{'day': '2026-11-20'}}, not {params!r}")
    for name, value in params.items():
        if exact_bytes(value, _PARAM_BYTES_MAX) is None:
            problems.append(
                (pointer("/params", name), f"is not plain JSON data of at most {_PARAM_BYTES_MAX // 1024} KiB: {type(value).__name__}")
            )


def _code(nodes: Iterable[Node], ids: Mapping[Node, NodeId]) -> dict[str, Any]:
    """Return the runtime environment of all nodes; a run has only one, because a runner has only one."""
    found: dict[str, Any] = {}
    first: Node | None = None
    for node in nodes:
        wanted = dict(node.settings.runtime_env)
        if wanted and first is None:
            found, first = wanted, node
        elif wanted and first is not None and wanted != found:
            described = f"{ids[first]} and {ids[node]} ask for different ones; all nodes of a graph share one, so submit them as two graphs"
            raise SpecError((("/code/runtime_env", described),))
    return {"runtime_env": found} if found else {}
