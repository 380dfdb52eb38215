"""Functions that build a graph: their parameters are the graph's, and a call of Ray inside starts no Ray on this machine."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

from dag.client.placeholders import NO_DEFAULT, Param, param
from dag.errors import GraphTypeError

#: Name of the graph function that runs now in this context; empty: none.
_building: ContextVar[str] = ContextVar("graph_function", default="")
_BY_NAME = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class GraphFunction:
    """A function that returns the outputs of a graph, made by `graph`. A call returns them for its arguments.

    Submitted as it is, its parameters are those of the graph: `dag.submit(nightly, params={"day": "2026-11-20"})`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _no_calls_of_ray(self.__name__):
            return self._function(*args, **kwargs)

    def outputs(self) -> Any:
        """Return the outputs of the graph with a parameter of the graph for each parameter of the function. Raises GraphTypeError."""
        args: list[Param] = []
        kwargs: dict[str, Param] = {}
        for name, each in inspect.signature(self._function).parameters.items():
            if each.kind not in _BY_NAME:
                raise GraphTypeError(
                    f"{self.__name__}() takes {each}: a graph has parameters with names; call it, and submit what it returns"
                )
            made = param(name, default=NO_DEFAULT if each.default is inspect.Parameter.empty else each.default)
            if each.kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = made
            else:
                args.append(made)
        return self(*args, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("bind", "remote", "options"):
            raise AttributeError(f"a graph function has no {name!r}: call it for its nodes, or submit it with params={{…}}")
        raise AttributeError(f"a graph function has no {name!r}")

    def __repr__(self) -> str:
        return f"<graph {self.__name__}>"


def graph(function: Any) -> GraphFunction:
    """Make a function that builds a graph, and returns its outputs, a graph function.

        @dag.graph
        def nightly(day, limit=100):
            return train.bind(clean.bind(day), limit)

        dag.submit(nightly, params={"day": "2026-11-20"})

    Raises:
        GraphTypeError: The object is not a plain function.
    """
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise GraphTypeError(f"{function!r} is not a plain function: dag.graph takes one that returns nodes")
    return GraphFunction(function)


@contextmanager
def _no_calls_of_ray(name: str) -> Iterator[None]:
    """Refuse what would start a Ray, or use one, while a graph function runs: `f.remote()`, `ray.get`, `ray.put`."""
    _guard_ray()
    token = _building.set(name)
    try:
        yield
    finally:
        _building.reset(token)


def _guard_ray() -> None:
    """Put a check before the function by which Ray starts itself at the first call that needs it. Once in a process."""
    hook = sys.modules.get("ray._private.auto_init_hook")
    starts = getattr(hook, "auto_init_ray", None)
    if hook is None or starts is None or hasattr(starts, "guarded_by_dag"):
        return

    @functools.wraps(starts)
    def checked() -> None:
        if building := _building.get():
            raise GraphTypeError(
                f"a call of Ray, like f.remote(), in the graph function {building} would run on this machine, not in the graph: "
                "write f.bind(…) for a node, and call Ray inside of tasks"
            )
        starts()

    checked.guarded_by_dag = True  # type: ignore[attr-defined]  # the mark of this function
    hook.auto_init_ray = checked  # type: ignore[attr-defined]  # Ray calls it by this name
