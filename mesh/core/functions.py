"""Kinds of functions that a node may call, the function of its outputs, and what stands among arguments or in place of a function."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mesh.core.counting import counted


def selected(value: Any) -> Any:
    """Return the value: the function of a node that is an output of another one, and reads its part of that node's value."""
    return value


#: How a graph names `selected`. Every tenant may call it: it runs no code of a tenant's choice.
SELECTED = f"call:{selected.__module__}:{selected.__qualname__}"


def returned_graph(value: Any) -> bytes | None:
    """Return the nodes that a function has returned in place of a value, as a message; None: it is a value.

    Raises:
        Exception: The nodes cannot be sent; whatever `__graph__` of their class raises.
    """
    made = getattr(type(value), "__graph__", None)
    return made(value) if made is not None else None


#: Form of an argument: `{"$calls": [[method, arguments, {name: argument}], …]}`. With it the function is a class, and the node an actor.
CALLS = "$calls"
#: Limit on the calls of an actor.
CALLS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ActorCalls:
    """Calls of an actor's methods among the arguments of its node, in their order: method, arguments, arguments by name."""

    calls: tuple[tuple[str, list[Any], dict[str, Any]], ...]


#: Form of an argument: `{"$job": {…}}`. With it the function is the leader of a job, and the node the whole job.
JOB = "$job"


@dataclass(frozen=True, slots=True)
class JobArgument:
    """The job among the arguments of its leader: its keys, with the code and the arguments of each worker set."""

    described: dict[str, Any]


#: Form of an argument: `{"$group": {"calls": […]}}`. With it the function is a class, and the node a group of actors.
GROUP = "$group"


@dataclass(frozen=True, slots=True)
class GroupArgument:
    """The calls on a group of actors among the arguments of its node: shape and calls."""

    described: dict[str, Any]


def group_mode(call: Mapping[str, Any]) -> str:
    """Return how a call of a group reaches its members: `all`, `shard` or `choose`."""
    return next(mode for mode in ("all", "shard", "choose") if mode in call)


#: Beginning of the key of a program, where functions have `call:` or `blob:`.
PROGRAM = "program:"
#: Characters of a command in its key and in messages.
SHOWN_CHARS_MAX = 120
#: Limit on the files of a working directory, before they are packed; bytes.
ARCHIVE_BYTES_MAX = 512 * 2**20
#: Limit on the number of files of a working directory.
FILES_MAX = 20_000


def called_code(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the function, or the one that a `functools.partial` calls, and the code that a call of an object runs."""
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    return plain, inspect.getattr_static(type(plain), "__call__")


def is_generator(function: Callable[..., Any]) -> bool:
    """Return whether a call of the function makes a generator, async ones included."""
    return any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in called_code(function))


def check_outputs(value: Any, number: int) -> None:
    """Check that a function has returned as many outputs as its node has.

    Raises:
        TypeError, ValueError: It has not; says what it has returned.
    """
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"num_returns={number}, but the function returned {type(value).__name__}: return a tuple of {counted(number, 'value')}"
        )
    if len(value) != number:
        raise ValueError(
            f"num_returns={number}, but the function returned {counted(len(value), 'value')}: return {number}, or change num_returns"
        )


def key_of(command: str | Sequence[Any]) -> str:
    """Return the key of a program, by which run times and views know it."""
    return f"{PROGRAM}{described(command)}"


def described(command: str | Sequence[Any]) -> str:
    """Return the command as a line, cut to `SHOWN_CHARS_MAX`; `…` stands for a part that is known only when it runs."""
    if isinstance(command, str):
        line = command
    else:
        line = " ".join("…" if isinstance(part, (dict, list)) else shlex.quote(str(part)) for part in command)
    line = " ".join(line.split())
    return line if len(line) <= SHOWN_CHARS_MAX else f"{line[: SHOWN_CHARS_MAX - 1]}…"
