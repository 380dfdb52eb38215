"""Durability on Redis: by a server that syncs every write, or by waiting for the sync of this one (WAITAOF, 7.2 and later); and
by waiting for a replica that has it too (WAIT, or WAITAOF for its disk as well).

All are asked of the connection that has just written something: they tell of what their own connection wrote, so a key is
touched first, and with it everything is there that was written before.

Source: redis.io/commands/waitaof and /wait; ADR 0022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
import redis.exceptions

from federation.durability import Durability
from federation.store.keys import Keys
from federation.store.redis_client import home_of
from federation.store.redis_scripts import redis_answers

#: The first version of Redis that has WAITAOF.
_WAITAOF_SINCE = (7, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Means:
    """What a server has, as it is set up now."""

    syncs_always: bool  #: What it has answered is on its disk.
    can_wait: bool  #: It tells when one write is on its disk, and on a replica's.
    has_replica: bool  #: One keeps up, and without any it would take no writes.

    @property
    def level(self) -> Durability:
        """The best that they reach. A replica's copy adds to a disk and replaces none: both machines may lose power together."""
        if not (self.syncs_always or self.can_wait):
            return Durability.D0
        return Durability.D2 if self.has_replica else Durability.D1


class RedisDurability:
    """`DurableStore` on a server. A user who may not read its settings reaches D0.

    Args:
        client: Its timeouts bound every call.
        keys: The shard.
        wait_ms: How long a sync is waited for; less than the client's own timeout.
    """

    def __init__(self, client: redis.Redis, keys: Keys, *, wait_ms: int = 1_000) -> None:
        self._client = client
        self._keys = keys
        self._wait_ms = wait_ms

    def reachable(self) -> Durability:
        """See `DurableStore.reachable`."""
        return self._means(home_of(self._client, self._keys.touched)).level

    def confirm(self, wanted: Durability) -> Durability:
        """See `DurableStore.confirm`."""
        if wanted is Durability.D0:
            return Durability.D0
        server = home_of(self._client, self._keys.touched)
        means = self._means(server)
        aim = min(wanted, means.level, key=lambda level: level.value)
        if aim is Durability.D0:
            return aim
        if means.can_wait:
            return self._synced(server, aim)
        return self._copied(server, aim)

    def _synced(self, server: redis.Redis, aim: Durability) -> Durability:
        """Touch a key and wait until this server's disk has it, and for D2 a replica's as well."""
        with redis_answers("wait for the disk"), server.pipeline(transaction=False) as calls:
            calls.set(self._keys.touched, 1)
            calls.waitaof(1, int(aim is Durability.D2), self._wait_ms)
            _, (own, of_replicas) = calls.execute()
        if int(own) < 1:
            return Durability.D0
        return aim if int(of_replicas) >= 1 else Durability.D1

    def _copied(self, server: redis.Redis, aim: Durability) -> Durability:
        """Touch a key, which is on the disk when that is answered; for D2 wait until a replica has it."""
        if aim is Durability.D2:
            return aim if await_copy(server, self._keys, self._wait_ms) else Durability.D1
        with redis_answers("wait for the disk"):
            server.set(self._keys.touched, 1)
        return aim

    def _means(self, server: redis.Redis) -> _Means:
        settings = _settings(server)
        if settings.get("appendonly") != "yes":
            return _Means(syncs_always=False, can_wait=False, has_replica=False)
        with redis_answers("look at the server"):
            told: dict[str, Any] = server.info("server")
            replication: dict[str, Any] = server.info("replication")
        major, minor, *_ = (int(part) for part in str(told["redis_version"]).split("."))
        return _Means(
            syncs_always=settings.get("appendfsync") == "always",
            can_wait=(major, minor) >= _WAITAOF_SINCE,
            # Told only where `min-replicas-to-write` and `min-replicas-max-lag` are set: how many keep up.
            has_replica=int(replication.get("min_slaves_good_slaves", 0)) >= 1,
        )


def await_copy(server: redis.Redis, keys: Keys, wait_ms: int) -> bool:
    """Has a replica within that time all that this server has now? Of the stream of changes, what is written later comes later.

    Raises:
        StoreUnavailable: The server does not answer.
    """
    with redis_answers("wait for a replica"), server.pipeline(transaction=False) as calls:
        calls.set(keys.touched, 1)
        calls.wait(1, wait_ms)
        _, copies = calls.execute()
    return int(copies) >= 1


def _settings(server: redis.Redis) -> dict[str, str]:
    with redis_answers("look at the server"):
        try:
            told = server.config_get("append*")
        except redis.exceptions.NoPermissionError:
            return {}
    return {_text(name): _text(value) for name, value in told.items()}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
