"""How graphs are written: `task` wraps a function, `.bind` makes a node of it.

    @dag.task(num_cpus=2, labels={"zone": "eu"}, retries=3)
    def clean(path): ...

    table = clean.bind("s3://in/a")
    model = dag.bind(train, table, rate=0.1)        # plain and @ray.remote functions as they are

A node is a value of its own, found again by identity; it never leaves the process that made it. What is sent is the spec that
`dag.compiling` makes of it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, NoReturn

from dag.options import NodeOptions, checked

#: What a `@ray.remote` function's own options are called there and here.
_FROM_RAY = ("num_cpus", "num_gpus", "memory", "resources", "label_selector", "runtime_env", "max_retries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a node asks for. `.options(...)` gives a copy with some of them changed."""

    num_cpus: float = 1  #: Exact to 1/10 000.
    num_gpus: float = 0
    memory: int | str = 0  #: Bytes, or like "4GiB".
    resources: Mapping[str, float] = field(default_factory=dict)  #: Custom ones.
    labels: Mapping[str, str] = field(default_factory=dict)  #: That the mesh must carry; "!x" shuns; see `mesh.labels`.
    mesh: str | None = None  #: The only mesh that will do.
    name: str | None = None  #: What the node's id begins with; else the function's name.
    retries: int = 0  #: Further attempts after an error of the function itself. Lost meshes have their own budget.
    priority: int = 0  #: Higher goes first in the queue of a mesh.
    after: tuple[Node, ...] = ()  #: Nodes that must have succeeded before; nothing of theirs is passed.
    label_selector: Mapping[str, str] = field(default_factory=dict)  #: Ray node labels.
    runtime_env: Mapping[str, Any] = field(default_factory=dict)  #: Ray's; one for all nodes of a graph.
    max_retries: int | None = None  #: Ray's own, inside the mesh.

    def changed(self, options: Mapping[str, Any]) -> Options:
        """A copy with these options; None: as by default.

        Raises:
            TypeError: Unknown option (the message names the nearest), something in `after` that is no node, a name that is no text.
            ValueError: A value is not of its kind, or an amount is negative or too fine.
        """
        known = {each.name: each for each in fields(self)}
        for name in options:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
                raise TypeError(f"unknown option {name!r}; {hint}")
        given = {name: _default_of(known[name]) if value is None else value for name, value in options.items()}
        checked({name: value for name, value in given.items() if name in NodeOptions.model_fields and options[name] is not None})
        if "after" in given:
            given["after"] = nodes_of_after(given["after"])
        if not isinstance(given.get("name", ""), (str, type(None))):
            raise TypeError(f"name must be text, not {given['name']!r}")
        if not isinstance(given.get("runtime_env", {}), Mapping):
            raise TypeError(f"runtime_env must be a dict, not {given['runtime_env']!r}")
        return replace(self, **given)

    def on_the_wire(self) -> dict[str, Any]:
        """The options that are not as they are by default; `name`, `after` and `runtime_env` are told elsewhere in a spec."""
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in NodeOptions.model_fields and value != _default_of(each):
                changed[each.name] = dict(value) if isinstance(value, Mapping) else value
        return changed


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """One call that a graph will make. Made by `.bind`; equal only to itself. Its arguments are read when the graph is submitted."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Options

    def options(self, **options: Any) -> Node:
        """A new node: the same call with other options. Raises TypeError."""
        return Node(self.function, self.args, self.kwargs, self.settings.changed(options))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled: a node stands for a value that is not there yet. Pass it as an argument of its own, "
            "or inside a list, tuple or dict"
        )

    def __repr__(self) -> str:
        return f"<node {self.settings.name or name_of(self.function)}>"


class Task:
    """A function that nodes can be made of. Calling it calls the function."""

    def __init__(self, function: Callable[..., Any], settings: Options) -> None:
        self.function = function
        self.settings = settings
        functools.update_wrapper(self, function)

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """A node that calls the function with these arguments; nodes among them, also in lists, tuples and dicts, are waited for.

        Raises:
            TypeError: The function does not take these arguments.
        """
        signature = signature_of(self.function)
        try:
            if signature is not None:
                signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise TypeError(f"{name_of(self.function)}(): {wrong}") from None
        return Node(self.function, args, kwargs, self.settings)

    def options(self, **options: Any) -> Task:
        """A copy with other options; this one stays as it is. Raises TypeError."""
        return Task(self.function, self.settings.changed(options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {name_of(self.function)}>"


def task(function: Any = None, /, **options: Any) -> Any:
    """Wrap a function, or an existing `@ray.remote` function, as a `Task`; with options alone, a decorator.

    Raises:
        TypeError: Not a function, an actor class, or an unknown option.
    """
    if function is None:
        settings = Options().changed(options)
        return lambda wrapped: Task(*_plain(wrapped, settings, options))
    return Task(*_plain(function, Options().changed(options), options))


def bind(function: Any, /, *args: Any, **kwargs: Any) -> Node:
    """A node that calls `function`, which may be a plain function, a `@ray.remote` function or a `Task`. Raises TypeError."""
    wrapped = function if isinstance(function, Task) else task(function)
    node: Node = wrapped.bind(*args, **kwargs)
    return node


def _plain(function: Any, settings: Options, given: Mapping[str, Any]) -> tuple[Callable[..., Any], Options]:
    if isinstance(function, Task):
        return function.function, function.settings.changed(given)
    inner, of_ray = getattr(function, "_function", None), getattr(function, "_default_options", None)
    if inner is not None and isinstance(of_ray, dict):  # What a `@ray.remote` function looks like; Ray itself is not imported here.
        taken = {name: of_ray[name] for name in _FROM_RAY if of_ray.get(name) is not None}
        return inner, Options().changed({**taken, **given})
    if isinstance(function, type) or hasattr(function, "__ray_metadata__"):
        raise TypeError(f"{function!r} is a class: actors are not supported in graphs yet; bind a function")
    if not callable(function):
        raise TypeError(f"{function!r} is not a function")
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is async: a task has no event loop; bind a function that calls asyncio.run()")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} is a generator: a task has one value; bind a function that returns a list")
    return function, settings


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The function's signature; None where Python does not know it (some built-ins)."""
    try:
        return _signature_of(function)
    except (TypeError, ValueError):  # TypeError also for a callable that cannot be hashed
        return None


@functools.lru_cache(maxsize=256)  # A wide graph binds one function thousands of times, and this is most of what a bind costs.
def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def name_of(function: Callable[..., Any]) -> str:
    """A short name for people and node ids."""
    return str(getattr(function, "__name__", type(function).__name__)).replace("<lambda>", "lambda")


def _default_of(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def nodes_of_after(after: Any) -> tuple[Node, ...]:
    """The nodes that the option `after` names: one, or several. Raises TypeError."""
    if isinstance(after, Node):
        return (after,)
    if not isinstance(after, (list, tuple)):
        raise TypeError(f"after takes nodes, not {after!r}")
    listed = tuple(after)
    for each in listed:
        if not isinstance(each, Node):
            raise TypeError(f"after takes nodes, not {each!r}")
    return listed
