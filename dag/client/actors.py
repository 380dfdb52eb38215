"""Actors as nodes: `dag.actor` wraps a class, and calls of its methods are nodes.

An actor's whole life is one node: its object is made, its calls run one after the other in the order in which they were written, and its
value is the list of what they returned. Each call is a node that selects its part of this list. So order, process, room, retries and
cancellation of actors are those of nodes (ADR 0067).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from dag.client.from_ray import class_and_options, foreign, is_actor_class, without_refused_of_actors
from dag.client.placeholders import Call, CallList, Part
from dag.client.tasks import Node, Options, name_of, signature_of
from dag.errors import GraphTypeError
from dag.spec.call_names import is_method
from mesh.core.functions import CALLS_MAX, called_code, selected
from mesh.core.near_names import wrong_call
from mesh.core.reasons import Reason


class ActorClass:
    """A class with options, from which `.bind` makes actors. Calling it makes a plain object of the class."""

    def __init__(self, kind: type, settings: Options) -> None:
        self._function = kind  # By Ray's name: a worker that imports this object by its name makes the plain class's.
        self._settings = settings
        self.__name__, self.__qualname__, self.__module__ = kind.__name__, kind.__qualname__, kind.__module__
        self.__doc__ = kind.__doc__

    def bind(self, *args: Any, **kwargs: Any) -> Actor:
        """Return an actor. Its object is made in the run, with these arguments; nodes may be among them.

        Raises:
            GraphTypeError: The class does not take these arguments.
        """
        check_arguments(self._function, self._function.__name__, args, kwargs)
        settings = self._settings
        if not settings.retries:  # The state of a dead actor is gone, and its calls are repeated only if that was asked for.
            settings = settings.changed({"never_on": [*(settings.never_on or ()), Reason.WORKER_LOST.value]}, self._function)
        return Actor(self._function, args, kwargs, settings)

    def options(self, **options: Any) -> ActorClass:
        """Return a copy with other options. Raises GraphTypeError, SpecError."""
        return ActorClass(self._function, _changed(self._settings, options, self._function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<actor class {self.__name__}>"


class Actor:
    """An actor of a graph, made by `.bind`. Its attributes are the methods of its class: `actor.add.bind(3)` is a node."""

    __slots__ = ("_call_settings", "_calls", "_node")
    refusal = "an actor, which is no function and no value: bind a method of it, actor.method.bind(…)"

    def __init__(self, kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Options) -> None:
        self._calls: list[Call] = []
        self._node = Node(kind, (*args, CallList(self._calls)), kwargs, settings)
        self._call_settings: dict[str, Options] = {}

    def __getattr__(self, name: str) -> ActorMethod:
        kind = self._node.function
        if name == "remote" or (name == "bind" and not hasattr(kind, name)):
            raise AttributeError(f"{self!r} has no {name!r}: bind a method of it, actor.method.bind(…)")
        if not is_method(name) or not callable(getattr(kind, name, None)):
            raise AttributeError(f"{self!r} has no method {name!r}; an attribute is read by a method that returns it")
        return ActorMethod(self, name)

    def _settings_of(self, method: str) -> Options:
        settings = self._call_settings.get(method)
        if settings is None:
            name = f"{self._node.settings.name or name_of(self._node.function)}.{method}"
            settings = self._call_settings[method] = self._node.settings.of_an_output().changed({"name": name}, selected)
        return settings

    def _call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> Node:
        if len(self._calls) >= CALLS_MAX:
            raise GraphTypeError(f"{self!r} has {CALLS_MAX} calls already; let one call take a list")
        self._calls.append((method, args, kwargs))
        settings = self._settings_of(method)
        return Node(selected, (Part(self._node, (len(self._calls) - 1,)),), {}, settings.changed(given, selected) if given else settings)

    def __reduce__(self) -> NoReturn:
        raise GraphTypeError(f"{self!r} cannot be sent: it is {self.refusal}")

    def __repr__(self) -> str:
        return f"<actor {self._node.settings.name or name_of(self._node.function)}>"


class ActorMethod:
    """A method of an actor, from which `.bind` makes nodes."""

    __slots__ = ("_actor", "_name", "_options")
    refusal = "a method of an actor: bind it, actor.method.bind(…); arrays and other tasks cannot call it, but a call may take a list"

    def __init__(self, actor: Actor, name: str, options: Mapping[str, Any] | None = None) -> None:
        self._actor, self._name, self._options = actor, name, options or {}

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """Return the node of a call. It runs after the calls of the actor that were bound before.

        Raises:
            GraphTypeError: The method does not take these arguments, or the actor has too many calls.
        """
        kind = self._actor._node.function  # noqa: SLF001  an actor and its methods are one
        found = inspect.getattr_static(kind, self._name)
        whole = (None, *args) if inspect.isfunction(found) else args
        check_arguments(getattr(kind, self._name), f"{kind.__name__}.{self._name}", whole, kwargs)
        return self._actor._call(self._name, args, kwargs, self._options)  # noqa: SLF001  as above

    def options(self, **options: Any) -> ActorMethod:
        """Return the method with a `name` for the node, or `num_returns`. Raises GraphTypeError for other options."""
        for name in options:
            if name not in ("name", "num_returns"):
                raise GraphTypeError(f"{self!r} has no option {name!r}: give it to the actor, dag.actor(Class, {name}=…)")
        return ActorMethod(self._actor, self._name, {**self._options, **options})

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise GraphTypeError(f"{self!r} is {self.refusal}")

    def __reduce__(self) -> NoReturn:
        raise GraphTypeError(f"{self!r} cannot be sent: it is {self.refusal}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} has no {name!r}: write .bind(…) for a node of the graph")

    def __repr__(self) -> str:
        return f"<method {self._name} of {self._actor!r}>"


def actor(kind: Any = None, /, **options: Any) -> Any:
    """Wrap a class, or an existing `@ray.remote` class, as an `ActorClass`; with options alone, a decorator.

        counter = dag.actor(Counter, num_cpus=2).bind(0)
        counter.add.bind(3)
        total = counter.add.bind(4)

    The calls of an actor run in the order in which they were written, in one process of its own. A graph with one of them has all that
    were bound before it was submitted.

    Raises:
        GraphTypeError: The object is not a class, it has async methods, or an option is unknown or not honoured.
        SpecError: An option has a value of the wrong type.
    """
    if kind is None:
        return lambda wrapped: actor(wrapped, **options)
    if isinstance(kind, ActorClass):
        return kind.options(**options)
    plain, of_ray = checked_kind(kind)
    settings = _changed(Options(), of_ray, plain) if of_ray else Options()
    return ActorClass(plain, _changed(settings, options, plain))


def checked_kind(kind: Any) -> tuple[type, dict[str, Any]]:
    """Return the plain class, and the options that Ray gave it. Raises GraphTypeError if it is no class, or has async methods."""
    of_ray: dict[str, Any] = {}
    if is_actor_class(kind):
        kind, of_ray = class_and_options(kind)
    if not isinstance(kind, type):
        words = foreign(kind)
        raise GraphTypeError(f"{kind!r} {words}" if words else f"{kind!r} is not a class; dag.actor takes one, dag.task a function")
    for name in dir(kind):
        if is_method(name) and _is_async(getattr(kind, name, None)):
            raise GraphTypeError(
                f"actor {kind.__name__}: its method {name} is async. Ray runs such calls at once, and here they run in order: "
                "make it a plain method, with asyncio.run inside"
            )
    return kind, of_ray


def actor_of_ray(node: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Actor:
    """Return the actor of a node of Ray's graphs, with these arguments. Raises as `actor`."""
    kind, options = class_and_options(node)
    made: Actor = actor(kind, **options).bind(*args, **kwargs)
    return made


def _changed(settings: Options, options: Mapping[str, Any], kind: type) -> Options:
    """Return the settings with these options, and with those that give an actor a process of its own, which ends with it."""
    given = without_refused_of_actors(options, kind.__name__)
    return settings.changed({**given, "isolation": "task", "max_calls": 1}, kind)


def check_arguments(function: Callable[..., Any], words: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Check that a class or function takes the arguments. Raises GraphTypeError, which names the likely parameter."""
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as wrong:
        raise GraphTypeError(f"{words}(){wrong_call(signature, args, kwargs, str(wrong))}") from None


def _is_async(method: Any) -> bool:
    return callable(method) and any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called_code(method))
