"""Functions of all kinds as plain ones: async functions run to their end, generators become lists."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from mesh.core.functions import called_code


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


async def _elements(elements: AsyncIterator[Any]) -> list[Any]:
    return [element async for element in elements]
