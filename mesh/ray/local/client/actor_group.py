"""Agents with ranks and named dimensions: call all, call one, or shard a call over the ranks.

A call goes straight to the agent's Ray actor; the scheduler is not involved. A group and its parts share what they know of
each agent: calls in flight from here, the reported queue, and the position of `round_robin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mesh.actors.collecting import collector_named
from mesh.actors.dimensions import Choice, Dimensions
from mesh.actors.dispatching import Dispatch, dispatcher_named, natural_collect
from mesh.actors.errors import GroupError, NoMembers, ShapeError
from mesh.actors.members import GroupMember, Label, carries
from mesh.actors.per_rank import PerRank
from mesh.actors.results import Collect
from mesh.actors.selection import STRATEGIES, Strategy, strategy_named
from mesh.core.ids import AgentId
from mesh.ray.local.client.checked_calls import read_timeout
from mesh.ray.local.client.chosen import Chooser, Chosen
from mesh.ray.local.client.collective import Collective, CollectiveMethods, Method
from mesh.ray.local.client.group_call import GroupCall
from mesh.ray.local.client.in_flight import AgentChannel, InFlight
from mesh.ray.local.client.resharding_tasks import Reshard

_RUNTIME_DISPATCHERS: Mapping[str, Dispatch] = {"reshard": Reshard()}


class ActorGroup:
    """Ranked agents that are called together. Pickles as its members and shape; a copy counts its own calls."""

    def __init__(self, members: Iterable[GroupMember], shape: Mapping[str, int] | None = None) -> None:
        """Require the ranks 0 to n - 1; the last dimension of `shape` runs fastest.

        Raises:
            ShapeError: Ranks are missing or duplicate, or the members do not fill the shape.
        """
        ordered = sorted(_read_members(members), key=lambda member: member.rank)
        if [member.rank for member in ordered] != list(range(len(ordered))):
            raise ShapeError(f"members need the ranks 0 to {len(ordered) - 1}, each once; these have {[m.rank for m in ordered]}")
        self._own(tuple(AgentChannel(member) for member in ordered), Dimensions.of(len(ordered), shape), InFlight())

    # -- members -------------------------------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """Members in rank order. Members of a part keep their rank in the whole group."""
        return tuple(channel.member for channel in self._channels)

    @property
    def dimensions(self) -> Dimensions:
        """Names, sizes, coordinates and neighbours of the ranks 0 to n - 1 of this group."""
        return self._dimensions

    @property
    def lost(self) -> tuple[AgentId, ...]:
        """Dead agents; `choose` skips them until `refresh` brings their successors."""
        return tuple(channel.member.agent for channel in self._channels if channel.load.is_out)

    def __len__(self) -> int:
        return len(self._channels)

    def __repr__(self) -> str:
        return f"ActorGroup({self._dimensions})"

    def __reduce__(self) -> tuple[Callable[..., ActorGroup], tuple[Any, ...]]:
        return _rebuilt, (self.members, None if self._dimensions.is_flat else dict(self._dimensions.sizes))

    def where(self, **choices: Choice) -> ActorGroup:
        """Return the part at these coordinates: `where(tensor=0)`, `where(tensor=[0, 1])`, `where(pipeline=slice(1, None))`.

        A single coordinate removes its dimension. The part has ranks of its own, from 0. Raises `ShapeError`.
        """
        for name, choice in choices.items():
            if not isinstance(choice, (int, slice, Sequence)):
                raise ShapeError(f"{name}={choice!r} is not a coordinate; give a number, a slice, or a list of numbers")
        ranks, dimensions = self._dimensions.where(choices)
        return self._part(ranks, dimensions)

    def __getitem__(self, choices: Mapping[str, Choice]) -> ActorGroup:
        """Return the same part as `where`, for names that are not Python identifiers: `group[{"pipeline": 1}]`. Raises `ShapeError`."""
        if not isinstance(choices, Mapping) or not all(isinstance(name, str) for name in choices):
            example = {next(iter(self._dimensions.sizes), "rank"): choices if isinstance(choices, int) else 0}
            raise ShapeError(f"{choices!r} names no dimension; write group[{example}] for a part, `group.members` for the members")
        return self.where(**choices)

    def labelled(self, label: Label) -> ActorGroup:
        """Return the members with the label, in rank order, without a shape: `gpu:a100`, `{"gpu": "a100"}`. May be empty.

        Raises:
            GroupError: `label` is neither a string nor a mapping.
        """
        if not isinstance(label, (str, Mapping)):
            raise GroupError(f'{label!r} is not a label; write "gpu:a100", or {{"gpu": "a100"}}')
        ranks = tuple(rank for rank, channel in enumerate(self._channels) if carries(channel.member.labels, label))
        return self._part(ranks, Dimensions.of(len(ranks), None))

    # -- calling -------------------------------------------------------------------------------------------------------

    def all(
        self, target: Label | PerRank | None = None, /, *args: Any, label: Label | None = None, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """Call the same method on all members, or on all that carry the label.

        `group.all().step(x)` waits and returns the values in rank order. `.step.remote(x)` returns a `GroupCall`, `.step.refs(x)`
        Ray's references, `.step.stream(x)` the values of generators as they come. `group.all("step", x)` calls and waits.
        Arguments and the method's name may be `PerRank`.

        Args:
            target: A label (has a colon, or is a mapping), or the name of a method.
            args: Arguments of the method, when a method is named.
            label: Label of the members to call; may be a bare word.
            timeout: Seconds for the whole call.
            kwargs: Keyword arguments of the method.

        Raises:
            GroupCallFailed: Some ranks failed; the error keeps the results of the others.
            NoMembers: No member carries the label.
        """
        label, method = _distinct(target, label)
        group = self._whom(label)
        if method is not None:
            return group._collective.send_to_all(method, args, kwargs).result(timeout)  # noqa: SLF001  its own class
        return group._methods(timeout)  # noqa: SLF001  the same

    def choose(
        self, label: Label | None = None, strategy: str | Strategy = "least_busy", *, timeout: float | None = None, retry: bool = False
    ) -> Any:
        """Choose one member for each call: `group.choose().infer(x)` waits, `.infer.remote(x)` returns Ray's reference.

        Args:
            label: Label of the candidates. A strategy's name is accepted here too.
            strategy: `least_busy`, `random`, `round_robin`, `power_of_two`, `priority`, or a function of loads.
            timeout: Seconds for one call.
            retry: Send a call to another agent when its agent dies; only for calls that wait. The call may then begin twice.

        Raises:
            NoMembers: No member carries the label.
            GroupError: The strategy is unknown.
        """
        if isinstance(label, str) and label in STRATEGIES:
            strategy, label = label, None
        group = self._whom(label)
        key = (strategy, timeout, retry)
        found = group._choosers.get(key)  # noqa: SLF001  its own class
        if found is None:
            read_timeout(timeout)
            chooser = Chooser(group._in_flight, group._channels, strategy_named(strategy), repr(group))  # noqa: SLF001  the same
            found = group._choosers[key] = Chosen(chooser, timeout, retry)  # noqa: SLF001  the same
        return found

    def shard(
        self,
        target: Label | PerRank | None = None,
        /,
        *args: Any,
        label: Label | None = None,
        dispatch_fn: str | Dispatch = "split",
        collect_fn: str | Collect | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Make a collective call: distribute the arguments over the ranks and combine the results.

        `group.shard("train", values[n])` gives each rank `values[n / ranks]` and concatenates the results;
        `group.shard(dispatch_fn="broadcast", collect_fn="sum").train(x)` has the forms of `all`.

        Args:
            target: A label, or the name of a method, as for `all`.
            args: Arguments of the method, before distribution.
            label: Label of the members to call.
            dispatch_fn: `split`, `broadcast`, `parts`, `tensor`, `sequence`, `by_length`, `pipeline`, `reshard`, or a function
                `(ranks: RankView, args, kwargs) -> iterable of (rank, args, kwargs)`.
            collect_fn: `concat`, `gather`, `first`, `sum`, `mean`, `tensor`, `sequence`, or a function of the results. Default:
                the inverse of the dispatch; `gather` for a dispatch function of your own.
            timeout: Seconds for the whole call.
            kwargs: Keyword arguments of the method.

        Raises:
            DispatchError: Arguments cannot be distributed, or results not combined; the error keeps the results.
            GroupCallFailed: Some ranks failed; the error keeps the results of the others.
            NoMembers: No member carries the label.
        """
        label, method = _distinct(target, label)
        group = self._whom(label)
        dispatch = dispatcher_named(dispatch_fn, _RUNTIME_DISPATCHERS)
        collect = natural_collect(dispatch) if collect_fn is None else collector_named(collect_fn)

        def send(name: Method, given: tuple[Any, ...], named: dict[str, Any]) -> GroupCall:
            return group._collective.send_dealt(name, dispatch, collect, given, named)  # noqa: SLF001  its own class

        if method is not None:
            return send(method, args, kwargs).result(timeout)
        return CollectiveMethods(send, None, timeout)

    # -- updates -------------------------------------------------------------------------------------------------------

    def refresh(self, members: Iterable[GroupMember]) -> None:
        """Update the members of this group, matched by agent, else by rank.

        A member with a new handle or attempt can be chosen again; a missing member is no longer chosen. Parts of the group see
        the update too. Raises `ShapeError` for a member whose agent and rank are not in the group.
        """
        by_agent = {channel.member.agent: channel for channel in self._channels}
        by_rank = {channel.member.rank: channel for channel in self._channels}
        missing = set(self._channels)
        for member in _read_members(members):
            channel = by_agent.get(member.agent) or by_rank.get(member.rank)
            if channel is None:
                raise ShapeError(f"agent {member.agent} with rank {member.rank} does not belong to {self!r}")
            missing.discard(channel)
            if channel.load.is_out or channel.leads_elsewhere(member):
                self._in_flight.replace(channel, member)
        for channel in missing:
            self._in_flight.mark_out(channel, channel.load)

    def with_members(self, members: Iterable[GroupMember], shape: Mapping[str, int] | None = None) -> ActorGroup:
        """Return a group of these members that keeps this group's knowledge of the common ones. For membership that changes.

        Raises:
            ShapeError: Ranks are missing or duplicate, or the members do not fill the shape.
        """
        known = {channel.member.agent: channel for channel in self._channels}
        fresh = ActorGroup(members, shape)
        kept = tuple(self._kept(known.get(channel.member.agent), channel) for channel in fresh._channels)
        fresh._own(kept, fresh.dimensions, self._in_flight)
        return fresh

    def report(self, queued: Mapping[AgentId, int]) -> None:
        """Update the total calls that each agent reports, so that calls of other clients count as load."""
        for channel in self._channels:
            if channel.member.agent in queued:
                channel.load.report(queued[channel.member.agent])

    def loads(self) -> dict[AgentId, int]:
        """Return the number of calls ahead of a new one, by agent, as this group knows it."""
        return {channel.member.agent: channel.load.waiting for channel in self._channels}

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _own(self, channels: tuple[AgentChannel, ...], dimensions: Dimensions, in_flight: InFlight) -> None:
        self._channels = channels
        self._dimensions = dimensions
        self._in_flight = in_flight
        self._collective = Collective(channels, dimensions, in_flight)
        # Cached: the state of `round_robin` must outlive a call.
        self._parts: dict[Any, ActorGroup] = {}
        self._choosers: dict[Any, Chosen] = {}
        self._all: dict[float | None, CollectiveMethods] = {}

    def _kept(self, channel: AgentChannel | None, fresh: AgentChannel) -> AgentChannel:
        """Return the known line, updated with the fresh member."""
        if channel is None:
            return fresh
        if channel.load.is_out or channel.leads_elsewhere(fresh.member):
            self._in_flight.replace(channel, fresh.member)
        else:
            channel.member = fresh.member
        return channel

    def _part(self, ranks: tuple[int, ...], dimensions: Dimensions) -> ActorGroup:
        key = (ranks, tuple(dimensions.sizes.items()))
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = ActorGroup.__new__(ActorGroup)
            found._own(tuple(self._channels[rank] for rank in ranks), dimensions, self._in_flight)  # noqa: SLF001  its own class
        return found

    def _whom(self, label: Label | None) -> ActorGroup:
        if label is None:
            return self
        group = self.labelled(label)
        if not group:
            raise NoMembers(f"no member of {self!r} carries the label {label!r}")
        return group

    def _methods(self, timeout: float | None) -> CollectiveMethods:
        found = self._all.get(timeout)
        if found is None:
            found = self._all[timeout] = CollectiveMethods(self._collective.send_to_all, self._collective.stream_from_all, timeout)
        return found


def _read_members(members: Any) -> list[GroupMember]:
    if not isinstance(members, Iterable):
        raise GroupError(f"members must be a list of `GroupMember`, like `group.members`; got {members!r}")
    found = list(members)
    wrong = next((each for each in found if not isinstance(each, GroupMember)), None)
    if wrong is not None:
        raise GroupError(f"{wrong!r} is not a `GroupMember`; `mesh.group(...)` makes groups of tasks, pools and labels")
    return found


def _distinct(target: Label | PerRank | None, label: Label | None) -> tuple[Label | None, Method | None]:
    """Return `(label, method)`: a Python identifier or a `PerRank` is a method, all else is a label."""
    if target is None:
        return label, None
    if isinstance(target, PerRank) or (isinstance(target, str) and target.isidentifier()):
        return label, target
    if label is not None:
        raise GroupError(f"two labels are given, {target!r} and {label!r}")
    return target, None


def _rebuilt(members: tuple[GroupMember, ...], shape: dict[str, int] | None) -> ActorGroup:
    """Unpickle a group; a part becomes a whole group with ranks from 0."""
    return ActorGroup([replace(member, rank=rank) for rank, member in enumerate(members)], shape)
