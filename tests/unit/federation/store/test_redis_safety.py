from dataclasses import replace

import pytest
import redis

from federation.errors import ConfigError, ForeignLedger, LedgerUnsafe
from federation.leases import LeaseTerms
from federation.store.redis.client import connect
from federation.store.redis.fixtures import running_redis
from federation.store.redis.keys import Keys
from federation.store.redis.safety import ServerSettings, check_server, problems_of, read_settings

TERMS = LeaseTerms(ttl_ms=30_000, grace_ms=10_000)
SOUND = ServerSettings(maxmemory_policy="noeviction", append_only=True, replicas=1, min_replicas_to_write=1, min_replicas_max_lag_ms=3_000)


@pytest.fixture(scope="module")
def client():
    with running_redis() as client:
        yield client


def test_a_sound_server_has_no_problems():
    assert list(problems_of(SOUND, TERMS)) == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        pytest.param({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy", id="a server that evicts keys"),
        pytest.param({"append_only": False}, "appendonly", id="a server that loses data at a restart"),
        pytest.param({"min_replicas_to_write": 0}, "min-replicas-to-write", id="a master that accepts writes without replicas"),
        pytest.param({"min_replicas_max_lag_ms": 7_000}, "min-replicas-max-lag", id="a lag that the grace does not cover"),
        pytest.param({"takeover": ("down-after-milliseconds", 4_999)}, "down-after-milliseconds", id="sentinels that do not wait for it"),
        pytest.param({"takeover": ("cluster-node-timeout", 1_000)}, "cluster-node-timeout", id="a cluster that does not wait for it"),
        pytest.param({"word_bits": 32}, "arch_bits", id="a program with too short integers"),
    ],
)
def test_unfit_server_is_refused_with_setting_and_remedy(changed, named):
    (problem,) = problems_of(replace(SOUND, **changed), TERMS)
    assert problem.startswith(named)
    assert "set it to" in problem


def test_a_takeover_that_waits_long_enough_is_no_problem():
    assert list(problems_of(replace(SOUND, takeover=("down-after-milliseconds", 5_000)), TERMS)) == []


def test_a_server_without_replicas_needs_none():
    assert list(problems_of(replace(SOUND, replicas=0, min_replicas_to_write=0, min_replicas_max_lag_ms=10_000), TERMS)) == []


def test_server_reports_its_settings(client: redis.Redis):
    assert read_settings(client, Keys()) == ServerSettings(
        maxmemory_policy="noeviction", append_only=False, replicas=0, min_replicas_to_write=0, min_replicas_max_lag_ms=10_000
    )


def test_server_without_persistence_is_refused_outside_trials(client: redis.Redis):
    with pytest.raises(LedgerUnsafe, match="appendonly"):
        check_server(client, Keys(), TERMS)
    check_server(client, Keys(), TERMS, durable=False)


def test_a_server_with_another_ledger_is_refused(client: redis.Redis):
    client.hset(Keys().meta, "uid", "another")
    with pytest.raises(ForeignLedger, match="another"):
        check_server(client, Keys(), TERMS, uid="ours", durable=False)
    check_server(client, Keys(), TERMS, uid="another", durable=False)


def test_sentinels_are_asked_for_the_service_that_the_url_names():
    client = connect("redis+sentinel://root:s%40cret@one:26380,two/leases?db=2&sentinel_password=own", timeout_ms=700)
    pool = client.connection_pool
    assert pool.service_name == "leases"
    assert [kept.connection_pool.connection_kwargs["port"] for kept in pool.sentinel_manager.sentinels] == [26_380, 26_379]
    assert [pool.connection_kwargs[key] for key in ("username", "password", "db")] == ["root", "s@cret", 2]
    assert {kept.connection_pool.connection_kwargs.get("password") for kept in pool.sentinel_manager.sentinels} == {"own"}
    assert pool.connection_kwargs["socket_timeout"] == 0.7


def test_sentinels_and_master_share_tls_settings():
    client = connect("rediss+sentinel://one,two/leases?ssl_ca_certs=/ca.pem&ssl_check_hostname=false")
    for pool in (client.connection_pool, *(kept.connection_pool for kept in client.connection_pool.sentinel_manager.sentinels)):
        assert issubclass(pool.connection_class, redis.connection.SSLConnection)
        assert (pool.connection_kwargs["ssl_ca_certs"], pool.connection_kwargs["ssl_check_hostname"]) == ("/ca.pem", False)


def test_an_option_that_redis_py_cannot_read_is_named():
    with pytest.raises(ConfigError, match="'db'"):
        connect("redis+sentinel://one/leases?db=none")


def test_a_url_of_sentinels_without_a_service_is_refused():
    with pytest.raises(ConfigError, match="service"):
        connect("redis+sentinel://one")


def test_a_single_server_is_bounded_in_time_and_may_speak_tls():
    client = connect("rediss://root:secret@one:6380/0", timeout_ms=700)
    assert client.connection_pool.connection_kwargs["socket_timeout"] == 0.7
    assert client.connection_pool.connection_class is redis.SSLConnection
