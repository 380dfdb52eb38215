"""Nodes of control flow: the root does them itself, so they hold no worker, no slot and no quota.

Such a node has a function of the root's own, with its arguments in the common form:

    control:cond     the node that decides, the branch for true, the branch for false or null
    control:sleep    seconds
    control:signal   name, timeout in seconds or null

In JSON a node has a key of its own for each: `cond`, `sleep`, `wait_signal`. `when` is an option of any node with `after`.

A fourth function is written by the root alone: `control:grown`, with the node whose value a node has since its function returned nodes
(`dag.spec.growth`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from mesh.core.ids import NodeId
from mesh.stages.calls import Calls

#: When a node runs, by the ends of the nodes in its `after`.
When = Literal["success", "failure", "always"]
WHENS: tuple[str, ...] = get_args(When)
ON_SUCCESS: When = "success"

#: Each node to the nodes that it waits for.

_OF_ROOT = "control:"
COND = "control:cond"
SLEEP = "control:sleep"
SIGNAL = "control:signal"
FUNCTIONS = (COND, SLEEP, SIGNAL)
#: Function of a node that has returned nodes; no client may write it.
GROWN = "control:grown"

#: Keys of these nodes as JSON.
CONTROL_KEYS = ("cond", "sleep", "wait_signal")
#: The value of a sleep, and of a cond whose branch is missing.
NULL_BYTES = b"null"
#: Longest sleep and longest timeout of a signal: a year.
SECONDS_MAX = 31_536_000


class Cond(NamedTuple):
    """Takes the value of one of two branches."""

    test: NodeId
    then: NodeId
    otherwise: NodeId | None  #: None: the value is null.

    @property
    def branches(self) -> tuple[NodeId, ...]:
        """Return the branches."""
        return (self.then,) if self.otherwise is None else (self.then, self.otherwise)


class Sleep(NamedTuple):
    """Succeeds so many milliseconds after all its needs."""

    sleep_ms: int


class WaitSignal(NamedTuple):
    """Succeeds with the value of a signal."""

    name: str
    timeout_ms: int | None


class Grown(NamedTuple):
    """Takes the value of a node that its function has returned."""

    value_of: NodeId


Control = Cond | Sleep | WaitSignal | Grown


def is_control(function: str) -> bool:
    """Return whether the root does a node with this function itself."""
    return function.startswith(_OF_ROOT)


def values_of_root(functions: Iterable[str]) -> dict[str, bytes]:
    """Return the values, by their SHA-256, that the root gives to nodes that it does itself."""
    return {hashlib.sha256(NULL_BYTES).hexdigest(): NULL_BYTES} if any(map(is_control, functions)) else {}


def control_of(function: str, args: Sequence[Any]) -> Control | None:
    """Return what the root does for a node with this function; None: a mesh runs it. The arguments were checked."""
    if not is_control(function):
        return None
    if function == COND:
        test, then, otherwise = args
        return Cond(NodeId(test["$ref"]), NodeId(then["$ref"]), NodeId(otherwise["$ref"]) if otherwise is not None else None)
    if function == SLEEP:
        return Sleep(round(args[0] * 1000))
    if function == GROWN:
        return Grown(NodeId(args[0]["$ref"]))
    name, timeout_s = args
    return WaitSignal(name, None if timeout_s is None else round(timeout_s * 1000))


def args_in(described: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
    """Return function and arguments of a node of control flow as JSON; None: it is none."""
    if described.get("cond") is not None:
        cond = described["cond"]
        return COND, [cond["if"], cond["then"], cond.get("else")]
    if described.get("sleep") is not None:
        return SLEEP, [described["sleep"]]
    if described.get("wait_signal") is not None:
        signal = described["wait_signal"]
        return SIGNAL, [signal["name"], signal.get("timeout_s")]
    return None


def as_json(function: str, args: Sequence[Any]) -> dict[str, Any]:
    """Return the keys that such a node has as JSON, in place of `call` and `args`."""
    if function == COND:
        return {"cond": {key: form for key, form in zip(("if", "then", "else"), args, strict=True) if form is not None}}
    if function == SLEEP:
        return {"sleep": args[0]}
    if function == GROWN:
        return {"grown": args[0]}
    name, timeout_s = args
    return {"wait_signal": {"name": name, **({"timeout_s": timeout_s} if timeout_s is not None else {})}}


def problems_of(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a node of control flow in a graph as columns."""
    if function not in FUNCTIONS:
        yield f"{function[:200]!r} is no function; known are {', '.join(FUNCTIONS)}"
    elif kwargs:
        yield f"{function} takes no arguments by name"
    elif function == COND:
        if len(args) != 3 or not all(map(_is_ref, args if args[2] is not None else args[:2])):  # noqa: PLR2004
            yield "a cond takes three nodes: the one that decides, the branch for true, and the branch for false or null"
        elif args[0] in args[1:]:
            yield "the node that decides cannot be a branch too"
    elif function == SLEEP:
        if len(args) != 1 or not is_seconds(args[0]):
            yield f"a sleep takes seconds from 0 to {SECONDS_MAX}"
    elif len(args) != 2 or not isinstance(args[0], str) or not args[0] or not (args[1] is None or is_seconds(args[1])):  # noqa: PLR2004
        yield f"a signal takes a name, and a timeout in seconds up to {SECONDS_MAX} or null"


def is_seconds(value: Any) -> bool:
    """Return whether the value is a number of seconds that a node may wait."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= SECONDS_MAX


def conds_of(calls: Calls) -> dict[NodeId, list[NodeId]]:
    """Return each cond with the node that decides and its branches."""
    inputs, ptr = calls.inputs, calls.input_ptr
    return {
        calls.ids[place]: [calls.ids[each] for each in inputs[ptr[place] : ptr[place + 1]].tolist()] for place in _places_of_conds(calls)
    }


def _places_of_conds(calls: Calls) -> list[int]:
    functions = [number for number, name in enumerate(calls.functions) if name == COND]
    return np.flatnonzero(np.isin(calls.function, functions)).tolist() if functions else []


def with_gates(calls: Calls) -> Calls:
    """Return the calls with the edges that a cond implies: its branches wait for the node that decides. Existing edges stay single."""
    conds = _places_of_conds(calls)
    if not conds:
        return calls
    found: dict[tuple[int, int], None] = dict.fromkeys(zip(calls.ordered.tolist(), calls.after.tolist(), strict=True))
    inputs, ptr = calls.inputs.tolist(), calls.input_ptr.tolist()
    for place in conds:
        test, *branches = inputs[ptr[place] : ptr[place + 1]]
        for branch in branches:
            if test not in inputs[ptr[branch] : ptr[branch + 1]]:
                found.setdefault((branch, test))
    pairs = np.array(sorted(found, key=lambda pair: pair[0]), np.uint32).reshape(-1, 2)
    return calls.with_order(pairs[:, 0], pairs[:, 1])


def _is_ref(form: Any) -> bool:
    return isinstance(form, dict) and set(form) == {"$ref"}
