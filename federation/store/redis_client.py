"""A Redis client whose every call ends within a known time: one server, Sentinel, or a cluster, by URL (`federation.redis_url`).

redis-py does the work; this only says what it does not read itself, and bounds the time. All keys of a shard share a slot, so on a
cluster every script runs on one node.
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
from federation.redis_url import Form, RedisUrl, read_redis_url
from federation.store.redis_scripts import redis_answers


def connect(url: str, *, timeout_ms: int = 2000) -> "redis.Redis":
    """A client for `url`; it connects at the first call, that of a cluster at once.

    redis-py's own defaults may hold a call for ten seconds and more. Whoever calls here repeats by itself, so the client
    repeats once and at once, for a connection that the server closed while it was idle.

    Args:
        url: Without `decode_responses`: the stores read bytes.
        timeout_ms: For connecting, and for each answer.

    Raises:
        ConfigError: It is no URL of Redis.
        StoreUnavailable: No node of the cluster answers.
    """
    bounds = _bounds(timeout_ms)
    many = read_redis_url(url)
    if many.form is Form.SINGLE:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 1), **bounds)
    options, to_sentinels = _options_of(many, bounds)
    if many.form is Form.SENTINEL:
        found: Any = Sentinel(list(many.hosts), sentinel_kwargs={**to_sentinels, "retry": Retry(NoBackoff(), 0)}, **options)  # type: ignore[no-untyped-call]
        return cast("redis.Redis", found.master_for(many.service, retry=Retry(NoBackoff(), 1)))
    nodes = [ClusterNode(*host) for host in many.hosts]  # type: ignore[no-untyped-call]
    with redis_answers("look for the cluster"):
        return cast("redis.Redis", RedisCluster(startup_nodes=nodes, **options))


def connect_async(url: str, *, timeout_ms: int = 2000) -> "redis.asyncio.Redis":
    """As `connect`, for an event loop; that of a cluster connects at the first call, too.

    Raises:
        ConfigError: It is no URL of Redis.
    """
    bounds = _bounds(timeout_ms)
    many = read_redis_url(url)
    if many.form is Form.SINGLE:
        return redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 1), **bounds)
    options, to_sentinels = _options_of(many, bounds)
    if many.form is Form.SENTINEL:
        found: Any = AsyncSentinel(list(many.hosts), sentinel_kwargs={**to_sentinels, "retry": AsyncRetry(NoBackoff(), 0)}, **options)  # type: ignore[no-untyped-call]
        master = found.master_for(many.service, connection_pool_class=_PoolWithSentinels, retry=AsyncRetry(NoBackoff(), 1))
        return cast("redis.asyncio.Redis", master)
    nodes = [AsyncClusterNode(*host) for host in many.hosts]
    return cast("redis.asyncio.Redis", AsyncRedisCluster(startup_nodes=nodes, **options))


class _PoolWithSentinels(AsyncSentinelPool):
    """Closes the clients of the sentinels with itself; redis-py leaves them open."""

    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


def home_of(client: "redis.Redis", key: str) -> "redis.Redis":
    """A client of the very server that holds the key: for what is asked of a server rather than of a key. Of a cluster, the
    node that is known to hold it at present."""
    if not isinstance(client, RedisCluster):
        return client
    with redis_answers("look for the node"):
        return cast("redis.Redis", client.get_redis_connection(client.get_node_from_key(key)))


def answer_s_max(client: "redis.Redis | redis.asyncio.Redis") -> float | None:
    """How long the client waits for an answer, in seconds; None: for ever."""
    of: Any = client  # A cluster's client keeps it elsewhere, and is no `Redis` for a type checker.
    pool = of.nodes_manager if isinstance(client, (RedisCluster, AsyncRedisCluster)) else of.connection_pool
    found: float | None = pool.connection_kwargs.get("socket_timeout", 5)
    return found


_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")


def _bounds(timeout_ms: int) -> dict[str, Any]:
    return {"decode_responses": False, **dict.fromkeys(_TIMEOUTS, timeout_ms / 1000)}


def _options_of(many: RedisUrl, bounds: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """For connections to the servers, and for those to the sentinels. Raises ConfigError."""
    try:
        options: dict[str, Any] = dict(parse_url(many.connection))  # type: ignore[no-untyped-call]
    except ValueError as wrong:  # It names the option, not its value.
        raise ConfigError(str(wrong)) from None
    tls = {"ssl": True} if options.pop("connection_class", None) is SSLConnection else {}
    own = {key.removeprefix("sentinel_"): options.pop(key) for key in ("sentinel_username", "sentinel_password") if key in options}
    # Sentinels are asked in turn, and again at most by who asks for the master: all of them may take as long as one answer.
    share = {key: value / len(many.hosts) for key, value in bounds.items() if key in _TIMEOUTS}
    trust = {key: value for key, value in options.items() if key.startswith("ssl_")}
    login = {key: value for key, value in (("username", many.username), ("password", many.password)) if value}
    return {**bounds, **options, **tls, **login}, {**bounds, **share, **trust, **tls, **own}
