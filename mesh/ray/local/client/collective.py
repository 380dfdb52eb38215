"""`.all(…)` and `.shard(…)`: one call of the user that becomes a call on each agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import ray

from mesh.actors.collecting import gather
from mesh.actors.dimensions import Dimensions
from mesh.actors.dispatching import Call, Dispatch, send_each
from mesh.actors.errors import DispatchError, GroupCallFailed
from mesh.actors.members import RankView
from mesh.actors.per_rank import PerRank, at_rank
from mesh.actors.results import Collect
from mesh.actors.selection import Load
from mesh.actors.weighing import is_large
from mesh.ray.local.client.checked_calls import read_timeout
from mesh.ray.local.client.group_call import GroupCall, place_of
from mesh.ray.local.client.in_flight import AgentChannel, InFlight

#: A method's name, or one name for each rank.
Method = str | PerRank
#: Sends a call of this method with these arguments.
Send = Callable[[Method, tuple[Any, ...], dict[str, Any]], GroupCall]
Stream = Callable[[Method, tuple[Any, ...], dict[str, Any]], Iterator[tuple[int, Any]]]


class SharedArguments:
    """Stored arguments of one collective call. An object is pickled once, however often it is an argument."""

    def __init__(self) -> None:
        self._stored: dict[int, tuple[Any, Any]] = {}  # By identity; holding the object keeps its id unique.

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with a reference in place of each large one."""
        return tuple(self._shared(value) for value in args), {name: self._shared(value) for name, value in kwargs.items()}

    def _shared(self, value: Any) -> Any:
        found = self._stored.get(id(value))
        if found is not None:
            return found[1]
        if isinstance(value, ray.ObjectRef) or not is_large(value):
            return value
        reference = ray.put(value)
        self._stored[id(value)] = (value, reference)
        return reference


@dataclass(frozen=True, slots=True)
class Collective:
    """Collective calls on the ranks of one group."""

    channels: tuple[AgentChannel, ...]  #: [ranks]
    dimensions: Dimensions
    in_flight: InFlight

    def send_to_all(self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GroupCall:
        """Call the same method on every rank, lost ones too: a missing member must not go unnoticed."""
        args, kwargs = SharedArguments().of(args, kwargs)
        if isinstance(method, PerRank) or differ_by_rank(args, kwargs):
            calls = [(channel, *self._own(rank, method, args, kwargs)) for rank, channel in enumerate(self.channels)]
        else:
            calls = [(channel, method, args, kwargs) for channel in self.channels]
        sent = [(channel.send(name, own, named), channel) for channel, name, own, named in calls]
        sent_to = tuple((channel, self.in_flight.send(reference, channel)) for reference, channel in sent)
        return self._call(method, tuple(reference for reference, _ in sent), tuple(self.dimensions), sent_to, gather)

    def send_dealt(self, method: Method, dispatch: Dispatch, collect: Collect, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GroupCall:
        """Send the calls that the dispatch makes of the arguments. Raises `DispatchError`; calls already sent continue."""
        shared = SharedArguments()
        kept: list[tuple[Any, int, tuple[AgentChannel, Load]]] = []

        def send(call: Call) -> Any:
            rank = self._checked(call[0])
            channel = self.channels[rank]
            name, own, named = self._own(rank, method, *shared.of(tuple(call[1]), call[2]))
            reference = channel.send(name, own, named)
            load = self.in_flight.send(reference, channel)
            if len(call) == 3 or call[3]:  # noqa: PLR2004  no fourth item: the result is collected
                kept.append((reference, rank, (channel, load)))
            return reference

        send_each(dispatch(self._view(), args, kwargs), send)
        references, ranks, sent_to = zip(*kept, strict=True) if kept else ((), (), ())
        return self._call(method, references, ranks, sent_to, collect)

    def stream_from_all(self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[int, Any]]:
        """Yield `(rank, value)` of a generator method on every rank as values come.

        Raises:
            GroupCallFailed: At the end, when some ranks failed; the values of the others were yielded.
        """
        args, kwargs = SharedArguments().of(args, kwargs)
        rank_of: dict[Any, int] = {}
        for rank, channel in enumerate(self.channels):
            name, own, named = self._own(rank, method, args, kwargs)
            references = channel.stream(name, own, named)
            self.in_flight.send(references.completed(), channel)
            rank_of[references] = rank
        return self._merged(str(method), rank_of)

    def _merged(self, method: str, rank_of: dict[Any, int]) -> Iterator[tuple[int, Any]]:
        waiting: list[Any] = list(rank_of)
        errors: dict[int, BaseException] = {}
        while waiting:
            ready, _ = ray.wait(waiting, num_returns=1)
            for references in cast("list[Any]", ready):
                rank = rank_of[references]
                try:
                    value = ray.get(next(references))
                except StopIteration:
                    waiting.remove(references)
                except Exception as error:  # noqa: BLE001  an error of the agent's code ends only its own stream
                    waiting.remove(references)
                    errors[rank] = error
                else:
                    waiting.append(waiting.pop(waiting.index(references)))  # A fast rank does not starve the others.
                    yield rank, value
        if errors:
            places = {rank: place_of(rank, channel, self.dimensions) for rank, channel in enumerate(self.channels)}
            raise GroupCallFailed(method, errors, {}, places)

    def _own(
        self, rank: int, method: Method, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[str, tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of this rank."""
        name = cast("str", at_rank(method, rank, self.dimensions))
        if not differ_by_rank(args, kwargs):
            return name, args, kwargs
        own = tuple(at_rank(value, rank, self.dimensions) for value in args)
        return name, own, {key: at_rank(value, rank, self.dimensions) for key, value in kwargs.items()}

    def _checked(self, rank: int) -> int:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < len(self.channels):
            raise DispatchError(f"dispatch_fn returned rank {rank!r}; this group has ranks 0 to {len(self.channels) - 1}")
        return rank

    def _view(self) -> RankView:
        members = [channel.member for channel in self.channels]
        return RankView(self.dimensions, tuple(member.agent for member in members), tuple(member.labels for member in members))

    def _call(
        self,
        method: Method,
        refs: tuple[Any, ...],
        ranks: tuple[int, ...],
        sent_to: tuple[tuple[AgentChannel, Load], ...],
        collect: Collect,
    ) -> GroupCall:
        return GroupCall(
            method=str(method),
            refs=refs,
            ranks=ranks,
            sent_to=sent_to,
            dimensions=self.dimensions,
            collect=collect,
            in_flight=self.in_flight,
        )


class CollectiveMethods:
    """Result of `.all(…)` and `.shard(…)`: each attribute is a method of the agents."""

    def __init__(self, send: Send, stream: Stream | None, timeout: float | None) -> None:
        self._send = send
        self._stream = stream
        self._timeout = timeout

    def __getattr__(self, name: str) -> CollectiveMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = method = self[name]  # Cached: the next access skips `__getattr__`.
        return method

    def __getitem__(self, name: Method) -> CollectiveMethod:
        """Return a method by its name, for names that cannot be attributes or differ by rank."""
        return CollectiveMethod(self._send, self._stream, name, self._timeout)


@dataclass(frozen=True, slots=True)
class CollectiveMethod:
    """One method, called on all ranks."""

    _send: Send
    _stream: Stream | None
    _name: Method
    _timeout: float | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call and wait. Raises as `GroupCall.result`, and `DispatchError` when the arguments cannot be distributed."""
        read_timeout(self._timeout)  # Checked before anything is sent.
        return self._send(self._name, args, kwargs).result(self._timeout)

    def remote(self, *args: Any, **kwargs: Any) -> GroupCall:
        """Send the calls and return a `GroupCall` for their results. Raises `DispatchError`."""
        return self._send(self._name, args, kwargs)

    def refs(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Send the calls and return Ray's references to their results, in rank order. Raises `DispatchError`."""
        return list(self._send(self._name, args, kwargs).refs)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[tuple[int, Any]]:
        """Yield `(rank, value)` of a generator method as values come.

        Raises:
            GroupCallFailed: At the end, when some ranks failed; the values of the others were yielded.
            DispatchError: The call is sharded; a stream sends the same arguments to all ranks.
        """
        if self._stream is None:
            raise DispatchError("a sharded call cannot stream; stream from .all() with PerRank arguments")
        return self._stream(self._name, args, kwargs)


def differ_by_rank(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an argument differs by rank."""
    return any(isinstance(value, PerRank) for value in args) or any(isinstance(value, PerRank) for value in kwargs.values())
