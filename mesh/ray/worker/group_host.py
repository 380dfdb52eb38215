"""An actor group as a node: the task of the node makes the members in the bundles of its gang, and sends their calls.

The rules of `all`, `shard` and `choose` are those of groups on a local mesh (`mesh.actors`). All calls are sent in order, and none waits
for the one before: each member runs its own in that order, and different members at the same time.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.actors.collecting import collected, collector_named, gather
from mesh.actors.dimensions import Dimensions
from mesh.actors.dispatching import Call, dispatcher_named, natural_collect, send_each
from mesh.actors.errors import DispatchError, GroupCallFailed, GroupError
from mesh.actors.members import RankView
from mesh.actors.per_rank import at_rank
from mesh.actors.results import Collect
from mesh.actors.selection import Load, strategy_named
from mesh.actors.weighing import is_large
from mesh.core.functions import GroupArgument, group_mode
from mesh.core.ids import AgentId
from mesh.ray.cluster.node_resources import actor_options, own_resources
from mesh.ray.user_code.gang_room import note_group
from mesh.ray.worker.job_member import MemberOutput, OutputTarget
from mesh.ray.worker.plain_calls import as_plain

#: Longest wait for the last lines of the members of a group that has failed; longer than the pause between two looks at their output.
LAST_LINES_S_MAX = 1.0


class GroupMemberProcess:
    """Ray actor that holds an object of the group's class, and runs its calls one after the other."""

    def __init__(self, target: OutputTarget, name: str, kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._output = MemberOutput(target, name)
        with self._output.until_error():
            self._object = kind(*args, **kwargs)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what the method returns."""
        return as_plain(getattr(self._object, method))(*args, **kwargs)

    def end(self) -> None:
        """Hand on the rest of the output."""
        self._output.end()


@dataclass(frozen=True, slots=True)
class _Sent:
    """A call that was sent: its references and their ranks, in the order of the dispatch."""

    method: str
    refs: tuple[Any, ...]
    ranks: tuple[int, ...]
    collect: Collect

    def value(self, dimensions: Dimensions) -> Any:
        """Wait for the results, and return them combined. Raises GroupCallFailed, GroupError."""
        try:
            values = ray.get(list(self.refs))
        except RayError as first:
            errors: dict[int, BaseException] = {}
            for rank, ref in zip(self.ranks, self.refs, strict=True):
                try:
                    ray.get(ref)
                except RayError as error:
                    errors.setdefault(rank, error)
            raise GroupCallFailed(self.method, errors, {}, {rank: f"rank {rank}" for rank in self.ranks}) from first
        return collected(self.collect, tuple(values), self.ranks, dimensions)


class _Group:
    """Members of a group, by rank."""

    def __init__(self, members: Sequence[Any], dimensions: Dimensions) -> None:
        self._members, self.dimensions = members, dimensions
        self._view = RankView(dimensions, tuple(AgentId(str(rank)) for rank in range(len(members))), tuple({} for _ in members))
        self._running: dict[Any, int] = {}  #: Calls that were not answered when last looked at, with their ranks.
        self._turn = 0
        self._stored: dict[int, tuple[Any, Any]] = {}  #: Large arguments by identity, each stored once.

    def send(self, call: Mapping[str, Any]) -> _Sent:
        """Send a call to its members. Raises GroupError."""
        mode = group_mode(call)
        method: str = call[mode]
        args, kwargs = tuple(call.get("args", ())), dict(call.get("kwargs", {}))
        if mode == "shard":
            dispatch = dispatcher_named(call.get("dispatch_fn", "split"))
            collect = call.get("collect_fn")
            kept: list[tuple[int, Any]] = []

            def send(one: Call) -> Any:
                ref = self._send(one[0], method, tuple(one[1]), one[2])
                if len(one) == 3 or one[3]:  # noqa: PLR2004  no fourth item: the result is collected
                    kept.append((one[0], ref))
                return ref

            send_each(dispatch(self._view, args, kwargs), send)
            chosen = natural_collect(dispatch) if collect is None else collector_named(collect)
            return _Sent(method, tuple(ref for _, ref in kept), tuple(rank for rank, _ in kept), chosen)
        ranks = tuple(range(len(self._members))) if mode == "all" else (self._choose(call.get("strategy", "least_busy")),)
        refs = tuple(self._send(rank, method, args, kwargs) for rank in ranks)
        return _Sent(method, refs, ranks, gather if mode == "all" else _only)

    def _send(self, rank: Any, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < len(self._members):
            raise DispatchError(f"dispatch_fn returned rank {rank!r}; this group has ranks 0 to {len(self._members) - 1}")
        own = [self._shared(at_rank(value, rank, self.dimensions)) for value in args]
        named = {name: self._shared(at_rank(value, rank, self.dimensions)) for name, value in kwargs.items()}
        ref = self._members[rank].call.remote(method, *own, **named)
        self._running[ref] = rank
        return ref

    def _choose(self, strategy: Any) -> int:
        if self._running:
            answered, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
            for ref in answered:
                del self._running[ref]
        loads = [Load() for _ in self._members]
        for rank in self._running.values():
            loads[rank].in_flight += 1
        rank = strategy_named(strategy)(loads, self._turn, random.randrange)
        self._turn = rank + 1
        return rank

    def _shared(self, value: Any) -> Any:
        if isinstance(value, ray.ObjectRef) or not is_large(value):
            return value
        if id(value) not in self._stored:
            self._stored[id(value)] = value, ray.put(value)
        return self._stored[id(value)][1]


def run_group(
    kind: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    target: OutputTarget,
    check: Callable[[str, Any], None],
) -> list[Any]:
    """Make the members of a group in the gang of the present task, and return what its calls return.

    Args:
        kind: Class of the members.
        args: Its arguments, with the calls among them or among `kwargs`.
        kwargs: Its arguments by name.
        target: Where the output of the members goes.
        check: Refuses a value of a method.

    Raises:
        GroupCallFailed: Some members failed, or have died.
        GroupError: The arguments of a call cannot be shared out, or its results not combined.
        TypeError: `kind` is no class.
    """
    if not isinstance(kind, type):
        raise TypeError(f"{getattr(kind, '__name__', kind)} is not a class: the members of an actor group are made of one")
    described = next(argument.described for argument in (*args, *kwargs.values()) if type(argument) is GroupArgument)
    group = note_group()
    if group is None:
        raise GroupError("the node of the actor group has no gang; make it by dag.actor_group")
    dimensions = Dimensions.of(len(group.bundle_specs), described.get("shape"))
    options = actor_options(own_resources(group.bundle_specs[0]))
    code, members = ray.put(kind), list[Any]()
    try:
        for rank in dimensions:
            own = tuple(at_rank(value, rank, dimensions) for value in args if type(value) is not GroupArgument)
            named = {name: at_rank(value, rank, dimensions) for name, value in kwargs.items() if type(value) is not GroupArgument}
            strategy = PlacementGroupSchedulingStrategy(group, rank, placement_group_capture_child_tasks=True)
            made: Any = ray.remote(GroupMemberProcess).options(**options, max_restarts=0, scheduling_strategy=strategy)
            members.append(made.remote(target, f"rank-{rank}", code, own, named))
        own_group = _Group(members, dimensions)
        sent = [own_group.send(call) for call in described["calls"]]
        values = []
        for call in sent:
            values.append(call.value(dimensions))
            check(call.method, values[-1])
    except Exception:
        _end(members, LAST_LINES_S_MAX)
        raise
    else:
        _end(members, None)
        return values
    finally:
        for member in members:
            ray.kill(member)


def _end(members: Sequence[Any], wait_s: float | None) -> None:
    """Let the members hand on the rest of their output; return after `wait_s` seconds at the latest: a member may be busy with a call."""
    ends = [member.end.remote() for member in members]
    if ends:
        with contextlib.suppress(RayError):  # A member that died misses its last lines only.
            ray.wait(ends, num_returns=len(ends), timeout=wait_s, fetch_local=False)


def has_lost_members(error: BaseException) -> bool:
    """Return whether a call of a group failed because the process of a member died."""
    return isinstance(error, GroupCallFailed) and any(
        isinstance(each, RayActorError) and not isinstance(each, RayTaskError) for each in error.errors.values()
    )


def _only(results: Sequence[Any]) -> Any:
    return results[0]
