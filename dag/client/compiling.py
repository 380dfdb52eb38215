"""Compiles the nodes of a graph to columns, and to a `dag/1` spec."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from dag.client.array_source import ArraySource
from dag.client.control_flow import RootFunction
from dag.client.from_ray import foreign
from dag.client.graph_functions import GraphFunction
from dag.client.params import values_of
from dag.client.pickling import by_value as pickled_by_value
from dag.client.placeholders import LATER_CALL, CallList, GroupCalls, JobWorkers, Part, is_actor
from dag.client.programs import Program
from dag.client.ray_graphs import is_ray_graph, of_ray
from dag.client.tasks import Node, Task, name_of, signature_of
from dag.client.writing import PARTS_MAX, FormWriter, is_exact_scalar, nodes_in
from dag.errors import CycleError, GraphTypeError, NotSerializable, SpecError
from dag.spec.checks import LITERAL_BYTES_MAX
from dag.spec.columns import ColumnsBuilder, GraphColumns
from dag.spec.control import with_gates
from dag.spec.forms import scalar_bytes
from dag.spec.graph import circle_in_words
from dag.spec.strict_json import pointer
from mesh.core.functions import SELECTED, selected
from mesh.core.ids import NodeId
from mesh.stages.call_shapes import PLAIN, ShapeWriter

#: Outputs of a graph; nodes of Ray's own graphs count, a graph function stands for what it returns.
Outputs = Node | Part | GraphFunction | Mapping[str, Any] | Sequence[Any]

_ONLY_NODES = frozenset({Node})
#: Name of a single output.
RESULT = "result"
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
    beside: Iterable[ModuleType] = (),
    by_name: bool = False,
) -> dict[str, Any]:
    """Return the `dag/1` spec of everything that the outputs need: JSON, with the blobs as base64. As `compile_columns`."""
    columns = compile_columns(
        outputs, id=id, tenant=tenant, params=params, on_error=on_error, by_value=by_value, beside=beside, by_name=by_name
    )
    return columns.as_json()


def compile_columns(
    outputs: Outputs,
    *,
    id: str | None = None,  # noqa: A002  the wire's own word
    tenant: str | None = None,
    params: Mapping[str, Any] | None = None,
    on_error: str = "fail_fast",
    by_value: Iterable[ModuleType] = (),
    beside: Iterable[ModuleType] = (),
    by_name: bool = False,
) -> GraphColumns:
    """Return everything that the outputs need, as columns.

    A node's id is its `name` or its function's name, with `-2`, `-3` where that is taken. The needs of a node come before it, its
    arguments from left to right. The same graph gets the same ids in every process.

    Args:
        outputs: One node (called `result`), several (named by their positions, from `0`), or several by name. Nodes of `ray.dag` too.
        params: Values of the parameters in the graph (`dag.param`): plain JSON data.
        by_value: Modules that workers cannot import; their functions are pickled whole.
        beside: Modules beside the user's script, treated alike where that is possible.
        by_name: Name the functions, `module:qualname`, instead of sending them.

    Raises:
        NotSerializable: Functions or arguments cannot be sent; lists every one of them, with node and argument.
        SpecError: No outputs, too many pickled bytes, parameters without a value or without a use.
        CycleError: A list among the arguments was changed after `.bind`, so that a node needs itself.
        GraphTypeError: An output is not a node, or an item of `by_value` is not a module.
    """
    named = _named(of_ray(outputs.outputs() if isinstance(outputs, GraphFunction) else outputs))
    compiler = _Compiler(by_name=by_name)
    with pickled_by_value(by_value, beside):
        compiler.add([_node_of(output) for output in named.values()])
    if compiler.writer.problems:
        raise NotSerializable(tuple(compiler.writer.problems))
    values = values_of(compiler.writer.params, {} if params is None else params)
    ids, runtime_env = compiler.built.ids, compiler.shared_env()
    head: dict[str, Any] = {
        "spec": "dag/1",
        "id": id,
        "tenant": tenant,
        "params": values,
        "on_error": on_error,
        "code": {"runtime_env": runtime_env} if runtime_env else {},
        "digests": compiler.writer.digests,
        "outputs": {name: _output(output, ids[compiler.place_of[_node_of(output)]]) for name, output in named.items()},
    }
    return GraphColumns(
        head={key: value for key, value in head.items() if value not in (None, {})},
        calls=with_gates(compiler.built.calls()),
        options=compiler.options_table(),
        blobs=compiler.writer.blobs,
    )


class _Compiler:
    """Appends nodes to columns in one pass, each after its needs."""

    def __init__(self, *, by_name: bool) -> None:
        self._by_name = by_name
        self.place_of: dict[Node, int] = {}  #: The nodes that were appended.
        self.built = ColumnsBuilder()
        self.writer = FormWriter(self.place_of, by_name=by_name)
        self._envs: dict[str, dict[str, Any]] = {}  #: Runtime environments of nodes, by their text; one of none counts.
        self._last = Node(None, (), {}, None)  # type: ignore[arg-type]  # no node has these
        self._last_known = (0, 0, "")  #: Function, options and name of the last node.
        self._known: dict[tuple[int, int], tuple[int, int, str]] = {}  #: Function, options and name of nodes, by the `id` of both.
        self._functions: dict[int, int] = {}  #: Place of functions in their table, by their `id`.
        self._taken: dict[str, int] = {}  #: Each name to its last number.
        self._readers: dict[int, int] = {}  #: Place of shapes whose arguments are different nodes, by their number.
        self._simple: dict[tuple[Any, ...], int] = {}  #: Place of shapes whose arguments are nodes and plain values, by their holes.

    def add(self, outputs: Iterable[Node]) -> None:
        """Append everything that the outputs need."""
        place_of = self.place_of
        opened: dict[Node, None] = {}  #: The path from an output to the present node.
        pending: list[Node | None] = list(outputs)  #: None: the needs of the last node on the path are done.
        pending.reverse()
        while pending:
            node = pending.pop()
            if node is None:
                node, _ = opened.popitem()
            elif node in place_of:
                continue
            elif node in opened:
                raise _circle(list(opened), node)
            elif needs := self._open_needs(node):
                opened[node] = None
                pending.append(None)
                needs.reverse()
                pending += needs
                continue
            self._append(node)

    def shared_env(self) -> dict[str, Any]:
        """Return the runtime environment of all nodes, in which the runner works; empty: they have none, or different ones."""
        return next(iter(self._envs.values())) if len(self._envs) == 1 else {}

    def options_table(self) -> tuple[Mapping[str, Any], ...]:
        """Return the table of options, without a runtime environment that all nodes share."""
        table = self.built.options_table()
        if not self.shared_env():
            return table
        return tuple({name: value for name, value in options.items() if name != "runtime_env"} for options in table)

    def _open_needs(self, node: Node) -> list[Node]:
        """Return the nodes that this node needs and that are not appended yet, in reading order, with repeats."""
        place_of = self.place_of
        needs: list[Node] = []
        for given in (node.args, node.kwargs.values(), node.settings.after):
            for value in given:
                kind = type(value)
                if kind is Node:
                    if value not in place_of:
                        needs.append(value)
                elif kind is list or kind is tuple or kind is dict or kind is Part:
                    needs += [need for need in nodes_in([value]) if need not in place_of]
                elif kind is ArraySource:
                    needs += [need for need in value.needs if need not in place_of]
                elif kind is CallList or kind is JobWorkers or kind is GroupCalls:
                    needs += [need for need in nodes_in(list(value.arguments())) if need not in place_of]
        return needs

    def _append(self, node: Node) -> None:
        built, place_of, given = self.built, self.place_of, node
        if node.kwargs and node.settings.cache:
            node = _by_position(node)
        if node.function is selected and node.settings.name is None:
            own, (function, kind, _) = self._output_of(node)
        elif node.function is self._last.function and node.settings is self._last.settings:
            function, kind, base = self._last_known
            number = self._taken[base]
            if (own := f"{base}-{number + 1}") in self._taken:
                own = self._free_name(base)
            else:
                self._taken[base], self._taken[own] = number + 1, 1
        else:
            own, (function, kind, _) = self._change_to(node)
        inputs: Collection[int]
        if not node.kwargs and _ONLY_NODES.issuperset(map(type, node.args)):
            inputs = [place_of[need] for need in node.args]
            found = self._readers.get(len(inputs)) if len(inputs) == 1 or len(set(inputs)) == len(inputs) else None
            if found is None:
                found, inputs = self._shape_of(node, own)
        else:
            found, inputs = self._shape_of(node, own)
        place = len(built.ids)
        built.ids.append(own)
        built.function.append(function)
        built.shape.append(found)
        built.kind.append(kind)
        built.inputs += inputs
        if node.settings.after:
            needs = [need for need in dict.fromkeys(place_of[need] for need in node.settings.after) if need not in inputs]
            built.after += needs
            built.ordered += [place] * len(needs)
        place_of[given] = place

    def _change_to(self, node: Node) -> tuple[str, tuple[int, int, str]]:
        """Return the id of a node that has another function, or other options, than the node before, and what it shares with others."""
        pair = (id(node.function), id(node.settings))
        known = self._known.get(pair)
        own = self._free_name(self._base_of(node) if known is None else known[2])
        if known is None:
            known = self._known[pair] = self._meet(node, own)
        self._last, self._last_known = node, known
        return own, known

    def _output_of(self, node: Node) -> tuple[str, tuple[int, int, str]]:
        """Return the id of a node that selects an output of another, `split[0]`, and what it shares with others."""
        (part,) = node.args
        own = self._free_name(f"{self.built.ids[self.place_of[part.node]]}[{part.path[0]}]")
        pair = (id(node.function), id(node.settings))
        known = self._known.get(pair)
        if known is None:
            known = self._known[pair] = self.built.function_at(SELECTED), self.built.options_at(node.settings.on_the_wire()), own
        return own, known

    def _shape_of(self, node: Node, own: str) -> tuple[int, Collection[int]]:
        """Return the place of the node's shape, and its inputs; append its plain values."""
        read: dict[int, int] = {}  #: Places of the inputs, with their numbers.
        holes: list[int | None] = []  #: Numbers of inputs; None for plain values.
        values: list[Any] = []
        for value in (*node.args, *node.kwargs.values()) if node.kwargs else node.args:
            kind = type(value)
            if kind is Node:
                holes.append(read.setdefault(self.place_of[value], len(read)))
            elif kind in PLAIN and is_exact_scalar(value) and (kind is not str or scalar_bytes(value) <= LITERAL_BYTES_MAX):
                holes.append(None)
                values.append(value)
            else:
                shape, read, values = self._full_shape(node, own)
                self.built.values += values
                return shape, read
        key = (len(node.args), *node.kwargs, *holes) if node.kwargs else tuple(holes)
        found = self._simple.get(key)
        if found is None:
            found = self._simple[key] = self._full_shape(node, own)[0]
            if not node.kwargs and len(read) == len(holes):
                self._readers[len(holes)] = found
        self.built.values += values
        return found, read

    def _base_of(self, node: Node) -> str:
        plain = _NOT_IN_IDS.sub("-", node.settings.name or name_of(node.function)).lstrip(".:[]-")
        return plain[:_BASE_CHARS_MAX].rstrip("-") or "node"

    def _free_name(self, base: str) -> str:
        """Return the first free id of a node with this name, and take it."""
        name, taken = base, self._taken
        while name in taken:
            taken[base] += 1
            name = f"{base}-{taken[base]}"
        taken.setdefault(name, 1)
        return name

    def _meet(self, node: Node, own: str) -> tuple[int, int, str]:
        """Return the places of function and options in their tables, and the name, at the first node of its kind."""
        settings, function = node.settings, self._functions.get(id(node.function))
        if isinstance(node.function, RootFunction):
            function = self.built.function_at(node.function.wire)
        elif isinstance(node.function, Program):
            function = self.built.function_at(node.function.key)
        elif function is None:
            place = f"{pointer('/nodes', own)}/function"
            if self._by_name or node.function is selected:
                named = self.writer.name_of(node.function, place)
            else:
                named = f"blob:{self.writer.function(node.function, place)}"
            function = self._functions[id(node.function)] = self.built.function_at(named)
        if settings.cache and node.function is not selected:
            self._note_cached(node, tuple(self.built.functions)[function], f"{pointer('/nodes', own)}/function")
        self._note_env(settings.runtime_env, own)
        return function, self.built.options_at(settings.on_the_wire()), self._base_of(node)

    def _note_cached(self, node: Node, named: str, place: str) -> None:
        if named.startswith(("blob:", "call:")):
            self.writer.note_function(node.function, named, place)

    def _note_env(self, env: Mapping[str, Any], own: str) -> None:
        try:
            text = json.dumps(env, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as broken:
            raise SpecError(((f"{pointer('/nodes', own)}/options/runtime_env", f"is not plain JSON data: {broken}"),)) from None
        self._envs.setdefault(text, dict(env))

    def _full_shape(self, node: Node, own: str) -> tuple[int, dict[int, int], list[Any]]:
        """Return the place of the node's shape, its inputs with their numbers, and its plain values."""
        place, written = pointer("/nodes", own), ShapeWriter()
        self.writer.is_cached = bool(node.settings.cache)
        args = [
            self._part(written, value, f"{place}/args/{index}", f"argument {words} of {own}")
            for index, (words, value) in enumerate(zip(_words_of_args(node), node.args, strict=True))
        ]
        kwargs = {
            name: self._part(written, value, pointer(f"{place}/kwargs", name), f"argument {name} of {own}")
            for name, value in node.kwargs.items()
        }
        return self.built.shape_at(args, kwargs, written), written.inputs, written.values

    def _part(self, written: ShapeWriter, value: Any, place: str, words: str) -> Any:
        if type(value) is list and len(value) <= PARTS_MAX and all(type(part) is Node for part in value):
            run = written.run([self.place_of[node] for node in value])
            if run is not None:
                return run
        return written.argument(self.writer.argument(value, place, words), _as_it_is)


def _by_position(node: Node) -> Node:
    """Return the same call with its arguments by position where they can be, so that equal calls have equal keys."""
    signature = signature_of(node.function)
    if signature is None:
        return node
    bound = signature.bind(*node.args, **node.kwargs)
    return Node(node.function, bound.args, bound.kwargs, node.settings)


def _as_it_is(place: int) -> int:
    return place


def _circle(path: list[Node], node: Node) -> CycleError:
    # Each node on the path needs the next one; values flow in the opposite direction.
    circle = [node, *reversed(path[path.index(node) + 1 :])]
    actors = [each for each in circle if is_actor(each)]
    if actors:
        return CycleError((("/nodes", f"a call of the actor {actors[0]!r} {LATER_CALL}"),))
    return CycleError((("/nodes", circle_in_words([NodeId(repr(each)) for each in circle])),))


def is_output(value: Any) -> bool:
    """Return whether the value may be an output of a graph: a node, a part of one, or a node of Ray's own graphs."""
    return isinstance(value, (Node, Part)) or is_ray_graph(value)


def _node_of(output: Node | Part) -> Node:
    return output.node if isinstance(output, Part) else output


def _output(output: Node | Part, node: str) -> dict[str, Any]:
    return {"$ref": node, "path": list(output.path)} if isinstance(output, Part) else {"$ref": node}


def _named(outputs: Any) -> dict[str, Node | Part]:
    if isinstance(outputs, (Node, Part)):
        return {RESULT: outputs}
    if not isinstance(outputs, (Mapping, Sequence)) or isinstance(outputs, str):
        raise GraphTypeError(f"{_shown(outputs)} is not a node; give a node (made by .bind), a list or a dict of nodes")
    named = dict(outputs) if isinstance(outputs, Mapping) else {str(place): node for place, node in enumerate(outputs)}
    if not named:
        raise SpecError((("/outputs", "no outputs; name at least one node"),))
    for name, node in named.items():
        if not isinstance(node, (Node, Part)):
            raise GraphTypeError(f"the output {name!r} is {_shown(node)}, not a node; nodes are made by .bind")
    return named


def _shown(given: Any) -> str:
    described = foreign(given)
    if isinstance(given, Task):
        described = "not bound: give f.bind(…)"
    elif callable(given) and not described:
        described = "a function: give what it returns, or a node of it, dag.bind(f, …)"
    return f"{given!r} ({described})" if described else repr(given)


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
