"""Checks of a spec as a whole, on the JSON itself, so that a spec with a wrong shape gets all its problems reported too.

Values of the wrong type (a list instead of an object) are skipped here; `dag.spec.spec` reports them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dag.errors import CycleError
from dag.spec.array_forms import too_many_words
from dag.spec.branch_heads import with_decisions
from dag.spec.control import CONTROL_KEYS
from dag.spec.forms import SHA256, FormContents, literal_bytes, problem_of_path, sha256_of, survey
from dag.spec.graph import Graph, topological_order
from dag.spec.strict_json import pointer
from mesh.core.counting import counted
from mesh.core.ids import NodeId
from mesh.core.near_names import nearest
from mesh.stages.call_shapes import INPUTS_MAX

NODES_MAX = 100_000
EDGES_MAX = INPUTS_MAX
LITERAL_BYTES_MAX = 256 * 1024
#: Limit on the bytes of all parameters, counted at each use: a small body must not become a large graph.
FILLED_BYTES_MAX = 16 * 2**20
#: Limit on the JSON of all arguments of a graph as columns, without plain values: nodes share it there, and each has its own when it runs.
SHAPE_BYTES_MAX = 64 * 2**20

#: Pattern of node ids and of names of outputs and parameters, which become parts of file names, URLs and Redis fields.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:\[\]-]{0,199}")
#: Pattern of run ids: no colon, which separates the parts of store keys; no brackets, which shells interpret.
RUN_ID_CHARS_MAX = 128
RUN_ID = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{RUN_ID_CHARS_MAX - 1}}}")
#: Pattern of many names, one a line.
NAMES = re.compile(rf"(?:{NAME.pattern}\n)*{NAME.pattern}")
TENANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
NAME_RULE = "1 to 200 of A-Z a-z 0-9 . _ : [ ] -, the first a letter, digit or _"
RUN_ID_RULE = "1 to 128 of A-Z a-z 0-9 . _ -, the first a letter, digit or _"

Problem = tuple[str, str]

UNNAMED_BLOB = "no node names this blob"
UNUSED_PARAM = "no node takes this parameter"
WHEN_WITHOUT_AFTER = "needs a node in `after` whose value this node does not read: a node cannot run when one that it reads has failed"
_EMPTY = "is empty; a graph has at least one node and one output"


class HeadChecks:
    """Checks that every form of a graph shares. `problems` come in the order of their discovery.

    Args:
        raw: The graph as plain JSON, with or without its nodes.
        nodes: The ids of all nodes.
    """

    def __init__(self, raw: Mapping[str, Any], nodes: Collection[str]) -> None:
        self.problems: list[Problem] = []
        self.has_circle = False  #: Whether one of the problems is a circle.
        self._raw = raw
        self._nodes = nodes
        self._params = _objects(raw.get("params"))
        self._param_bytes: dict[str, int] = {}
        self._used_params: Counter[str] = Counter()
        self._named_blobs: dict[str, str] = {}
        self._parts = 0

    def _send(self, place: str, problem: str) -> None:
        self.problems.append((place, problem))

    def _check_head(self) -> None:
        raw, run, tenant = self._raw, self._raw.get("id"), self._raw.get("tenant")
        if isinstance(run, str) and not RUN_ID.fullmatch(run):
            self._send("/id", f"{run[:200]!r} is not a valid id; use {RUN_ID_RULE}")
        if isinstance(tenant, str) and not TENANT.fullmatch(tenant):
            self._send("/tenant", f"{tenant[:200]!r} is not a tenant; write a path like acme/research")
        for section in ("outputs", "params"):
            self._check_names(section, _objects(raw.get(section)))
        if raw.get("outputs") == {}:
            self._send("/outputs", _EMPTY)
        for name, value in self._params.items():
            place = pointer("/params", name)
            self._param_bytes[name] = literal_bytes(value)
            self._check_size(place, self._param_bytes[name])
        self._check_outputs()
        if "when" in _objects(raw.get("defaults")):
            self._send("/defaults/when", "is an option of single nodes: it says when a node runs, by the nodes in its `after`")

    def _check_control_options(self, node: str, given: Iterable[str]) -> None:
        for name in given:
            if name != "when":
                place = f"{pointer('/nodes', node)}/options/{name}"
                self._send(place, "means nothing here: the root does this node itself, without a worker")

    def _check_names(self, section: str, names: Iterable[str]) -> None:
        for name in names:
            if not NAME.fullmatch(name):
                self._send(pointer(f"/{section}", name[:200]), f"is not a valid name; use {NAME_RULE}")

    def _is_small_enough(self) -> bool:
        if len(self._nodes) > NODES_MAX:
            self._send("/nodes", f"{counted(len(self._nodes), 'node')}; a graph has {NODES_MAX} at most")
        return len(self._nodes) <= NODES_MAX

    def _check_arguments(self, arguments: Iterable[tuple[str, Any]], uses: int = 1) -> tuple[FormContents, int]:
        """Check the arguments of a node, each with its place; return what they name, and the size of their literals in bytes.

        Args:
            uses: Number of nodes with these arguments.
        """
        found, size = FormContents(), 0
        for where, form in arguments:
            before = len(found.params)
            taken = survey(form, where, found)
            self._check_size(where, taken + sum(self._param_bytes.get(name, 0) for name, _ in found.params[before:]))
            size += taken
        self.problems.extend(found.problems)
        self._parts += found.parts * uses
        for name, where in found.params:
            self._used_params[name] += uses
            if name not in self._params:
                self._send(where, f"there is no parameter {name}{nearest(name, self._params)}")
        for sha256, where in found.blobs.items():
            self._named_blobs.setdefault(sha256, where)
        return found, size

    def _check_size(self, place: str, taken: int) -> None:
        if taken > LITERAL_BYTES_MAX:
            size = f"{taken / 1024:.0f} KiB"
            self._send(
                place, f"{size} of literal data, {LITERAL_BYTES_MAX // 1024} KiB at most; put it into a file and pass its address: $uri"
            )

    def _check_outputs(self) -> None:
        for name, form in _objects(self._raw.get("outputs")).items():
            node = form.get("$ref") if isinstance(form, dict) else None
            place = pointer("/outputs", name)
            if isinstance(node, str) and node not in self._nodes:
                self._send(f"{place}/$ref", f"there is no node {node}{nearest(node, self._nodes)}")
            if isinstance(form, dict) and "path" in form:
                problem = problem_of_path(form["path"])
                if problem is not None:
                    self._send(f"{place}/path", problem)

    def _check_named_blobs(self, given: Collection[str]) -> None:
        for sha256, place in self._named_blobs.items():
            if sha256 not in given:
                self._send(place, f"`blobs` has no {sha256}")

    def _check_edges(self, edges: int) -> bool:
        if edges > EDGES_MAX:
            self._send("/nodes", f"{counted(edges, 'edge')}; a graph has {EDGES_MAX} at most")
        return edges <= EDGES_MAX

    def _check_order(self, graph: Graph) -> None:
        try:
            topological_order(graph)
        except CycleError as wrong:
            self.has_circle = True
            self.problems += wrong.problems

    def _check_decisions(self, graph: Graph, conds: Mapping[NodeId, Sequence[NodeId]]) -> None:
        """Find conds that wait for their own branches."""
        if self.has_circle or not conds:
            return
        forms = _objects(self._raw.get("outputs")).values()
        outputs = {form["$ref"] for form in forms if isinstance(form, dict) and isinstance(form.get("$ref"), str)}
        needs = with_decisions(graph.needs, conds, outputs)
        if needs is not graph.needs:
            self._check_order(Graph(needs))

    def _check_filled(self) -> None:
        for name in self._params:
            if name not in self._used_params:
                self._send(pointer("/params", name[:200]), f"{UNUSED_PARAM}{nearest(name[:200], self._used_params)}")
        if self._parts > NODES_MAX:
            self._send("/nodes", too_many_words(self._parts, NODES_MAX))
        size = sum(self._param_bytes.get(name, 0) * count for name, count in self._used_params.items())
        if size > FILLED_BYTES_MAX:
            self._send("/params", filled_words(size))


class SpecChecks(HeadChecks):
    """The checks of a graph as JSON."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._fields = _objects(raw.get("nodes"))
        super().__init__(raw, self._fields)

    def run(self) -> None:
        """Find all problems."""
        if self._raw.get("nodes") == {}:
            self._send("/nodes", _EMPTY)
        self._check_names("nodes", self._fields)
        if not self._is_small_enough():
            return
        self._check_head()
        needs = {NodeId(node): self._check_node(node, fields) for node, fields in self._fields.items()}
        conds = self._add_gates(needs)
        self._check_blobs()
        self._check_shape(Graph(needs), conds)

    def _add_gates(self, needs: dict[NodeId, tuple[NodeId, ...]]) -> dict[NodeId, tuple[NodeId, ...]]:
        """Add the edges that a cond implies: its branches wait for the node that decides. Return what is known of the conds."""
        conds: dict[NodeId, tuple[NodeId, ...]] = {}
        for node, fields in self._fields.items():
            cond = _objects(fields.get("cond")) if isinstance(fields, dict) else {}
            refs = {key: ref for key in ("if", "then", "else") if isinstance(ref := _objects(cond.get(key)).get("$ref"), str)}
            test = NodeId(refs.pop("if", ""))
            for key, branch in refs.items():
                if branch == test:
                    self._send(f"{pointer('/nodes', node)}/cond/{key}", "the node that decides cannot be a branch too")
                elif test in needs and branch in needs and test not in needs[NodeId(branch)]:
                    needs[NodeId(branch)] += (test,)
            if test in needs:
                conds[NodeId(node)] = (test, *(NodeId(branch) for branch in refs.values() if branch in needs))
        return conds

    def _check_node(self, node: str, fields: Any) -> tuple[NodeId, ...]:
        """Check a node; return the known nodes that it needs."""
        if not isinstance(fields, dict):
            return ()
        place = pointer("/nodes", node)
        found, _ = self._check_arguments(_arguments(fields, place))
        for sha256, where in _function_blob(fields, place):
            self._named_blobs.setdefault(sha256, where)
        after = fields.get("after")
        order = (
            {need: f"{place}/after/{index}" for index, need in enumerate(after) if isinstance(need, str)} if isinstance(after, list) else {}
        )
        needs = {**order, **found.refs}
        options = _objects(fields.get("options"))
        if options.get("when") in ("failure", "always") and not order.keys() - found.refs.keys():
            self._send(f"{place}/options/when", WHEN_WITHOUT_AFTER)
        if not fields.keys().isdisjoint(CONTROL_KEYS):
            self._check_control_options(node, (name for name, value in options.items() if value is not None))
        for need, where in needs.items():
            if need not in self._nodes:
                self._send(where, f"there is no node {need}{nearest(need, self._nodes)}")
        return tuple(NodeId(need) for need in needs if need in self._nodes)

    def _check_blobs(self) -> None:
        given = _objects(self._raw.get("blobs"))
        for sha256, text in given.items():
            problem = _problem_of_blob(sha256, text)
            if problem is None and sha256 not in self._named_blobs:
                problem = UNNAMED_BLOB
            if problem is not None:
                self._send(pointer("/blobs", sha256[:200]), problem)
        self._check_named_blobs(given)

    def _check_shape(self, graph: Graph, conds: Mapping[NodeId, Sequence[NodeId]]) -> None:
        if not self._check_edges(graph.edge_count()):
            return
        self._check_order(graph)
        self._check_decisions(graph, conds)
        self._check_filled()


def _arguments(fields: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    for name, form in _objects(fields.get("cond")).items():
        yield f"{place}/cond/{name}", form
    args = fields.get("args")
    if isinstance(args, list):
        yield from ((f"{place}/args/{index}", form) for index, form in enumerate(args))
    for name, form in _objects(fields.get("kwargs")).items():
        yield pointer(f"{place}/kwargs", name), form
    program = _objects(fields.get("program"))
    command = program.get("command")
    if isinstance(command, list):
        yield from ((f"{place}/program/command/{index}", form) for index, form in enumerate(command))
    elif command is not None:
        yield f"{place}/program/command", command
    for name in ("working_dir", "env_vars"):
        if name in program:
            yield f"{place}/program/{name}", program[name]


def _function_blob(fields: Mapping[str, Any], place: str) -> Iterable[Problem]:
    function = fields.get("function")
    sha256 = function.get("$blob") if isinstance(function, dict) else None
    return [(sha256, f"{place}/function")] if isinstance(sha256, str) else []


def _problem_of_blob(sha256: str, text: Any) -> str | None:
    if not SHA256.fullmatch(sha256):
        return "the name of a blob is its SHA-256: 64 hexadecimal digits, lower case"
    if not isinstance(text, str):
        return "must be base64 text"
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "is not base64"
    own = sha256_of(data)
    return None if own == sha256 else f"these bytes have the SHA-256 {own}: they were damaged, or belong to another name"


def filled_words(size: int) -> str:
    """Return the problem with parts of a graph that take so many bytes where they are used."""
    return f"they take {size / 2**20:.0f} MiB where they are used, {FILLED_BYTES_MAX >> 20} MiB at most; pass addresses: $uri"


def repeated_words(size: int, parts: int) -> str:
    """Return the problem with an array beside literal data that each of its parts would have; `size` is that of all arrays."""
    return (
        f"the arguments beside arrays take {size / 2**20:.0f} MiB in all parts together, {FILLED_BYTES_MAX >> 20} MiB at most, and this"
        f" array has {counted(parts, 'part')}; let a node return the large argument and pass that node, or give a smaller `parts`"
    )


def _objects(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
