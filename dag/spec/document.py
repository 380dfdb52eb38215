"""Models of `dag/1` as JSON: what people and other languages write, and the head that every form of a graph shares."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from dag.spec.call_names import CALL_CHARS_MAX, VARIABLE, problem_of_call
from dag.spec.checks import NAME, Problem
from dag.spec.control import SECONDS_MAX, args_in
from dag.spec.forms import SHA256
from dag.spec.options import GangOptions, NodeOptions, at_submission, words_of
from dag.spec.retry_options import BackoffOptions
from dag.spec.run_labels import checked_labels
from dag.spec.strict_json import pointer
from mesh.core.near_names import nearest
from mesh.core.printable import check_printable

M = TypeVar("M", bound=BaseModel)

#: Keys of nodes that the format reserves and that are not supported yet.
_NOT_YET = frozenset({"actor", "method", "of"})
#: Digests of functions and arguments of cached nodes, and the characters of their names.
DIGESTS_MAX = 100_000
DIGEST_NAME_CHARS_MAX = CALL_CHARS_MAX + len("call:")


def _call(text: str) -> str:
    problem = problem_of_call(text)
    if problem is not None:
        raise ValueError(problem)
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


NO_OPTIONS = NodeOptions()
#: Keys of a node that say what it is.
KINDS_OF_NODES = ("call", "function", "program", "cond", "sleep", "wait_signal")


class PickledFunction(_Part):
    """A pickled function in `blobs`."""

    sha256: Annotated[str, AfterValidator(_sha256)] = Field(alias="$blob", description="SHA-256 of the pickled bytes.")


class RefSpec(_Part):
    """A node that is read."""

    node: str = Field(alias="$ref")


class CondSpec(_Part):
    """Branches of which one is taken. The node has the value of that branch; nodes that only the other branch needs are skipped."""

    test: RefSpec = Field(alias="if", description="The node that decides: it returns true or false.")
    then: RefSpec = Field(description="The branch for true.")
    otherwise: RefSpec | None = Field(default=None, alias="else", description="The branch for false; without one, the value is null.")


_Seconds = Annotated[int | float, Field(ge=0, le=SECONDS_MAX)]


class SignalSpec(_Part):
    """A signal that the node waits for; its value is the node's."""

    name: str = Field(pattern=NAME.pattern, max_length=200, description="Name of the signal.")
    timeout_s: _Seconds | None = Field(default=None, description="Time after which the node fails, in seconds; null: no limit.")


class WorkingDir(_Part):
    """A zip archive in `blobs`."""

    sha256: Annotated[str, AfterValidator(_sha256)] = Field(alias="$blob", description="SHA-256 of the archive.")


def _command(command: Any) -> Any:
    parts = command if isinstance(command, list) else [command]
    if not parts or not isinstance(parts[0], str) or not parts[0].strip():
        raise ValueError("must be a line for the shell, or a list that begins with a command, like ['python', 'train.py']")
    for part in parts:
        if isinstance(part, str) and "\0" in part:
            raise ValueError("holds a zero byte, which no command may")
        is_form = isinstance(part, dict) and part.keys() <= {"$ref", "path", "$param"}
        if not is_form and (isinstance(part, bool) or not isinstance(part, (str, int, float))):
            raise ValueError(f"{part!r:.200} is no part of a command; give text, a number, $ref or $param")
    return command


def _env_vars(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise ValueError(f"{name[:200]!r} is no variable; a name has letters, digits and _, and no value a zero byte")
    return variables


class ProgramSpec(_Part):
    """A program: a command with its working directory."""

    command: Annotated[Any, AfterValidator(_command)] = Field(
        description="A line for the shell, or the command and its arguments, in which `$ref` and `$param` may stand."
    )
    working_dir: WorkingDir | None = Field(default=None, description="Zip archive of the folder that the command runs in.")
    env_vars: Annotated[dict[str, str], AfterValidator(_env_vars)] = Field(default={}, description="Further environment variables.")

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the forms of the arguments of `run_program`."""
        return [self.command], self.model_dump(by_alias=True, exclude_defaults=True, exclude={"command"})


def program_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program as JSON, from the forms of its arguments; the reverse of `ProgramSpec.arguments`."""
    return {**({"command": args[0]} if args else {}), **kwargs, **({"args": list(args[1:])} if len(args) > 1 else {})}


class NodeSpec(_Part):
    """A node: its function or its place in the control flow, its arguments, dependencies and options."""

    call: Annotated[str, AfterValidator(_call)] | None = Field(
        default=None, description="`module:qualname`. A node has one of this, `function`, `program`, `cond`, `sleep` and `wait_signal`."
    )
    function: PickledFunction | None = Field(default=None, description="A pickled function.")
    program: ProgramSpec | None = Field(default=None, description="A program in place of a function.")
    cond: CondSpec | None = Field(default=None, description="Takes one of two branches. As `sleep` and `wait_signal`, it holds no worker.")
    sleep: _Seconds | None = Field(default=None, description="Seconds to wait once the nodes in `after` have succeeded; the value is null.")
    wait_signal: SignalSpec | None = Field(default=None, description="Waits for a signal of a user or a program.")
    args: list[Any] = Field(default=[], description="Forms of the positional arguments.")
    kwargs: dict[str, Any] = Field(default={}, description="Forms of the arguments by name.")
    after: list[str] = Field(default=[], description="Nodes that must have succeeded before; their values are not passed.")
    options: NodeOptions = Field(default_factory=lambda: NO_OPTIONS)  # Shared: pydantic would copy a plain default for each node.

    @model_validator(mode="after")
    def _one_function(self) -> NodeSpec:
        given = [name for name in KINDS_OF_NODES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs one of {', '.join(f'`{name}`' for name in KINDS_OF_NODES)}{' only' if given else ''}")
        if given[0] not in ("call", "function") and (self.args or self.kwargs):
            raise ValueError(f"`{given[0]}` takes no `args` or `kwargs`")
        return self

    def control(self) -> tuple[str, list[Any]] | None:
        """Return function and arguments of a node that the root does itself; None: a mesh runs it."""
        if self.call is not None or self.function is not None or self.program is not None:
            return None
        return args_in(self.model_dump(by_alias=True, include={"cond", "sleep", "wait_signal"}))


class OutputSpec(_Part):
    """An output of the graph: a node's value, or a part of it."""

    node: str = Field(alias="$ref")
    path: list[Any] = Field(default=[], description="Keys and indices that lead to the part.")


class CodeSpec(_Part):
    """Environment of the functions of the whole run."""

    runtime_env: dict[str, Any] = Field(default={}, description="Ray's runtime environment.")


class GraphHead(_Part):
    """A graph without its nodes and blobs."""

    spec: Literal["dag/1"]
    id: str | None = Field(default=None, description="Id of the run; the same id with the same graph is the same run.")
    tenant: str | None = Field(default=None, description="Tenant whose quota the run uses: a path like `acme/research`.")
    user: Annotated[str, at_submission(check_printable)] | None = Field(
        default=None, min_length=1, max_length=128, description="User of the run, for limits per user."
    )
    labels: Annotated[dict[str, str], at_submission(checked_labels)] = Field(
        default={},
        description='Labels of the run, to find it by: `{"team": "ads"}`; 32 at most. They are no part of the graph\'s identity.',
    )
    params: dict[str, Any] = Field(default={}, description="Plain JSON values, taken by `$param`.")
    defaults: NodeOptions = Field(default=NO_OPTIONS, description="Default options of all nodes.")
    on_error: Literal["fail_fast", "continue"] = Field(
        default="fail_fast", description="`fail_fast` stops the run at the first failure; `continue` finishes what does not depend on it."
    )
    stage_deadline_s: float | None = Field(
        default=None,
        ge=0.1,
        le=31_536_000,
        description="Time limit for a mesh to run a stage, in seconds; then the stage is taken back; null: no limit.",
    )
    deadline_s: float | None = Field(
        default=None,
        ge=0.1,
        le=31_536_000,
        description="Time limit of the run from its submission or resumption, in seconds; then the run is stopped and fails; null: none.",
    )
    wait_for_capacity: bool = Field(
        default=False, description="Accept nodes that no mesh could ever run as things are, and wait until one could."
    )
    code: CodeSpec = CodeSpec()
    digests: dict[Annotated[str, Field(max_length=DIGEST_NAME_CHARS_MAX)], Annotated[str, AfterValidator(_sha256)]] = Field(
        default={},
        max_length=DIGESTS_MAX,
        description="Digests of functions (`blob:<sha256>`, `call:<module:qualname>`) and pickled arguments (SHA-256) of cached nodes.",
    )
    outputs: dict[str, OutputSpec]

    def as_json(self) -> dict[str, Any]:
        """Return the head as plain JSON, without defaults."""
        return self.model_dump(by_alias=True, exclude_defaults=True)


class GraphDocument(GraphHead):
    """A graph as JSON."""

    blobs: dict[str, Annotated[bytes, BeforeValidator(_bytes)]] = Field(
        default={}, repr=False, description="Pickled bytes by SHA-256, as base64."
    )
    nodes: dict[str, NodeSpec]


def validated(model: type[M], raw: Any, *, context: Any = None, place: str = "") -> tuple[M | None, tuple[Problem, ...]]:
    """Return the model of plain JSON, or None with all problems.

    Args:
        place: JSON pointer of the value in its document.
    """
    try:
        return model.model_validate(raw, context=context), ()
    except ValidationError as wrong:
        return None, tuple(_described(error, place) for error in wrong.errors(include_url=False))


def _described(error: ErrorDetails, place: str) -> Problem:
    steps = (*(step for step in place.split("/")[1:]), *error["loc"])
    where = place
    for step in error["loc"]:
        where = pointer(where, step)
    return where, _unknown(steps) if error["type"] == "extra_forbidden" else words_of(error)


_AT_NODE = 3  #: Length of the path to a key of a node: `nodes`, its id, the key.


def _unknown(steps: tuple[str | int, ...]) -> str:
    """Return the message for a key that no model has."""
    name, above = str(steps[-1]), steps[-2] if len(steps) > 1 else None
    if above in ("options", "defaults") and len(steps) in (2, 4):
        return f"unknown option{nearest(name, NodeOptions.model_fields)}"
    if above == "gang" and len(steps) in (3, 5) and steps[-3] in ("options", "defaults"):
        return f"unknown key{nearest(name, GangOptions.model_fields)}"
    if above == "backoff" and len(steps) in (3, 5) and steps[-3] in ("options", "defaults"):
        return f"unknown key{nearest(name, BackoffOptions.model_fields)}"
    if steps[0] == "nodes" and len(steps) == _AT_NODE and name == "map":
        return 'unknown key; a node is an array by an argument: {"$each": items}'
    if steps[0] == "nodes" and len(steps) == _AT_NODE:
        return f"`{name}` is not supported yet" if name in _NOT_YET else f"unknown key{nearest(name, NodeSpec.model_fields)}"
    if steps[0] == "nodes" and above == "program":
        return f"unknown key{nearest(name, ProgramSpec.model_fields)}"
    if len(steps) == 1:
        return f"unknown key{nearest(name, GraphDocument.model_fields)}"
    if steps[0] == "outputs":
        return 'unknown key; an output is {"$ref": node}, with a "path" or without'
    return "unknown key"
