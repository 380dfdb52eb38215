"""Limits on body bytes and calls per second.

A body is counted while it is read, because `Content-Length` proves nothing. A body that announces too large a size is refused
before its first byte is read; any other is refused at the first byte over the limit.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesh.core.ids import RunId
from mesh.core.resources import format_units
from serve_apps.requests.errors import BodyTooLarge


class BodyLimit:
    """ASGI middleware that raises `BodyTooLarge` when a body of more than `limit_bytes` is read.

    Args:
        but_not: Path prefixes that have limits of their own.
    """

    def __init__(self, app: ASGIApp, *, limit_bytes: int, but_not: str) -> None:
        self._app = app
        self._but_not = f"{but_not}/"
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._but_not):
            await self._app(scope, receive, send)
            return
        promised = _promised_bytes(scope)
        read_bytes = 0

        async def counted() -> Message:
            nonlocal read_bytes
            if promised > self._limit_bytes:
                raise self._refusal()
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > self._limit_bytes:
                raise self._refusal()
            return message

        await self._app(scope, counted, send)

    def _refusal(self) -> BodyTooLarge:
        limit = format_units("memory", self._limit_bytes)
        return BodyTooLarge(f"the body is larger than {limit}; pass large arguments by address, as {{'$uri': …}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Rest of a budget."""

    limit: int  #: Calls that may come at once after a pause.
    remaining: int  #: Calls that may come at once now.
    reset_s: int  #: Seconds until `limit` calls may come at once again.

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that say so, in lower case."""
        named = (("limit", self.limit), ("remaining", self.remaining), ("reset", self.reset_s))
        return [(f"ratelimit-{name}".encode(), str(number).encode()) for name, number in named]


class CallBudget:
    """Token bucket per key; thread-safe.

    Args:
        calls_per_s: Refill rate.
        burst: Capacity: calls that may come at once after a pause.
        keys_max: Most keys that are counted, since callers can invent keys; the least recently used key is dropped first.
    """

    def __init__(self, *, calls_per_s: float, burst: int, keys_max: int | None = None) -> None:
        self._per_ms = calls_per_s / 1000
        self._burst = burst
        self._keys_max = keys_max
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()  #: Calls left, and when that was computed.
        self._lock = threading.Lock()

    def take(self, key: str, now_ms: int) -> int:
        """Take a call and return 0, or return the milliseconds until one is available. `now_ms` is on a monotonic clock."""
        with self._lock:
            left = self._now_left(key, now_ms)
            is_allowed = left >= 1
            self._left[key] = (left - is_allowed, now_ms)
            self._left.move_to_end(key)
            if self._keys_max is not None and len(self._left) > self._keys_max:
                self._left.popitem(last=False)
        return 0 if is_allowed else self._wait_ms(left)

    def wait_ms(self, key: str, now_ms: int) -> int:
        """Return what `take` would return, without taking a call."""
        with self._lock:
            left = self._now_left(key, now_ms)
        return 0 if left >= 1 else self._wait_ms(left)

    def _now_left(self, key: str, now_ms: int) -> float:
        left, counted_ms = self._left.get(key, (float(self._burst), now_ms))
        return min(float(self._burst), left + (now_ms - counted_ms) * self._per_ms)

    def _wait_ms(self, left: float) -> int:
        return math.ceil((1 - left) / self._per_ms)

    def rate(self, key: str, now_ms: int) -> Rate:
        """Return the rest of the key's budget."""
        with self._lock:
            left = self._now_left(key, now_ms)
        return Rate(limit=self._burst, remaining=int(left), reset_s=math.ceil((self._burst - left) / self._per_ms / 1000))


class RunBytes:
    """Bytes that meshes have uploaded into each run through this replica; thread-safe.

    Args:
        runs: Most runs that are counted; the least recently used run is dropped first.
    """

    def __init__(self, *, runs: int) -> None:
        self._runs = runs
        self._bytes: OrderedDict[RunId, int] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, run: RunId, size_bytes: int, most_bytes: int) -> bool:
        """Count the bytes and return True, or return False if they exceed the limit."""
        with self._lock:
            total = self._bytes.pop(run, 0) + size_bytes
            is_allowed = total <= most_bytes
            self._bytes[run] = total if is_allowed else total - size_bytes
            while len(self._bytes) > self._runs:
                self._bytes.popitem(last=False)
        return is_allowed


def _promised_bytes(scope: Scope) -> int:
    """Return the value of `Content-Length`, or 0 if it is no number."""
    written = dict(scope["headers"]).get(b"content-length", b"")
    return int(written) if written.isdigit() else 0
