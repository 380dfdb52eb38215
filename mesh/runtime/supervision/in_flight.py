"""Which calls are under way: what makes a choice among agents better than a guess.

A call is counted when it is sent and counted back when it has ended, whether its caller takes the result, drops the reference
or waits for something else. Ray says so itself, by a callback that neither fetches nor reads the result. Measured beside two
other ways, as a share of a call: the callback 0-6 % (for who waits for each call, and for who sends many); `ray.wait` on what
is under way, whenever counts are used, 0-25 %, since asking for what is not there yet costs a switch of threads; the older
callback that gets the value, 5-25 %, and it would bring large results to this node. Counting when a result is fetched would
miss all who fetch by themselves.

Even so each callback takes Python's lock from whoever is sending meanwhile: of many calls under way, only some are followed
(`Trail`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ray.core.generated import gcs_pb2
from ray.exceptions import RayActorError, RayTaskError

from mesh.actors.members import Member
from mesh.actors.selection import Draw, Load, Strategy
from mesh.runtime.supervision.agent_errors import NothingHosted, TaskGaveWay
from mesh.runtime.supervision.agent_orders import call_name
from mesh.runtime.supervision.user_words import unsendable

_DEAD = gcs_pb2.ActorTableData.DEAD  # type: ignore[attr-defined]  # generated code without types

#: A call whose end is told tells of up to this part of those under way: a fourth.
TOLD_TOGETHER = 4


class Line:
    """The way to one agent. Groups and their parts share it, so each knows what the others have sent."""

    __slots__ = ("_known_state", "_senders", "load", "member", "trail")

    def __init__(self, member: Member) -> None:
        self._lead_to(member)

    def sender(self, method: str) -> Callable[..., Any]:
        """What sends a call of the method: arguments in, Ray's reference out. Kept, since making one costs more than sending."""
        found = self._senders.get(method)
        if found is None:
            found = self._senders[method] = self._sender(method)
        return found

    def send(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Send a call; Ray's reference to its result. Raises `ArgumentError` for an argument that cannot be pickled."""
        try:
            return self.sender(method)(*args, **kwargs)
        except TypeError as refused:
            raise unsendable(method, args, kwargs, refused) from refused

    def stream(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Send a call of a generator method; Ray's generator of references. Raises as `send`."""
        try:
            return self.member.handle.stream.options(num_returns="streaming").remote(self._called(method), *args, **kwargs)
        except TypeError as refused:
            raise unsendable(method, args, kwargs, refused) from refused

    def leads_elsewhere(self, member: Member) -> bool:
        """True when the member is another process or attempt than the one that calls go to."""
        own = self.member
        return (own.handle, own.task, own.attempt) != (member.handle, member.task, member.attempt)

    def replace(self, member: Member) -> None:
        """Lead there from now on. It begins with nothing to do: calls to the one before have ended or will never."""
        self._lead_to(member)

    def is_dead(self) -> bool:
        """What Ray knows here, without asking anybody; False when it knows nothing."""
        return bool(self._known_state() == _DEAD)

    def _lead_to(self, member: Member) -> None:
        self.member = member
        self.load = Load(priority=member.priority)
        #: Agents take one call after the other; of other actors that is not known.
        self.trail = Trail(self.load) if hasattr(member.handle, "call_named") else None
        self._senders: dict[str, Callable[..., Any]] = {}
        self._known_state: Callable[[], Any] = getattr(member.handle, "_get_local_state", _unknown)

    def _sender(self, method: str) -> Callable[..., Any]:
        named = getattr(self.member.handle, "call_named", None)
        if named is not None:  # The name of the call carries that of the method: an argument less to pickle.
            send: Callable[..., Any] = named.options(name=self._called(method)).remote
            return send
        return partial(self.member.handle.call.remote, self._called(method))

    def _called(self, method: str) -> str:
        """With the attempt in it, where it is known: a late call then does not reach whoever the agent hosts next."""
        task = self.member.task
        return method if task is None or not self.member.attempt else call_name(task, self.member.attempt, method)


class Trail:
    """Calls under way to an agent that takes one after the other: when one has ended, so have those before it.

    Of many calls only some are followed, and each tells of itself and of those before it that are not. So the count is exact while
    there are few, and else too high by at most a quarter of what was under way. Where several threads send, a call can be counted
    back a little before its end. Beside what is followed only the newest reference is held.
    Guarded by the lock of `InFlight`.
    """

    __slots__ = ("_behind", "_followed", "_newest", "load")

    def __init__(self, load: Load) -> None:
        self.load = load
        self._followed = 0  #: Whose end will be told.
        self._behind = 0  #: Sent after the last of these.
        self._newest: Any = None  #: The last of those.

    def add(self, reference: Any) -> int:
        """A call was sent, and is counted: of how many calls its end has to tell; 0: of none, it need not be followed."""
        self._behind += 1
        if self._followed and self._behind * TOLD_TOGETHER <= self.load.in_flight:
            self._newest = reference
            return 0
        return self._follow()

    def end(self, covered: int) -> tuple[Any, int]:
        """A followed call has ended, and with it so many. When nobody else will tell: which one has to be followed next, and of how
        many it tells; else (None, 0)."""
        self.load.in_flight -= covered
        self._followed -= 1
        newest = self._newest
        return (newest, self._follow()) if self._behind and not self._followed else (None, 0)

    def _follow(self) -> int:
        covered, self._behind, self._newest = self._behind, 0, None
        self._followed += 1
        return covered


class InFlight:
    """The calls that one process has sent to the agents of a group. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.changes = 0  #: Grows when a line is out or leads elsewhere.

    def pick(self, loads: Sequence[Load], strategy: Strategy, turn: int, draw: Draw) -> int:
        """The index of the load that the next call goes to, counted as sent."""
        with self._lock:
            index = strategy(loads, turn, draw)
            loads[index].in_flight += 1
        return index

    def follow(self, reference: Any, line: Line, load: Load) -> None:
        """Count a call on the line back when its result is there; it was counted on the load as sent."""
        trail = line.trail
        if trail is None or trail.load is not load:  # The line leads elsewhere meanwhile.
            self._watch(reference, load, None, 1)
            return
        with self._lock:
            covered = trail.add(reference)
        if covered:
            self._watch(reference, load, trail, covered)

    def send(self, reference: Any, line: Line) -> Load:
        """Count a call on the line as sent, and back when its result is there; the load that it was counted on."""
        with self._lock:
            load = line.load
            load.in_flight += 1
        self.follow(reference, line, load)
        return load

    def _watch(self, reference: Any, load: Load, trail: Trail | None, covered: int) -> None:
        # Not under the lock: Ray calls at once for what is there already. Older Rays have only the callback with the value.
        watch = getattr(reference, "_on_ready", None) or reference._on_completed  # noqa: SLF001  see above
        watch(_CountBack(self, reference, load, trail, covered))

    def came(self, load: Load, trail: Trail | None, covered: int) -> None:
        """The end of a call that was followed: so many calls are counted back."""
        if trail is None:
            self.back(load)
            return
        with self._lock:
            newest, behind = trail.end(covered)
        if behind:
            self._watch(newest, load, trail, behind)

    def back(self, load: Load) -> None:
        """Count a call back that was counted as sent."""
        with self._lock:
            load.in_flight -= 1

    def mark_out(self, line: Line, load: Load) -> None:
        """The line's agent, as long as it still has this load, is not chosen any more."""
        with self._lock:
            if load is line.load and not load.is_out:
                load.is_out = True
                self.changes += 1

    def replace(self, line: Line, member: Member) -> None:
        """The line leads to this agent from now on."""
        with self._lock:
            line.replace(member)
            self.changes += 1


class _CountBack:
    """What Ray calls at the end of a call. Holds the reference until then: nobody is told of the end of what was dropped."""

    __slots__ = ("_calls", "_covered", "_load", "_reference", "_trail")

    def __init__(self, calls: InFlight, reference: Any, load: Load, trail: Trail | None, covered: int) -> None:
        self._calls = calls
        self._reference = reference
        self._load = load
        self._trail = trail
        self._covered = covered

    def __call__(self, _ended: Any) -> None:
        self._reference = None
        self._calls.came(self._load, self._trail, self._covered)


def is_lost(error: BaseException) -> bool:
    """True when the agent's process is gone, or hosts the member's task no longer.

    An agent's own code can meet a dead actor too: then Ray says that the task failed, and the agent is well.
    """
    return isinstance(error, (NothingHosted, TaskGaveWay)) or (isinstance(error, RayActorError) and not isinstance(error, RayTaskError))


def _unknown() -> None:
    """The state of an actor, on a Ray that does not tell."""
