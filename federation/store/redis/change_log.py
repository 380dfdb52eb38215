"""The log of changes on Redis: a stream for each top-level tenant, with numbers that all of them share."""

from __future__ import annotations

from typing import cast

import redis

from federation.change_log import KEPT_MAX, Change, NumberedChange, log_of
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, redis_responses
from mesh.core.wire import decode, encode

_Entries = list[tuple[bytes, dict[bytes, bytes]]]


class RedisChangeLog:
    """`ChangeLog` on Redis.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        kept_max: Entries of one log that are kept, about.
    """

    def __init__(self, client: redis.Redis, keys: Keys, kept_max: int = KEPT_MAX) -> None:
        self._client = client
        self._keys = keys
        self._kept_max = kept_max
        self._scripts = Scripts(client, keys.scripted)

    def append(self, change: Change) -> None:
        self._scripts.call("append_change", log_of(change.tenant), encode(change), self._kept_max)

    def last(self) -> int:
        with redis_responses("read the last change"):
            return int(cast("bytes | None", self._client.hget(self._keys.change_logs, "last")) or 0)

    def logs(self) -> tuple[str, ...]:
        with redis_responses("read the logs of changes"):
            names = cast("list[bytes]", self._client.hkeys(self._keys.change_logs))
        return tuple(sorted(name.decode().removeprefix("log|") for name in names if name.startswith(b"log|")))

    def newest(self, log: str, below: int | None, limit: int) -> tuple[NumberedChange, ...]:
        newest = "+" if below is None else f"({below}-0"
        with redis_responses("read changes"):
            return _numbered(self._client.xrevrange(self._keys.change_log(log), max=newest, count=limit))

    def following(self, log: str, after: int, limit: int) -> tuple[NumberedChange, ...]:
        with redis_responses("read changes"):
            return _numbered(self._client.xrange(self._keys.change_log(log), min=f"{after + 1}-0", count=limit))


def _numbered(entries: object) -> tuple[NumberedChange, ...]:
    return tuple(
        NumberedChange(int(entry.partition(b"-")[0]), decode(Change, fields[b"change"])) for entry, fields in cast(_Entries, entries)
    )
