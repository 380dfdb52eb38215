"""Outcomes of firings, by overlap rule, delay and refusal."""

from dataclasses import replace

import pytest

from dag.schedules.firing import FIRINGS_KEPT, Refusal, carried_out, decide, in_turns, restarted
from dag.schedules.schedule import Outcome, Overlap, Rules, Schedule
from mesh.core.ids import RunId, TenantPath
from mesh.core.reasons import Reason

LAB = TenantPath("lab")
MINUTE_MS = 60_000
NOON_MS = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
BEFORE = RunId("before")
STOPPED = Refusal(reason=Reason.TENANT_SUSPENDED, detail="on hold")


def a_schedule(overlap=Overlap.SKIP, starts_within_ms=None, **fields):
    rules = Rules(cron="* * * * *", overlap=overlap, starts_within_ms=starts_within_ms, digest="d")
    return restarted(Schedule(tenant=LAB, name="s", uid="u", rules=rules, created_ms=0, cursor_ms=0, **fields), NOON_MS)


def later(schedule, minutes=1, active=(), refusal=None):
    return decide(schedule, NOON_MS + minutes * MINUTE_MS, active, refusal)


def test_nothing_is_due_before_the_next_time():
    schedule = a_schedule()
    assert decide(schedule, schedule.next_ms - 1, (), None) is schedule


def test_a_due_time_starts_a_run_of_its_own_id():
    one, other = later(a_schedule(), 1), later(a_schedule(), 2)
    assert one.start.run == "s-20231114T221400Z-u"
    assert one.start.run != other.start.run
    assert (one.cursor_ms, one.next_ms) == (NOON_MS + MINUTE_MS, NOON_MS + 2 * MINUTE_MS)


def test_after_a_long_outage_only_the_last_time_starts():
    decided = later(a_schedule(), 1_000_000)
    assert decided.start.due_ms == NOON_MS + 1_000_000 * MINUTE_MS
    assert decide(replace(decided, start=None), NOON_MS + 1_000_000 * MINUTE_MS, (), None).start is None


def test_a_clock_that_leaps_back_fires_nothing():
    fired = replace(later(a_schedule(), 100), start=None)
    for minutes in (99, 50, 0, -1_000, 100):
        assert later(fired, minutes) is fired
    assert later(fired, 101).start.due_ms == NOON_MS + 101 * MINUTE_MS


def test_a_start_is_carried_out_before_the_next_decision():
    started = later(a_schedule())
    assert later(started, 5) is started
    done = carried_out(started, started.start, 7)
    assert (done.start, done.active, done.firings[0].outcome) == (None, (started.start.run,), Outcome.STARTED)


def test_skip_starts_nothing_beside_a_run():
    decided = later(a_schedule(active=(BEFORE,)), active=(BEFORE,))
    assert (decided.start, decided.active) == (None, (BEFORE,))
    assert [(firing.outcome, firing.reason) for firing in decided.firings] == [(Outcome.SKIPPED, Reason.PREVIOUS_RUN_ACTIVE)]


def test_allow_starts_beside_a_run():
    assert later(a_schedule(Overlap.ALLOW), active=(BEFORE,)).start.replaces == ()


def test_replace_cancels_and_starts_in_one_decision():
    decided = later(a_schedule(Overlap.REPLACE, active=(BEFORE,)), active=(BEFORE,))
    assert decided.start.replaces == (BEFORE,)
    assert carried_out(decided, decided.start, 7).active == (decided.start.run,)


def test_queue_keeps_the_first_firing_until_the_end():
    queued = later(a_schedule(Overlap.QUEUE, active=(BEFORE,)), active=(BEFORE,))
    assert (queued.queued_ms, queued.start) == (NOON_MS + MINUTE_MS, None)
    second = later(queued, 2, active=(BEFORE,))
    assert (second.queued_ms, second.firings[0].outcome) == (NOON_MS + MINUTE_MS, Outcome.SKIPPED)
    assert later(second, 2, active=(BEFORE,)) is second
    started = later(second, 2)
    assert (started.queued_ms, started.start.due_ms) == (None, NOON_MS + MINUTE_MS)


def test_a_queued_firing_is_missed_when_it_is_too_late():
    queued = later(a_schedule(Overlap.QUEUE, 90_000), active=(BEFORE,))
    missed = later(queued, 3, active=(BEFORE,))
    assert (missed.queued_ms, missed.firings[0].outcome) == (None, Outcome.MISSED)


def test_queued_starts_when_the_rule_becomes_allow():
    queued = later(a_schedule(Overlap.QUEUE), active=(BEFORE,))
    allowed = replace(queued, rules=replace(queued.rules, overlap=Overlap.ALLOW))
    assert later(allowed, active=(BEFORE,)).start.due_ms == NOON_MS + MINUTE_MS


def test_a_firing_that_is_too_late_is_missed():
    schedule = a_schedule(starts_within_ms=1_000)
    decided = decide(schedule, NOON_MS + MINUTE_MS + 1_001, (), None)
    assert [(firing.outcome, firing.reason) for firing in decided.firings] == [(Outcome.MISSED, Reason.START_OVERDUE)]
    assert decide(schedule, NOON_MS + MINUTE_MS + 1_000, (), None).start is not None


@pytest.mark.parametrize("overlap", Overlap)
def test_a_stopped_tenant_is_refused_under_each_rule(overlap):
    decided = later(a_schedule(overlap), active=(BEFORE,), refusal=STOPPED)
    assert (decided.start, decided.queued_ms) == (None, None)
    assert [(firing.outcome, firing.reason) for firing in decided.firings] == [(Outcome.REFUSED, Reason.TENANT_SUSPENDED)]


def test_a_paused_schedule_decides_nothing():
    paused = replace(a_schedule(), is_paused=True)
    assert (later(paused, 9), paused.wake_ms) == (paused, None)


def test_a_resumed_schedule_makes_up_for_nothing():
    resumed = restarted(replace(a_schedule(), queued_ms=1), NOON_MS + 10 * MINUTE_MS)
    assert (later(resumed, 10), resumed.queued_ms) == (resumed, None)
    assert later(resumed, 11).start is not None


def test_so_many_firings_are_remembered():
    schedule = a_schedule(active=(BEFORE,))
    for minutes in range(1, FIRINGS_KEPT + 5):
        schedule = later(schedule, minutes, active=(BEFORE,))
    assert len(schedule.firings) == FIRINGS_KEPT
    assert schedule.firings[0].due_ms == schedule.cursor_ms


def test_tenants_take_turns():
    a, b, c = (TenantPath(name) for name in "abc")
    due = [(a, "1"), (a, "2"), (a, "3"), (b, "1"), (c, "1")]
    assert in_turns(due, None) == [(a, "1"), (b, "1"), (c, "1"), (a, "2"), (a, "3")]
    assert in_turns(due, a)[:3] == [(b, "1"), (c, "1"), (a, "1")]
    assert in_turns([], a) == []
