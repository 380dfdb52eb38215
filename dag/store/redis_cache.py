"""Caches of values on Redis: a script for each atomic step, plain reads for lists."""

from dataclasses import replace
from typing import cast

import redis

from dag.result_cache import ENTRIES_MAX, CacheEntry, Claimant, Hit, InFlight
from dag.store.redis_runs import scripted_keys
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, redis_responses
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.core.wire import decode, encode


class RedisCacheStore:
    """`CacheStore` by scripts.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        entries_max: Limit on the entries of a tenant.
    """

    def __init__(self, client: "redis.Redis", keys: Keys, entries_max: int = ENTRIES_MAX) -> None:
        self._client = client
        self._keys = keys
        self._entries_max = entries_max
        self._scripts = Scripts(client, scripted_keys(keys), "dag.store.lua")

    def look(self, tenant: TenantPath, key: str, claimant: Claimant, now_ms: int, *, is_fresh: bool = False) -> Hit | InFlight | None:
        answer = self._scripts.call("cache_look", tenant, key, claimant.run, claimant.node, now_ms, "1" if is_fresh else "")
        code, *rest = cast(list[bytes], answer)
        if code == b"HIT":
            entry: CacheEntry = decode(CacheEntry, rest[0])
            return Hit(entry=entry, data=rest[1] if entry.value.uri is None else None)
        if code == b"IN_FLIGHT":
            run, _, node = rest[0].decode().partition("|")
            return InFlight(by=Claimant(run=RunId(run), node=NodeId(node)))
        return None

    def keep(self, entry: CacheEntry, data: bytes | None) -> CacheEntry | None:
        before = self._scripts.call(
            "cache_keep",
            entry.tenant,
            entry.key,
            f"{entry.run}|{entry.node}",
            encode(entry),
            data or b"",
            entry.created_ms,
            entry.expires_ms,
            self._entries_max,
            "1" if data is not None else "",
        )
        return decode(CacheEntry, before) if before else None

    def release(self, tenant: TenantPath, key: str, claimant: Claimant) -> None:
        self._scripts.call("cache_release", tenant, key, f"{claimant.run}|{claimant.node}")

    def entries(self, tenant: TenantPath, limit: int = 100) -> tuple[CacheEntry, ...]:
        """Return the entries, without those that are dropped during the read."""
        if limit <= 0:
            return ()
        with redis_responses("list cached values"):
            keys = cast(list[bytes], self._client.zrevrange(self._keys.cached_order(tenant), 0, limit - 1))
            if not keys:
                return ()
            names = cast(list[str], keys)  # redis-py accepts bytes, but its types lack them
            rows = cast(list[bytes | None], self._client.hmget(self._keys.cached(tenant), names))
            hits = cast(list[bytes | None], self._client.hmget(self._keys.cached_hits(tenant), names))
            with self._client.pipeline(transaction=False) as reads:
                for key in keys:
                    reads.zscore(self._keys.cache_expiry, f"{tenant}|{key.decode()}")
                expiry = cast(list[float | None], reads.execute())
        return tuple(
            replace(decode(CacheEntry, row), hits=int(count or 0), expires_ms=int(expires_ms))
            for row, count, expires_ms in zip(rows, hits, expiry, strict=True)
            if row is not None and expires_ms
        )

    def expire(self, tenant: TenantPath, keys: tuple[str, ...]) -> int:
        if not keys:
            return 0
        with redis_responses("let cached values expire"):
            return int(cast(int, self._client.zadd(self._keys.cache_expiry, {f"{tenant}|{key}": 0 for key in keys}, xx=True, ch=True)))

    def take_expired(self, now_ms: int, limit: int = 100) -> tuple[CacheEntry, ...]:
        with redis_responses("find expired values"):
            names = cast(list[bytes], self._client.zrangebyscore(self._keys.cache_expiry, "-inf", now_ms, start=0, num=limit))
        rows = [self._scripts.call("cache_drop", *name.decode().rpartition("|")[::2], now_ms) for name in names]
        return tuple(decode(CacheEntry, row) for row in rows if row)
