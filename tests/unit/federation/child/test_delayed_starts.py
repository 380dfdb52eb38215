"""Reports of starts that wait for the stage's first report."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from child_bed import CPU, DURATION_MS, Federation, pool

from federation.child.running_stage import RunningStage, StageNote
from federation.child.status_reporter import StatusReporter
from federation.dispatch import Claim
from mesh.core.clock import ManualClock
from mesh.core.reasons import Reason

DELAY_MS = 50


@pytest.fixture
def federation():
    found = Federation(pool("general", 4), start_delay_ms=DELAY_MS)
    found.heartbeat()
    found.submit("s", "a:")
    found.notifications()
    return found


def test_a_start_goes_with_the_first_report(federation):
    federation.clock.advance(DURATION_MS if DURATION_MS < DELAY_MS else DELAY_MS - 1)
    federation.host.advance()
    federation.child.take_report(federation.reports.pop(0))
    entries = federation.store.inbox(0)
    assert len(entries) == 1
    assert federation.kinds()[0] == ("s", "stage_started")


def test_a_start_without_a_report_is_reported_when_it_is_due(federation):
    assert federation.kinds() == []
    assert federation.child.wake_in_ms() == DELAY_MS
    federation.clock.advance(DELAY_MS - 1)
    federation.child.wake()
    assert federation.kinds() == []
    federation.clock.advance(1)
    federation.child.wake()
    assert federation.kinds() == [("s", "stage_started")]


def test_a_heartbeat_reports_all_starts(federation):
    federation.child.heartbeat()
    assert federation.kinds() == [("s", "stage_started")]
    assert federation.child.wake_in_ms() == federation.child.due_in_ms()


def test_a_start_that_the_store_did_not_take_is_reported_later(federation):
    federation.flaky.down = {"report"}
    federation.clock.advance(DELAY_MS)
    federation.child.wake()
    assert federation.kinds() == []
    federation.flaky.down = set()
    federation.heartbeat()
    assert federation.kinds() == [("s", "stage_started")]


def test_ends_follow_a_delayed_start_in_order(federation):
    federation.work()
    federation.work()
    assert [kind for _, kind in federation.kinds()] == ["stage_started", "node_started", "node_succeeded", "stage_ended"]


def test_a_lost_session_reports_no_start(federation):
    federation.store.leave(federation.session())
    federation.child.heartbeat()
    federation.clock.advance(DELAY_MS)
    federation.child.wake()
    assert ("s", "stage_started") not in federation.kinds()


def test_a_lost_stage_is_not_reported_as_started():
    clock, sent = ManualClock(), []
    guard = SimpleNamespace(clock=clock, has_to_stop=lambda _done: False)
    queue = SimpleNamespace(report=lambda claim, _batch, messages: sent.append((claim, [message.kind for message in messages])))
    absent = SimpleNamespace(send=lambda: None)
    reporter = StatusReporter(
        child_state=absent, queue=queue, blobs=absent, host=absent, guard=guard, output=absent, start_delay_ms=DELAY_MS
    )
    claim = Claim(stage="s", mesh="east", incarnation=1, token=1)
    note = StageNote(claim=1, pool="general", flavor="standard", slots=1, token=1, tenant="acme", slot=CPU)
    reporter.add_start(RunningStage(claim=claim, run="r", note=note))
    reporter.add_loss(claim, Reason.WORKER_LOST)
    reporter.report_starts()
    assert sent == [(claim, ["stage_lost"])]
    assert not reporter
