"""Preemption within one tenant on one mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest
from child_bed import CPU, HEARTBEAT_MS, Federation, nodes, pool

from federation.child.child_mesh import IDLE_HEARTBEATS
from federation.dispatch import Notification, NotificationKind
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.messages import StageLost

TAKES = PreemptionPolicy(takes=True, min_run_ms=0, reservation_timeout_ms=10 * HEARTBEAT_MS)


def full_house(*pools, quota=2, ages_ms=(0, 0), **fields):
    """A federation in which stages `a` and `b` of priority 0 run."""
    federation = Federation(*(pools or (pool("general", 2),)), quota=quota)
    for name, age_ms in zip("ab", ages_ms, strict=True):
        federation.submit(name, **fields)
        federation.heartbeat()
        federation.clock.advance(age_ms)
    assert federation.running() == {"a", "b"}
    federation.kinds()
    return federation


def stopping(federation):
    return set(federation.host.stopping)


@pytest.mark.parametrize(
    ("pools", "quota"),
    [
        pytest.param([pool("general", 2)], 9, id="the pool is full"),
        pytest.param([pool("general", 2)], 2, id="both are full"),
    ],
)
def test_urgent_stage_preempts_its_own_tenant_and_starts(pools, quota):
    federation = full_house(*pools, quota=quota)
    federation.submit("urgent", priority=5, preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == {"b"}  # It has run for the shorter time.
    assert federation.kinds()[-1] == ("urgent", "stage_waiting")
    assert (federation.messages[-1].reason, federation.messages[-1].detail) == (
        Reason.WAITING_FOR_VICTIMS,
        "waits until preempted stages of its own tenant stop: b",
    )
    federation.work(0)
    assert federation.running() == {"a", "urgent"}
    lost = [message for message in (federation.kinds(), federation.messages)[1] if isinstance(message, StageLost)]
    assert [(message.stage, message.reason) for message in lost] == [("b", Reason.PREEMPTED_WITHIN_TENANT)]


def test_stage_that_no_node_holds_hides_no_gang_that_preempts():
    """A slot of 4 CPUs fits on no node, so nothing is preempted for it; a gang of as many CPUs fits on both nodes."""
    federation = Federation(pool("general", 4), quota=9)
    four = ResourceSet.of({"cpu": 4})
    federation.host.nodes = lambda: nodes(ResourceSet.of({"cpu": 2}), ResourceSet.of({"cpu": 2}))
    federation.submit("running", slot=ResourceSet.of({"cpu": 2}))
    federation.heartbeat()
    assert federation.running() == {"running"}
    federation.submit("plain", slot=four, priority=9, preemption=TAKES)
    federation.heartbeat()
    federation.submit("gang", slot=four, priority=5, preemption=TAKES, gang=Gang(size=4, bundle=CPU))
    federation.notifications()
    assert stopping(federation) == {"running"}


@pytest.mark.parametrize(
    ("fields", "preemption"),
    [
        pytest.param({"priority": 0}, TAKES, id="an equal one"),
        pytest.param({"priority": 5}, NEVER_PREEMPTS, id="one whose tenant allows no preemption"),
        pytest.param({"priority": 5}, PreemptionPolicy(takes=True, min_run_ms=60_000), id="one that comes too soon"),
        pytest.param({"priority": 5, "slot": ResourceSet.of({"cpu": 3})}, TAKES, id="one for which all victims are too few"),
        pytest.param({"priority": 5, "tenant": "other"}, TAKES, id="one of another tenant"),
    ],
)
def test_no_stage_is_preempted_for(fields, preemption):
    federation = full_house()
    federation.submit("urgent", preemption=preemption, **fields)
    federation.heartbeat(2)
    assert stopping(federation) == set()


@pytest.mark.parametrize("created_ms", [pytest.param(5, id="as old"), pytest.param(6, id="newer")])
def test_equal_stage_that_is_not_older_preempts_none(created_ms):
    federation = full_house(created_ms=5)
    federation.submit("late", created_ms=created_ms, preemption=replace(TAKES, takes_newer=True))
    federation.heartbeat(2)
    assert stopping(federation) == set()


def test_older_stage_preempts_an_equal_one_for_good():
    newer_too = replace(TAKES, takes_newer=True)
    federation = full_house(created_ms=5, preemption=newer_too)
    federation.submit("old", created_ms=4, preemption=newer_too)
    federation.notifications()
    assert stopping(federation) == {"b"}
    federation.work(0)
    assert federation.running() == {"a", "old"}
    federation.submit("b again", created_ms=5, preemption=newer_too)
    federation.heartbeat(2)
    assert stopping(federation) == set()


def test_the_oldest_of_equal_stages_preempts_first():
    newer_too = replace(TAKES, takes_newer=True)
    federation = full_house(created_ms=5)
    federation.submit("old", slot=ResourceSet.of({"cpu": 2}), created_ms=4, preemption=newer_too)
    federation.submit("oldest", slot=ResourceSet.of({"cpu": 2}), created_ms=3, preemption=newer_too)
    federation.heartbeat()
    federation.work(0)
    assert federation.running() == {"oldest"}


def test_stage_is_preempted_after_its_minimum_run_time():
    federation = full_house()
    federation.submit("urgent", priority=5, preemption=PreemptionPolicy(takes=True, min_run_ms=3 * HEARTBEAT_MS))
    federation.heartbeat()
    assert stopping(federation) == set()
    federation.heartbeat(2)
    assert len(stopping(federation)) == 1


def test_ledger_is_asked_before_a_second_victim_for_quota():
    federation = full_house(pool("general", 3), quota=9, slot=ResourceSet.of({"cpu": 1}))
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), preemption=TAKES)
    federation.notifications()
    assert len(stopping(federation)) == 1
    assert federation.held() == 4


def test_more_stop_where_the_ledger_has_no_more():
    federation = full_house(pool("general", 3), quota=2)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == {"a", "b"}
    federation.work()
    assert federation.running() == {"urgent"}


def test_work_stops_only_for_what_the_ledger_does_not_add():
    federation = full_house(pool("general", 4), quota=4)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 3}), preemption=TAKES)
    federation.notifications()
    assert len(stopping(federation)) == 1
    federation.work(0)
    assert "urgent" in federation.running()
    assert len(federation.running()) == 2


def test_freed_quota_is_reserved_for_the_preemptor():
    federation = full_house(pool("general", 2), quota=2)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), preemption=TAKES)
    federation.notifications()
    federation.host.advance()  # Both stop; one stop is reported, and the other is not yet.
    federation.child.take_report(federation.reports.pop(0))
    federation.submit("small", priority=9)
    federation.notifications()
    federation.heartbeat(IDLE_HEARTBEATS + 1)
    assert ("small", Reason.CAPACITY_RESERVED) in [
        (message.stage, message.reason) for message in (federation.kinds(), federation.messages)[1] if message.kind == "stage_waiting"
    ]
    assert federation.held() == 2
    federation.work()
    assert federation.running() == {"urgent"}


def test_ended_preemptor_frees_its_reservation_at_once():
    federation = full_house(pool("general", 2), quota=2)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), preemption=TAKES)
    federation.notifications()
    federation.host.advance()
    federation.child.take_report(federation.reports.pop(0))  # One has stopped; the other is still stopping.
    federation.submit("small")
    federation.notifications()
    assert "small" not in federation.running()
    federation.store.cancel("urgent")
    federation.child.take_notifications((Notification(kind=NotificationKind.STAGE, subject="small"),))
    assert "small" in federation.running()


def test_room_that_is_not_free_in_time_is_anybodys_again():
    federation = full_house(pool("general", 2))
    federation.submit(
        "urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), preemption=replace(TAKES, reservation_timeout_ms=HEARTBEAT_MS // 2)
    )
    federation.notifications()
    federation.host.advance()
    federation.child.take_report(federation.reports.pop(0))
    federation.submit("small", priority=1)
    federation.notifications()
    assert "small" not in federation.running()
    federation.heartbeat(2)
    assert "small" in federation.running()


def test_preempted_stage_reruns_and_preempts_no_other():
    federation = full_house()
    federation.submit("urgent", priority=5, preemption=TAKES)
    federation.notifications()
    federation.work(0)
    federation.submit("b again", preemption=TAKES)
    federation.heartbeat()
    assert federation.running() == {"a", "urgent"}
    assert stopping(federation) == set()
    federation.work()
    federation.heartbeat()
    assert federation.running() == {"b again"}


def test_two_urgent_stages_do_not_count_on_the_same_victim():
    federation = full_house()
    federation.submit("first", priority=5, preemption=TAKES)
    federation.submit("second", priority=4, preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == {"a", "b"}
    federation.work(0)
    assert federation.running() == {"first", "second"}


def test_strict_fifo_stage_waits_behind_the_head():
    in_order = PreemptionPolicy(in_order=True)
    federation = Federation(pool("general", 3))
    federation.submit("runs", slot=ResourceSet.of({"cpu": 2}), preemption=in_order)
    federation.heartbeat()
    federation.submit("large", slot=ResourceSet.of({"cpu": 3}), preemption=in_order)
    federation.submit("small", preemption=in_order)
    federation.notifications()
    assert federation.running() == {"runs"}
    assert {stage.stage: stage.reason for stage in federation.store.waiting("east")} == {
        "large": Reason.POOL_BUSY,
        "small": Reason.BEHIND_HEAD,
    }
    federation.work()
    assert federation.running() == {"large"}
    federation.work()
    assert federation.running() == {"small"}
