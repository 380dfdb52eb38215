"""Placeholders for values that a graph has only when it runs: a part of a node's value, a parameter. They refuse to be used as values.

Beside them: the calls of an actor and the workers of a job, which wait among the arguments of their nodes.

A program that uses a placeholder as if it were the value gets `GraphTypeError`, with the remedy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from dag.errors import GraphTypeError
from dag.spec.checks import NAME, NAME_RULE

#: A parameter without a default.
NO_DEFAULT: Any = type("NoDefault", (), {"__repr__": lambda _: "no default"})()
#: Step to a part of a value.
Step = str | int

_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
#: Methods that Python calls when a program uses a placeholder as if it were its value, with the remedy for each.
#:
#: `==` and `hash` are missing, because placeholders are compared by identity. `str` is missing, because `print`, logs and debuggers show
#: a placeholder by it. An f-string is refused: its text in a path or a query would be a wrong value without an error.
_USES_OF_A_VALUE = {
    "__iter__": "has no known number of parts; give each as a node or parameter of its own",
    **dict.fromkeys(
        ("__next__", "__reversed__", "__aiter__", "__anext__", "__len__", "__length_hint__", "__contains__"),
        "cannot be iterated over or measured; take each part by its place, like node[0]",
    ),
    "__getitem__": "has no parts; give each part as a parameter of its own, or take it inside a task",
    **dict.fromkeys(
        ("__setitem__", "__delitem__"),
        "has no parts to change; change them inside a task that takes the node and returns what it made",
    ),
    **dict.fromkeys(
        ("__setattr__", "__delattr__"),
        "cannot be changed; give other options by node.options(…), bind the function again with other arguments, or change the value "
        "inside a task that takes the node as an argument",
    ),
    "__bool__": "is neither true nor false; decide inside a task that takes the node as an argument",
    "__call__": "is a call already; bind the function again, with other arguments",
    "__await__": "cannot be awaited; submit it: await dag.submit(node)",
    **dict.fromkeys(
        ("__enter__", "__exit__", "__aenter__", "__aexit__"),
        "cannot be entered by `with`; do that inside a task that takes the node as an argument",
    ),
    **dict.fromkeys(
        (
            *(f"__{side}{name}__" for name in _OPERATORS for side in ("", "r", "i") if side + name != "idivmod"),
            *("__neg__", "__pos__", "__abs__", "__invert__"),
        ),
        "cannot be computed with; bind a function that does, like dag.bind(operator.add, node, 1)",
    ),
    **dict.fromkeys(
        (
            *("__lt__", "__le__", "__gt__", "__ge__", "__int__", "__float__", "__complex__", "__index__", "__bytes__", "__buffer__"),
            *("__round__", "__trunc__", "__floor__", "__ceil__", "__fspath__"),
        ),
        "cannot be compared or converted; do that inside a task that takes the node as an argument",
    ),
    "__format__": "cannot be written into a text; do that inside a task that takes the node as an argument, or show the node by {node!r}",
    **dict.fromkeys(
        ("__instancecheck__", "__subclasscheck__", "__mro_entries__"),
        "is no class; use it inside a task that takes the node as an argument",
    ),
}


def refuse_uses_as_value(placeholder: type) -> None:
    """Let objects of the class refuse what a program can do to a value, except what the class defines itself."""
    for name, instead in _USES_OF_A_VALUE.items():
        if name not in vars(placeholder):
            setattr(placeholder, name, _refused(instead))


def no_value_yet(placeholder: Any, instead: str) -> GraphTypeError:
    """Return the error of a program that uses a placeholder as if it were its value."""
    return GraphTypeError(f"{placeholder!r} stands for a value that is not there before the run: it {instead}")


def _refused(instead: str) -> Callable[..., NoReturn]:
    def refuse(placeholder: Any, *_: Any, **__: Any) -> NoReturn:
        raise no_value_yet(placeholder, instead)

    return refuse


def graph_of(outputs: Any) -> bytes:
    """Return nodes that a function returns as a graph. Only then is the compiler needed, which knows nodes."""
    made: bytes = importlib.import_module("dag.client.continuations").continuation(outputs).__graph__()
    return made


def _refuse_pickling(placeholder: Any) -> NoReturn:
    raise GraphTypeError(
        f"{placeholder!r} cannot be pickled: it stands for a value that is not there yet. Pass it as an argument of its own, "
        "or inside a list, tuple or dict"
    )


class Part:
    """A part of a node's value, made by `node["key"]`; further keys lead to parts of it. The whole value goes to a mesh that reads it."""

    __slots__ = ("node", "path")
    node: Any  #: The `Node`.
    path: tuple[Step, ...]

    def __init__(self, node: Any, path: tuple[Step, ...]) -> None:
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "path", path)

    def __getitem__(self, key: Step) -> Part:
        return Part(self.node, (*self.path, step_of(self, key)))

    __reduce__ = _refuse_pickling

    def __graph__(self) -> bytes:
        """Return the part as a graph, in place of the value of the function that returns it. Raises as `dag.continuation`."""
        return graph_of(self)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} has no {name!r}; for an attribute of its value: dag.bind(getattr, part, {name!r})")

    def __repr__(self) -> str:
        return f"<part {self.node!r}{''.join(f'[{step!r}]' for step in self.path)}>"


class Param:
    """A parameter of a graph, made by `param`; its value comes with the submission."""

    __slots__ = ("default", "name")
    name: str
    default: Any

    def __init__(self, name: str, default: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "default", default)

    __reduce__ = _refuse_pickling

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} has no {name!r}; for an attribute of its value: dag.bind(getattr, param, {name!r})")

    def __repr__(self) -> str:
        return f"<param {self.name}>"


refuse_uses_as_value(Part)
refuse_uses_as_value(Param)


#: Why an actor and its calls cannot need each other.
LATER_CALL = (
    "needs a node that needs an earlier call of it. The calls of an actor run together: keep the state in values of functions, "
    "or use two actors"
)
#: A call of an actor: method, arguments, arguments by name; nodes may be among them.
Call = tuple[str, tuple[Any, ...], Mapping[str, Any]]


class CallList:
    """The calls of an actor, as the last argument of its node."""

    __slots__ = ("calls",)

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls

    def arguments(self) -> Iterator[Any]:
        """Return the arguments of all calls, in reading order."""
        for _, args, kwargs in self.calls:
            yield from args
            yield from kwargs.values()


class GroupCall(NamedTuple):
    """A call of an actor group: `all`, `shard` or `choose`, method, arguments, and how it is shared out."""

    mode: str
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    ways: Mapping[str, Any]


class GroupCalls:
    """The calls of an actor group, as the last argument of its node."""

    __slots__ = ("calls", "shape")

    def __init__(self, calls: list[GroupCall], shape: Mapping[str, int] | None) -> None:
        self.calls, self.shape = calls, shape

    def arguments(self) -> Iterator[Any]:
        """Return the arguments of all calls, in reading order."""
        for call in self.calls:
            yield from call.args
            yield from call.kwargs.values()


class JobWorkers:
    """The worker sets of a job, as the last argument of its leader's node.

    Args:
        described: Keys of the job, with those of its worker sets, as `dag.spec.job_forms` describes them, without their code.
        code: Function or class of each worker set, by name.
        args: Arguments of each worker set.
        kwargs: Arguments by name of each worker set.
    """

    __slots__ = ("args", "code", "described", "kwargs")

    def __init__(
        self,
        described: Mapping[str, Any],
        code: Mapping[str, Callable[..., Any]],
        args: Mapping[str, Sequence[Any]],
        kwargs: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.described, self.code, self.args, self.kwargs = described, code, args, kwargs

    def arguments(self) -> Iterator[Any]:
        """Return the arguments of all worker sets, in reading order."""
        for name in self.code:
            yield from self.args.get(name, ())
            yield from self.kwargs.get(name, {}).values()


def is_actor(node: Any) -> bool:
    """Return whether the node is the life of an actor, or of a group of actors."""
    return any(type(value) in (CallList, GroupCalls) for value in node.args)


def param(name: str, *, default: Any = NO_DEFAULT) -> Any:
    """Return a parameter of a graph, to be passed as an argument of nodes, also inside lists, tuples and dicts.

        table = clean.bind(dag.param("day"), limit=dag.param("limit", default=100))
        dag.submit(table, params={"day": "2026-11-20"})

    Args:
        name: Name in `params`. Parameters of one name are one parameter; those with a default have the same one.
        default: Plain JSON data; its value if the submission gives none.

    Raises:
        GraphTypeError: The name cannot be one of a parameter.
    """
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise GraphTypeError(f"{name!r} is not a name of a parameter; use {NAME_RULE}")
    return Param(name, default)


def step_of(whole: Any, key: Any) -> Step:
    """Return the key as a step of a path. Raises GraphTypeError if a graph cannot write it as JSON."""
    if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)):
        return key
    raise GraphTypeError(f"{whole!r}[{key!r}]: a part is named by text or a whole number; for others: dag.bind(operator.getitem, node, …)")
