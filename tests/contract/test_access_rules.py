"""Rights of the users that docs/operating.md creates."""

from __future__ import annotations

import pytest
import redis
from access_rules import SECRET, make_user, refused_to_users

from federation.durability import Durability
from federation.errors import LedgerUnsafe, StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.redis.client import connect
from federation.store.redis.durability import RedisDurability
from federation.store.redis.fixtures import ANSWER_MS_MAX
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.safety import check_server
from federation.store.redis.scripts import has_functions_of, load_scripts
from federation.tenants import TenantTree

KEYS, TERMS = Keys("contract"), LeaseTerms(ttl_ms=30_000, grace_ms=10_000)


pytestmark = pytest.mark.every_form  # Rights differ with the server's version.


@pytest.fixture(params=["redis_server", "newer_redis_process"])
def admin(request: pytest.FixtureRequest) -> redis.Redis:
    """A server without scripts, with both users."""
    client: redis.Redis = request.getfixturevalue(request.param)
    client.flushall()
    client.script_flush()
    if has_functions_of(client):
        client.function_flush()
    for user in ("schedulemesh", "deployer"):
        make_user(client, user, functions=has_functions_of(client))
    return client


def as_user(admin: redis.Redis, user: str) -> redis.Redis:
    return connect(f"unix://{user}:{SECRET}@{admin.connection_pool.connection_kwargs['path']}", timeout_ms=ANSWER_MS_MAX)


def ledger_on(client: redis.Redis) -> RedisLedger:
    return RedisLedger(client, KEYS, terms=TERMS, uid="ours")


def test_root_without_scripts_names_the_command_to_load_them(admin: redis.Redis):
    with as_user(admin, "schedulemesh") as narrow, pytest.raises(StoreUnavailable, match="schedulemesh load-scripts"):
        ledger_on(narrow).configure(TenantTree(()))
    assert admin.dbsize() == 0
    with as_user(admin, "deployer") as deployer:
        assert load_scripts(deployer, ("federation.store.lua", "dag.store.lua")) > 30
    with as_user(admin, "schedulemesh") as narrow:
        assert ledger_on(narrow).configure(TenantTree(())).version == 1


def test_root_checks_its_server_as_its_own_user(admin: redis.Redis):
    admin.acl_log_reset()
    with as_user(admin, "schedulemesh") as narrow:
        with pytest.raises(LedgerUnsafe, match="appendonly"):
            check_server(narrow, KEYS, TERMS)
        assert RedisDurability(narrow, KEYS).reachable() is Durability.D0
    assert refused_to_users(admin) == []


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("EVAL", "return 1", "0"), id="a script of its own"),
        pytest.param(("SCRIPT", "LOAD", "return 1"), id="a script for later"),
        pytest.param(("SCRIPT", "FLUSH"), id="no scripts for anyone"),
        pytest.param(("CONFIG", "SET", "appendonly", "no"), id="other settings"),
        pytest.param(("FLUSHALL",), id="deleted keys"),
        pytest.param(("KEYS", "*"), id="all names at once"),
        pytest.param(("GET", "another"), id="a key of another application"),
        pytest.param(("HGET", "another", "field"), id="a field of another application's key"),
        pytest.param(("ACL", "LIST"), id="the users"),
        pytest.param(("REPLICAOF", "evil", "6379"), id="another master"),
    ],
)
def test_a_root_may_not(admin: redis.Redis, command: tuple[str, ...]):
    with as_user(admin, "schedulemesh") as narrow, pytest.raises(redis.exceptions.NoPermissionError):
        narrow.execute_command(*command)


def test_script_loader_may_touch_no_key(admin: redis.Redis):
    for command in (("HGET", KEYS.meta, "uid"), ("HSET", KEYS.meta, "uid", "x"), ("EVAL", "return 1", "0"), ("CONFIG", "GET", "*")):
        with as_user(admin, "deployer") as deployer, pytest.raises(redis.exceptions.NoPermissionError):
            deployer.execute_command(*command)
