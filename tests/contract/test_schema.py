"""Schema versions on real servers: every script refuses data of another schema, in both directions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from ledger_stores import RECEIPTS

from dag.store import redis_runs
from federation.errors import SchemaMismatch
from federation.leases import LeaseTerms
from federation.store.redis import scripts as redis_scripts
from federation.store.redis.fixtures import copied, running_redis, servers
from federation.store.redis.keys import SCHEMA, Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.safety import check_schema, check_server
from federation.store.redis.scripts import Scripts, library, source, verbs
from federation.tenants import TenantTree

LEDGER, RUNS = "federation.store.lua", "dag.store.lua"
KEYS, TERMS = Keys("contract"), LeaseTerms(ttl_ms=30_000, grace_ms=10_000)
EVERY_VERB = [(package, verb) for package in (LEDGER, RUNS) for verb in verbs(package)]


@pytest.fixture(scope="module", params=list(servers()))
def server(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with running_redis(servers()[request.param]) as client:
        yield client


@pytest.fixture
def client(server: redis.Redis) -> redis.Redis:
    """A server with a ledger of this version."""
    server.flushall()
    ledger_on(server).configure(TenantTree(()))
    return server


def ledger_on(client: redis.Redis) -> RedisLedger:
    return RedisLedger(client, KEYS, terms=TERMS, uid="ours", receipts=RECEIPTS)


def scripts_on(client: redis.Redis, package: str, verb: str) -> Scripts:
    if verb == "note":
        return Scripts(client, (KEYS.registry, KEYS.meta))
    return Scripts(client, KEYS.scripted if package == LEDGER else redis_runs.scripted_keys(KEYS), package)


@pytest.fixture
def another_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turn this process into a version with another data layout."""
    cached = (source, library)
    for kept in cached:
        kept.cache_clear()
    monkeypatch.setattr(redis_scripts, "SCHEMA", SCHEMA + 1)
    yield
    for kept in cached:
        kept.cache_clear()


@pytest.mark.parametrize(("package", "verb"), EVERY_VERB, ids=[verb for _, verb in EVERY_VERB])
def test_every_script_refuses_data_of_another_schema(client: redis.Redis, package: str, verb: str):
    client.hset(KEYS.meta, "schema", SCHEMA + 1)
    before = copied(client, KEYS)
    with pytest.raises(SchemaMismatch, match=f"{verb}: .* schema {SCHEMA + 1}, .* schema {SCHEMA}; run the version that wrote the data"):
        scripts_on(client, package, verb).call(verb)
    assert copied(client, KEYS) == before


@pytest.mark.usefixtures("another_version")
@pytest.mark.parametrize(("package", "verb"), EVERY_VERB, ids=[verb for _, verb in EVERY_VERB])
def test_scripts_of_another_version_leave_our_data_alone(client: redis.Redis, package: str, verb: str):
    client.hset(KEYS.meta, "schema", SCHEMA)
    before = copied(client, KEYS)
    with pytest.raises(SchemaMismatch, match=f"{verb}: "):
        scripts_on(client, package, verb).call(verb)
    assert copied(client, KEYS) == before


def test_two_versions_side_by_side_serve_either_founder(client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    ours = ledger_on(client)
    ours.snapshot()  # Its scripts are on the server by now.
    with monkeypatch.context() as newer:
        newer.setattr(redis_scripts, "SCHEMA", SCHEMA + 1)
        source.cache_clear()
        library.cache_clear()
        client.flushall()
        ledger_on(client).configure(TenantTree(()))
        assert client.hget(KEYS.meta, "schema") == str(SCHEMA + 1).encode()
        founded = copied(client, KEYS)
    source.cache_clear()
    library.cache_clear()
    for verb in (ours.snapshot, ours.sweep, lambda: ours.configure(TenantTree(()))):
        with pytest.raises(SchemaMismatch):
            verb()
    assert copied(client, KEYS) == founded


def test_a_root_does_not_start_on_data_of_another_schema(client: redis.Redis):
    check_server(client, KEYS, TERMS, durable=False)
    client.hset(KEYS.meta, "schema", SCHEMA + 1)
    with pytest.raises(SchemaMismatch):
        check_server(client, KEYS, TERMS, durable=False)


def test_an_empty_server_has_any_schema(client: redis.Redis):
    client.flushall()
    check_schema(client, KEYS)
