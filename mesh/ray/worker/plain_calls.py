"""Functions of all kinds as plain ones: async functions run to their end, generators become lists, actors make their calls."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from mesh.core.functions import ActorCalls, called_code


def as_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose call returns the final value: an async function's, or the list of a generator's elements."""
    called = called_code(function)
    if any(map(inspect.iscoroutinefunction, called)):
        return lambda *args, **kwargs: asyncio.run(function(*args, **kwargs))
    if any(map(inspect.isasyncgenfunction, called)):
        return lambda *args, **kwargs: asyncio.run(_elements(function(*args, **kwargs)))
    if any(map(inspect.isgeneratorfunction, called)):
        return lambda *args, **kwargs: list(function(*args, **kwargs))
    return function


def has_calls(args: Sequence[Any]) -> bool:
    """Return whether the arguments are those of an actor's node."""
    return any(type(argument) is ActorCalls for argument in args)


def make_calls(kind: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], check: Callable[[str, Any], None]) -> list[Any]:
    """Make an object of the class, and return what its methods return, called one after the other.

    Args:
        kind: The class.
        args: Arguments of the class, with the calls among them.
        check: Refuses a value of a method.

    Raises:
        TypeError: It is no class, so its methods would be those of a value.
    """
    if not isinstance(kind, type):
        raise TypeError(f"{getattr(kind, '__name__', kind)} is not a class: an actor is made of one")
    calls = next(argument.calls for argument in args if type(argument) is ActorCalls)
    actor, values = kind(*(argument for argument in args if type(argument) is not ActorCalls), **kwargs), list[Any]()
    for method, given, named in calls:
        try:
            values.append(as_plain(getattr(actor, method))(*given, **named))
        except Exception as error:
            if hasattr(error, "add_note"):  # From Python 3.11 on, the traceback ends with it.
                error.add_note(f"in call {len(values) + 1} of {len(calls)} of the actor: {method}")
            raise
        check(method, values[-1])
    return values


async def _elements(elements: AsyncIterator[Any]) -> list[Any]:
    return [element async for element in elements]
