"""Stages that give way because the ledger wants back what pays for them."""

from __future__ import annotations

from child_bed import CPU, Federation

from federation.child.child_mesh import BEATS_PER_COMPARISON
from federation.leases import Aim
from mesh.reasons import Reason
from mesh.resources import ResourceSet


def test_work_goes_on_when_the_store_has_lost_the_plan_that_was_just_obeyed():
    federation = Federation()
    federation.beat()
    federation.submit("s", priority=1)
    federation.submit("t")
    federation.beat(2)
    before = federation.store.copied()
    aim = Aim(mesh="east", tenant="acme", flavor="standard", target=CPU)
    federation.store.plan_apply(federation.store.elect("p", 60_000), federation.store.snapshot().version, (aim,))
    federation.beat()  # `t` is asked to stop.
    federation.clock.advance(0)
    federation.host.advance()
    while federation.reports:
        federation.child.take_report(federation.reports.pop(0))
    assert federation.running() == {"s"}
    federation.store.lose_writes(before)
    federation.beat(2 * BEATS_PER_COMPARISON)
    assert not federation.child._books.running["s"].gives_way
    assert (federation.running(), federation.paid(), federation.host._stages["s"].cancelled) == ({"s"}, {"s"}, False)


def test_a_revoked_lease_is_given_up_its_stage_stops_and_waits_for_quota_again(busy):
    busy.store.revoke(tenant="acme")
    busy.beat()
    assert busy.held() == 1  # Still charged: it is being stopped.
    busy.work()
    assert busy.words()[-1] == ("s", "stage_lost")
    assert busy.told[-1].reason is Reason.QUOTA_RECLAIMED
    assert not [message for message in busy.told if message.kind == "node_failed"]
    busy.beat(2)
    assert (busy.running(), busy.held(), busy.store.audit()) == (set(), 0, ())


def test_the_least_urgent_and_last_started_stage_gives_way_and_no_more_than_has_to():
    federation = Federation()
    federation.beat()
    for name, priority in (("early", 0), ("late", 0), ("urgent", 5)):
        federation.submit(name, priority=priority)
        federation.mail()
    planner = federation.store.elect("me", 60_000)
    aim = Aim(mesh="east", tenant="acme", flavor="standard", target=ResourceSet.of({"cpu": 2}))
    federation.store.plan_apply(planner, federation.store.snapshot().version, (aim,))
    federation.beat()
    federation.work(0)
    assert federation.running() == {"early", "urgent"}
    federation.beat()
    assert federation.held() == 2


def test_what_is_taken_by_plan_is_heard_of_at_once_and_told_as_soon_as_it_has_stopped(busy):
    busy.mail()
    planner = busy.store.elect("me", 60_000)
    aim = Aim(mesh="east", tenant="acme", flavor="standard", target=ResourceSet())
    busy.store.plan_apply(planner, busy.store.snapshot().version, (aim,))
    before_ms = busy.clock.monotonic_ms()
    busy.mail()
    busy.beat()
    busy.work(0)
    busy.beat()
    assert (busy.held(), busy.clock.monotonic_ms() - before_ms) == (0, 0)


def test_a_user_who_cancels_what_gives_way_gets_the_end_and_not_another_try(busy):
    busy.store.revoke(tenant="acme")
    busy.beat()
    busy.store.cancel("s")
    busy.mail()
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")
