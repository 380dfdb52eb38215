"""Actor groups as nodes: `dag.actor_group` wraps a class, and calls of a group's methods are nodes.

A group's whole life is one gang node, as that of an actor is one node (ADR 0067): its members are made, its calls are sent in the order
in which they were written, and its value is the list of what they returned. Each call is a node that selects its part.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from dag.client.actors import check_arguments, checked_kind
from dag.client.from_ray import without_refused_of_actors
from dag.client.placeholders import GroupCall, GroupCalls, Part
from dag.client.tasks import Node, Options, name_of
from dag.errors import GraphTypeError
from dag.spec.call_names import is_method
from dag.spec.group_forms import problem_of_way
from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import ShapeError
from mesh.core.functions import CALLS_MAX, selected
from mesh.core.reasons import Reason

_NOT_HERE = {
    "where": "a call reaches all members, one, or each with its share: make a group of its own for a part",
    "labelled": "members of a group in a graph have no labels: make a group of its own for some of them",
    "refresh": "a group in a graph is made anew as a whole: give retries=n",
    "with_members": "a group in a graph has the members that it was made with: give another size",
    "stream": "values of a call are there when it has ended: bind it",
    "refs": "the value of a call is a node: bind it",
    "remote": "the value of a call is a node: bind it",
}


class ActorGroupClass:
    """A class with options, from which `.bind` makes actor groups."""

    def __init__(self, kind: type, settings: Options, shape: Mapping[str, int] | None) -> None:
        self._kind, self._settings, self._shape = kind, settings, shape

    def bind(self, *args: Any, **kwargs: Any) -> ActorGroup:
        """Return a group. Its members are made in the run, each with these arguments; nodes and `mesh.PerRank` may be among them.

        Raises:
            GraphTypeError: The class does not take these arguments.
        """
        check_arguments(self._kind, self._kind.__name__, args, kwargs)
        settings = self._settings
        if not settings.retries:  # As for an actor: calls are repeated only if that was asked for.
            settings = settings.changed({"never_on": [*(settings.never_on or ()), Reason.WORKER_LOST.value]}, self._kind)
        return ActorGroup(self._kind, args, kwargs, settings, self._shape)

    def __repr__(self) -> str:
        return f"<actor group class {self._kind.__name__}>"


class ActorGroup:
    """An actor group of a graph, made by `.bind`: `group.all().step.bind(x)` is a node."""

    refusal = "an actor group, which is no function and no value: bind a call of it, group.all().method.bind(…)"

    def __init__(
        self, kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Options, shape: Mapping[str, int] | None
    ) -> None:
        self._calls: list[GroupCall] = []
        self._node = Node(kind, (*args, GroupCalls(self._calls, shape)), kwargs, settings)

    def all(self) -> GroupMethods:
        """Return the methods as calls on all members; the value is the list of their values, in rank order."""
        return GroupMethods(self, "all", {})

    def shard(self, *, dispatch_fn: Any = "split", collect_fn: Any = None) -> GroupMethods:
        """Return the methods as calls that share their arguments out over the members, and combine the results.

        Args:
            dispatch_fn: `split`, `broadcast`, `parts`, `tensor`, `sequence`, `by_length`, `pipeline`, or a function of your own.
            collect_fn: `concat`, `gather`, `first`, `sum`, `mean`, `tensor`, `sequence`, or a function of the results. None: the inverse
                of the dispatch.

        Raises:
            GraphTypeError: There is no function of this name.
        """
        return GroupMethods(self, "shard", {"dispatch_fn": dispatch_fn, "collect_fn": collect_fn})

    def choose(self, strategy: Any = "least_busy") -> GroupMethods:
        """Return the methods as calls on one member each.

        Args:
            strategy: `least_busy`, `random`, `round_robin`, `power_of_two`, `priority`, or a function of loads.

        Raises:
            GraphTypeError: There is no strategy of this name.
        """
        return GroupMethods(self, "choose", {"strategy": strategy})

    def _call(self, mode: str, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], ways: Mapping[str, Any]) -> Node:
        if len(self._calls) >= CALLS_MAX:
            raise GraphTypeError(f"{self!r} has {CALLS_MAX} calls already; let one call take a list")
        self._calls.append(GroupCall(mode, method, args, kwargs, ways))
        settings = self._node.settings
        name = f"{settings.name or name_of(self._node.function)}.{method}"
        part = Part(self._node, (len(self._calls) - 1,))
        return Node(selected, (part,), {}, settings.of_an_output().changed({"name": name}, selected))

    def __getattr__(self, name: str) -> NoReturn:
        remedy = _NOT_HERE.get(name, "write group.all().method.bind(…), group.shard() or group.choose()")
        raise AttributeError(f"{self!r} has no {name!r}: {remedy}")

    def __reduce__(self) -> NoReturn:
        raise GraphTypeError(f"{self!r} cannot be sent: it is {self.refusal}")

    def __repr__(self) -> str:
        return f"<actor group {self._node.settings.name or name_of(self._node.function)}>"


class GroupMethods:
    """Result of `.all()`, `.shard()` and `.choose()`: each attribute is a method of the members."""

    def __init__(self, group: ActorGroup, mode: str, ways: Mapping[str, Any]) -> None:
        self._group, self._mode = group, mode
        self._ways = {name: way for name, way in ways.items() if way is not None}
        for name, way in self._ways.items():
            problem = problem_of_way(name, way) if isinstance(way, str) or not callable(way) else None
            if problem is not None:
                raise GraphTypeError(f"{group!r}: {problem}")

    def __getattr__(self, name: str) -> GroupMethod:
        kind = self._group._node.function  # noqa: SLF001  a group and its methods are one
        if not is_method(name) or not callable(getattr(kind, name, None)):
            raise AttributeError(f"{self._group!r} has no method {name!r}; an attribute is read by a method that returns it")
        return GroupMethod(self._group, self._mode, name, self._ways)


class GroupMethod:
    """A method of a group, from which `.bind` makes nodes."""

    refusal = "a method of an actor group: bind it, group.all().method.bind(…)"

    def __init__(self, group: ActorGroup, mode: str, name: str, ways: Mapping[str, Any]) -> None:
        self._group, self._mode, self._name, self._ways = group, mode, name, ways

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """Return the node of a call. Each member runs its calls in the order in which they were bound.

        Raises:
            GraphTypeError: The method does not take these arguments, or the group has too many calls.
        """
        if self._mode != "shard":  # A dispatch function may change the arguments.
            kind = self._group._node.function  # noqa: SLF001  a group and its methods are one
            whole = (None, *args) if inspect.isfunction(inspect.getattr_static(kind, self._name)) else args
            check_arguments(getattr(kind, self._name), f"{kind.__name__}.{self._name}", whole, kwargs)
        return self._group._call(self._mode, self._name, args, kwargs, self._ways)  # noqa: SLF001  as above

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise GraphTypeError(f"{self!r} is {self.refusal}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} has no {name!r}: {_NOT_HERE.get(name, 'write .bind(…) for a node of the graph')}")

    def __repr__(self) -> str:
        return f"<method {self._name} of {self._group!r}>"


def actor_group(
    kind: Any, /, *, size: int, shape: Mapping[str, int] | None = None, strategy: str = "PACK", **options: Any
) -> ActorGroupClass:
    """Wrap a class, or an existing `@ray.remote` class: `.bind` makes groups of `size` members, called by `all`, `shard` and `choose`.

        workers = dag.actor_group(Scorer, size=4, num_gpus=1).bind("s3://models/7")
        scores = workers.shard().score.bind(images)

    The members have a bundle each of one placement group, which is admitted whole or not at all.

    Args:
        size: Number of members.
        shape: Names and sizes of dimensions, as for groups of a local mesh; None: ranks alone.
        strategy: Ray's: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        options: Those of an actor; the amounts are those of each member.

    Raises:
        GraphTypeError: The object is not a class, it has async methods, the shape has another size, or an option is not honoured.
        SpecError: An option has a value of the wrong type.
    """
    plain, of_ray = checked_kind(kind)
    given: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda found: without_refused_of_actors(found, plain.__name__)  # noqa: E731
    settings = Options().changed({**given(of_ray), **given(options), "gang": {"size": size, "strategy": strategy}}, plain)
    try:
        Dimensions.of(size, shape)
    except ShapeError as wrong:
        raise GraphTypeError(f"actor group {plain.__name__}: {wrong}") from None
    return ActorGroupClass(plain, settings, shape)
