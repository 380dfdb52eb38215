"""Durability on Redis: by a server that syncs every write, or by waiting for the sync of this one (WAITAOF, 7.2 and later).

Both are asked of the connection that has just written something: WAITAOF tells of what its own connection wrote, so a key is
touched first, and with it everything is on the disk that was written before.

Source: redis.io/commands/waitaof; ADR 0022.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.exceptions

from federation.durability import Durability
from federation.store.keys import Keys
from federation.store.redis_scripts import redis_answers

#: The first version of Redis that has WAITAOF.
_WAITAOF_SINCE = (7, 2)


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
        return Durability.D1 if self._syncs_always() or self._can_wait() else Durability.D0

    def confirm(self, wanted: Durability) -> Durability:
        """See `DurableStore.confirm`."""
        if wanted is Durability.D0:
            return Durability.D0
        if self._syncs_always():
            with redis_answers("sync what was written"):
                self._client.set(self._keys.touched, 1)
            return Durability.D1
        return Durability.D1 if self._can_wait() and self._waited() else Durability.D0

    def _waited(self) -> bool:
        """Touch a key and wait until the server's disk has it; False when it did not in time."""
        with redis_answers("wait for the disk"), self._client.pipeline(transaction=False) as calls:
            calls.set(self._keys.touched, 1)
            calls.waitaof(1, 0, self._wait_ms)
            _, told = calls.execute()
        return int(told[0]) >= 1

    def _syncs_always(self) -> bool:
        settings = self._settings()
        return settings.get("appendonly") == "yes" and settings.get("appendfsync") == "always"

    def _can_wait(self) -> bool:
        with redis_answers("look at the server"):
            told: dict[str, Any] = self._client.info("server")
        major, minor, *_ = (int(part) for part in str(told["redis_version"]).split("."))
        return self._settings().get("appendonly") == "yes" and (major, minor) >= _WAITAOF_SINCE

    def _settings(self) -> dict[str, str]:
        with redis_answers("look at the server"):
            try:
                told = self._client.config_get("append*")
            except redis.exceptions.NoPermissionError:
                return {}
        return {_text(name): _text(value) for name, value in told.items()}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
