"""Which calls are under way: what makes a choice among agents better than a guess.

A call is counted when it is sent and counted back when it has ended, whether its caller takes the result, drops the reference
or waits for something else. Ray says so itself, by a callback that neither fetches nor reads the result. Measured beside two
other ways, as a share of a call: the callback 0-6 % (for who waits for each call, and for who sends many); `ray.wait` on what
is under way, whenever counts are used, 0-25 %, since asking for what is not there yet costs a switch of threads; the older
callback that gets the value, 5-25 %, and it would bring large results to this node. Counting when a result is fetched would
miss all who fetch by themselves.
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


class Line:
    """The way to one agent. Groups and their parts share it, so each knows what the others have sent."""

    __slots__ = ("_known_state", "_senders", "load", "member")

    def __init__(self, member: Member) -> None:
        self.member = member
        self.load = Load(priority=member.priority)
        self._senders: dict[str, Callable[..., Any]] = {}
        self._known_state: Callable[[], Any] = getattr(member.handle, "_get_local_state", _unknown)

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
        self.member = member
        self.load = Load(priority=member.priority)
        self._senders = {}
        self._known_state = getattr(member.handle, "_get_local_state", _unknown)

    def is_dead(self) -> bool:
        """What Ray knows here, without asking anybody; False when it knows nothing."""
        return bool(self._known_state() == _DEAD)

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

    def follow(self, reference: Any, load: Load) -> None:
        """Count a call back when its result is there; it was counted as sent."""
        # Not under the lock: Ray calls at once for what is there already. Older Rays have only the callback with the value.
        (getattr(reference, "_on_ready", None) or reference._on_completed)(_CountBack(self._lock, reference, load))  # noqa: SLF001  see above

    def send(self, reference: Any, line: Line) -> Load:
        """Count a call on the line as sent, and back when its result is there; the load that it was counted on."""
        with self._lock:
            load = line.load
            load.in_flight += 1
        self.follow(reference, load)
        return load

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

    __slots__ = ("_load", "_lock", "_reference")

    def __init__(self, lock: threading.Lock, reference: Any, load: Load) -> None:
        self._lock = lock
        self._reference = reference
        self._load = load

    def __call__(self, _ended: Any) -> None:
        self._reference = None
        with self._lock:
            self._load.in_flight -= 1


def is_lost(error: BaseException) -> bool:
    """True when the agent's process is gone, or hosts the member's task no longer.

    An agent's own code can meet a dead actor too: then Ray says that the task failed, and the agent is well.
    """
    return isinstance(error, (NothingHosted, TaskGaveWay)) or (isinstance(error, RayActorError) and not isinstance(error, RayTaskError))


def _unknown() -> None:
    """The state of an actor, on a Ray that does not tell."""
