"""A Redis client whose every call ends within a known time: one server, Sentinel, or a cluster, by URL.

    redis://…, rediss://…, unix://…            one server; TLS and ACL users as redis-py reads them from the URL
    redis+sentinel://user:secret@host:26379,host:26379/<service>    the master that the sentinels name, found anew after a failover
    redis+cluster://host:6379                   a cluster; all keys of a shard share a slot, so every script runs on one node

redis-py does the work; this only reads the URL and bounds the time.
"""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from federation.errors import ConfigError

_SENTINEL, _CLUSTER = "redis+sentinel", "redis+cluster"
_SENTINEL_PORT = 26_379


def connect(url: str, *, timeout_ms: int = 2000) -> "redis.Redis":
    """A client for `url`; it connects at the first call, that of a cluster at once.

    redis-py's own defaults may hold a call for ten seconds and more. Whoever calls here repeats by itself, so the client
    repeats once and at once, for a connection that the server closed while it was idle.

    Args:
        url: Without `decode_responses`: the stores read bytes.
        timeout_ms: For connecting, and for each answer.

    Raises:
        ConfigError: The URL names no service of the sentinels.
    """
    bounds: dict[str, Any] = {
        "decode_responses": False,
        "socket_timeout": timeout_ms / 1000,
        "socket_connect_timeout": timeout_ms / 1000,
    }
    parts = urlsplit(url)
    if parts.scheme == _SENTINEL:
        return _by_sentinels(url, bounds)
    if parts.scheme == _CLUSTER:
        tls = dict(parse_qsl(parts.query)).get("tls") == "true"
        plain = parts._replace(scheme="rediss" if tls else "redis", query="").geturl()
        return cast("redis.Redis", RedisCluster.from_url(plain, **bounds))
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 1), **bounds)


def _by_sentinels(url: str, bounds: Mapping[str, Any]) -> "redis.Redis":
    parts = urlsplit(url)
    service = parts.path.strip("/")
    if not service:
        raise ConfigError(f"{_SENTINEL} needs the name of the service: {_SENTINEL}://host:26379,host:26379/<service>")
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, secret = user.partition(":")
    sentinels = [(host.partition(":")[0], int(host.partition(":")[2] or _SENTINEL_PORT)) for host in hosts.split(",")]
    tls = {"ssl": True} if dict(parse_qsl(parts.query)).get("tls") == "true" else {}
    login = {key: unquote(value) for key, value in (("username", name), ("password", secret)) if value}
    found: Any = Sentinel(sentinels, sentinel_kwargs={**bounds, **tls}, **bounds, **tls, **login)  # type: ignore[no-untyped-call]
    return cast("redis.Redis", found.master_for(service, retry=Retry(NoBackoff(), 1)))
