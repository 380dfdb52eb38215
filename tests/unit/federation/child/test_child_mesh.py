"""A child mesh from join to leave, and the effects of a lost session."""

from __future__ import annotations

from dataclasses import replace

import pytest
from child_bed import CPU, GRACE_MS, HEARTBEAT_MS, TTL_MS, Federation, all_is_free, nodes, slow, stored

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON
from federation.child.heartbeat_jitter import interval_ms
from federation.dispatch import Notification, NotificationKind
from federation.errors import BatchTooLarge
from federation.manual_mesh import ManualMesh
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.node_sizes import NodeSize
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages.hosting import HostReport
from mesh.stages.messages import Failure, NodeFailed, NodeStarted, StageLost, StageWaiting

# -- the normal course --------------------------------------------------------------------------------------------------


def test_first_heartbeat_joins_and_schedules_the_next(joined):
    assert joined.view().alive
    assert 0 < joined.child.due_in_ms() <= HEARTBEAT_MS
    joined.clock.advance(HEARTBEAT_MS + 5)
    assert joined.child.due_in_ms() == 0


def test_heartbeats_are_jittered_by_mesh_and_number(joined):
    intervals = []
    for _ in range(6):
        joined.heartbeat()
        intervals.append(joined.child.due_in_ms())
    assert len(set(intervals)) == len(intervals)
    assert intervals == [interval_ms("east", number, heartbeat_ms=HEARTBEAT_MS, ttl_ms=TTL_MS) for number in range(1, 7)]


def test_queued_stage_runs_and_its_lease_is_released(joined):
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    assert joined.kinds() == [("s", "stage_started")]
    assert (joined.running(), joined.held(), joined.view().claimed) == ({"s"}, 1, 1)
    joined.work()
    joined.work()
    assert [kind for _, kind in joined.kinds()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert all_is_free(joined)


def test_heartbeat_reports_resources_in_use(busy):
    busy.heartbeat()
    assert busy.view().record.pools[0].used == CPU


def test_heartbeat_reports_the_nodes_in_resources_of_the_pools(joined):
    assert joined.view().record.nodes == ()
    joined.host.listed = nodes(ResourceSet.of({"cpu": 2, "memory": "3GiB"}), ResourceSet.of({"cpu": 2, "memory": "1GiB"}))
    joined.heartbeat()
    assert joined.view().record.nodes == (NodeSize(total=ResourceSet.of({"cpu": 2}), nodes=2),)


def test_an_end_lets_the_next_stage_in_at_once():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.heartbeat()
    assert federation.running() == {"s"}
    federation.kinds()
    federation.work()
    federation.notifications()
    assert federation.running() == {"t"}
    assert ("t", "stage_started") in federation.kinds()


def test_a_forgotten_run_is_forgotten_by_the_host(busy):
    busy.work()
    busy.work()
    busy.notifications()
    busy.kinds()
    assert not busy.host.is_empty
    busy.store.forget("r", ("east",))
    busy.notifications()
    assert busy.host.is_empty


def test_letters_are_read_whatever_they_come_in(busy):
    busy.submit("t")
    busy.child.take_notifications(
        notification
        for notification in [
            Notification(kind=NotificationKind.CANCEL, subject="s"),
            Notification(kind=NotificationKind.STAGE, subject="t"),
        ]
    )
    assert busy.running() == {"s", "t"}


def test_freed_capacity_is_used_without_reading_the_queue():
    federation = Federation(quota=1)
    other = ManualMesh(federation.store, replace(federation.record, mesh="west"))
    other.acquire("acme", "standard", CPU)
    federation.submit("s")
    federation.heartbeat()
    federation.notifications()
    assert federation.running() == set()
    federation.flaky.down.add("queued")
    other.release("acme", "standard")
    federation.notifications()
    assert federation.running() == {"s"}


@pytest.mark.parametrize("kind", list(NotificationKind), ids=[f"a letter of kind {kind.value}" for kind in NotificationKind])
def test_letters_about_what_is_not_here_are_harmless(busy, kind):
    busy.child.take_notifications((Notification(kind=kind, subject="nothing"),))
    assert busy.running() == {"s"}


# -- long queues -------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowded(monkeypatch):
    """Seven queued stages of `greedy`, which has quota for one, before one of `poor`; two stages are read at once."""
    monkeypatch.setattr("federation.child.child_mesh.HEADS_MAX", 2)
    federation = Federation()
    quotas = {("standard", "cpu"): Quota(nominal=10_000)}
    federation.store.configure(TenantTree([Tenant(path=tenant, parent=None, quotas=quotas) for tenant in ("greedy", "poor")]))
    for number in range(7):
        federation.submit(f"g{number}", tenant="greedy")
    federation.submit("p", tenant="poor")
    return federation


def test_however_much_one_tenant_has_queued_the_others_are_seen(crowded):
    crowded.heartbeat()
    assert crowded.running() == {"g0", "p"}


def test_vanished_stage_is_dropped_from_a_long_queue(crowded):
    crowded.heartbeat()
    questions = slow(crowded, "heads_of", 0)
    crowded.store.cancel("g3")
    crowded.submit("late", tenant="poor")
    crowded.heartbeat()
    assert crowded.view().waiting == 6
    assert questions == [("east", ("late",))]


def test_heartbeat_interrupts_reading_a_long_queue(crowded):
    questions = slow(crowded, "heads_of", TTL_MS // 4)
    crowded.heartbeat()
    assert (len(questions), crowded.child.due_in_ms()) == (1, 0)
    crowded.heartbeat(4)
    assert crowded.running() == {"g0", "p"}
    assert crowded.view().alive


# -- cancelling --------------------------------------------------------------------------------------------------------


def test_a_running_stage_that_is_cancelled_stops_and_ends(busy):
    busy.store.cancel("s")
    busy.notifications()
    busy.work()
    assert busy.kinds()[-1] == ("s", "stage_ended")
    assert all_is_free(busy)


def test_a_stage_that_was_cancelled_while_it_waited_is_dropped():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.heartbeat()
    federation.store.cancel("t")
    federation.heartbeat()
    federation.work()
    federation.heartbeat()
    assert federation.store.snapshot().demands == ()
    assert (federation.running(), federation.view().waiting) == (set(), 0)


# -- the session -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["queued", "heads_of", "claims_of", "inputs_of", "explain"])
def test_mesh_survives_an_unanswered_call(method):
    federation = Federation(quota=1)
    federation.heartbeat()
    federation.flaky.down = {method}
    federation.submit("s", "a: x")
    federation.submit("t")
    federation.notifications()
    federation.store.deliver("s", "x", stored(federation.store, "seven"))
    federation.notifications()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON)
    federation.flaky.down = set()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON)
    federation.work()
    federation.notifications()
    federation.work()
    kinds = federation.kinds()
    assert ("s", "stage_ended") in kinds
    assert ("t", "stage_ended") in kinds
    assert all_is_free(federation)


def test_unanswered_session_ends_at_99_percent_of_its_ttl(busy):
    busy.flaky.down = {"heartbeat"}
    renewed_ms = busy.clock.now_ms
    while busy.running():
        assert busy.clock.now_ms - renewed_ms < 0.99 * TTL_MS
        busy.heartbeat()
    assert busy.clock.now_ms - renewed_ms == 0.99 * TTL_MS
    assert busy.host.is_empty
    assert busy.held() == 1  # The ledger outlasts the holder.


def test_mesh_rejoins_as_soon_as_the_ledger_answers(busy):
    busy.flaky.down = {"heartbeat", "join"}
    busy.heartbeat(20)
    assert busy.running() == set()
    busy.flaky.down = set()
    busy.submit("t")
    busy.heartbeat()
    assert busy.running() == {"t"}
    assert ("s", "stage_lost") in busy.kinds()
    assert busy.running() == {"t"}
    assert busy.held() == 2  # Leases of the earlier session stay charged until its expiry.
    busy.clock.advance(TTL_MS)
    busy.heartbeat()
    busy.clock.advance(GRACE_MS)
    busy.heartbeat()
    busy.store.sweep()
    assert busy.held() == 1


def test_session_ended_by_the_ledger_stops_work_and_rejoins(busy):
    earlier = busy.view().incarnation
    busy.store.join(busy.view().record)  # Another process speaks for the mesh now.
    busy.child.heartbeat()
    assert (busy.running(), busy.host.is_empty, busy.child.due_in_ms()) == (set(), True, 0)
    busy.heartbeat()
    assert busy.view().alive
    assert busy.view().incarnation > earlier


def test_child_that_overslept_its_session_stops_before_any_call(busy):
    earlier = busy.view().incarnation
    busy.clock.advance(TTL_MS)
    busy.flaky.down = {"heartbeat", "join"}
    busy.child.heartbeat()
    assert (busy.running(), busy.host.is_empty) == (set(), True)
    busy.flaky.down = set()
    busy.heartbeat()
    assert busy.view().incarnation > earlier


def test_a_heartbeat_in_time_after_a_silence_keeps_the_session(busy):
    busy.flaky.down = {"heartbeat"}
    busy.heartbeat(2)
    busy.flaky.down = set()
    busy.heartbeat()
    busy.work()
    busy.work()
    assert busy.kinds()[-1] == ("s", "stage_ended")


def test_oversized_heartbeat_counts_as_unanswered(busy):
    def too_large():
        raise BatchTooLarge("1001 rows in one call; send at most 1000")

    busy.flaky.before["heartbeat"] = too_large
    before = busy.view().incarnation
    busy.heartbeat(2)
    assert (busy.running(), busy.view().incarnation) == ({"s"}, before)
    busy.work()
    busy.work()
    assert busy.kinds()[-1] == ("s", "stage_ended")


def test_unanswered_first_join_is_repeated():
    federation = Federation()
    federation.flaky.down = {"join"}
    federation.heartbeat(9)
    federation.flaky.down = set()
    federation.heartbeat()
    assert federation.view().alive


def test_session_lost_during_work_stops_everything(busy):
    busy.submit("t")
    busy.flaky.before["acquire"] = lambda: busy.store.join(busy.record)
    busy.notifications()
    assert (busy.running(), busy.host.is_empty, busy.child.due_in_ms()) == (set(), True, 0)
    busy.heartbeat()
    assert busy.running() == {"t"}


def test_a_runner_that_died_ends_the_stage_as_lost(busy):
    lost = StageLost(stage="s", mesh="east", incarnation=1, reason=Reason.WORKER_LOST)
    busy.host.stop_all()
    busy.child.take_report(HostReport(stage="s", number=9, messages=(lost,)))
    assert busy.kinds() == [("s", "stage_lost")]
    assert all_is_free(busy)


def test_nodes_that_failed_outside_their_groups_are_counted(busy):
    failure = Failure(reason=Reason.OUTSIDE_GROUP, type_name="mesh.errors.OutsideGroup", message="task f")
    failed = NodeFailed(stage="s", node="a", attempt=1, started_ms=1, finished_ms=2, failure=failure)
    busy.child.take_report(HostReport(stage="s", number=1, messages=(failed,)))
    busy.heartbeat()
    assert busy.view().record.outside_group == 1


def test_stage_waiting_for_ray_is_counted_until_a_node_begins(busy):
    waiting = StageWaiting(stage="s", reason=Reason.WAITING_FOR_GROUP, detail="held by others")
    busy.child.take_report(HostReport(stage="s", number=1, messages=(waiting,)))
    assert busy.kinds() == [("s", "stage_waiting")]
    busy.heartbeat()
    assert busy.view().record.waiting_for_ray == 1
    begun = NodeStarted(stage="s", node="a", attempt=1, started_ms=1)
    busy.child.take_report(HostReport(stage="s", number=2, messages=(begun,)))
    busy.heartbeat()
    assert busy.view().record.waiting_for_ray == 0


def test_leaving_stops_all_work_and_frees_the_quota_at_once(busy):
    busy.child.leave()
    assert busy.host.is_empty
    assert (busy.held(), busy.store.snapshot().meshes) == (0, ())
    assert busy.kinds() == [("s", "stage_lost")]


def test_leaving_before_joining_is_harmless():
    federation = Federation()
    federation.child.leave()
    assert federation.store.snapshot().meshes == ()
