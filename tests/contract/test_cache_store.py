"""Contract of the stores of cached values, in memory and on a real Redis."""

import hashlib
from dataclasses import replace

import pytest

from dag.result_cache import CacheEntry, CacheStore, Claimant, Hit, InFlight
from dag.run.node_table import NodeTable
from dag.run.runs import NOTHING_CHANGED, RunRecord, RunStore
from dag.run.states import RunState
from dag.store.memory import MemoryRunStore
from dag.store.memory_cache import MemoryCacheStore
from dag.store.redis_cache import RedisCacheStore
from dag.store.redis_runs import RedisRunStore
from federation.store.memory.store import MemoryStore
from federation.store.redis.keys import Keys
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.core.values import Encoding, StoredValue, json_value

ACME, RIVAL = TenantPath("acme/lab"), TenantPath("rival")
KEY, OTHER = "k" * 64, "o" * 64
NOW_MS = 1_000_000


class Kept:
    """The cache and the runs of one back-end."""

    def __init__(self, store) -> None:
        self.queue = store.queue
        self.runs: RunStore
        self.cache: CacheStore
        if isinstance(store.queue, MemoryStore):
            self.runs = MemoryRunStore(store.queue)
            self.cache = MemoryCacheStore(store.queue, self.runs, entries_max=3)
        else:
            self.runs = RedisRunStore(store.client, Keys("contract"))
            self.cache = RedisCacheStore(store.client, Keys("contract"), entries_max=3)
        self.records = {}
        for run in ("r-1", "r-2", "r-3"):
            record = RunRecord(run=RunId(run), tenant=ACME, digest=run, spec=b"{}", nodes=NodeTable([NodeId("a")]))
            assert self.runs.create(record, {})
            self.records[run] = record
        self.acknowledge()

    def acknowledge(self) -> list[tuple[str, str]]:
        entries = self.queue.inbox(0)
        self.queue.acknowledge(tuple(entry.entry for entry in entries))
        return [(entry.run, entry.kind) for entry in entries]

    def end(self, run: str) -> None:
        record = self.records[run]
        record.state, record.ended_ms = RunState.CANCELLED, NOW_MS
        assert self.runs.commit(record, NOTHING_CHANGED)

    def look(self, run="r-1", node="a", *, key=KEY, tenant=ACME, now_ms=NOW_MS, is_fresh=False):
        return self.cache.look(tenant, key, by(run, node), now_ms, is_fresh=is_fresh)


@pytest.fixture
def kept(store) -> Kept:
    return Kept(store)


def by(run: str, node: str = "a") -> Claimant:
    return Claimant(run=RunId(run), node=NodeId(node))


def entry(run="r-1", *, key=KEY, data=b"[1]", at_ms=NOW_MS, ttl_ms=60_000, uri=None) -> CacheEntry:
    value = json_value(data)
    if uri is not None:
        value = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.PICKLE, uri=uri)
    return CacheEntry(key=key, tenant=ACME, function="call:m:f", run=RunId(run), node=NodeId("a"), value=value, created_ms=at_ms,
                      expires_ms=at_ms + ttl_ms, took_ms=5)  # fmt: skip


@pytest.mark.every_form
def test_the_first_to_look_claims_and_the_next_waits(kept):
    assert kept.look("r-1") is None
    assert kept.look("r-1") is None  # Safe to repeat.
    assert kept.look("r-2") == InFlight(by=by("r-1"))
    assert kept.look("r-1", "b") == InFlight(by=by("r-1"))
    assert kept.look("r-2", key=OTHER) is None


@pytest.mark.every_form
def test_a_kept_value_is_found_by_its_tenant_only(kept):
    kept.look("r-1")
    assert kept.cache.keep(entry(), b"[1]") is None
    assert kept.look("r-2") == Hit(entry=entry(), data=b"[1]")
    assert kept.look("r-2", tenant=RIVAL) is None
    assert [each.hits for each in kept.cache.entries(ACME)] == [1]
    assert kept.cache.entries(RIVAL) == ()


@pytest.mark.every_form
def test_the_end_of_a_claim_notifies_each_waiting_run_once(kept):
    for run in ("r-1", "r-2", "r-3", "r-2"):
        kept.look(run)
    kept.cache.keep(entry(), b"[1]")
    assert sorted(kept.acknowledge()) == [("r-2", "cached"), ("r-3", "cached")]
    kept.cache.keep(entry(), b"[1]")
    assert kept.acknowledge() == []


def test_after_a_release_the_next_run_computes(kept):
    kept.look("r-1")
    kept.look("r-2")
    kept.cache.release(ACME, KEY, by("r-3"))  # Not its claim.
    assert kept.look("r-2") == InFlight(by=by("r-1"))
    kept.cache.release(ACME, KEY, by("r-1"))
    assert kept.acknowledge() == [("r-2", "cached")]
    assert kept.look("r-2") is None
    assert kept.look("r-1") == InFlight(by=by("r-2"))


@pytest.mark.every_form
def test_a_claim_ends_with_its_run(kept):
    kept.look("r-1")
    kept.end("r-1")
    assert kept.look("r-2") is None


def test_a_value_expires(kept):
    kept.look("r-1")
    kept.cache.keep(entry(ttl_ms=100), b"[1]")
    assert isinstance(kept.look("r-2", now_ms=NOW_MS + 99), Hit)
    assert kept.look("r-2", now_ms=NOW_MS + 100) is None
    assert kept.cache.take_expired(NOW_MS + 99) == ()
    assert [each.key for each in kept.cache.take_expired(NOW_MS + 100)] == [KEY]
    assert kept.cache.entries(ACME) == ()


@pytest.mark.every_form
def test_a_removed_value_is_gone_at_once_and_its_file_is_named(kept):
    file = entry(uri="file:///x/1")
    kept.look("r-1")
    kept.cache.keep(file, None)
    assert kept.look("r-2") == Hit(entry=file, data=None)
    assert kept.cache.expire(ACME, (KEY, OTHER)) == 1
    assert (kept.look("r-2"), kept.cache.entries(ACME)) == (None, ())
    assert [each.value.uri for each in kept.cache.take_expired(NOW_MS)] == ["file:///x/1"]
    assert kept.cache.expire(ACME, (KEY,)) == 0


def test_a_damaged_value_is_dropped(kept):
    kept.look("r-1")
    kept.cache.keep(entry(), b"[1]")
    assert kept.look("r-2", is_fresh=True) is None
    assert kept.look("r-3") == InFlight(by=by("r-2"))


def test_a_new_value_replaces_the_old_one(kept):
    kept.look("r-1")
    kept.cache.keep(entry(uri="file:///x/1"), None)
    newer = entry("r-2", data=b"[2]", at_ms=NOW_MS + 5)
    assert kept.cache.keep(newer, b"[2]") == entry(uri="file:///x/1")
    assert kept.look("r-3") == Hit(entry=newer, data=b"[2]")


def test_the_oldest_values_above_the_limit_expire(kept):
    for number in range(5):
        kept.cache.keep(entry(key=f"key-{number}", at_ms=NOW_MS + number), b"[1]")
    assert [each.key for each in kept.cache.entries(ACME)] == ["key-4", "key-3", "key-2"]
    assert [each.key for each in kept.cache.entries(ACME, 1)] == ["key-4"]
    assert sorted(each.key for each in kept.cache.take_expired(NOW_MS)) == ["key-0", "key-1"]


def test_empty_bytes_are_a_value(kept):
    kept.look("r-1")
    kept.cache.keep(replace(entry(), value=json_value(b"")), b"")
    assert kept.look("r-2").data == b""
