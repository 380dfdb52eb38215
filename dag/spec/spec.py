"""A graph on the wire: `dag/1`, JSON, the same for Python clients and for plain HTTP.

    {"spec": "dag/1", "id": "nightly-7", "tenant": "ads", "params": {"day": "2026-11-20"}, "defaults": {"retries": 2},
     "nodes": {"split": {"call": "ads.etl:split", "args": [{"$param": "day"}]},
               "score": {"call": "ads.ml:score", "args": [{"$ref": "split"}], "options": {"num_gpus": 1}, "after": []}},
     "outputs": {"scores": {"$ref": "score"}}}

A function is named (`call`: `module:qualname`) or sent (`function`: `{"$blob": sha256}`, with the pickled bytes in `blobs` as
base64). `mesh.stages.spec` describes the forms of arguments; `{"$param": name}` takes a value of `params`. This module unpickles
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from dag.errors import CycleError, SpecError
from dag.spec.checks import Problem, SpecChecks, similar_to
from dag.spec.forms import SHA256
from dag.spec.graph import Graph
from dag.spec.options import KEPT, GangOptions, NodeOptions, at_submission, words_of
from dag.spec.strict_json import pointer, read_with_doubles
from mesh.core.counting import counted
from mesh.core.ids import NodeId
from mesh.core.printable import check_printable
from mesh.stages.arguments import refs_of

#: Limit on the listed problems; further ones are only counted.
PROBLEMS_MAX = 200

#: Keys of nodes that the format reserves and that are not supported yet.
_NOT_YET = frozenset({"map", "actor", "method", "of", "when"})
_FUNCTION_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def _call(text: str) -> str:
    module, colon, qualname = text.partition(":")
    if not colon or not _FUNCTION_NAME.fullmatch(module) or not _FUNCTION_NAME.fullmatch(qualname):
        raise ValueError(f"{text[:200]!r} is not a function; write module:qualname, like ads.etl:split")
    if any(part.startswith("__") for part in qualname.split(".")):
        raise ValueError(f"{text[:200]!r} leads to Python's internals; name a function of a module")
    return text


def _sha256(text: str) -> str:
    if not SHA256.fullmatch(text):
        raise ValueError("must be a SHA-256: 64 hexadecimal digits, lower case")
    return text


def _bytes(text: Any) -> Any:
    return base64.b64decode(text) if isinstance(text, str) else text  # `SpecChecks` reports text that is not base64.


class _Part(BaseModel):
    """Base of the models: unknown keys are errors, and values are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_NO_OPTIONS = NodeOptions()


class PickledFunction(_Part):
    """A pickled function in `blobs`."""

    sha256: Annotated[str, AfterValidator(_sha256)] = Field(alias="$blob", description="SHA-256 of the pickled bytes.")


class NodeSpec(_Part):
    """A node: its function, arguments, dependencies and options."""

    call: Annotated[str, AfterValidator(_call)] | None = Field(default=None, description="`module:qualname`. Either this or `function`.")
    function: PickledFunction | None = Field(default=None, description="A pickled function. Either this or `call`.")
    args: list[Any] = Field(default=[], description="Forms of the positional arguments.")
    kwargs: dict[str, Any] = Field(default={}, description="Forms of the arguments by name.")
    after: list[str] = Field(default=[], description="Nodes that must have succeeded before; their values are not passed.")
    options: NodeOptions = Field(default_factory=lambda: _NO_OPTIONS)  # Shared: pydantic would copy a plain default for each node.

    @model_validator(mode="after")
    def _one_function(self) -> NodeSpec:
        if (self.call is None) == (self.function is None):
            raise ValueError("needs either `call` or `function`")
        return self


class OutputSpec(_Part):
    """An output of the graph: a node's value, or a part of it."""

    node: str = Field(alias="$ref")
    path: list[Any] = Field(default=[], description="Keys and indices that lead to the part.")


class CodeSpec(_Part):
    """Environment of the functions of the whole run."""

    runtime_env: dict[str, Any] = Field(default={}, description="Ray's runtime environment.")


class DagSpec(_Part):
    """A graph in its wire form; `parse` returns a checked one."""

    spec: Literal["dag/1"]
    id: str | None = Field(default=None, description="Id of the run; the same id with the same graph is the same run.")
    tenant: str | None = Field(default=None, description="Tenant whose quota the run uses: a path like `acme/research`.")
    user: Annotated[str, at_submission(check_printable)] | None = Field(
        default=None, min_length=1, max_length=128, description="User of the run, for limits per user."
    )
    params: dict[str, Any] = Field(default={}, description="Plain JSON values, taken by `$param`.")
    defaults: NodeOptions = Field(default=_NO_OPTIONS, description="Default options of all nodes.")
    on_error: Literal["fail_fast", "continue"] = Field(
        default="fail_fast", description="`fail_fast` stops the run at the first failure; `continue` finishes what does not depend on it."
    )
    stage_deadline_s: float | None = Field(
        default=None,
        ge=0.1,
        le=31_536_000,
        description="Time limit for a mesh to run a stage, in seconds; then the stage is taken back; null: no limit.",
    )
    wait_for_capacity: bool = Field(
        default=False, description="Accept nodes that no mesh could ever run as things are, and wait until one could."
    )
    code: CodeSpec = CodeSpec()
    blobs: dict[str, Annotated[bytes, BeforeValidator(_bytes)]] = Field(
        default={}, repr=False, description="Pickled bytes by SHA-256, as base64."
    )
    nodes: dict[str, NodeSpec]
    outputs: dict[str, OutputSpec]

    def needs_of(self, node: str) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
        """Return the nodes whose values `node` reads, then those that it only waits for; each once, in reading order."""
        described = self.nodes[node]
        inputs = dict.fromkeys(need for form in (*described.args, *described.kwargs.values()) for need in refs_of(form))
        return tuple(inputs), tuple(NodeId(need) for need in dict.fromkeys(described.after) if need not in inputs)

    def graph(self) -> Graph:
        """Return the nodes with their dependencies."""
        return Graph({NodeId(node): tuple(need for needs in self.needs_of(node) for need in needs) for node in self.nodes})

    def blob_bytes(self) -> dict[str, bytes]:
        """Return the pickled bytes by their SHA-256; `parse` has checked them."""
        return dict(self.blobs)


def parse(body: bytes) -> DagSpec:
    """Read and check a graph from an untrusted client.

    Raises:
        SpecError: Lists all problems, each with its place.
        CycleError: The graph contains a circle; lists the other problems too.
    """
    raw, doubles = read_with_doubles(body)
    if not isinstance(raw, dict):
        raise SpecError((*doubles, ("", "must be an object: a graph of the form dag/1")))
    checks = SpecChecks(raw)
    checks.run()
    spec, problems = _shaped(raw)
    problems = tuple(dict.fromkeys((*doubles, *problems, *checks.problems)))
    if spec is None or problems:
        left_out = len(problems) - PROBLEMS_MAX
        described = (*problems[:PROBLEMS_MAX], ("", f"and {counted(left_out, 'more problem')}")) if left_out > 0 else problems
        raise (CycleError if checks.has_circle else SpecError)(described)
    return spec


def kept_form(spec: DagSpec) -> bytes:
    """Return the graph as JSON without the bytes of its blobs, which the store keeps beside it; `load` reads the result."""
    return spec.model_dump_json(by_alias=True, exclude_defaults=True, exclude={"blobs"}).encode()


def load(kept: bytes) -> DagSpec:
    """Read a graph that was checked when it was accepted, with or without its blobs.

    Raises:
        SpecError: The JSON does not have the shape of a graph.
    """
    try:
        return DagSpec.model_validate_json(kept, context=KEPT)
    except ValidationError as wrong:
        raise SpecError(tuple(_described(error) for error in wrong.errors(include_url=False))) from None


def digest(spec: DagSpec) -> str:
    """Return the SHA-256 of the graph without id, user, `wait_for_capacity`, the order of keys, and options that equal their default."""
    described = spec.model_dump(by_alias=True, exclude_defaults=True, exclude={"id", "user", "wait_for_capacity", "blobs"})
    return _sha256_of_json(described)


def _shaped(raw: dict[str, Any]) -> tuple[DagSpec | None, tuple[Problem, ...]]:
    try:
        return DagSpec.model_validate(raw), ()
    except ValidationError as wrong:
        return None, tuple(_described(error) for error in wrong.errors(include_url=False))


def _described(error: ErrorDetails) -> Problem:
    place = _place(error["loc"])
    if error["type"] == "extra_forbidden":
        return place, _unknown(error["loc"])
    return place, words_of(error)


def _place(steps: Iterable[str | int]) -> str:
    place = ""
    for step in steps:
        place = pointer(place, step)
    return place


_AT_NODE = 3  #: Length of the path to a key of a node: `nodes`, its id, the key.


def _unknown(steps: tuple[str | int, ...]) -> str:
    """Return the message for a key that no model has."""
    name, above = str(steps[-1]), steps[-2] if len(steps) > 1 else None
    if above in ("options", "defaults") and len(steps) in (2, 4):
        return f"unknown option{similar_to(name, NodeOptions.model_fields)}"
    if above == "gang" and len(steps) in (3, 5) and steps[-3] in ("options", "defaults"):
        return f"unknown key{similar_to(name, GangOptions.model_fields)}"
    if steps[0] == "nodes" and len(steps) == _AT_NODE:
        return f"`{name}` is not supported yet" if name in _NOT_YET else f"unknown key{similar_to(name, NodeSpec.model_fields)}"
    if len(steps) == 1:
        return f"unknown key{similar_to(name, DagSpec.model_fields)}"
    if steps[0] == "outputs":
        return 'unknown key; an output is {"$ref": node}, with a "path" or without'
    return "unknown key"


def _sha256_of_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
