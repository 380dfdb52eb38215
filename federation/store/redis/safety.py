"""Checks of a Redis server at the start of a root: whether it may hold leases.

Unsafe servers may evict keys, forget them at a restart, or lose writes that never reached a replica; no protocol can repair such losses.
Recovery bounds what a restart may lose, but not what these settings may lose.
Source: ADR 0019.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import redis
from redis.cluster import RedisCluster
from redis.sentinel import SentinelConnectionPool

from federation.errors import ForeignLedger, LedgerMissing, LedgerUnsafe, SchemaMismatch, StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.redis.client import home_of
from federation.store.redis.keys import SCHEMA, Keys
from federation.store.redis.scripts import redis_responses, schema_words

#: Lag of a replica until the master notices: the master asks once a second, and then needs a moment.
_NOTICE_MS = 2_000
_WORD_BITS = 64
#: Setting of sentinels: silence of a master until they replace it, ms.
_DOWN_AFTER = "down-after-milliseconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Relevant settings of the server."""

    maxmemory_policy: str
    append_only: bool
    replicas: int  #: Connected now.
    min_replicas_to_write: int
    min_replicas_max_lag_ms: int
    takeover: tuple[str, int] | None = None  #: Setting that decides when a silent master is replaced, and its ms; None: no replacement.
    word_bits: int = _WORD_BITS  #: Word size of the server's program; scripts write tokens as its C `long`.


def check_server(
    client: "redis.Redis", keys: Keys, terms: LeaseTerms, *, uid: str | None = None, may_found: bool = True, durable: bool = True
) -> ServerSettings:
    """Refuse a server that could lose or evict leases, or that holds another ledger. Return the server's settings.

    Args:
        uid: Required id of the ledger; None: any.
        may_found: Accept a server without a ledger: the ledger is created there.
        durable: Also refuse a server without an append-only file; a trial federation may do without.

    Raises:
        LedgerUnsafe: Each line names a setting and the remedy.
        ForeignLedger: The server holds another ledger.
        LedgerMissing: The server holds no ledger, but must.
        SchemaMismatch: See `check_schema`.
        StoreUnavailable: The server does not respond.
    """
    check_schema(client, keys)
    with redis_responses("look at the server"):
        present = cast("bytes | None", client.hget(keys.meta, "uid"))
    if uid is not None and present is not None and present.decode() != uid:
        raise ForeignLedger(f"the server holds the ledger {present.decode()}, not {uid} of this state folder; check the URL")
    if uid is not None and present is None and not may_found:
        raise LedgerMissing(
            f"the server holds no ledger, but must hold {uid} of this state folder; check the URL. If the server was emptied or replaced"
            " on purpose, start once with --rebuild-ledger: the ledger then recovers its leases from its meshes"
        )
    settings = read_settings(client, keys)
    problems = list(problems_of(settings, terms, durable=durable))
    if problems:
        raise LedgerUnsafe("\n".join(problems))
    return settings


def check_schema(client: "redis.Redis", keys: Keys) -> None:
    """Refuse data that another version of this program has written; an empty server is accepted.

    Raises:
        SchemaMismatch: The message names both schema numbers and the remedy.
        StoreUnavailable: The server does not respond.
    """
    with redis_responses("look at the server"):
        found = cast("bytes | None", client.hget(keys.meta, "schema"))
    if found is not None and found.decode() != str(SCHEMA):
        raise SchemaMismatch(schema_words(found.decode()))


def read_settings(client: "redis.Redis", keys: Keys) -> ServerSettings:
    """Read the settings from the server. Raises StoreUnavailable, RuntimeAdapterError (the user may not read them)."""
    with redis_responses("look at the server"):
        server = home_of(client, keys.meta)
        found = server.config_get("*")
        replication = server.info("replication")
        program = server.info("server")
    written = {str(_text(name)): _text(value) for name, value in found.items()}
    return ServerSettings(
        maxmemory_policy=written.get("maxmemory-policy", ""),
        append_only=written.get("appendonly") == "yes",
        replicas=int(replication.get("connected_slaves", 0)),
        min_replicas_to_write=int(written.get("min-replicas-to-write", 0)),
        min_replicas_max_lag_ms=1000 * int(written.get("min-replicas-max-lag", 0)),
        takeover=_takeover(client, written),
        word_bits=int(program.get("arch_bits", 64)),
    )


def _takeover(client: "redis.Redis", written: Mapping[str, str]) -> tuple[str, int] | None:
    if isinstance(client, RedisCluster):
        return "cluster-node-timeout", int(written["cluster-node-timeout"])
    pool = client.connection_pool
    if not isinstance(pool, SentinelConnectionPool):
        return None
    for sentinel in pool.sentinel_manager.sentinels:
        with suppress(redis.RedisError):  # Another sentinel may respond; one of them has just found the master.
            return _DOWN_AFTER, int(sentinel.sentinel_master(pool.service_name)[_DOWN_AFTER])
    raise StoreUnavailable("look at the server: no sentinel responds")


def problems_of(settings: ServerSettings, terms: LeaseTerms, *, durable: bool = True) -> Iterator[str]:
    """Yield what makes these settings unsafe, one line each, with the remedy."""
    if settings.maxmemory_policy != "noeviction":
        yield f"maxmemory-policy is {settings.maxmemory_policy}: leases could be evicted; set it to noeviction"
    if durable and not settings.append_only:
        yield "appendonly is no: a restart would forget every lease; set it to yes"
    if settings.replicas and settings.min_replicas_to_write < 1:
        yield "min-replicas-to-write is 0: an isolated master would go on granting leases; set it to 1 or more"
    if settings.word_bits < _WORD_BITS:
        yield f"arch_bits is {settings.word_bits}: tokens and bytes would not fit; set it to 64, with another build of Redis"
    lag_ms_max = terms.grace_ms - terms.max_step_ms - _NOTICE_MS
    if settings.replicas and settings.min_replicas_max_lag_ms > max(0, lag_ms_max):
        yield (
            f"min-replicas-max-lag is {settings.min_replicas_max_lag_ms // 1000} s, more than the grace covers;"
            f" set it to {max(1, lag_ms_max // 1000)}, or make lease_grace longer"
        )
    name, after_ms = settings.takeover or ("", 0)
    if name and settings.replicas and after_ms < settings.min_replicas_max_lag_ms + _NOTICE_MS:
        yield (
            f"{name} is {after_ms} ms: another master could take over while the old one still accepts writes;"
            f" set it to {settings.min_replicas_max_lag_ms + _NOTICE_MS} or more"
        )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
