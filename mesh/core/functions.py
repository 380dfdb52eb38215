"""Kinds of functions that a node may call, and the function of its outputs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mesh.core.counting import counted


def selected(value: Any) -> Any:
    """Return the value: the function of a node that is an output of another one, and reads its part of that node's value."""
    return value


#: How a graph names `selected`. Every tenant may call it: it runs no code of a tenant's choice.
SELECTED = f"call:{selected.__module__}:{selected.__qualname__}"


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
