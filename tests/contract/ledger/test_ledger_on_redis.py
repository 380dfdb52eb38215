"""The Redis ledger beyond the contract: its server, keys, memory and replicas."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from faults.server import Server
from ledger_stores import redis_store
from patience import eventually
from two_teams import A100, ACME, LAB, ONE_GPU, TERMS, ask, gpu, gpus, record, tree

from federation.errors import StoreUnavailable
from federation.leases import Granted, QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.store.redis.client import connect
from federation.store.redis.fixtures import ANSWER_MS_MAX, servers
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.errors import RuntimeAdapterError
from mesh.stages.messages import StageEnded
from mesh.stages.spec import StageSpec


def redis_ledger(client, shard="contract", **response) -> RedisLedger:
    return RedisLedger(client, Keys(shard), terms=TERMS, founding=True, **response)


def test_silent_server_is_reported_as_unavailable(tmp_path):
    ledger = redis_ledger(connect(f"unix://{tmp_path}/nobody.sock", timeout_ms=100))
    with pytest.raises(StoreUnavailable, match="sweep"):
        ledger.sweep()


def test_a_server_that_lost_its_scripts_is_given_them_again(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.configure(tree())
    west = ManualMesh(ledger, record())
    assert ask(west).slots == 1
    redis_server.script_flush()
    assert ask(west).slots == 1


def test_ledger_that_may_have_had_holders_recovers_when_founded(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("contract"), terms=TERMS)
    ledger.configure(tree())
    assert ask(ManualMesh(ledger, record())).reason is Reason.LEDGER_RECOVERING


def test_empty_server_relearns_leases_under_a_lasting_ledger_id(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("contract"), terms=TERMS, uid="ours", founding=False)
    founder = RedisLedger(redis_server, Keys("contract"), terms=TERMS, uid="ours", founding=True)
    founder.configure(tree())
    west = ManualMesh(ledger, record())
    ask(west, 3)
    redis_server.flushall()
    west.ledger = ledger
    west.claim_all()
    ledger.configure(tree())
    assert gpus(ledger, LAB) == 3
    assert ledger.audit() == ()


@pytest.fixture(params=["redis_server", "newer_redis_process"], ids=["scripts", "functions"])
def filling(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A server whose memory a test can fill; by scripts, and by functions where it has them."""
    client = request.getfixturevalue(request.param)
    client.flushall()
    yield client
    client.config_set("maxmemory", 0)


@pytest.mark.every_form
def test_server_out_of_memory_still_renews_and_releases(filling: redis.Redis):
    ledger, queue = redis_ledger(filling), RedisStageQueue(filling, Keys("contract"))
    ledger.configure(tree())
    west = ManualMesh(ledger, record())
    ask(west, 4)
    stages = [StageSpec(stage=StageId(f"s{each}"), run=RunId("r"), tenant=LAB, tasks=(), slot=ONE_GPU, width=1) for each in range(4)]
    for stage in stages[:3]:
        queue.submit(MeshId("west"), stage)
    claimed = queue.claim(west.session, StageId("s0"), west.lease(LAB, A100))
    assert claimed is not None
    filling.config_set("maxmemory", 1)
    for grows in (
        lambda: ask(west, 1),
        lambda: ManualMesh(ledger, record("east")),
        lambda: queue.submit(MeshId("west"), stages[3]),
        lambda: queue.claim(west.session, StageId("s1"), west.lease(LAB, A100)),
        lambda: queue.deliver(StageId("s0"), NodeId("n"), None),
        lambda: queue.report(claimed.claim, 1, (StageEnded(stage=StageId("s0")),)),
    ):
        with pytest.raises(StoreUnavailable, match="cannot serve now"):
            grows()
    west.heartbeat()
    west.heartbeat(demands=())
    west.release(LAB, A100, gpu(1))
    assert gpus(ledger, LAB) == 1
    assert ledger.elect("planner", 1_000) is not None
    queue.cancel(StageId("s1"))
    assert [stage.stage for stage in queue.waiting(MeshId("west"))] == ["s2"]
    assert [stage.spec.stage for stage in queue.claims_of(west.session)] == ["s0"]
    queue.forget(RunId("r"), (MeshId("west"),))
    assert (queue.waiting(MeshId("west")), queue.take_back_overdue(), queue.orphans()) == ((), (), ())
    assert ledger.revoke(tenant=LAB) == 1
    ledger.sweep()
    west.leave()
    assert ledger.snapshot().usage == {}


def test_a_key_that_is_not_ours_is_garbage_and_not_an_outage(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.sweep()
    redis_server.set(Keys("contract").due, "not a sorted set")
    with pytest.raises(RuntimeAdapterError) as broken:
        ledger.sweep()
    assert not isinstance(broken.value, StoreUnavailable)


def test_audit_names_a_node_with_a_tampered_sum(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.configure(tree())
    ask(ManualMesh(ledger, record()), 2)
    redis_server.hset(Keys("contract").use, f"{ACME}|{A100}", "gpu|10000|20000")
    (mismatch,) = ledger.audit()
    assert (mismatch.tenant, mismatch.kept, mismatch.counted) == (ACME, 10_000, 20_000)


def test_shards_do_not_see_each_other(redis_server: redis.Redis):
    one, two = redis_ledger(redis_server, "one"), redis_ledger(redis_server, "two")
    for ledger in (one, two):
        ledger.configure(tree())
        assert ask(ManualMesh(ledger, record()), 8).slots == 8


def test_the_log_is_bounded_by_changes_and_not_by_calls(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("log"), terms=TERMS, founding=True)
    teams, own = [TenantPath(f"acme/t{number}") for number in range(23)], {(A100, "gpu"): Quota(nominal=10_000)}
    ledger.configure(TenantTree([tree().tenants[ACME], *(Tenant(path=path, parent=ACME, quotas=own) for path in teams)]))
    west = ManualMesh(ledger, record())
    ledger.acquire(west.session, tuple(QuotaDemand(tenant=path, flavor=A100, slot=ONE_GPU, slots=1) for path in teams))
    entries = redis_server.xrange(Keys("log").lease_log)
    assert max(len(fields[b"changes"].splitlines()) for _, fields in entries) <= 5
    assert [lease_event.lease.tenant for lease_event in ledger.history()] == teams


def test_earlier_sessions_leave_no_marks(redis_server: redis.Redis):
    store = redis_store(redis_server)
    store.ledger.configure(tree())
    for _ in range(3):
        ask(ManualMesh(store.ledger, record()))
    store.advance(store.ttl_ms + store.grace_ms + 1)
    store.ledger.sweep()
    assert {name.split(b"|")[0] for name in redis_server.hkeys(Keys("contract").marks)} == {b"west"}


def test_every_key_of_a_shard_has_its_hash_tag(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.configure(tree())
    ask(ManualMesh(ledger, record()), 9)
    assert all(key.startswith(b"{q:contract}:") for key in redis_server.keys("*"))


@pytest.fixture(params=list(servers()))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A master and its replica."""
    binary = servers()[request.param]
    master = Server(tmp_path / "master", binary=binary, repl_diskless_sync_delay="0")
    replica = Server(tmp_path / "replica", binary=binary, replicaof=f"127.0.0.1 {master.port}")
    eventually(lambda: replica.client.info("replication")["master_link_status"] == "up")
    yield master, replica
    replica.close()
    master.close()


def test_grant_is_answered_once_a_replica_has_it(pair: tuple[Server, Server]):
    master, replica = pair
    keys = Keys("contract")
    with connect(master.url, timeout_ms=ANSWER_MS_MAX) as client, ThreadPoolExecutor(max_workers=1) as apart:
        ledger = RedisLedger(client, keys, terms=TERMS, founding=True, copy_wait_ms=ANSWER_MS_MAX * 5 // 6)
        ledger.configure(tree())
        west = ManualMesh(ledger, record())
        leases = keys.leases(west.record.mesh)
        replica.freeze()
        answer = apart.submit(ask, west)
        eventually(lambda: master.client.hlen(leases) == 1)
        assert not answer.done()
        replica.thaw()
        assert answer.result(ANSWER_MS_MAX / 1000) == Granted(slots=1)
    assert replica.client.hgetall(leases) == master.client.hgetall(leases)


def test_a_grant_that_no_replica_has_in_time_stands(pair: tuple[Server, Server]):
    master, replica = pair
    ledger = RedisLedger(master.client, Keys("contract"), terms=TERMS, founding=True, copy_wait_ms=1)
    ledger.configure(tree())
    west = ManualMesh(ledger, record())
    replica.freeze()
    assert ask(west) == Granted(slots=1)
    assert gpus(ledger, LAB) == 1
    replica.kill()
    assert ask(west) == Granted(slots=1)
    assert gpus(ledger, LAB) == 2
