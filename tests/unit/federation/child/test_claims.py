"""Claims on queued stages, their inputs, and claims known to one side only."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from child_bed import CPU, GRACE_MS, HEARTBEAT_MS, TTL_MS, Federation, all_is_free, nodes, slow, stored

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON, IDLE_HEARTBEATS
from federation.child.heartbeat_jitter import soonest_ms
from federation.child.sent_reports import KEPT_MS
from federation.errors import TooManyClaims
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.errors import RuntimeAdapterError


def test_claim_counts_all_slots_of_the_stage(joined):
    joined.submit("s", "a:", "b:", "c:", width=3)
    before = joined.store.copied()
    joined.notifications()
    (first,) = joined.store.snapshot().running
    assert (first.stage, first.amounts) == ("s", CPU.times(3))
    joined.work(10)
    joined.store.lose_writes(before)
    joined.heartbeat(2)
    (restored,) = joined.store.snapshot().running
    assert (restored.token, restored.amounts) == (first.token, first.amounts)


def test_input_is_fetched_once_at_its_notification(joined):
    joined.submit("s", "a: x")
    joined.notifications()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.notifications()
    joined.notifications()
    joined.work()
    assert ("s", "node_succeeded") in joined.kinds()


def test_stage_of_an_excluded_tenant_is_not_claimed():
    joined = Federation(tenants=("other",))
    joined.heartbeat()
    joined.submit("s")
    joined.notifications()
    joined.work()
    assert (joined.kinds(), joined.view().waiting, joined.view().claimed) == ([], 1, 0)


def test_repeated_notifications_fetch_inputs_once(joined):
    joined.submit("s", "a: x y z")
    joined.notifications()
    questions = slow(joined, "inputs_of", 0)
    for node in "xyz":
        joined.store.deliver("s", node, stored(joined.store, "seven"))
    joined.notifications()
    assert questions == [("s",)]
    joined.work()
    assert ("s", "node_succeeded") in joined.kinds()


def test_a_heartbeat_goes_before_the_rest_of_the_inputs(joined):
    for name in "stu":
        joined.submit(name, "a: x")
    joined.notifications()
    questions = slow(joined, "inputs_of", TTL_MS // 4)
    for name in "stu":
        joined.store.deliver(name, "x", stored(joined.store, "seven"))
    joined.notifications()
    assert questions == [("s",)]
    joined.heartbeat(3)
    assert questions == [("s",), ("t",), ("u",)]
    assert joined.view().alive


def test_missing_inputs_are_fetched_after_the_next_heartbeat(joined):
    joined.submit("s", "a: x")
    joined.notifications()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.flaky.down = {"inputs_of"}
    joined.notifications()
    joined.flaky.down = set()
    joined.heartbeat()
    joined.work()
    assert ("s", "node_succeeded") in joined.kinds()


def test_a_heartbeat_goes_before_the_rest_of_a_comparison(joined):
    for name in "stu":
        joined.submit(name, "a: x")
    joined.notifications()
    for name in "stu":
        joined.store.deliver(name, "x", stored(joined.store, "seven"))
    reads = slow(joined, "get", TTL_MS // 4)
    joined.heartbeat(HEARTBEATS_PER_COMPARISON - 2)
    assert reads == []
    joined.heartbeat()
    assert len(reads) == 1
    joined.heartbeat(2 * len("stu"))
    assert len(reads) == len("stu")


def test_reconciliation_finds_an_input_without_notification(joined):
    joined.submit("s", "a: x")
    joined.notifications()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    joined.work()
    assert ("s", "node_succeeded") in joined.kinds()


def test_a_withheld_input_drops_what_waits_for_it(joined):
    joined.submit("s", "a: x", "b:")
    joined.notifications()
    joined.store.deliver("s", "x", None)
    joined.notifications()
    joined.work()
    kinds = [kind for _, kind in joined.kinds()]
    assert (kinds.count("node_succeeded"), kinds[-1]) == (1, "stage_ended")


def test_early_inputs_are_handed_over_at_the_start(joined):
    joined.submit("s", "a: x")
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.heartbeat()
    joined.work()
    assert ("s", "node_succeeded") in joined.kinds()


def test_reconciliation_finds_a_cancel_without_notification(busy):
    busy.store.cancel("s")
    busy.heartbeat(HEARTBEATS_PER_COMPARISON)
    busy.work()
    assert busy.kinds()[-1] == ("s", "stage_ended")


def test_stage_cancelled_before_its_claim_releases_the_lease(joined):
    joined.submit("s")
    joined.flaky.before["claim"] = lambda: joined.store.cancel("s")
    joined.heartbeat()
    assert joined.kinds() == [("s", "stage_ended")]
    assert all_is_free(joined)


def test_stage_cancelled_before_its_start_is_stopped(joined):
    joined.submit("s")
    joined.flaky.before["get"] = lambda: joined.store.cancel("s")
    joined.heartbeat()
    joined.notifications()
    joined.work()
    assert [kind for _, kind in joined.kinds()][-1] == "stage_ended"
    assert all_is_free(joined)


@pytest.mark.parametrize(
    "method",
    [pytest.param("claim", id="lost answer to the claim"), pytest.param("get", id="code that cannot be fetched")],
)
def test_claim_that_runs_nothing_is_returned(joined, method):
    joined.flaky.mute = {method}
    joined.submit("s")
    joined.notifications()
    assert (joined.running(), joined.view().claimed) == (set(), 1)
    joined.flaky.mute = set()
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert joined.view().claimed == 0
    assert joined.kinds()[-1] == ("s", "stage_lost")
    assert joined.messages[-1].reason is Reason.LEDGER_UNREACHABLE
    assert all_is_free(joined)


def test_stage_that_cannot_start_is_lost_and_holds_nothing(joined, monkeypatch):
    def refuse(*_args):
        raise RuntimeAdapterError("Ray is gone")

    monkeypatch.setattr(joined.host, "start", refuse)
    joined.submit("s")
    joined.notifications()
    assert joined.kinds() == [("s", "stage_lost")]
    assert joined.messages[0].reason is Reason.WORKER_LOST
    assert all_is_free(joined)


def test_claim_without_an_answer_is_repeated(joined):
    joined.flaky.down = {"claim"}
    joined.submit("s")
    joined.notifications()
    joined.flaky.down = set()
    joined.heartbeat()
    assert joined.running() == {"s"}


def test_claim_refused_at_the_claim_limit_is_repeated(joined):
    def refuse():
        raise TooManyClaims("end something")

    joined.flaky.before = {"claim": refuse}
    joined.submit("s")
    joined.notifications()
    assert joined.running() == set()
    joined.heartbeat()
    assert joined.running() == {"s"}


def test_claim_of_a_run_forgotten_meanwhile_is_dropped(joined):
    joined.flaky.mute = {"claim"}
    joined.submit("s")
    joined.notifications()
    joined.flaky.mute = set()
    joined.flaky.before["report"] = lambda: joined.store.forget("r", ())
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert all_is_free(joined)
    assert joined.view().alive


def test_reconciliation_drops_values_of_an_ended_run(joined):
    joined.submit("s")
    joined.heartbeat()
    joined.work()
    joined.store.forget("r", ())
    assert joined.host.held() == {"r": "s"}
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert joined.host.is_empty
    assert joined.host.held() == {}


def test_values_are_kept_while_their_run_continues(joined):
    joined.submit("s")
    joined.heartbeat()
    joined.work()
    joined.heartbeat(2 * HEARTBEATS_PER_COMPARISON)
    assert not joined.host.is_empty
    assert joined.host.held() == {"r": "s"}


def test_no_values_are_dropped_while_the_ledger_recovers(joined):
    joined.submit("s")
    joined.heartbeat()
    joined.work()
    before = joined.store.copied()
    joined.store.forget("r", ())
    joined.store.lose_writes(before)
    joined.store.forget("r", ())
    heartbeats = 0
    while joined.store.snapshot().recovery_ms:
        heartbeats += 1
        joined.heartbeat()
        assert joined.host.held() == {"r": "s"} or not joined.store.snapshot().recovery_ms
    assert heartbeats > HEARTBEATS_PER_COMPARISON
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert joined.host.held() == {}


def with_an_end():
    """A federation whose stage `s` has ended, and an earlier copy of its store."""
    federation = Federation()
    federation.heartbeat()
    federation.submit("s")
    federation.heartbeat()
    before = federation.store.copied()
    federation.work()
    return federation, before


def test_claim_whose_end_the_store_lost_is_ended_again():
    federation, before = with_an_end()
    federation.kinds()
    federation.store.lose_writes(before)
    federation.kinds()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON + 1)
    assert federation.kinds() == [("s", "node_started"), ("s", "node_succeeded"), ("s", "stage_ended")]
    assert federation.held() == 0


def test_end_lost_by_the_store_is_resent_after_reconciliation():
    federation, before = with_an_end()
    federation.kinds()
    federation.flaky.before["claims_of"] = lambda: federation.store.lose_writes(before)  # Before a heartbeat has the new epoch.
    federation.heartbeat(2 * HEARTBEATS_PER_COMPARISON)
    assert federation.kinds()[-1] == ("s", "stage_ended")


def test_claim_whose_end_is_too_old_to_resend_is_returned():
    federation, before = with_an_end()
    federation.kinds()
    federation.heartbeat(math.ceil(KEPT_MS / soonest_ms(HEARTBEAT_MS)))
    federation.store.lose_writes(before)
    federation.kinds()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON + 1)
    assert federation.kinds() == [("s", "stage_lost")]
    assert federation.messages[-1].reason is Reason.LEDGER_UNREACHABLE


@pytest.mark.parametrize("lost", ["the claim", "the claim and its lease"])
def test_stage_whose_claim_is_lost_continues_under_its_token(joined, lost):
    if lost == "the claim":
        joined.submit("earlier")
        joined.notifications()
        joined.work()
        joined.kinds()
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    claims = joined.claims()
    joined.work()
    assert [kind for _, kind in joined.kinds()] == ["stage_started", "node_started", "node_succeeded", "node_started"]
    joined.store.lose_writes(before)
    joined.heartbeat()
    assert len(claims) == 1
    assert joined.claims() == claims
    assert [kind for _, kind in joined.kinds()] == ["stage_started", "node_started", "node_succeeded", "node_started"]
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert (joined.running(), joined.host.stopping) == ({"s"}, set())
    joined.work()
    assert [kind for _, kind in joined.kinds()] == ["node_succeeded", "stage_ended"]
    assert all_is_free(joined)


def test_ended_stage_with_a_lost_claim_does_not_rerun(joined):
    joined.submit("s")
    before = joined.store.copied()
    joined.notifications()
    joined.work()
    joined.heartbeat(IDLE_HEARTBEATS + 1)
    assert joined.held() == 0  # Its lease is released.
    joined.kinds()
    joined.store.lose_writes(before)
    joined.kinds()
    joined.heartbeat()
    assert [kind for _, kind in joined.kinds()] == ["stage_started", "node_started", "node_succeeded", "stage_ended"]
    joined.heartbeat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS) + 1)
    assert joined.kinds() == []
    assert all_is_free(joined)


def test_report_refused_without_its_claim_is_resent_later(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    joined.work()
    joined.store.lose_writes(before)
    joined.kinds()
    joined.work()  # Before any heartbeat has reported the new epoch.
    assert joined.kinds() == []
    joined.heartbeat()
    expected = ["stage_started", "node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert [kind for _, kind in joined.kinds()] == expected
    assert all_is_free(joined)


@pytest.mark.parametrize("has_ended", [False, True])
def test_claim_is_restored_when_its_stage_is_resubmitted(joined, has_ended):
    before = joined.store.copied()
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    joined.work()
    joined.store.lose_writes(before)
    joined.heartbeat()
    joined.kinds()
    if has_ended:
        joined.work()
        assert joined.running() == set()
    assert joined.kinds() == []
    joined.submit("s", "a:", "b: a")
    joined.heartbeat()
    joined.work()
    expected = ["stage_started", "node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert [kind for _, kind in joined.kinds()] == expected
    assert all_is_free(joined)


def test_stage_that_is_not_resubmitted_stops_after_recovery(joined):
    before = joined.store.copied()
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    joined.store.lose_writes(before)
    joined.heartbeat()
    assert joined.host.stopping == set()
    joined.heartbeat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS) + 1)
    assert joined.host.stopping == {"s"}
    joined.work()
    assert joined.kinds() == []
    assert all_is_free(joined)


def test_stage_with_reports_too_old_to_resend_is_not_reclaimed(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    joined.heartbeat(math.ceil(KEPT_MS / soonest_ms(HEARTBEAT_MS)))
    joined.store.lose_writes(before)
    joined.heartbeat()
    assert joined.host.stopping == {"s"}


def test_a_stage_that_was_cancelled_meanwhile_stops(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    joined.work(10)
    joined.store.lose_writes(before)
    joined.store.cancel("s")
    joined.kinds()
    joined.heartbeat()
    assert joined.host.stopping == {"s"}
    joined.work()
    assert (joined.running(), joined.kinds()) == (set(), [])
    assert all_is_free(joined)


def test_competing_claim_stands_and_the_lost_one_stops(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    claimed = slow(joined, "claim", 0)
    joined.notifications()
    (lost,) = joined.claims()
    joined.work(10)
    joined.store.lose_writes(before)
    joined.flaky.down = {"resume"}
    joined.heartbeat(math.ceil((TTL_MS + GRACE_MS) / soonest_ms(HEARTBEAT_MS)) + 1)
    assert joined.store.snapshot().recovery_ms == 0
    ((session, _, lease, slots),) = claimed
    later = joined.store.claim(replace(session, epoch=joined.store.snapshot().epoch), "s", lease, slots).claim
    assert (later.token > lost.token, later.incarnation) == (True, lost.incarnation)
    joined.kinds()
    joined.flaky.down = set()
    joined.heartbeat()
    assert joined.host.stopping == {"s"}
    assert joined.kinds() == []


def test_claim_of_the_current_epoch_is_not_restored():
    federation = Federation()
    federation.heartbeat()
    federation.submit("s")
    before = federation.store.copied()
    federation.heartbeat()
    assert federation.running() == {"s"}
    federation.store.lose_writes(before)  # At the same moment: its token may be issued again.
    assert federation.held() == 0
    federation.heartbeat(HEARTBEATS_PER_COMPARISON)
    federation.work()
    assert federation.view().claimed == len(federation.running()) == 0  # No work begins while the ledger recovers.
    federation.heartbeat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS))
    assert federation.running() == {"s"}
    assert federation.view().claimed == 1


def test_doubtful_claims_are_checked_in_bounded_batches(joined, monkeypatch):
    monkeypatch.setattr("federation.child.status_reporter.RESUMED_MAX", 2)
    for name in "stu":
        joined.submit(name, "a:", "b: a")
    joined.notifications()
    joined.work(10)
    joined.kinds()
    asked = slow(joined, "resume", 0)
    joined.store.restart()
    joined.heartbeat()
    assert [len(claims) for _, claims in asked] == [2, 1]
    assert joined.running() == set("stu")


def test_claim_under_a_hard_revoked_lease_is_disowned_once(joined):
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    joined.kinds()
    joined.store.revoke(tenant="acme", hard=True)
    joined.work()
    assert joined.running() == set()
    assert joined.kinds() == []


def test_nothing_is_claimed_while_ray_is_gone(joined):
    joined.submit("s1")
    joined.host.is_there = False
    joined.notifications()
    assert (joined.view().claimed, joined.running()) == (0, set())
    assert joined.child.due_in_ms() == 0
    joined.heartbeat()
    assert not joined.view().record.cluster_answers
    joined.heartbeat(3)
    assert (joined.view().claimed, joined.held()) == (0, 0)
    joined.host.is_there = True
    joined.heartbeat(2)
    assert joined.view().record.cluster_answers
    assert joined.running() == {"s1"}


def test_one_probe_per_round_finds_that_ray_is_gone(joined):
    """Each probe may take half a second, and a heartbeat must go out meanwhile."""
    for number in range(4):
        joined.submit(f"s{number}")
    joined.host.is_there, looks = False, joined.host.looks
    joined.notifications()
    assert (joined.host.looks - looks, joined.running()) == (1, set())


def test_running_work_ends_and_none_follows_while_ray_is_gone(joined):
    joined.submit("s1", slot=ResourceSet.of({"cpu": 4}))
    joined.submit("s2", slot=ResourceSet.of({"cpu": 4}))
    joined.heartbeat()
    assert joined.running() == {"s1"}
    joined.host.is_there = False
    joined.work()
    assert ("s1", "stage_ended") in joined.kinds()
    joined.heartbeat(2)
    assert (joined.running(), joined.view().claimed) == (set(), 0)


def test_a_stage_too_large_for_every_node_waits_for_a_node(joined):
    joined.host.listed = nodes(CPU.times(2), CPU.times(2))
    joined.submit("s", slot=CPU.times(3))
    joined.heartbeat()
    joined.notifications()
    assert (joined.held(), [message.reason for message in waiting(joined)]) == (0, [Reason.NO_NODE_FITS])
    joined.host.listed = nodes(CPU.times(2), CPU.times(4))
    joined.heartbeat()
    assert (joined.held(), joined.view().claimed) == (3, 1)


def waiting(joined):
    joined.kinds()
    return [message for message in joined.messages if message.kind == "stage_waiting"]
