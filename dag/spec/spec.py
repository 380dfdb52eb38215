"""A graph as the root reads it: `dag/1`, checked, as columns.

    {"spec": "dag/1", "id": "nightly-7", "tenant": "ads", "params": {"day": "2026-11-20"}, "defaults": {"retries": 2},
     "nodes": {"split": {"call": "ads.etl:split", "args": [{"$param": "day"}]},
               "score": {"call": "ads.ml:score", "args": [{"$ref": "split"}], "options": {"num_gpus": 1}, "after": []}},
     "outputs": {"scores": {"$ref": "score"}}}

A function is named (`call`: `module:qualname`) or sent (`function`: `{"$blob": sha256}`, with the pickled bytes in `blobs` as
base64). `mesh.stages.spec` describes the forms of arguments; `{"$param": name}` takes a value of `params`. People and other languages
write this JSON. The Python client sends the same graph as columns (`dag.spec.columns`), and the store keeps it so. This module
unpickles nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dag.errors import CycleError, SpecError
from dag.spec.array_forms import too_many_words
from dag.spec.arrays import expanded_size, has_arrays
from dag.spec.checks import FILLED_BYTES_MAX, NODES_MAX, Problem, SpecChecks, repeated_words
from dag.spec.column_checks import ColumnChecks
from dag.spec.columns import ColumnsBuilder, GraphColumns, unpacked
from dag.spec.control import as_json, is_control, values_of_root, with_gates
from dag.spec.document import (
    NO_OPTIONS,
    CodeSpec,
    GraphDocument,
    GraphHead,
    NodeSpec,
    OutputSpec,
    PickledFunction,
    ProgramSpec,
    program_of,
    validated,
)
from dag.spec.forms import escaped
from dag.spec.forms import filled as with_params
from dag.spec.graph import Graph, Places, order_of
from dag.spec.job_forms import gang_of, job_of
from dag.spec.options import KEPT, ONE_BUNDLE, GangOptions, NodeOptions, amounts_of
from dag.spec.strict_json import pointer, read_with_doubles
from mesh.core.counting import counted
from mesh.core.functions import PROGRAM, key_of
from mesh.core.ids import NodeId
from mesh.stages.call_shapes import Form, Shape, ShapeWriter, filled
from mesh.stages.calls import Calls
from mesh.stages.calls import unpacked as calls_of

#: Limit on the listed problems; further ones are only counted.
PROBLEMS_MAX = 200
#: Parts of the head that are no part of the graph's identity.
_NOT_IDENTITY = {"id", "user", "labels", "wait_for_capacity"}


@dataclass(frozen=True, eq=False, kw_only=True)
class DagSpec:
    """A checked graph; `parse` and `parse_columns` return one."""

    head: GraphHead
    columns: GraphColumns
    options: tuple[NodeOptions, ...]  #: `columns.calls.kind` is the place of a node's options.

    @property
    def calls(self) -> Calls:
        """Return the nodes as columns."""
        return self.columns.calls

    @property
    def id(self) -> str | None:
        """Return the id of the run."""
        return self.head.id

    @property
    def tenant(self) -> str | None:
        """Return the tenant whose quota the run uses."""
        return self.head.tenant

    @property
    def user(self) -> str | None:
        """Return the user of the run."""
        return self.head.user

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of the run."""
        return self.head.labels

    @property
    def params(self) -> Mapping[str, Any]:
        """Return the plain values that `$param` takes."""
        return self.head.params

    @property
    def defaults(self) -> NodeOptions:
        """Return the default options of all nodes."""
        return self.head.defaults

    @property
    def on_error(self) -> str:
        """Return `fail_fast` or `continue`."""
        return self.head.on_error

    @property
    def stage_deadline_s(self) -> float | None:
        """Return the time limit for a mesh to run a stage, in seconds."""
        return self.head.stage_deadline_s

    @property
    def deadline_s(self) -> float | None:
        """Return the time limit of the run, in seconds."""
        return self.head.deadline_s

    @property
    def wait_for_capacity(self) -> bool:
        """Return whether nodes that no mesh could ever run are accepted."""
        return self.head.wait_for_capacity

    @property
    def code(self) -> CodeSpec:
        """Return the environment of the functions."""
        return self.head.code

    @property
    def outputs(self) -> Mapping[str, OutputSpec]:
        """Return the outputs by name."""
        return self.head.outputs

    @cached_property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """Return the nodes by id, in the order of the graph; each is made when it is asked for."""
        return _Nodes(self)

    @cached_property
    def order(self) -> Places:
        """Return the places of the nodes in topological order; among candidates, the first in the graph comes first.

        Raises:
            CycleError: The graph contains a circle, because it was not checked.
        """
        needed, waiting = self.calls.edges()
        order = order_of(len(self.calls), needed, waiting)
        if order is None:
            raise CycleError((("/nodes", "the graph runs in a circle"),))
        return order

    def needs_of(self, node: str) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
        """Return the nodes whose values `node` reads, then those that it only waits for; each once, in reading order."""
        place = self.calls.place_of[NodeId(node)]
        return self.calls.inputs_of(place), self.calls.after_of(place)

    def graph(self) -> Graph:
        """Return the nodes with their dependencies."""
        return Graph(dict(zip(self.calls.ids, self.calls.needs(), strict=True)))

    def blob_bytes(self) -> dict[str, bytes]:
        """Return the bytes to keep beside the graph, by their SHA-256: pickled ones, which were checked, and values that the root makes."""
        return {**self.columns.blobs, **values_of_root(self.calls.functions)}


class _Nodes(Mapping[str, NodeSpec]):
    """Nodes by id, made when they are asked for."""

    def __init__(self, spec: DagSpec) -> None:
        self._spec = spec
        self._calls = spec.calls

    def __getitem__(self, node: str) -> NodeSpec:
        call = self._calls.call(self._calls.place_of[NodeId(node)])
        kind, _, name = call.function.partition(":")
        if is_control(call.function):
            described = {**as_json(call.function, call.args), "after": list(call.after)}
            return NodeSpec.model_validate(described).model_copy(update={"options": self._spec.options[call.kind]})
        is_program = call.function.startswith(PROGRAM)
        return NodeSpec.model_construct(
            call=name if kind == "call" else None,
            function=PickledFunction.model_construct(sha256=name) if kind == "blob" else None,
            program=ProgramSpec.model_validate(program_of(call.args, call.kwargs), context=KEPT) if is_program else None,
            args=[] if is_program else list(call.args),
            kwargs={} if is_program else call.kwargs,
            after=list(call.after),
            options=self._spec.options[call.kind],
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls.ids)

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, node: object) -> bool:
        return node in self._calls.place_of


def parse(body: bytes) -> DagSpec:
    """Read and check a graph as JSON from an untrusted client.

    Raises:
        SpecError: Lists all problems, each with its place.
        CycleError: The graph contains a circle; lists the other problems too.
    """
    raw, doubles = read_with_doubles(body)
    if not isinstance(raw, dict):
        raise SpecError((*doubles, ("", "must be an object: a graph of the form dag/1")))
    checks = SpecChecks(raw)
    checks.run()
    document, problems = validated(GraphDocument, raw)
    problems = (*doubles, *problems, *checks.problems)
    if document is None or problems:
        raise _refusal(problems, checks.has_circle)
    return _checked_arrays(_of_document(document))


def parse_columns(body: bytes) -> DagSpec:
    """Read and check a graph as columns from an untrusted client. Raises as `parse`."""
    checks = ColumnChecks(body)
    columns = checks.run()
    if columns is None or checks.head is None:
        raise _refusal(checks.problems, checks.has_circle)
    return _checked_arrays(DagSpec(head=checks.head, columns=columns, options=checks.options))


def _checked_arrays(spec: DagSpec) -> DagSpec:
    """Return the graph. Raises SpecError if its arrays have too many parts, or too much literal data in all of them."""
    if not has_arrays(spec.calls.shapes):
        return spec
    size = expanded_size(filled_calls(spec))
    problems = []
    if size.parts > NODES_MAX:
        problems.append(("/nodes", too_many_words(size.parts, NODES_MAX)))
    if size.literal_bytes > FILLED_BYTES_MAX:
        problems.append((pointer("/nodes", size.largest), repeated_words(size.literal_bytes, size.parts_of_largest)))
    if problems:
        raise SpecError(tuple(problems))
    return spec


def filled_calls(spec: DagSpec) -> Calls:
    """Return the nodes as columns, in topological order, with parameters filled in."""
    is_ordered = bool(np.all(spec.order == np.arange(len(spec.calls))))
    calls = spec.calls if is_ordered else spec.calls.take(spec.order)
    params = {name: escaped(value) for name, value in spec.params.items()}
    if not params:
        return calls
    shapes = tuple(
        replace(
            shape,
            args=tuple(with_params(form, params) for form in shape.args),
            kwargs={name: with_params(form, params) for name, form in shape.kwargs.items()},
        )
        for shape in calls.shapes
    )
    return replace(calls, shapes=shapes)


def kept_form(spec: DagSpec) -> bytes:
    """Return the graph as columns without the bytes of its blobs, which the store keeps beside it; `load` reads the result."""
    return spec.columns.packed(with_blobs=False)


def load(kept: bytes) -> DagSpec:
    """Read a graph that was checked when it was accepted; also one that an older root kept as JSON.

    Raises:
        SpecError: The bytes do not have the shape of a graph.
    """
    document = None
    if kept[:1] == b"{":
        try:
            raw = json.loads(kept)
        except ValueError as broken:
            raise SpecError((("", f"not JSON: {broken}"),)) from None
        document, problems = validated(GraphDocument, raw, context=KEPT)
        if document is None:
            raise SpecError(problems)
    try:
        return _of_kept(unpacked(kept)) if document is None else _of_document(document)
    except (ValueError, TypeError, KeyError, IndexError) as broken:
        raise broken if isinstance(broken, SpecError) else SpecError((("", f"the columns are damaged: {broken!r}"),)) from None


def outputs_of(kept: bytes) -> Mapping[str, OutputSpec]:
    """Return the outputs of a graph in its kept form, without reading the rest. Raises SpecError as `load`."""
    if kept[:1] == b"{":
        return load(kept).outputs
    head, problems = validated(GraphHead, json.loads(unpacked(kept)["graph"]), context=KEPT)
    if head is None:
        raise SpecError(problems)
    return head.outputs


def digest(spec: DagSpec) -> str:
    """Return the SHA-256 of the graph without id, user, `wait_for_capacity`, the order of keys, and options that equal their default.

    Both forms of a graph have the same digest: nodes are taken in the order of their ids, and tables in the order of their entries.
    """
    calls = spec.calls
    by_id = np.array(sorted(range(len(calls)), key=calls.ids.__getitem__), np.int64)
    shapes = [_sorted_shape(shape) for shape in calls.shapes]
    rows = _renumbered(calls, shapes).take(by_id)
    hashed = hashlib.sha256(_plain_text(spec.head.model_dump(by_alias=True, exclude_defaults=True, exclude=_NOT_IDENTITY)).encode())
    hashed.update("\n".join(rows.ids).encode())
    options = [_plain_text(each.model_dump(by_alias=True, exclude_defaults=True)) for each in spec.options]
    for table, column in (
        (calls.functions, calls.function),
        ([shape.text for shape in shapes], calls.shape),
        (options, calls.kind),
    ):
        entries = sorted({table[place] for place in np.unique(column).tolist()})
        place_of = {entry: place for place, entry in enumerate(entries)}
        hashed.update(_plain_text(entries).encode())
        hashed.update(np.array([place_of.get(entry, 0) for entry in table], "<u4")[column[by_id]].tobytes())
    hashed.update(rows.inputs.astype("<u4").tobytes())
    hashed.update(_plain_text(list(rows.values)).encode())
    hashed.update(np.stack((rows.ordered, rows.after)).astype("<u4").tobytes())
    return hashed.hexdigest()


@dataclass(frozen=True, slots=True)
class _SortedShape:
    """A shape with sorted keys, as text, and what sorting does to the numbers of its holes."""

    text: str
    inputs: list[int] | None = None  #: The former number of each input; None: as before.
    values: list[int] | None = None


def _sorted_shape(shape: Shape) -> _SortedShape:
    form = [shape.args, shape.kwargs]
    text = _plain_text(form)
    if text == json.dumps(form, separators=_TIGHT, ensure_ascii=False):
        return _SortedShape(text)
    written, own = ShapeWriter(), tuple(range(shape.inputs))
    values: list[int] = []

    def part(form: Form) -> Form:
        if isinstance(form, dict) and "$value" in form:
            values.append(form["$value"])
            return {"$value": len(values) - 1}
        return written.argument(_with_sorted_keys(filled(form, own, ())), lambda number: number)  # type: ignore[arg-type]  # numbers as names

    args = [part(form) for form in shape.args]
    kwargs = {name: part(shape.kwargs[name]) for name in sorted(shape.kwargs)}
    return _SortedShape(_plain_text([args, kwargs]), list(written.inputs), values)


def _with_sorted_keys(form: Form) -> Form:
    if isinstance(form, dict):
        return {key: _with_sorted_keys(form[key]) for key in sorted(form)}
    return [_with_sorted_keys(part) for part in form] if isinstance(form, list) else form


def _renumbered(calls: Calls, shapes: Sequence[_SortedShape]) -> Calls:
    """Return the calls with their inputs and values in the order of the sorted shapes."""
    if all(shape.inputs is None for shape in shapes):
        return calls
    inputs, values = calls.inputs.copy(), list(calls.values)
    for number, shape in enumerate(shapes):
        if shape.inputs is not None and shape.values is not None:
            users = np.nonzero(calls.shape == number)[0]
            starts = calls.input_ptr[users][:, None]
            inputs[starts + np.arange(len(shape.inputs))] = calls.inputs[starts + np.array(shape.inputs, np.int64)]
            for start in calls.value_ptr[users].tolist():
                values[start : start + len(shape.values)] = [calls.values[start + place] for place in shape.values]
    return replace(calls, inputs=inputs, values=values)


def _of_document(document: GraphDocument) -> DagSpec:
    """Return the columns of a graph that came as JSON."""
    built = ColumnsBuilder()
    place_of = {node: place for place, node in enumerate(document.nodes)}
    options: dict[int, NodeOptions] = {}
    for node, described in document.nodes.items():
        written = ShapeWriter()
        control, own, given_args, given_kwargs = described.control(), described.options, described.args, described.kwargs
        if described.program is not None:
            given_args, given_kwargs = described.program.arguments()
            if own.gang is None and document.defaults.gang is None:
                own = own.model_copy(update={"gang": ONE_BUNDLE})
        elif control is not None:
            given_args = control[1]
        elif (job := job_of((*given_args, *given_kwargs.values()))) is not None and own.gang is None:
            own = _with_gang_of(job, own)
        args = [written.argument(form, place_of.__getitem__) for form in given_args]
        kwargs = {name: written.argument(form, place_of.__getitem__) for name, form in given_kwargs.items()}
        function = control[0] if control is not None else _key_of(described)
        kind = built.options_at({} if own is NO_OPTIONS else own.model_dump(exclude_defaults=True))
        options.setdefault(kind, own)
        built.inputs += written.inputs
        built.values += written.values
        for need in dict.fromkeys(described.after):
            if place_of[need] not in written.inputs:
                built.ordered.append(len(built.ids))
                built.after.append(place_of[need])
        built.append(node, built.function_at(function), built.shape_at(args, kwargs, written), kind)
    head = GraphHead.model_construct(**{name: getattr(document, name) for name in GraphHead.model_fields})
    columns = GraphColumns(head=head.as_json(), calls=with_gates(built.calls()), options=built.options_table(), blobs=document.blobs)
    return DagSpec(head=head, columns=columns, options=tuple(options[kind] for kind in range(len(options))))


def _with_gang_of(job: Mapping[str, Any], own: NodeOptions) -> NodeOptions:
    """Return the options of a job's node with the gang that its members need."""
    gang = gang_of(job)
    if gang is None:
        return own
    amounts = {name: amount for name, amount in amounts_of(gang.bundle).items() if getattr(own, name) is None}
    return own.model_copy(update={"gang": GangOptions(size=gang.size, strategy=gang.strategy), **amounts})


def _key_of(node: NodeSpec) -> str:
    if node.program is not None:
        return key_of(node.program.command)
    return f"call:{node.call}" if node.function is None else f"blob:{node.function.sha256}"


def _of_kept(raw: Mapping[str, Any]) -> DagSpec:
    """Return a graph from its kept form, which was checked when it was accepted."""
    head_json, tables = json.loads(raw["graph"]), json.loads(raw["tables"])
    head, problems = validated(GraphHead, head_json, context=KEPT)
    if head is None:
        raise SpecError(problems)
    calls = calls_of(raw, tables["functions"], tables["shapes"])
    options = tuple(NodeOptions.model_validate(given, context=KEPT) for given in tables["options"])
    return DagSpec(head=head, columns=GraphColumns(head=head_json, calls=calls, options=tuple(tables["options"])), options=options)


def _refusal(problems: Sequence[Problem], has_circle: bool) -> SpecError:
    """Return the error with all problems, each once."""
    found = tuple(dict.fromkeys(problems))
    left_out = len(found) - PROBLEMS_MAX
    described = (*found[:PROBLEMS_MAX], ("", f"and {counted(left_out, 'more problem')}")) if left_out > 0 else found
    return (CycleError if has_circle else SpecError)(described)


_TIGHT = (",", ":")


def _plain_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=_TIGHT, ensure_ascii=False, allow_nan=False)
