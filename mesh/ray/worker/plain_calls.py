"""Functions of all kinds as plain ones: async functions run to their end, generators become lists, actors make their calls."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import cloudpickle

from mesh.core.functions import ActorCalls, called_code
from mesh.stages.call_shapes import PLAIN

#: Called with the elements of a generator so far, after each one; None: nobody reads them before the last one is there.
_taker: ContextVar[Callable[[list[Any]], None] | None] = ContextVar("taker", default=None)


def as_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose call returns the final value: an async function's, or the list of a generator's elements."""
    called = called_code(function)
    if any(map(inspect.iscoroutinefunction, called)):
        return lambda *args, **kwargs: asyncio.run(function(*args, **kwargs))
    if any(map(inspect.isasyncgenfunction, called)):
        return lambda *args, **kwargs: asyncio.run(_elements(function(*args, **kwargs)))
    if any(map(inspect.isgeneratorfunction, called)):
        return lambda *args, **kwargs: _listed(function(*args, **kwargs))
    return function


def make_calls(kind: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], check: Callable[[str, Any], None]) -> list[Any]:
    """Make an object of the class, and return what its methods return, called one after the other.

    Args:
        kind: The class.
        args: Arguments of the class, with the calls among them or among `kwargs`.
        check: Refuses a value of a method.

    Raises:
        TypeError: It is no class, so its methods would be those of a value.
    """
    if not isinstance(kind, type):
        raise TypeError(f"{getattr(kind, '__name__', kind)} is not a class: an actor is made of one")
    calls = next(argument.calls for argument in (*args, *kwargs.values()) if type(argument) is ActorCalls)
    own = {name: argument for name, argument in kwargs.items() if type(argument) is not ActorCalls}
    actor, values = kind(*(argument for argument in args if type(argument) is not ActorCalls), **own), list[Any]()
    seen: dict[int, Any] = {}  #: Arguments of earlier calls, by their `id`.
    for method, positional, by_name in calls:
        given, named = [_anew(value, seen) for value in positional], {name: _anew(value, seen) for name, value in by_name.items()}
        try:
            value = as_plain(getattr(actor, method))(*given, **named)
        except Exception as error:
            if hasattr(error, "add_note"):  # From Python 3.11 on, the traceback ends with it.
                error.add_note(f"in call {len(values) + 1} of {len(calls)} of the actor: {method}")
            raise
        check(method, value)
        values.append(_copied(value) if len(values) + 1 < len(calls) else value)  # A later call may change what this one returned.
    return values


def _anew(value: Any, seen: dict[int, Any]) -> Any:
    """Return an argument of a call; a copy if an earlier call had the same object, which it may have changed."""
    if id(value) in seen:
        return _copied(value)
    seen[id(value)] = value
    return value


def _copied(value: Any) -> Any:
    """Return the value as another process would read it; a value that cannot be pickled as it is, since its node fails for that."""
    if type(value) in PLAIN:
        return value
    try:
        return cloudpickle.loads(cloudpickle.dumps(value, protocol=5))
    except Exception:  # noqa: BLE001  pickling runs the objects' own code, which may raise anything
        return value


@contextlib.contextmanager
def elements_taken_by(take: Callable[[list[Any]], None]) -> Iterator[None]:
    """Pass the elements so far of a generator that the body calls to `take`, after each one."""
    token = _taker.set(take)
    try:
        yield
    finally:
        _taker.reset(token)


def _listed(elements: Iterable[Any]) -> list[Any]:
    take = _taker.get()
    if take is None:
        return list(elements)
    listed: list[Any] = []
    for element in elements:
        listed.append(element)
        take(listed)
    return listed


async def _elements(elements: AsyncIterator[Any]) -> list[Any]:
    take, listed = _taker.get(), list[Any]()
    async for element in elements:
        listed.append(element)
        if take is not None:
            take(listed)
    return listed
