"""Contract of the stores of schedules, in memory and on a real Redis."""

from dataclasses import replace

import pytest

from dag.errors import TooManySchedules
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, StaleSchedule
from dag.schedules.schedule import Rules, Schedule, ScheduleLimits, Start, Template, fence_of
from dag.store.memory import MemoryRunStore
from dag.store.memory_schedules import MemoryScheduleStore
from dag.store.redis_runs import RedisRunStore
from dag.store.redis_schedules import RedisScheduleStore
from federation.store.memory.store import MemoryStore
from federation.store.redis.keys import Keys
from mesh.core.ids import NodeId, RunId, TenantPath

ACME, LAB, BETA, RIVAL = (TenantPath(path) for path in ("acme", "acme/lab", "acme-beta", "rival"))
LIMITS = ScheduleLimits(schedules_max=2, bytes_max=100)
TEMPLATE = Template(spec=b"\x00spec", blobs={"a" * 8: b"\xff", "b" * 8: b""})


def a_schedule(name="nightly", tenant=LAB, **fields):
    rules = Rules(cron="0 3 * * *", digest="d", user="é")
    return Schedule(tenant=tenant, name=name, uid="u", rules=rules, created_ms=1, **{"cursor_ms": 10, "next_ms": 20, **fields})


class DropsFirst:
    """Client of Redis that does something, once, after the names of a list are read."""

    def __init__(self, client):
        self._client = client
        self.drop = None

    def __getattr__(self, name):
        return getattr(self._client, name)

    def pipeline(self, **options):
        reads = self._client.pipeline(**options)
        execute = reads.execute

        def execute_and_drop():
            answers = execute()
            if self.drop is not None:
                drop, self.drop = self.drop, None
                drop()
            return answers

        reads.execute = execute_and_drop
        return reads


@pytest.fixture
def runs(store):
    if isinstance(store.queue, MemoryStore):
        return MemoryRunStore(store.queue)
    return RedisRunStore(store.client, Keys("contract"))


@pytest.fixture
def schedules(store, runs):
    if isinstance(store.queue, MemoryStore):
        return MemoryScheduleStore(LIMITS, runs)
    return RedisScheduleStore(store.client, Keys("contract"), LIMITS)


def a_run(run="r"):
    return RunRecord(run=RunId(run), tenant=LAB, digest="d", spec=b"{}", nodes=NodeTable([NodeId("a")]))


def test_a_schedule_is_kept_with_its_template(schedules):
    kept = schedules.put(a_schedule(start=Start(due_ms=1, decided_ms=2, run=RunId("r"), replaces=(RunId("q"),))), TEMPLATE)
    assert kept.version == 1
    assert schedules.load(LAB, "nightly") == kept
    assert schedules.template(LAB, "nightly") == TEMPLATE
    assert (schedules.load(LAB, "other"), schedules.template(ACME, "nightly")) == (None, None)


def test_of_two_writers_one_succeeds(schedules):
    kept = schedules.put(a_schedule(), TEMPLATE)
    assert schedules.put(a_schedule(), TEMPLATE) is None
    paused = schedules.put(replace(kept, is_paused=True))
    assert schedules.put(replace(kept, queued_ms=7), Template(spec=b"new", blobs={})) is None
    assert schedules.load(LAB, "nightly") == paused
    assert schedules.template(LAB, "nightly") == TEMPLATE


def test_a_change_needs_a_stored_schedule(schedules):
    kept = schedules.put(a_schedule(), TEMPLATE)
    assert schedules.drop(LAB, "nightly")
    assert schedules.put(replace(kept, is_paused=True)) is None
    assert schedules.load(LAB, "nightly") is None


def test_a_new_template_replaces_the_whole_old_one(schedules):
    kept = schedules.put(a_schedule(), TEMPLATE)
    schedules.put(kept, Template(spec=b"new", blobs={"c": b"1"}))
    assert schedules.template(LAB, "nightly") == Template(spec=b"new", blobs={"c": b"1"})


def test_schedules_are_due_by_time(schedules):
    schedules.put(a_schedule("b", next_ms=20), TEMPLATE)
    schedules.put(a_schedule("a", next_ms=15), TEMPLATE)
    schedules.put(a_schedule("never", tenant=RIVAL, next_ms=None), TEMPLATE)
    assert schedules.due(14, 10) == ()
    assert schedules.due(20, 10) == ((LAB, "a"), (LAB, "b"))
    assert schedules.due(20, 1) == ((LAB, "a"),)


def test_due_schedules_are_read_page_by_page(schedules):
    names = [(ACME, "a"), (ACME, "b"), (LAB, "a"), (LAB, "b"), (RIVAL, "a")]
    for tenant, name in names:
        schedules.put(a_schedule(name, tenant), TEMPLATE)
    pages = [schedules.due(20, 2, skip=skip) for skip in (0, 2, 4, 6)]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert sorted(one for page in pages for one in page) == names


def test_a_pause_ends_only_what_is_not_begun(schedules):
    kept = schedules.put(a_schedule(), TEMPLATE)
    kept = schedules.put(replace(kept, is_paused=True))
    assert schedules.due(10**15, 10) == ()
    kept = schedules.put(replace(kept, start=Start(due_ms=1, decided_ms=1, run=RunId("r"))))
    assert schedules.due(10, 10) == ((LAB, "nightly"),)
    schedules.put(replace(kept, start=None))
    assert schedules.due(10**15, 10) == ()


def test_a_queued_firing_is_due_at_once(schedules):
    schedules.put(a_schedule(queued_ms=5, next_ms=10**12), TEMPLATE)
    assert schedules.due(6, 10) == ((LAB, "nightly"),)


def test_lists_hold_a_tenant_and_those_below(schedules):
    for tenant in (ACME, LAB, BETA, RIVAL):
        schedules.put(a_schedule("s", tenant), TEMPLATE)
        schedules.put(a_schedule("t", tenant), TEMPLATE)
    everything = [(schedule.tenant, schedule.name) for schedule in schedules.list(None)]
    assert everything == sorted(everything, key=lambda place: "|".join(place).encode())
    assert len(everything) == 8
    assert {schedule.tenant for schedule in schedules.list(ACME)} == {ACME, LAB}
    assert {schedule.tenant for schedule in schedules.list(LAB)} == {LAB}
    assert schedules.list(TenantPath("acm")) == ()


def test_a_list_goes_on_after_each_place(schedules):
    for tenant in (ACME, LAB, BETA):
        schedules.put(a_schedule("s", tenant), TEMPLATE)
        schedules.put(a_schedule("t", tenant), TEMPLATE)
    for within in (None, ACME):
        whole, found = schedules.list(within), []
        while page := schedules.list(within, f"{found[-1].tenant}|{found[-1].name}" if found else "", 1):
            found += page
        assert tuple(found) == whole


def test_a_dropped_schedule_does_not_end_a_list(store):
    if isinstance(store.queue, MemoryStore):
        pytest.skip("it reads a list under one lock")
    client, dropping = DropsFirst(store.client), RedisScheduleStore(store.client, Keys("contract"))
    listing = RedisScheduleStore(client, Keys("contract"))
    for name in "abcde":
        dropping.put(a_schedule(name), TEMPLATE)
    client.drop = lambda: [dropping.drop(LAB, name) for name in "ab"]
    assert [schedule.name for schedule in listing.list(LAB, "", 3)] == ["c", "d", "e"]
    assert [schedule.name for schedule in listing.list(LAB, "", 3)] == ["c", "d", "e"]


def test_a_tenant_has_a_limit_of_schedules(schedules):
    first = schedules.put(a_schedule("a"), TEMPLATE)
    schedules.put(a_schedule("b"), TEMPLATE)
    with pytest.raises(TooManySchedules, match="schedules_max: 2"):
        schedules.put(a_schedule("c"), TEMPLATE)
    assert schedules.put(a_schedule("c", ACME), TEMPLATE) is not None
    assert schedules.put(first, TEMPLATE) is not None
    assert schedules.drop(LAB, "b")
    assert schedules.put(a_schedule("c"), TEMPLATE) is not None


def test_a_tenant_has_a_limit_of_bytes(schedules):
    large = Template(spec=b"x" * 60, blobs={"a": b"y" * 20})
    kept = schedules.put(a_schedule("a"), large)
    with pytest.raises(TooManySchedules, match="schedule_bytes_max: 100"):
        schedules.put(a_schedule("b"), Template(spec=b"z" * 21, blobs={}))
    assert schedules.load(LAB, "b") is None
    kept = schedules.put(kept, Template(spec=b"x", blobs={}))
    assert schedules.put(a_schedule("b"), large) is not None
    with pytest.raises(TooManySchedules):
        schedules.put(kept, large)


def test_a_dropped_schedule_leaves_nothing(schedules, store):
    schedules.put(a_schedule(), TEMPLATE)
    assert (schedules.drop(LAB, "nightly"), schedules.drop(LAB, "nightly")) == (True, False)
    assert (schedules.list(None), schedules.due(10**15, 10), schedules.template(LAB, "nightly")) == ((), (), None)
    if isinstance(schedules, RedisScheduleStore):
        assert list(store.client.scan_iter(f"{Keys('contract').prefix}schedule*")) == []


def test_a_run_is_created_under_the_version_of_its_fence_alone(schedules, runs):
    old = fence_of(schedules.put(a_schedule(), TEMPLATE))
    new = fence_of(schedules.put(schedules.load(LAB, "nightly")))
    with pytest.raises(StaleSchedule):
        runs.create(a_run(), {}, old)
    assert runs.load(RunId("r")) is None
    assert runs.create(a_run(), {}, new)
    assert not runs.create(a_run(), {}, old), "a run that is there is found whatever the fence says"
    schedules.drop(LAB, "nightly")
    with pytest.raises(StaleSchedule):
        runs.create(a_run("s"), {}, new)
