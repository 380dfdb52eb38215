"""Delivery of a mesh's reports, late ones and rejected ones too."""

from __future__ import annotations

import pytest
from child_bed import CPU, DURATION_MS, GRACE_MS, TTL_MS, Federation, all_is_free, pool, slow

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON
from federation.errors import BatchTooLarge, CallRejected
from federation.leases import Granted, LeaseRefused
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from mesh.core.reasons import Reason
from mesh.stages.hosting import HostReport
from mesh.stages.messages import StageEnded
from mesh.stages.spec import StageSpec, TaskSpec


def test_unsent_reports_are_kept_and_sent_in_order(busy):
    busy.flaky.down = {"report"}
    busy.work()
    busy.work()
    assert busy.kinds() == []
    busy.heartbeat()
    assert busy.held() == 1
    busy.flaky.down = set()
    busy.heartbeat()
    assert [kind for _, kind in busy.kinds()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert all_is_free(busy)


def test_unanswered_report_takes_effect_once(busy):
    busy.flaky.mute = {"report"}
    busy.work()
    busy.flaky.mute = set()
    busy.heartbeat()
    busy.work()
    assert [kind for _, kind in busy.kinds()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]


@pytest.mark.parametrize("refusal", [CallRejected("larger than 1 MiB"), BatchTooLarge("too many")], ids=["the call", "its content"])
def test_rejected_report_loses_its_stage_and_blocks_no_other(busy, refusal):
    def refuse():
        raise refusal

    busy.submit("t")
    busy.heartbeat()
    busy.kinds()
    busy.clock.advance(0)
    busy.host.advance()
    busy.clock.advance(DURATION_MS)
    busy.host.advance()
    reports, busy.reports[:] = list(busy.reports), []
    busy.flaky.before["report"] = refuse
    for report in sorted(reports, key=lambda report: (report.stage, report.number)):
        busy.child.take_report(report)
    assert ("s", "stage_lost") in busy.kinds()
    (lost,) = [message for message in busy.messages if message.kind == "stage_lost"]
    assert (lost.reason, "s" in busy.host.stopping) == (Reason.REPORT_REFUSED, True)
    assert [message.kind for message in busy.messages if message.stage == "t"] == ["node_started", "node_succeeded", "stage_ended"]
    busy.work()
    assert all_is_free(busy)


def test_rejected_value_loses_its_stage(joined):
    def refuse():
        raise BatchTooLarge("a blob of 9 MiB")

    task = TaskSpec(node="c", attempt=1, function="call:m:f", export=True)
    joined.store.submit("east", StageSpec(stage="t", run="r", tenant="acme", tasks=(task,), slot=CPU, width=1))
    joined.flaky.before["put"] = refuse
    joined.heartbeat()
    joined.work()
    assert joined.kinds()[-1] == ("t", "stage_lost")
    assert all_is_free(joined)


def test_loss_that_cannot_be_reported_is_reported_later(busy):
    def refuse():
        raise CallRejected("larger than 1 MiB")

    busy.flaky.before["report"] = refuse
    busy.flaky.down = {"report"}
    busy.work()
    busy.flaky.before["report"] = refuse
    busy.flaky.down = set()
    busy.heartbeat()
    assert busy.kinds() == [("s", "stage_lost")]


def test_blobs_are_stored_before_reports_that_name_them(busy):
    busy.flaky.down = {"put"}
    task = TaskSpec(node="c", attempt=1, function="call:m:f", export=True)
    busy.store.submit("east", StageSpec(stage="t", run="r", tenant="acme", tasks=(task,), slot=CPU, width=1))
    busy.heartbeat()
    busy.work()
    assert ("t", "node_succeeded") not in busy.kinds()
    busy.flaky.down = set()
    busy.heartbeat()
    assert ("t", "node_succeeded") in busy.kinds()
    (value,) = [message.stored for message in busy.messages if message.stage == "t" and message.kind == "node_succeeded"]
    assert busy.store.get("r", (value.sha256,))


def test_unsent_start_blocks_no_other_start(joined):
    joined.submit("s")
    joined.submit("t")
    joined.flaky.down = {"report"}
    joined.notifications()
    assert joined.running() == {"s"}  # A store that does not answer gets no other call before a heartbeat is answered.
    joined.heartbeat(2)
    assert joined.running() == {"s", "t"}
    joined.flaky.down = set()
    joined.heartbeat()
    assert joined.kinds() == [("s", "stage_started"), ("t", "stage_started")]


def test_heartbeat_interrupts_sending_reports(busy):
    busy.flaky.down = {"report"}
    busy.work()
    busy.work()
    reports = slow(busy, "report", TTL_MS // 4)
    busy.flaky.down = set()
    busy.heartbeat()
    assert (len(reports), busy.child.due_in_ms()) == (1, 0)
    busy.heartbeat(4)
    assert len(reports) == 3  # The last is not reported: the capacity of the stage is free.
    assert busy.view().alive


def test_a_heartbeat_goes_before_the_rest_of_a_reports_values(busy):
    values = {f"{number:064}": b"" for number in range(5)}
    puts = slow(busy, "put", TTL_MS // 4)
    busy.child.take_report(HostReport(stage="s", number=1, messages=(), blobs=values))
    assert len(puts) == 1
    busy.heartbeat(5)
    assert [sha256 for _, sha256, _ in puts] == list(values)


def test_reports_of_a_lost_session_are_not_sent_in_the_next(busy):
    busy.flaky.down = {"report"}
    busy.work()
    busy.clock.advance(TTL_MS + GRACE_MS + 1)
    busy.store.sweep()
    busy.flaky.down = set()
    busy.heartbeat(2)
    assert busy.kinds() == [("s", "stage_lost")]
    assert all_is_free(busy)


def test_stage_of_another_owner_is_stopped_and_freed(busy):
    busy.store.forget("r", ())
    busy.work()
    assert all_is_free(busy)
    busy.work()
    assert busy.kinds() == []


def test_disowned_stage_frees_its_resources_when_it_stops():
    federation = Federation(pool("general", 1), quota=1)
    west = ManualMesh(federation.store, MeshRecord(mesh="west", labels={}, pools=(), cluster="c2"))
    federation.submit("s", "a:", "b: a")
    federation.heartbeat()
    federation.clock.advance(0)
    federation.host.advance()
    federation.store.revoke(mesh="east", hard=True)
    federation.clock.advance(DURATION_MS)
    federation.host.advance()  # The first task has ended and the second has begun.
    while federation.reports:
        federation.child.take_report(federation.reports.pop(0))  # Refused: the claim is void.
    federation.heartbeat(2)
    west.heartbeat()
    assert federation.host.stopping == {"s"}
    assert (federation.held(), type(west.acquire("acme", "standard", CPU))) == (1, LeaseRefused)
    federation.work()
    assert federation.running() == set()
    federation.heartbeat()
    assert isinstance(west.acquire("acme", "standard", CPU), Granted)


def test_stage_of_a_forgotten_run_is_silent_and_frees_its_slot():
    federation = Federation(pool("general", 1), quota=1)
    federation.submit("s")
    federation.heartbeat()
    federation.kinds()
    federation.store.forget("r", ())
    federation.store.release_id("r")
    federation.submit("t")
    federation.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert federation.running() == {"s"}
    federation.work(by_ms=0)
    assert federation.running() == {"t"}
    assert [word for word in federation.kinds() if word[0] == "s"] == []


def test_reports_about_stages_that_are_over_are_dropped(busy):
    busy.work()
    last = StageEnded(stage="s")
    busy.work()
    busy.kinds()
    busy.child.take_report(HostReport(stage="s", number=9, messages=(last,)))
    assert busy.kinds() == []


def test_later_reports_do_not_hide_lost_ones(busy):
    busy.kinds()
    before = busy.store.copied()
    busy.work()  # `a` has ended, and that was reported.
    busy.store.lose_writes(before)
    busy.kinds()
    busy.work()  # No heartbeat came between: the next report meets the gap.
    assert [kind for _, kind in busy.kinds()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert all_is_free(busy)


def test_values_that_the_store_has_lost_are_put_again(joined):
    task = TaskSpec(node="c", attempt=1, function="call:m:f", export=True)
    joined.store.submit("east", StageSpec(stage="t", run="r", tenant="acme", tasks=(task,), slot=CPU, width=1))
    joined.heartbeat()
    joined.kinds()
    before = joined.store.copied()
    joined.work()
    joined.store.lose_writes(before)
    joined.heartbeat(2)
    assert joined.kinds()[-1] == ("t", "stage_ended")
    (value,) = [message.stored for message in joined.messages if message.kind == "node_succeeded"]
    assert joined.store.get("r", (value.sha256,))


def test_reports_are_resent_after_a_restart_with_one_effect(busy):
    busy.work()
    busy.kinds()
    busy.store.restart()
    busy.heartbeat(2)
    assert busy.kinds() == []
    busy.work()
    assert [kind for _, kind in busy.kinds()] == ["node_succeeded", "stage_ended"]


def test_unfillable_gap_blocks_no_later_report(busy, monkeypatch):
    monkeypatch.setattr("federation.child.sent_reports.KEPT_BYTES_MAX", 0)
    busy.kinds()
    before = busy.store.copied()
    busy.work()
    busy.store.lose_writes(before)
    busy.kinds()
    busy.work()
    assert [kind for _, kind in busy.kinds()] == ["node_succeeded", "stage_ended"]


def test_heartbeat_interrupts_resending_reports(busy):
    before = busy.store.copied()
    busy.work()
    busy.work()
    busy.store.lose_writes(before)
    busy.kinds()
    again = slow(busy, "report", TTL_MS // 4)
    busy.heartbeat()
    assert len(again) == 1
    busy.heartbeat(5)
    assert [kind for _, kind in busy.kinds()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert len(again) == 3
    assert busy.view().alive


def test_store_without_losses_gets_no_report_again(busy):
    busy.work()
    busy.kinds()
    again = slow(busy, "report", 0)
    busy.store.restart()
    busy.heartbeat(2)
    assert again == []


def test_lost_session_resends_no_reports(busy):
    busy.work()
    busy.clock.advance(TTL_MS + GRACE_MS + 1)
    busy.store.sweep()
    busy.heartbeat(2)
    again = slow(busy, "report", 0)
    busy.store.restart()
    busy.heartbeat(2)
    assert again == []
