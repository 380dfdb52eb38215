"""Blobs on Redis: one hash per run."""

from typing import cast

import redis

from federation.store.redis.keys import Keys
from federation.store.redis.scripts import redis_responses
from mesh.core.ids import RunId


class RedisBlobs:
    """`BlobStore` with plain commands; each is atomic by itself.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: "redis.Redis", keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def put(self, run: RunId, sha256: str, data: bytes) -> None:
        with redis_responses("put a blob"):
            self._client.hsetnx(self._keys.blobs(run), sha256, cast(str, data))  # redis-py accepts bytes, but its types lack them

    def get(self, run: RunId, hashes: tuple[str, ...]) -> dict[str, bytes]:
        if not hashes:
            return {}
        with redis_responses("get blobs"):
            found = cast(list[bytes | None], self._client.hmget(self._keys.blobs(run), list(hashes)))
        return {sha256: data for sha256, data in zip(hashes, found, strict=True) if data is not None}

    def drop(self, run: RunId, sha256: str) -> None:
        with redis_responses("drop a blob"):
            self._client.hdel(self._keys.blobs(run), sha256)
