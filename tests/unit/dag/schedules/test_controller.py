"""Starts that a schedule decided, carried out later: what they replace, and whether the tenant may still start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dag.errors import BacklogFull
from dag.schedules.controller import ScheduleController
from dag.schedules.firing import paused, run_of
from dag.schedules.schedule import Outcome, Overlap, Rules, Schedule, Template
from dag.spec.spec import kept_form, parse
from dag.store.memory import MemoryRunStore
from dag.store.memory_schedules import MemoryScheduleStore
from federation.errors import StoreUnavailable
from federation.quota.tenant_policies import PoliciesInForce
from federation.store.memory.store import MemoryStore
from federation.tenants import Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import RunId, TenantPath
from mesh.core.reasons import Reason

LAB, OTHER = TenantPath("lab"), TenantPath("other")
MINUTE_MS = 60_000
TREE = TenantTree([Tenant(path=LAB, parent=None)])
NOBODY = TenantTree([Tenant(path=OTHER, parent=None)])
SPEC = parse(b'{"spec": "dag/1", "nodes": {"a": {"call": "m:f"}}, "outputs": {"a": {"$ref": "a"}}}')
TEMPLATE = Template(spec=kept_form(SPEC), blobs={})
FIRST = RunId("first")


class FullRuns(MemoryRunStore):
    """Run store whose backlog is full when a test says so; it notes whose cancellation was asked for.

    Another process acts right before a run is created, or right after a look for a run, if a test says so.
    """

    is_full = False
    before_create = after_summary = None

    def __init__(self, store):
        super().__init__(store)
        self.cancelled = []

    def create(self, record, blobs, fence=None):
        if self.is_full:
            raise BacklogFull("100 runs are open", 1_000)
        act, self.before_create = self.before_create, None
        if act is not None:
            act()
        return super().create(record, blobs, fence)

    def summary(self, run):
        found = super().summary(run)
        act, self.after_summary = self.after_summary, None
        if act is not None:
            act()
        return found

    def request_cancel(self, run, reason, *, also_cleanup=False):
        super().request_cancel(run, reason, also_cleanup=also_cleanup)
        self.cancelled.append(run)


class Scene:
    """A schedule that replaces, whose first run is active."""

    def __init__(self):
        self.clock = ManualClock(now_ms=10 * MINUTE_MS)
        self.runs = FullRuns(MemoryStore(clock=self.clock, ttl_ms=10_000, grace_ms=3_000))
        self.schedules = MemoryScheduleStore(runs=self.runs)
        rules = Rules(cron="* * * * *", overlap=Overlap.REPLACE, digest="d")
        made = Schedule(tenant=LAB, name="s", uid="u", rules=rules, created_ms=0, cursor_ms=9 * MINUTE_MS, next_ms=10 * MINUTE_MS)
        self.runs.create(run_of(made, TEMPLATE, FIRST, due_ms=0, now_ms=0), {})
        self.schedules.put(replace(made, active=(FIRST,)), TEMPLATE)

    def controller(self):
        return ScheduleController(schedules=self.schedules, runs=self.runs, clock=self.clock)

    def tick(self, tree=TREE):
        self.controller().tick(tree, PoliciesInForce)
        return self.schedules.load(LAB, "s")

    def add(self, name, tenant=LAB, **fields):
        """Add a schedule that is due; each later one is due a moment later."""
        due_ms = 10 * MINUTE_MS - 1_000 + len(name)
        rules = Rules(cron="* * * * *", digest="d", **fields)
        made = Schedule(tenant=tenant, name=name, uid="u", rules=rules, created_ms=0, cursor_ms=9 * MINUTE_MS, next_ms=due_ms)
        self.schedules.put(made, TEMPLATE)


@pytest.fixture
def scene():
    return Scene()


def test_a_run_is_cancelled_for_one_that_started(scene):
    kept = scene.tick()
    assert scene.runs.cancelled == [FIRST]
    assert kept.active == (kept.firings[0].run,)


def test_a_run_makes_room_for_the_one_that_replaces_it(scene):
    scene.runs.is_full = True
    waiting = scene.tick()
    assert scene.runs.cancelled == [FIRST]
    scene.runs.is_full = False
    assert scene.tick().active == (waiting.start.run,)


def test_a_refused_start_leaves_the_run_that_it_replaces(scene):
    scene.runs.is_full = True
    start = scene.tick().start
    scene.runs.cancelled.clear()
    scene.runs.is_full = False
    other = run_of(replace(scene.schedules.load(LAB, "s"), tenant=OTHER), TEMPLATE, start.run, due_ms=0, now_ms=0)
    scene.runs.create(other, {})
    kept = scene.tick()
    assert (kept.firings[0].outcome, kept.active, scene.runs.cancelled) == (Outcome.REFUSED, (FIRST,), [])


def test_a_start_that_waited_asks_again_whether_it_may(scene):
    scene.runs.is_full = True
    assert scene.tick().start is not None
    scene.runs.is_full = False
    kept = scene.tick(NOBODY)
    assert (kept.start, kept.firings[0].outcome, kept.firings[0].reason) == (None, Outcome.REFUSED, Reason.TENANT_UNKNOWN)


def test_a_start_that_waits_for_room_ends_with_a_pause(scene):
    scene.runs.is_full = True
    assert scene.tick().start is not None
    scene.schedules.put(paused(scene.schedules.load(LAB, "s")))
    scene.runs.is_full = False
    kept = scene.tick()
    assert (kept.start, kept.firings[0].outcome, kept.firings[0].reason) == (None, Outcome.SKIPPED, Reason.SCHEDULE_PAUSED)
    assert [run.run for run in scene.runs.list(LAB)] == [FIRST]
    assert scene.schedules.due(10**15, 10) == ()


def test_a_run_that_was_created_before_a_pause_is_recorded(scene, monkeypatch):
    with monkeypatch.context() as patch:  # The process dies between the two.
        patch.setattr(scene.schedules, "put", dies_at_second(scene.schedules.put))
        with pytest.raises(StoreUnavailable):
            scene.tick()
    known = scene.schedules.load(LAB, "s")
    scene.schedules.put(paused(known))
    kept = scene.tick()
    assert (kept.start, kept.firings[0].outcome, kept.firings[0].run) == (None, Outcome.STARTED, known.start.run)


def started(scene):
    return {run.run for run in scene.runs.list(LAB)} - {FIRST}


def test_of_two_coordinators_one_starts_or_drops(scene):
    def other():
        scene.schedules.put(paused(scene.schedules.load(LAB, "s")))
        assert scene.tick().firings[0].reason is Reason.SCHEDULE_PAUSED

    scene.runs.before_create = other
    kept = scene.tick()
    assert (kept.start, kept.firings[0].outcome, started(scene)) == (None, Outcome.SKIPPED, set())


def test_of_two_coordinators_one_starts_or_refuses(scene):
    def other():
        assert scene.tick(NOBODY).firings[0].outcome is Outcome.REFUSED

    scene.runs.before_create = other
    kept = scene.tick()
    assert (kept.start, kept.firings[0].outcome, started(scene)) == (None, Outcome.REFUSED, set())


def test_a_start_of_another_coordinator_is_not_refused(scene):
    scene.runs.is_full = True
    start = scene.tick().start
    scene.runs.is_full = False
    scene.runs.after_summary = scene.tick
    kept = scene.tick(NOBODY)
    assert (kept.firings[0].outcome, started(scene), kept.active) == (Outcome.STARTED, {start.run}, (start.run,))


def dies_at_second(put):
    calls = []

    def call(*args):
        calls.append(args)
        if len(calls) == 2:
            raise StoreUnavailable("gone")
        return put(*args)

    return call


def test_schedules_that_wait_hold_up_no_later_one(scene, monkeypatch):
    monkeypatch.setattr("dag.schedules.controller.PAGE", 2)
    waiting = scene.schedules.load(LAB, "s")
    scene.schedules.put(replace(waiting, rules=replace(waiting.rules, overlap=Overlap.QUEUE), queued_ms=1))
    for name in ("a", "aa", "aaa"):
        scene.add(name)
    scene.tick()
    assert all(scene.schedules.load(LAB, name).firings for name in ("a", "aa", "aaa"))


def test_a_tick_that_ends_early_goes_on_with_the_next_schedule(scene, monkeypatch):
    monkeypatch.setattr("dag.schedules.controller.FIRING_MS_MAX", 0)
    seen = []
    for name in ("a", "aa"):
        scene.add(name, overlap=Overlap.QUEUE)
    for schedule in scene.schedules.list(None):
        scene.schedules.put(replace(schedule, rules=replace(schedule.rules, overlap=Overlap.QUEUE), queued_ms=1, active=(FIRST,)))
    load = scene.schedules.load
    monkeypatch.setattr(scene.schedules, "load", lambda tenant, name: seen.append(name) or load(tenant, name))
    controller = scene.controller()
    for _ in range(6):
        assert controller.tick(TREE, PoliciesInForce) == 1
    assert seen == ["a", "aa", "s"] * 2


def test_policies_are_read_only_if_a_schedule_is_due(scene):
    reads = []

    def policies():
        reads.append(1)
        return PoliciesInForce()

    controller = scene.controller()
    assert (controller.tick(TREE, policies), len(reads)) == (1, 1)
    assert (controller.tick(TREE, policies), len(reads)) == (0, 1)
