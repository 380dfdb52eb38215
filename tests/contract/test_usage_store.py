"""Contract of the accounting of use: what the queue reports, and the rows, in memory and on a real Redis."""

from itertools import pairwise

import pytest
import redis

from dag.run.runs import LostWork, RunChange, RunRecord
from dag.store.memory import MemoryRunStore
from dag.store.redis_runs import RedisRunStore
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from federation.store.memory.store import MemoryStore
from federation.store.memory.usage import MemoryUsage
from federation.store.redis.keys import Keys
from federation.store.redis.usage import RedisUsage
from federation.tenants import Quota, Tenant, TenantTree
from federation.usage.accounting import DAY_MS, as_of, day_of
from federation.usage.keeper import UsageKeeper
from federation.usage.records import LOG_MAX, OTHER_USERS, Account, Holding, Reckoning, RowKey, Sums, UsageChange
from federation.usage.report import UsageBy, grouped
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.stages.messages import StageEnded, StageResized
from mesh.stages.spec import StageSpec, TaskSpec

CPU, LAB, RUN = FlavorName("cpu"), TenantPath("lab"), RunId("run-1")
WEST, ONE, TWO = MeshId("west"), StageId("run-1/s1"), StageId("run-1/s2")
SLOT = ResourceSet.of({"cpu": 1, "memory": "1GiB"})
UNIT, GIB = 10_000, 2**30
TREE = TenantTree([Tenant(path=LAB, parent=None, quotas={(CPU, "cpu"): Quota(nominal=3 * UNIT), (CPU, "memory"): Quota(nominal=9 * GIB)})])
MINUTE = 60_000


@pytest.fixture
def usage(store):
    return MemoryUsage(store.queue) if isinstance(store.queue, MemoryStore) else RedisUsage(store.client, Keys("contract"))


@pytest.fixture
def runs(store):
    return MemoryRunStore(store.queue) if isinstance(store.queue, MemoryStore) else RedisRunStore(store.client, Keys("contract"))


@pytest.fixture
def west(store) -> ManualMesh:
    store.ledger.configure(TREE)
    return ManualMesh(store.ledger, MeshRecord(mesh=WEST, labels={}, pools=(), cluster="c"))


def claimed(store, mesh, stage=ONE, *, slots=1):
    task = TaskSpec(node=NodeId("a"), attempt=1, function="call:m:f", resources=SLOT)
    store.queue.submit(WEST, StageSpec(stage=stage, run=RUN, tenant=LAB, tasks=(task,), slot=SLOT, width=4))
    mesh.acquire(LAB, CPU, SLOT, slots)
    return store.queue.claim(mesh.session, stage, mesh.lease(LAB, CPU), slots).claim


def a_run(runs, user="ann") -> RunRecord:
    record = RunRecord(run=RUN, tenant=LAB, user=user, digest="d", spec=b"spec", created_ms=1)
    runs.create(record, {})
    return runs.load(RUN)


def held(entries):
    return [dict(entry.held) if entry.held is not None else None for entry in entries]


def keeper(usage, at_ms=0, **options) -> UsageKeeper:
    return UsageKeeper(store=usage, clock=ManualClock(at_ms), **{"days_kept": 400, **options})


# ---- reports of the queue


def test_a_claim_reports_its_start_and_its_end(store, west, runs, usage):
    a_run(runs)
    claim = claimed(store, west, slots=2)
    store.advance(MINUTE)
    store.queue.report(claim, 1, (StageResized(stage=ONE, slots=3),))
    store.advance(MINUTE)
    store.queue.report(claim, 2, (StageEnded(stage=ONE),))
    entries = usage.entries("0-0", 10)
    assert held(entries) == [{"cpu": 2 * UNIT, "memory": 2 * GIB}, {"cpu": 3 * UNIT, "memory": 3 * GIB}, {}]
    assert {(entry.stage, entry.tenant, entry.flavor, entry.user) for entry in entries} == {(ONE, LAB, CPU, "ann")}
    waits = [later.at_ms - entry.at_ms for entry, later in pairwise(entries)]
    assert all(MINUTE <= wait < 10 * MINUTE for wait in waits)


def test_a_repeated_call_reports_once(store, west, usage):
    claim = claimed(store, west)
    store.queue.claim(west.session, ONE, west.lease(LAB, CPU))
    for _ in range(2):
        store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert held(usage.entries("0-0", 10)) == [{"cpu": UNIT, "memory": GIB}, {}]


def test_a_cancelled_queued_stage_has_held_nothing(store, west, usage):
    store.queue.submit(WEST, StageSpec(stage=ONE, run=RUN, tenant=LAB, tasks=(), slot=SLOT, width=1))
    store.queue.cancel(ONE)
    assert usage.entries("0-0", 10) == ()


def test_a_swept_mesh_ends_its_claims(store, west, usage):
    claimed(store, west)
    store.advance(store.ttl_ms + store.grace_ms + 1)
    store.ledger.sweep()
    assert held(usage.entries("0-0", 10))[1:] == [{}]


def test_a_forgotten_run_ends_its_claims(store, west, usage):
    claimed(store, west)
    assert store.queue.forget(RUN, (WEST,))
    assert held(usage.entries("0-0", 10))[1:] == [{}]


def test_the_commit_of_a_run_reports_what_was_lost(store, west, runs, usage):
    record = a_run(runs)
    claim = claimed(store, west)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    lost = LostWork(stage=ONE, at_ms=77, resources={"cpu": UNIT * MINUTE, "memory": GIB * MINUTE})
    unknown = LostWork(stage=StageId("run-1/never"), at_ms=77, resources={"cpu": 1})
    assert runs.commit(record, RunChange(lost=(lost, unknown)))
    assert not runs.commit(RunRecord(run=RUN, tenant=LAB, digest="d", spec=b"spec", version=0), RunChange(lost=(lost,)))
    (entry,) = usage.entries(usage.entries("0-0", 2)[-1].entry, 10)
    assert (entry.at_ms, entry.held, dict(entry.lost)) == (77, None, {"cpu": UNIT * MINUTE, "memory": GIB * MINUTE})
    assert (entry.stage, entry.tenant, entry.flavor, entry.user) == (ONE, LAB, CPU, "ann")


def filled(store, monkeypatch) -> None:
    """Leave no room for reports, as after days without a coordinator."""
    if isinstance(store.queue, MemoryStore):
        monkeypatch.setattr("federation.store.memory.store.LOG_MAX", 0)
    elif isinstance(store.client, redis.Redis) and store.client.connection_pool.connection_kwargs.get("username"):
        pytest.skip("this user may run no script of a test; the other servers show it")
    else:
        add = "for _ = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'at', '1') end"
        store.client.eval(add, 1, Keys("contract").usage_log, LOG_MAX)


def test_reports_without_a_reader_are_bounded_and_counted(store, west, runs, usage, monkeypatch):
    record = a_run(runs)
    counted, left_out = claimed(store, west), claimed(store, west, TWO)
    (begun, also_begun) = usage.entries("0-0", 10)
    assert (begun.stage, also_begun.stage) == (ONE, TWO)
    filled(store, monkeypatch)
    last = usage.read(0, -1).left_out
    late = claimed(store, west, StageId("run-1/s3"))
    store.queue.report(counted, 1, (StageResized(stage=ONE, slots=3),))
    assert runs.commit(record, RunChange(lost=(LostWork(stage=ONE, at_ms=7, resources={"cpu": 1}),)))
    store.queue.report(late, 1, (StageEnded(stage=late.stage),))
    assert (last, usage.read(0, -1).left_out) == (0, 3), "the end of a claim whose beginning was left out says nothing"
    for claim, batch in ((counted, 2), (left_out, 1)):
        store.queue.report(claim, batch, (StageEnded(stage=claim.stage),))
    assert usage.read(0, -1).left_out == 3
    ends = newest(store, usage)[-2:]
    assert [(stage, is_end) for stage, is_end in ends] == [(ONE, True), (TWO, True)], "nothing that was counted counts for ever"


def newest(store, usage) -> list[tuple[str, bool]]:
    """Return stage of the last reports, and whether they are ends."""
    if isinstance(store.queue, MemoryStore):
        return [(entry.stage, entry.held == {}) for entry in usage.entries("0-0", 10)]
    found = reversed(store.client.xrevrange(Keys("contract").usage_log, count=2))
    return [(fields[b"stage"].decode(), fields[b"held"] == b"") for _, fields in found]


# ---- rows


KEY = RowKey(20_000, LAB, 'a|"é', CPU, "cpu")


def test_of_two_writers_one_succeeds(usage):
    change = UsageChange(version=0, cursor="1-0", rows={KEY: Sums(1, 2, 3)})
    assert usage.write(change) is True
    assert usage.write(change) is False
    reading = usage.read(20_000, 20_000)
    assert (dict(reading.rows), reading.state.version, reading.state.cursor) == ({KEY: Sums(1, 2, 3)}, 1, "1-0")


def test_sums_may_exceed_the_integers_of_the_server(usage):
    huge = Sums(10**25, 2, 3)
    usage.write(UsageChange(version=0, cursor="1-0", rows={KEY: huge}))
    assert usage.rows({KEY, KEY._replace(user="other")}).rows == {KEY: huge}


def test_the_state_is_kept_with_the_rows(usage):
    holding = Holding(tenant=LAB, flavor=CPU, user="ann", held={"cpu": 1})
    account, reckoning = Account(LAB, CPU), Reckoning(until_ms=5, quota={"cpu": 7})
    usage.write(UsageChange(version=0, cursor="1-0", holdings={ONE: holding, TWO: holding}, reckonings={account: reckoning}))
    usage.write(UsageChange(version=1, cursor="2-0", holdings={TWO: None}))
    state = usage.read(0, -1).state
    assert (state.holdings, state.reckonings) == ({ONE: holding}, {account: reckoning})
    usage.write(UsageChange(version=2, cursor="3-0", holdings={ONE: None}, reckonings={account: None}))
    assert (usage.read(0, -1).state.holdings, usage.read(0, -1).state.reckonings) == ({}, {})


def test_old_days_are_removed(usage):
    old = KEY._replace(day=19_000)
    usage.write(UsageChange(version=0, cursor="1-0", rows={KEY: Sums(1), old: Sums(2)}))
    usage.write(UsageChange(version=1, cursor="1-0", drop_before=20_000))
    assert dict(usage.read(19_000, 20_001).rows) == {KEY: Sums(1)}


# ---- the keeper


def test_use_of_a_claim_reaches_its_row(store, west, runs, usage):
    a_run(runs)
    claim = claimed(store, west, slots=2)
    store.advance(MINUTE)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert keeper(usage).tick(TREE) == 2
    rows = grouped(usage.read(0, 10**6).rows, [UsageBy.TENANT, UsageBy.USER])
    (cpu,) = (row for row in rows if row.resource == "cpu")
    assert (cpu.tenant, cpu.user, cpu.sums.borrowed) == (LAB, "ann", 0)
    assert 2 * UNIT * MINUTE <= cpu.sums.used < 2 * UNIT * 10 * MINUTE
    assert usage.entries("0-0", 10) == ()


def test_another_keeper_counts_no_entry_twice(store, west, usage):
    claim = claimed(store, west)
    first, second = keeper(usage), keeper(usage)
    first.tick(TREE)
    store.advance(MINUTE)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert second.tick(TREE) == 1
    before = usage.read(0, 10**6).rows
    assert first.tick(TREE) == 0
    assert second.tick(TREE) == 0
    assert usage.read(0, 10**6).rows == before


def test_a_running_claim_counts_up_to_the_reading(store, west, usage):
    claimed(store, west)
    keeper(usage).tick(TREE)
    reading = usage.read(0, 10**6)
    (reckoning,) = reading.state.reckonings.values()
    assert reading.rows == {}
    rows = as_of(reading.state, reading.rows, reckoning.until_ms + MINUTE)
    assert sum(sums.used for key, sums in rows.items() if key.resource == "cpu") == UNIT * MINUTE


def test_users_beyond_the_limit_of_a_day_share_a_row(store, west, runs, usage):
    record = a_run(runs)
    claimed(store, west)
    runs.commit(record, RunChange(lost=(LostWork(stage=ONE, at_ms=77, resources={"cpu": 1, "memory": 2}),)))
    keeper(usage, rows_max=1).tick(TREE)
    assert {(key.user, key.resource): sums.lost for key, sums in usage.read(0, 0).rows.items()} == {
        ("ann", "cpu"): 1,
        (OTHER_USERS, "memory"): 2,
    }


def test_the_keeper_removes_old_days(usage):
    usage.write(UsageChange(version=0, cursor="0-0", rows={KEY: Sums(1)}))
    keeper(usage, 20_010 * DAY_MS, days_kept=10).tick(TREE)
    assert KEY in usage.read(0, 10**6).rows
    keeper(usage, 20_011 * DAY_MS, days_kept=10).tick(TREE)
    assert usage.read(0, 10**6).rows == {}
    assert day_of(20_011 * DAY_MS) == 20_011
