"""The key store on Redis: one hash; a field per key with its record, and fields for its end and its last use."""

from dataclasses import replace
from typing import cast

import redis

from federation.api_keys import ApiKey, ApiKeyLine, earlier, lines_of
from federation.store.redis.change_counter import ChangeCounter
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import redis_responses
from mesh.core.wire import decode, encode

#: Ends of the names of a key's other fields: an earlier end than its record has, and its last use. No id contains them.
_END, _USED = "|end", "|used"


class RedisKeyRing:
    """`KeyRing` with plain commands.

    A key is added once and revoked at most once, and nothing else writes the field of its record. So a read followed by a write as
    revoked overwrites no other change, and needs no script. The end of a rotated key has a field of its own for the same reason.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: "redis.Redis", keys: Keys) -> None:
        self._client = client
        self._ring = keys.api_keys
        self._changes = ChangeCounter(client, keys)

    def add(self, key: ApiKey) -> bool:
        with redis_responses("add an API key"):
            return bool(self._client.hsetnx(self._ring, key.key, cast(str, encode(key))))  # redis-py's types lack bytes

    def find(self, key: str) -> ApiKey | None:
        with redis_responses("find an API key"):
            row, end = cast(list[bytes | None], self._client.hmget(self._ring, [key, key + _END]))
        return _key_of(row, end) if row is not None and "|" not in key else None

    def revoke(self, key: str) -> bool:
        with redis_responses("revoke an API key"):
            row = cast(bytes | None, self._client.hget(self._ring, key)) if "|" not in key else None
            if row is None:
                return False
            revoked = encode(replace(_key_of(row, None), revoked=True))
            self._changes.run(lambda calls: calls.hset(self._ring, key, revoked))
        return True

    def expire(self, key: str, at_ms: int) -> bool:
        found = self.find(key)
        if found is None:
            return False
        with redis_responses("let an API key expire"):
            self._changes.run(lambda calls: calls.hset(self._ring, key + _END, earlier(found.expires_ms, at_ms)))
        return True

    def note_use(self, key: str, at_ms: int) -> None:
        with redis_responses("record the use of an API key"):
            self._client.hset(self._ring, key + _USED, str(at_ms))

    def list(self) -> tuple[ApiKeyLine, ...]:
        with redis_responses("list API keys"):
            rows = cast(dict[bytes, bytes], self._client.hgetall(self._ring))
        named = {field.decode(): row for field, row in rows.items()}
        keys = [_key_of(row, rows.get((field + _END).encode())) for field, row in named.items() if "|" not in field]
        return lines_of(keys, {field.removesuffix(_USED): int(row) for field, row in named.items() if field.endswith(_USED)})


def _key_of(row: bytes, end: bytes | None) -> ApiKey:
    key = cast(ApiKey, decode(ApiKey, row))
    return replace(key, expires_ms=earlier(key.expires_ms, int(end)), rotated=True) if end is not None else key
