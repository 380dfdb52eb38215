"""A Redis client whose every call ends within a known time."""

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def connect(url: str, *, timeout_ms: int = 2000) -> "redis.Redis":
    """A client for `url` (`redis://`, `rediss://`, `unix://`); it connects at the first call.

    redis-py's own defaults may hold a call for ten seconds and more. Whoever calls here repeats by itself, so the client
    repeats once and at once, for a connection that the server closed while it was idle.

    Args:
        url: Without `decode_responses`: the stores read bytes.
        timeout_ms: For connecting, and for each answer.
    """
    return redis.Redis.from_url(
        url,
        decode_responses=False,
        socket_timeout=timeout_ms / 1000,
        socket_connect_timeout=timeout_ms / 1000,
        retry=Retry(NoBackoff(), 1),
    )
