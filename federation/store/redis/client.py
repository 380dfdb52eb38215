"""Redis clients with bounded calls: one server, Sentinel, or a cluster, by URL (`federation.redis_url`).

This module adds time limits and URL forms that redis-py lacks. All keys of a shard share a slot, so on a cluster every script runs on one
node.
"""

from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelPool
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from federation.errors import ConfigError
from federation.redis_url import RedisForm, RedisUrl, read_redis_url
from federation.store.redis.scripts import redis_responses


def connect(url: str, *, timeout_ms: int = 2000) -> "redis.Redis":
    """Return a client for `url`. It connects at the first call; a cluster's client connects at once.

    redis-py's defaults may block a call for ten seconds and more. Callers retry themselves, so the client retries once and at once, for a
    connection that the server closed while idle.

    Args:
        url: Without `decode_responses`: the stores read bytes.
        timeout_ms: For the connection, and for each response.

    Raises:
        ConfigError: The URL is not a URL of Redis.
        StoreUnavailable: No node of the cluster responds.
    """
    bounds = _bounds(timeout_ms)
    many = read_redis_url(url)
    if many.form is RedisForm.SINGLE:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 1), **bounds)
    options, to_sentinels = _options_of(many, bounds)
    if many.form is RedisForm.SENTINEL:
        found: Any = Sentinel(list(many.hosts), sentinel_kwargs={**to_sentinels, "retry": Retry(NoBackoff(), 0)}, **options)  # type: ignore[no-untyped-call]
        return cast("redis.Redis", found.master_for(many.service, retry=Retry(NoBackoff(), 1)))
    nodes = [ClusterNode(*host) for host in many.hosts]  # type: ignore[no-untyped-call]
    with redis_responses("look for the cluster"):
        return cast("redis.Redis", RedisCluster(startup_nodes=nodes, **options))


def connect_async(url: str, *, timeout_ms: int = 2000) -> "redis.asyncio.Redis":
    """Return a client as `connect`, for an event loop; a cluster's client also connects at the first call.

    Raises:
        ConfigError: The URL is not a URL of Redis.
    """
    bounds = _bounds(timeout_ms)
    many = read_redis_url(url)
    if many.form is RedisForm.SINGLE:
        return redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 1), **bounds)
    options, to_sentinels = _options_of(many, bounds)
    if many.form is RedisForm.SENTINEL:
        found: Any = AsyncSentinel(list(many.hosts), sentinel_kwargs={**to_sentinels, "retry": AsyncRetry(NoBackoff(), 0)}, **options)  # type: ignore[no-untyped-call]
        master = found.master_for(many.service, connection_pool_class=_PoolWithSentinels, retry=AsyncRetry(NoBackoff(), 1))
        return cast("redis.asyncio.Redis", master)
    nodes = [AsyncClusterNode(*host) for host in many.hosts]
    return cast("redis.asyncio.Redis", AsyncRedisCluster(startup_nodes=nodes, **options))


class _PoolWithSentinels(AsyncSentinelPool):
    """Pool that closes the sentinels' clients with itself; redis-py leaves them open."""

    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


def home_of(client: "redis.Redis", key: str) -> "redis.Redis":
    """Return a client of the server that holds the key, for server commands. On a cluster: the node that is known to hold the key now."""
    if not isinstance(client, RedisCluster):
        return client
    with redis_responses("look for the node"):
        return cast("redis.Redis", client.get_redis_connection(client.get_node_from_key(key)))


def answer_s_max(client: "redis.Redis | redis.asyncio.Redis") -> float | None:
    """Return how long the client waits for a response, in seconds; None: no limit."""
    of: Any = client  # A cluster's client has another attribute, and is no `Redis` for a type checker.
    pool = of.nodes_manager if isinstance(client, (RedisCluster, AsyncRedisCluster)) else of.connection_pool
    found: float | None = pool.connection_kwargs.get("socket_timeout", 5)
    return found


_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")


def _bounds(timeout_ms: int) -> dict[str, Any]:
    return {"decode_responses": False, **dict.fromkeys(_TIMEOUTS, timeout_ms / 1000)}


def _options_of(many: RedisUrl, bounds: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of connections to the servers, and to the sentinels. Raises ConfigError."""
    try:
        options: dict[str, Any] = dict(parse_url(many.connection))  # type: ignore[no-untyped-call]
    except ValueError as wrong:  # The message names the option, not its value.
        raise ConfigError(str(wrong)) from None
    tls = {"ssl": True} if options.pop("connection_class", None) is SSLConnection else {}
    own = {key.removeprefix("sentinel_"): options.pop(key) for key in ("sentinel_username", "sentinel_password") if key in options}
    # Sentinels are asked one after another, so together they may take as long as one response.
    share = {key: value / len(many.hosts) for key, value in bounds.items() if key in _TIMEOUTS}
    trust = {key: value for key, value in options.items() if key.startswith("ssl_")}
    login = {key: value for key, value in (("username", many.username), ("password", many.password)) if value}
    return {**bounds, **options, **tls, **login}, {**bounds, **share, **trust, **tls, **own}
