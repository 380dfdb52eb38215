"""`.choose(…)`: calls that go directly to one agent each, chosen by load."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from mesh.actors.errors import CallTimeout, MemberLost, NoMembers
from mesh.actors.selection import Load, Strategy
from mesh.errors import MeshError
from mesh.ray.local.client.in_flight import AgentChannel, InFlight, is_lost


class Chooser:
    """Chooses the agent of the next call. Groups keep it between calls, so that `round_robin` continues."""

    def __init__(self, in_flight: InFlight, channels: tuple[AgentChannel, ...], strategy: Strategy, group: str) -> None:
        self.in_flight = in_flight
        self._channels = channels
        self._strategy = strategy
        self._group = group
        self._turn = 0
        self._seen = -1  #: `in_flight.changes` when the candidates were read.
        self._candidates: tuple[AgentChannel, ...] = ()
        self._loads: tuple[Load, ...] = ()

    def choose(self) -> tuple[AgentChannel, Load]:
        """Choose the agent of the next call and count the call as sent. Raises `NoMembers`."""
        while True:
            if self._seen != self.in_flight.changes:
                self._read_candidates()
            index = self.in_flight.pick(self._loads, self._strategy, self._turn, _draw)
            self._turn = index + 1
            channel, load = self._candidates[index], self._loads[index]
            if not channel.is_dead():
                return channel, load
            # A dead agent fails at once and so looks idle: it would attract all calls.
            self.in_flight.back(load)
            self.in_flight.mark_out(channel, load)

    def __len__(self) -> int:
        return len(self._channels)

    def rank_of(self, channel: AgentChannel) -> int:
        return self._channels.index(channel)

    def _read_candidates(self) -> None:
        seen = self.in_flight.changes
        candidates = tuple(channel for channel in self._channels if not channel.load.is_out)
        if not candidates:
            lost = f"; all {len(self._channels)} are lost" if self._channels else ""
            raise NoMembers(f"no member of {self._group} can be called{lost}")
        self._candidates, self._loads, self._seen = candidates, tuple(channel.load for channel in candidates), seen


class Chosen:
    """Result of `.choose(…)`: each attribute is a method of the agents."""

    def __init__(self, chooser: Chooser, timeout: float | None, retry: bool) -> None:
        self._chooser = chooser
        self._timeout = timeout
        self._retry = retry

    def __getattr__(self, name: str) -> ChosenMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        method = ChosenMethod(self._chooser, name, self._timeout, self._retry)
        self.__dict__[name] = method  # Cached: the next access skips `__getattr__`.
        return method

    def __getitem__(self, name: str) -> ChosenMethod:
        """Return a method by its name, for names that cannot be attributes."""
        return ChosenMethod(self._chooser, name, self._timeout, self._retry)


class ChosenMethod:
    """One method of the agents; every call chooses an agent anew."""

    __slots__ = ("_chooser", "_name", "_retry", "_timeout")

    def __init__(self, chooser: Chooser, name: str, timeout: float | None, retry: bool) -> None:
        self._chooser = chooser
        self._name = name
        self._timeout = timeout
        self._retry = retry

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Send the call and return Ray's reference to its result.

        Raises:
            NoMembers: No agent is left. Ray's error for a dead agent is raised where the result is fetched.
        """
        chooser = self._chooser
        channel, load = chooser.choose()
        try:
            reference = channel.send(self._name, args, kwargs)
        except BaseException:
            chooser.in_flight.back(load)
            raise
        chooser.in_flight.follow(reference, channel, load)
        return reference

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call and wait. With `retry=True` a call whose agent died goes to another one, and may have begun twice.

        Raises:
            MemberLost: The agent was dead, or died during the call. With `retry=True`, only after each member was tried.
            CallTimeout: No answer within the timeout; the call continues.
            NoMembers: No agent is left.
        """
        tries = len(self._chooser) if self._retry else 1
        while True:
            tries -= 1
            try:
                return self._once(args, kwargs)
            except MemberLost:
                if tries <= 0:
                    raise

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Yield the values of a generator method as they come. The call is sent at once, not at the first value.

        Raises:
            NoMembers: No agent is left.
            MemberLost: The agent died before the end.
        """
        chooser = self._chooser
        channel, load = chooser.choose()
        try:
            references = channel.stream(self._name, args, kwargs)
        except BaseException:
            chooser.in_flight.back(load)
            raise
        chooser.in_flight.follow(references.completed(), channel, load)
        return self._values(references, channel, load)

    def _once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        in_flight = self._chooser.in_flight
        channel, load = self._chooser.choose()
        is_followed = False
        try:
            reference = channel.send(self._name, args, kwargs)
            try:
                return ray.get(reference, timeout=self._timeout)
            except GetTimeoutError as late:
                in_flight.follow(reference, channel, load)
                is_followed = True
                whose = f"agent {channel.member.agent} (rank {self._chooser.rank_of(channel)})"
                raise CallTimeout(f"{self._name}: {whose} has not answered within {self._timeout} s; the call continues") from late
        except (RayActorError, MeshError) as error:  # Errors from Ray about the agent, and from the agent itself.
            if not is_lost(error):  # The agent's own code met a dead actor; the agent itself is alive.
                raise
            raise self._lost(error, channel, load) from error
        finally:
            if not is_followed:
                in_flight.back(load)

    def _values(self, references: Any, channel: AgentChannel, load: Load) -> Iterator[Any]:
        for reference in references:
            try:
                value = ray.get(reference)
            except (RayActorError, MeshError) as error:  # Errors from Ray about the agent, and from the agent itself.
                if not is_lost(error):
                    raise
                raise self._lost(error, channel, load) from error
            yield value

    def _lost(self, error: Exception, channel: AgentChannel, load: Load) -> MemberLost:
        self._chooser.in_flight.mark_out(channel, load)
        return MemberLost(channel.member.agent, self._chooser.rank_of(channel), str(error))


def _draw(count: int) -> int:
    return int(random.random() * count)  # noqa: S311  spreads load; not for security
