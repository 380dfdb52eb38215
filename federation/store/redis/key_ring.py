"""The key store on Redis: one hash, one field per key."""

from dataclasses import replace
from typing import cast

import redis

from federation.api_keys import ApiKey, ApiKeyLine, lines_of
from federation.store.redis.change_counter import ChangeCounter
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import redis_responses
from mesh.core.wire import decode, encode


class RedisKeyRing:
    """`KeyRing` with plain commands.

    A key is added once and revoked at most once, and nothing else writes its field. So a read followed by a write as revoked overwrites
    no other change, and needs no script.

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
            row = cast(bytes | None, self._client.hget(self._ring, key))
        return cast(ApiKey, decode(ApiKey, row)) if row is not None else None

    def revoke(self, key: str) -> bool:
        found = self.find(key)
        if found is None:
            return False
        with redis_responses("revoke an API key"):
            self._changes.run(lambda calls: calls.hset(self._ring, key, encode(replace(found, revoked=True))))
        return True

    def list(self) -> tuple[ApiKeyLine, ...]:
        with redis_responses("list API keys"):
            rows = cast(list[bytes], self._client.hvals(self._ring))
        return lines_of([decode(ApiKey, row) for row in rows])
