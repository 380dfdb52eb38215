"""Durability on Redis. D1: the server syncs every write, or WAITAOF (7.2 and later) waits for the sync. D2: also WAIT for a replica's
memory, or WAITAOF for its disk.

These commands cover only writes of their own connection. So the code writes a small key first; all earlier writes are then covered too.

Source: redis.io/commands/waitaof and /wait; ADR 0022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
import redis.exceptions

from federation.durability import Durability
from federation.store.redis.client import home_of
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import redis_responses

#: The first version of Redis with WAITAOF.
_WAITAOF_SINCE = (7, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Means:
    """Durability features of a server in its present setup."""

    syncs_always: bool  #: Every answered write is on its disk.
    can_wait: bool  #: It can report when a write is on its disk, and on a replica's.
    has_replica: bool  #: A replica keeps up, and without one the server refuses writes.

    @property
    def level(self) -> Durability:
        """The best reachable level. A replica's copy does not replace a disk: both machines may lose power together."""
        if not (self.syncs_always or self.can_wait):
            return Durability.D0
        return Durability.D2 if self.has_replica else Durability.D1


class RedisDurability:
    """`DurableStore` on a server. A user without the right to read its settings reaches D0.

    Args:
        client: Its timeouts bound every call.
        keys: The shard.
        wait_ms: Longest wait for a sync; less than the client's own timeout.
    """

    def __init__(self, client: redis.Redis, keys: Keys, *, wait_ms: int = 1_000) -> None:
        self._client = client
        self._keys = keys
        self._wait_ms = wait_ms

    def reachable(self) -> Durability:
        return self._means(home_of(self._client, self._keys.touched)).level

    def confirm(self, wanted: Durability) -> Durability:
        if wanted is Durability.D0:
            return Durability.D0
        server = home_of(self._client, self._keys.touched)
        means = self._means(server)
        target = min(wanted, means.level, key=lambda level: level.value)
        if target is Durability.D0:
            return target
        if means.can_wait:
            return self._synced(server, target)
        return self._copied(server, target)

    def _synced(self, server: redis.Redis, target: Durability) -> Durability:
        """Write a key and wait until this server's disk has it, and for D2 a replica's disk as well."""
        with redis_responses("wait for the disk"), server.pipeline(transaction=False) as calls:
            calls.set(self._keys.touched, 1)
            calls.waitaof(1, int(target is Durability.D2), self._wait_ms)
            _, (own, of_replicas) = calls.execute()
        if int(own) < 1:
            return Durability.D0
        return target if int(of_replicas) >= 1 else Durability.D1

    def _copied(self, server: redis.Redis, target: Durability) -> Durability:
        """Write a key, which is on the disk when the server responds; for D2 wait until a replica has it."""
        if target is Durability.D2:
            return target if await_copy(server, self._keys, self._wait_ms) else Durability.D1
        with redis_responses("wait for the disk"):
            server.set(self._keys.touched, 1)
        return target

    def _means(self, server: redis.Redis) -> _Means:
        settings = _settings(server)
        if settings.get("appendonly") != "yes":
            return _Means(syncs_always=False, can_wait=False, has_replica=False)
        with redis_responses("look at the server"):
            program: dict[str, Any] = server.info("server")
            replication: dict[str, Any] = server.info("replication")
        major, minor, *_ = (int(part) for part in str(program["redis_version"]).split("."))
        return _Means(
            syncs_always=settings.get("appendfsync") == "always",
            can_wait=(major, minor) >= _WAITAOF_SINCE,
            # The server reports this number only if `min-replicas-to-write` and `min-replicas-max-lag` are set.
            has_replica=int(replication.get("min_slaves_good_slaves", 0)) >= 1,
        )


def await_copy(server: redis.Redis, keys: Keys, wait_ms: int) -> bool:
    """Return whether a replica gets all present data of this server in that time. Replication is in order, so later writes follow.

    Raises:
        StoreUnavailable: The server does not respond.
    """
    with redis_responses("wait for a replica"), server.pipeline(transaction=False) as calls:
        calls.set(keys.touched, 1)
        calls.wait(1, wait_ms)
        _, copies = calls.execute()
    return int(copies) >= 1


def _settings(server: redis.Redis) -> dict[str, str]:
    with redis_responses("look at the server"):
        try:
            found = server.config_get("append*")
        except redis.exceptions.NoPermissionError:
            return {}
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
