"""Time limits of Redis calls: silent sentinels and an absent cluster."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest
import redis

from federation.store.redis.client import connect, connect_async

SENTINELS = 3
BOUND_MS = 300


class Silent:
    """Server that takes connections and never answers."""

    def __init__(self) -> None:
        self._client = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._client.setblocking(False)
        self.host = f"127.0.0.1:{self._client.getsockname()[1]}"

    def callers(self) -> int:
        """Return the number of new connections."""
        count = 0
        while True:
            try:
                self._client.accept()[0].close()
            except BlockingIOError:
                return count
            count += 1

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def sentinels() -> Iterator[list[Silent]]:
    silent = [Silent() for _ in range(SENTINELS)]
    yield silent
    for each in silent:
        each.close()


def ping(url: str) -> None:
    connect(url, timeout_ms=BOUND_MS).ping()


def ping_from_a_loop(url: str) -> None:
    async def call() -> None:
        async with connect_async(url, timeout_ms=BOUND_MS) as client:
            await client.ping()

    asyncio.run(call())


@pytest.mark.parametrize("call", [ping, ping_from_a_loop], ids=["from a thread", "from an event loop"])
def test_silent_sentinel_is_asked_once_per_try(sentinels: list[Silent], call: Callable[[str], None]) -> None:
    with pytest.raises(redis.ConnectionError):
        call(f"redis+sentinel://{','.join(each.host for each in sentinels)}/leases")
    assert [each.callers() for each in sentinels] == [2] * SENTINELS  # The client repeats once.


def test_all_sentinels_together_may_take_as_long_as_one_answer() -> None:
    for client in (
        connect("redis+sentinel://one,two,three/leases", timeout_ms=900),
        connect_async("redis+sentinel://one,two,three/leases", timeout_ms=900),
    ):
        asked = [kept.connection_pool.connection_kwargs for kept in client.connection_pool.sentinel_manager.sentinels]  # type: ignore[attr-defined]  # redis-py's types know no sentinels
        assert [(of["socket_timeout"], of["socket_connect_timeout"]) for of in asked] == [(0.3, 0.3)] * 3
