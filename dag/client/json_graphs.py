"""Graphs of importable functions as JSON, and back; graphs as networkx sees them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from dag.client.array_source import ArraySource
from dag.client.compiling import Outputs, compile_columns, compile_graph
from dag.client.placeholders import NO_DEFAULT, CallList, GroupCall, GroupCalls, JobWorkers, Part, param
from dag.client.tasks import Node, Options, plain_of
from dag.errors import SpecError
from dag.spec.array_forms import array_key, is_stream
from dag.spec.column_checks import graph_of
from dag.spec.document import NodeSpec
from dag.spec.graph import as_networkx
from dag.spec.spec import DagSpec, parse
from dag.spec.strict_json import pointer
from mesh.core.functions import CALLS, GROUP, JOB, SELECTED, group_mode, selected
from mesh.errors import RuntimeAdapterError
from mesh.jobs.gang_form import CODE_KEYS, worker_sets_of
from mesh.stages.arguments import resolve
from mesh.stages.arrays import ARITY_USUAL, REDUCE, SLICES


def to_spec(
    outputs: Outputs,
    *,
    id: str | None = None,  # noqa: A002  the wire's own word
    tenant: str | None = None,
    params: Mapping[str, Any] | None = None,
    on_error: str = "fail_fast",
) -> dict[str, Any]:
    """Return a graph as JSON, with its functions by name: `module:qualname`. `from_spec` reads it back.

    Args:
        params: Values of the parameters in the graph.

    Raises:
        NotSerializable: A function has no name by which a worker can import it; lists every one.
        SpecError: The graph is wrong.
    """
    return compile_graph(outputs, id=id, tenant=tenant, params=params, on_error=on_error, by_name=True)


def from_spec(spec: Mapping[str, Any] | str | bytes) -> dict[str, Node | Part]:
    """Return the outputs of a graph as JSON, by name, as nodes. Imports its functions, and takes its parameters as defaults.

    Raises:
        SpecError: The graph is wrong; a function cannot be imported; it holds pickles, which are code of whoever wrote it; or no output
            needs a node.
    """
    body = spec if isinstance(spec, bytes) else spec.encode() if isinstance(spec, str) else json.dumps(spec).encode()
    return _Reader(parse(body)).outputs()


def to_networkx(outputs: Outputs, *, params: Mapping[str, Any] | None = None) -> Any:
    """Return a graph as a `networkx.DiGraph`: nodes by id, with `function` and `options`; edges follow the flow of values.

    Args:
        params: Values of the parameters in the graph.
    """
    columns = compile_columns(outputs, params=params)
    calls = columns.calls
    view = as_networkx(graph_of(calls))
    for place, node in enumerate(calls.ids):
        view.nodes[node].update(function=calls.functions[calls.function[place]], options=dict(columns.options[calls.kind[place]]))
    view.graph.update(outputs=dict(columns.head["outputs"]))
    return view


class _Reader:
    """Makes the nodes of a checked graph."""

    def __init__(self, spec: DagSpec) -> None:
        self._spec = spec
        self._made: dict[str, Node] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._settings: dict[tuple[int, str], Options] = {}

    def outputs(self) -> dict[str, Node | Part]:
        spec, ids = self._spec, self._spec.calls.ids
        problems = [
            (pointer("/nodes", node), "no output needs this node; name it as an output") for node in ids if node not in self._needed()
        ]
        if spec.columns.blobs:
            problems.append(("/blobs", "pickles are not read: they are code of whoever wrote them; write the graph by dag.to_spec"))
        if problems:
            raise SpecError(tuple(problems))
        for place in spec.order.tolist():
            self._made[ids[place]] = self._node(ids[place], spec.nodes[ids[place]])
        return {
            name: Part(self._made[output.node], tuple(output.path)) if output.path else self._made[output.node]
            for name, output in spec.outputs.items()
        }

    def _needed(self) -> set[str]:
        needs = self._spec.graph().needs
        pending: list[Any] = [output.node for output in self._spec.outputs.values()]
        found: set[str] = set()
        while pending:
            node = pending.pop()
            if node not in found:
                found.add(node)
                pending += needs[node]
        return found

    def _node(self, own: str, described: NodeSpec) -> Node:
        call = str(described.call)
        args = tuple(self._argument(form, own) for form in described.args)
        kwargs = {name: self._argument(form, own) for name, form in described.kwargs.items()}
        if f"call:{call}" == SELECTED and len(args) == 1 and isinstance(args[0], Part) and len(args[0].path) == 1:
            whole, step = args[0].node, args[0].path[0]
            if own == f"{whole.settings.name}[{step}]" and whole.settings.num_returns:
                return whole[step]  # type: ignore[no-any-return]  # an output of that node
        given = described.options.over(self._spec.defaults).model_dump(exclude_none=True)
        if self._spec.code.runtime_env:
            given.setdefault("runtime_env", self._spec.code.runtime_env)
        if "retry_exceptions" in given:
            given["retry_exceptions"] = [
                self._imported(kind.rpartition(".")[0], kind.rpartition(".")[2], own) for kind in given["retry_exceptions"]
            ]
        function = self._function(call, own, is_class=any(map(_has_class, (*args, *kwargs.values()))))
        after = [self._made[need] for need in described.after]
        return Node(function, args, kwargs, Options().changed({**given, "name": own, "after": after}, function))

    def _argument(self, form: Any, own: str) -> Any:
        """Return a whole argument, which may be the items of an array, the calls of an actor, or a job."""
        key = array_key(form)
        if type(form) is dict and CALLS in form:
            return CallList([(method, tuple(map(self._value, args)), self._value(kwargs)) for method, args, kwargs in form[CALLS]])
        if type(form) is dict and GROUP in form:
            return self._group(form[GROUP])
        if type(form) is dict and JOB in form:
            return self._job(form[JOB], own)
        if key is None:
            return self._value(form)
        items = form[key]
        if isinstance(items, dict) and SLICES in items:
            items = [item for piece in items[SLICES] for item in piece]
        return ArraySource(
            self._value(items),
            arity=form.get("arity", ARITY_USUAL) if key == REDUCE else None,
            is_star=form.get("star", False),
            parts=form.get("parts"),
            is_stream=is_stream(form),
        )

    def _group(self, group: Mapping[str, Any]) -> GroupCalls:
        calls = []
        for call in group["calls"]:
            mode = group_mode(call)
            args, kwargs = tuple(map(self._value, call.get("args", ()))), self._value(call.get("kwargs", {}))
            ways = {name: way for name, way in call.items() if name in ("dispatch_fn", "collect_fn", "strategy")}
            calls.append(GroupCall(mode, call[mode], args, kwargs, ways))
        return GroupCalls(calls, group.get("shape"))

    def _job(self, job: Mapping[str, Any], own: str) -> JobWorkers:
        sets = worker_sets_of(job)
        described = {key: value for key, value in job.items() if key not in ("workerSets", "worker_sets")}
        if sets:
            described["workerSets"] = [{key: value for key, value in part.items() if key not in CODE_KEYS} for part in sets]
        return JobWorkers(
            described,
            {part["name"]: self._function(part["call"], own, is_class="method" in job) for part in sets},
            {part["name"]: tuple(map(self._value, part["args"])) for part in sets if part.get("args")},
            {part["name"]: self._value(part["kwargs"]) for part in sets if part.get("kwargs")},
        )

    def _value(self, form: Any) -> Any:
        """Return an argument: a node for a `$ref`, a parameter for a `$param`."""
        if isinstance(form, dict) and len(form) == 1 and "$param" in form:
            name = form["$param"]
            return param(name, default=self._spec.params.get(name, NO_DEFAULT))
        if isinstance(form, dict) and "$ref" in form and form.get("path"):
            return Part(self._made[form["$ref"]], tuple(form["path"]))
        if isinstance(form, list):
            return [self._value(part) for part in form]
        if isinstance(form, dict) and len(form) == 1 and "$tuple" in form:
            return tuple(self._value(part) for part in form["$tuple"])
        if isinstance(form, dict) and not any(key in form for key in ("$ref", "$uri", "$blob")):
            return {key[1:] if key.startswith("$$") else key: self._value(part) for key, part in form.items()}
        return resolve(form, value_of=self._made.__getitem__, blob_of=_no_pickles)

    def _function(self, call: str, own: str, *, is_class: bool) -> Callable[..., Any]:
        if f"call:{call}" == SELECTED:
            return selected
        if call not in self._functions:
            module, _, qualname = call.partition(":")
            found = self._imported(module, qualname, own)
            if isinstance(plain_of(found), type) is not is_class or not callable(plain_of(found)):
                raise SpecError(((f"{pointer('/nodes', own)}/call", f"{call} is not a {'class' if is_class else 'function'}"),))
            self._functions[call] = plain_of(found)
        return self._functions[call]

    def _imported(self, module: str, qualname: str, own: str) -> Any:
        try:
            found: Any = import_module(module) if module not in sys.modules else sys.modules[module]
            for part in qualname.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as missing:
            raise SpecError(((pointer("/nodes", own), f"{module}:{qualname} cannot be imported here: {missing}"),)) from None
        return found


def _has_class(argument: Any) -> bool:
    """Return whether the function of a node with this argument is a class."""
    return type(argument) in (CallList, GroupCalls) or (type(argument) is JobWorkers and "method" in argument.described)


def _no_pickles(sha256: str) -> Any:
    raise RuntimeAdapterError(f"{sha256} is a pickle")
