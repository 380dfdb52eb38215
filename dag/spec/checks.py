"""Checks of a spec as a whole, on the JSON itself, so that a spec with a wrong shape gets all its problems reported too.

Values of the wrong type (a list instead of an object) are skipped here; `dag.spec.spec` reports them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from dag.spec.forms import SHA256, FormContents, literal_bytes, problem_of_path, sha256_of, survey
from dag.spec.graph import Graph, circle_in_words, circles
from dag.spec.strict_json import pointer
from mesh.core.counting import counted
from mesh.core.ids import NodeId

NODES_MAX = 100_000
EDGES_MAX = 1_000_000
LITERAL_BYTES_MAX = 256 * 1024
#: Limit on the bytes of all parameters, counted at each use: a small body must not become a large graph.
FILLED_BYTES_MAX = 16 * 2**20

#: Pattern of node ids and of names of outputs and parameters, which become parts of file names, URLs and Redis fields.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:\[\]-]{0,199}")
#: Pattern of run ids: no colon, which separates the parts of store keys; no brackets, which shells interpret.
RUN_ID_CHARS_MAX = 128
RUN_ID = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{RUN_ID_CHARS_MAX - 1}}}")
TENANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_NAME_RULE = "1 to 200 of A-Z a-z 0-9 . _ : [ ] -, the first a letter, digit or _"
RUN_ID_RULE = "1 to 128 of A-Z a-z 0-9 . _ -, the first a letter, digit or _"

#: With more or longer names, a search for similar ones takes too long.
_SIMILAR_AMONG_MAX = 1_000
_SIMILAR_CHARS_MAX = 200

Problem = tuple[str, str]


class SpecChecks:
    """The checks of one spec. `problems` come in the order of their discovery; `has_circle` says whether one of them is a circle."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.problems: list[Problem] = []
        self.has_circle = False
        self._raw = raw
        self._nodes = _objects(raw.get("nodes"))
        self._params = _objects(raw.get("params"))
        self._param_bytes: dict[str, int] = {}
        self._used_params: Counter[str] = Counter()
        self._named_blobs: dict[str, str] = {}

    def run(self) -> None:
        """Find all problems."""
        self._check_names()
        if len(self._nodes) > NODES_MAX:
            self._send("/nodes", f"{counted(len(self._nodes), 'node')}; a graph has {NODES_MAX} at most")
            return
        self._check_params()
        needs = {NodeId(node): self._check_node(node, fields) for node, fields in self._nodes.items()}
        self._check_outputs()
        self._check_blobs()
        self._check_shape(Graph(needs))

    def _send(self, place: str, problem: str) -> None:
        self.problems.append((place, problem))

    def _check_names(self) -> None:
        raw, run, tenant = self._raw, self._raw.get("id"), self._raw.get("tenant")
        if isinstance(run, str) and not RUN_ID.fullmatch(run):
            self._send("/id", f"{run[:200]!r} is not a valid id; use {RUN_ID_RULE}")
        if isinstance(tenant, str) and not TENANT.fullmatch(tenant):
            self._send("/tenant", f"{tenant[:200]!r} is not a tenant; write a path like acme/research")
        for section in ("nodes", "outputs", "params"):
            for name in _objects(raw.get(section)):
                if not NAME.fullmatch(name):
                    self._send(pointer(f"/{section}", name[:200]), f"is not a valid name; use {_NAME_RULE}")
        for section in ("nodes", "outputs"):
            if raw.get(section) == {}:
                self._send(f"/{section}", "is empty; a graph has at least one node and one output")

    def _check_params(self) -> None:
        for name, value in self._params.items():
            place = pointer("/params", name)
            self._param_bytes[name] = literal_bytes(value)
            self._check_size(place, self._param_bytes[name])

    def _check_node(self, node: str, fields: Any) -> tuple[NodeId, ...]:
        """Check a node; return the known nodes that it needs."""
        if not isinstance(fields, dict):
            return ()
        place = pointer("/nodes", node)
        found = FormContents()
        for where, form in _arguments(fields, place):
            uses = len(found.params)
            taken = survey(form, where, found)
            self._check_size(where, taken + sum(self._param_bytes.get(name, 0) for name, _ in found.params[uses:]))
        self.problems.extend(found.problems)
        for name, where in found.params:
            self._used_params[name] += 1
            if name not in self._params:
                self._send(where, f"there is no parameter {name}{similar_to(name, self._params)}")
        for sha256, where in (*found.blobs.items(), *_function_blob(fields, place)):
            self._named_blobs.setdefault(sha256, where)
        after = fields.get("after")
        order = (
            {need: f"{place}/after/{index}" for index, need in enumerate(after) if isinstance(need, str)} if isinstance(after, list) else {}
        )
        needs = {**order, **found.refs}
        for need, where in needs.items():
            if need not in self._nodes:
                self._send(where, f"there is no node {need}{similar_to(need, self._nodes)}")
        return tuple(NodeId(need) for need in needs if need in self._nodes)

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
                self._send(f"{place}/$ref", f"there is no node {node}{similar_to(node, self._nodes)}")
            if isinstance(form, dict) and "path" in form:
                problem = problem_of_path(form["path"])
                if problem is not None:
                    self._send(f"{place}/path", problem)

    def _check_blobs(self) -> None:
        given = _objects(self._raw.get("blobs"))
        for sha256, text in given.items():
            problem = _problem_of_blob(sha256, text)
            if problem is None and sha256 not in self._named_blobs:
                problem = "no node names this blob"
            if problem is not None:
                self._send(pointer("/blobs", sha256[:200]), problem)
        for sha256, place in self._named_blobs.items():
            if sha256 not in given:
                self._send(place, f"`blobs` has no {sha256}")

    def _check_shape(self, graph: Graph) -> None:
        edges = graph.edge_count()
        if edges > EDGES_MAX:
            self._send("/nodes", f"{counted(edges, 'edge')}; a graph has {EDGES_MAX} at most")
            return
        if not _has_order(graph):
            self.has_circle = True
            for circle in circles(graph):
                self._send(pointer("/nodes", circle[0]), circle_in_words(circle))
        filled = sum(self._param_bytes.get(name, 0) * count for name, count in self._used_params.items())
        if filled > FILLED_BYTES_MAX:
            self._send(
                "/params",
                f"they take {filled / 2**20:.0f} MiB where they are used, {FILLED_BYTES_MAX >> 20} MiB at most; pass addresses: $uri",
            )


def _has_order(graph: Graph) -> bool:
    """Return whether the graph has a topological order: repeated removal of nodes without open needs removes all."""
    missing = {node: len(needs) for node, needs in graph.needs.items()}
    followers = graph.followers()
    ready = [node for node, count in missing.items() if count == 0]
    taken = 0
    while ready:
        taken += 1
        for follower in followers[ready.pop()]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    return taken == len(missing)


def _arguments(fields: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    args = fields.get("args")
    if isinstance(args, list):
        yield from ((f"{place}/args/{index}", form) for index, form in enumerate(args))
    for name, form in _objects(fields.get("kwargs")).items():
        yield pointer(f"{place}/kwargs", name), form


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


def similar_to(name: str, known: Collection[str]) -> str:
    """Return `; did you mean x?`, or an empty text."""
    close = get_close_matches(name, known, n=1) if len(known) <= _SIMILAR_AMONG_MAX and len(name) <= _SIMILAR_CHARS_MAX else []
    return f"; did you mean {close[0]}?" if close else ""


def _objects(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
