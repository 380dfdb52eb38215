"""Calls in flight per agent, the basis of load-aware choice.

A call is counted when it is sent and removed when it has ended, whether its caller takes the result, drops the reference or
waits for something else. Ray reports the end through a callback that neither fetches nor reads the result. The cost was
measured against two alternatives, as a share of a call:

- This callback: 0-6 %, both for callers that wait for each call and for callers that send many.
- `ray.wait` on calls in flight, whenever counts are used: 0-25 %, since each unfinished reference costs a thread switch.
- The older callback with the value: 5-25 %; it would also bring large results to this node.

Counting when a result is fetched would miss all callers that fetch by themselves.

Each callback takes Python's lock from the sending thread, so only some of many calls in flight are watched (`CompletionTracker`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ray.core.generated import gcs_pb2
from ray.exceptions import RayActorError, RayTaskError

from mesh.actors.members import GroupMember
from mesh.actors.selection import Draw, Load, Strategy
from mesh.ray.local.agent.agent_errors import CallPreempted, NothingHosted
from mesh.ray.local.agent_messages import call_name
from mesh.ray.local.client.parsing import unsendable

_DEAD = gcs_pb2.ActorTableData.DEAD  # type: ignore[attr-defined]  # generated code without types

#: A watched call covers at most a fourth of the calls in flight.
SENT_TOGETHER = 4


class AgentChannel:
    """Channel to one agent. Groups and their parts share it, so that each counts the calls of all."""

    __slots__ = ("_known_state", "_senders", "load", "member", "tracker")

    def __init__(self, member: GroupMember) -> None:
        self._lead_to(member)

    def sender(self, method: str) -> Callable[..., Any]:
        """Return a function that sends a call of the method and returns Ray's reference. Cached: making one costs more than sending."""
        found = self._senders.get(method)
        if found is None:
            found = self._senders[method] = self._sender(method)
        return found

    def send(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Send a call; return Ray's reference to its result. Raises `ArgumentError` for an argument that cannot be pickled."""
        try:
            return self.sender(method)(*args, **kwargs)
        except TypeError as refused:
            raise unsendable(method, args, kwargs, refused) from refused

    def stream(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Send a call of a generator method; return Ray's generator of references. Raises as `send` does."""
        try:
            return self.member.handle.stream.options(num_returns="streaming").remote(self._called(method), *args, **kwargs)
        except TypeError as refused:
            raise unsendable(method, args, kwargs, refused) from refused

    def leads_elsewhere(self, member: GroupMember) -> bool:
        """Return whether the member is another process or attempt than the current target."""
        own = self.member
        return (own.handle, own.task, own.attempt) != (member.handle, member.task, member.attempt)

    def replace(self, member: GroupMember) -> None:
        """Switch to another member, with no load: calls to the old one have ended or never will."""
        self._lead_to(member)

    def is_dead(self) -> bool:
        """Return whether the agent is dead as far as Ray knows locally; False when Ray knows nothing."""
        return bool(self._known_state() == _DEAD)

    def _lead_to(self, member: GroupMember) -> None:
        self.member = member
        self.load = Load(priority=member.priority)
        #: Only agents run calls one after the other; of other actors that is unknown.
        self.tracker = CompletionTracker(self.load) if hasattr(member.handle, "call_named") else None
        self._senders: dict[str, Callable[..., Any]] = {}
        self._known_state: Callable[[], Any] = getattr(member.handle, "_get_local_state", _unknown)

    def _sender(self, method: str) -> Callable[..., Any]:
        named = getattr(self.member.handle, "call_named", None)
        if named is not None:  # The call's name carries the method's name, which saves pickling an argument.
            send: Callable[..., Any] = named.options(name=self._called(method)).remote
            return send
        return partial(self.member.handle.call.remote, self._called(method))

    def _called(self, method: str) -> str:
        """Return the method's name with the attempt, where known: a late call then cannot reach the agent's next task."""
        task = self.member.task
        return method if task is None or not self.member.attempt else call_name(task, self.member.attempt, method)


class CompletionTracker:
    """Calls in flight to an agent that runs one after the other: when one has ended, so have those before it.

    Only some of many calls are watched; each covers itself and the unwatched ones before it. The count is exact while there are
    few calls, and else too high by at most a quarter of the calls in flight. With several sending threads, a call can be removed
    a little before its end. Besides the watched references only the newest one is held.
    Guarded by the lock of `InFlight`.
    """

    __slots__ = ("_behind", "_followed", "_newest", "load")

    def __init__(self, load: Load) -> None:
        self.load = load
        self._followed = 0  #: Watched calls that have not ended.
        self._behind = 0  #: Calls sent after the last watched one.
        self._newest: Any = None  #: Reference of the newest of these.

    def add(self, reference: Any) -> int:
        """Add a sent call. Return how many calls its end covers; 0: it need not be watched."""
        self._behind += 1
        if self._followed and self._behind * SENT_TOGETHER <= self.load.in_flight:
            self._newest = reference
            return 0
        return self._follow()

    def end(self, covered: int) -> tuple[Any, int]:
        """Remove a watched call and those it covers. If no watched call is left, return the call to watch next and how many calls it
        covers; else (None, 0).
        """
        self.load.in_flight -= covered
        self._followed -= 1
        newest = self._newest
        return (newest, self._follow()) if self._behind and not self._followed else (None, 0)

    def _follow(self) -> int:
        covered, self._behind, self._newest = self._behind, 0, None
        self._followed += 1
        return covered


class InFlight:
    """The calls that one process has sent to the agents of a group. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.changes = 0  #: Version: grows when an agent is lost or replaced.

    def pick(self, loads: Sequence[Load], strategy: Strategy, turn: int, draw: Draw) -> int:
        """Choose the index of the load for the next call, and count the call as sent."""
        with self._lock:
            index = strategy(loads, turn, draw)
            loads[index].in_flight += 1
        return index

    def follow(self, reference: Any, channel: AgentChannel, load: Load) -> None:
        """Watch a call that is already counted on the load, to remove it when its result is there."""
        tracker = channel.tracker
        if tracker is None or tracker.load is not load:  # The member was replaced meanwhile.
            self._watch(reference, load, None, 1)
            return
        with self._lock:
            covered = tracker.add(reference)
        if covered:
            self._watch(reference, load, tracker, covered)

    def send(self, reference: Any, channel: AgentChannel) -> Load:
        """Count a call as sent until its result is there; return the load that it is counted on."""
        with self._lock:
            load = channel.load
            load.in_flight += 1
        self.follow(reference, channel, load)
        return load

    def _watch(self, reference: Any, load: Load, tracker: CompletionTracker | None, covered: int) -> None:
        # Without the lock: Ray calls back at once for results that exist. Older Rays have only the callback with the value.
        watch = getattr(reference, "_on_ready", None) or reference._on_completed  # noqa: SLF001  see above
        watch(_CountBack(self, reference, load, tracker, covered))

    def came(self, load: Load, tracker: CompletionTracker | None, covered: int) -> None:
        """Handle the end of a watched call and remove the calls that it covers."""
        if tracker is None:
            self.back(load)
            return
        with self._lock:
            newest, behind = tracker.end(covered)
        if behind:
            self._watch(newest, load, tracker, behind)

    def back(self, load: Load) -> None:
        """Remove a call that was counted as sent."""
        with self._lock:
            load.in_flight -= 1

    def mark_out(self, channel: AgentChannel, load: Load) -> None:
        """Exclude the agent from choice, unless its load was replaced meanwhile."""
        with self._lock:
            if load is channel.load and not load.is_out:
                load.is_out = True
                self.changes += 1

    def replace(self, channel: AgentChannel, member: GroupMember) -> None:
        """Switch the channel to another member."""
        with self._lock:
            channel.replace(member)
            self.changes += 1


class _CountBack:
    """Ray's callback at the end of a call. Holds the reference, because Ray does not call back for dropped references."""

    __slots__ = ("_calls", "_covered", "_load", "_reference", "_tracker")

    def __init__(self, calls: InFlight, reference: Any, load: Load, tracker: CompletionTracker | None, covered: int) -> None:
        self._calls = calls
        self._reference = reference
        self._load = load
        self._tracker = tracker
        self._covered = covered

    def __call__(self, _ended: Any) -> None:
        self._reference = None
        self._calls.came(self._load, self._tracker, self._covered)


def is_lost(error: BaseException) -> bool:
    """Return whether the agent's process is gone, or no longer hosts the member's task.

    An agent's own code can meet a dead actor too: then Ray raises a `RayTaskError`, and the agent is alive.
    """
    return isinstance(error, (NothingHosted, CallPreempted)) or (isinstance(error, RayActorError) and not isinstance(error, RayTaskError))


def _unknown() -> None:
    """Stand in for the actor's state on a Ray version without it."""
