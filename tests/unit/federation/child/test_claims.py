"""Stages that a mesh takes out of its queue, their inputs, and claims of which only one side knows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from child_bed import GRACE_MS, HEARTBEAT_MS, TTL_MS, Federation, all_is_free, slow, stored

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON, IDLE_HEARTBEATS
from federation.child.heartbeat_jitter import soonest_ms
from federation.child.sent_reports import KEPT_MS
from federation.errors import TooManyClaims
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.errors import RuntimeAdapterError


def test_an_input_is_brought_when_its_letter_comes_and_once(joined):
    joined.submit("s", "a: x")
    joined.notifications()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.notifications()
    joined.notifications()
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_a_stage_of_a_tenant_that_the_mesh_is_closed_to_is_not_claimed(joined):
    joined.child._child_state.record = replace(joined.record, tenants=("other",))
    joined.submit("s")
    joined.notifications()
    joined.work()
    assert (joined.words(), joined.view().waiting, joined.view().claimed) == ([], 1, 0)


def test_however_many_letters_tell_of_a_stage_its_inputs_are_asked_for_once(joined):
    joined.submit("s", "a: x y z")
    joined.notifications()
    questions = slow(joined, "inputs_of", 0)
    for node in "xyz":
        joined.store.deliver("s", node, stored(joined.store, "seven"))
    joined.notifications()
    assert questions == [("s",)]
    assert joined.child._child_state.running["s"].delivered == set("xyz")


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


def test_inputs_that_could_not_be_had_are_asked_for_again_after_the_next_heartbeat(joined):
    joined.submit("s", "a: x")
    joined.notifications()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.flaky.down = {"inputs_of"}
    joined.notifications()
    joined.flaky.down = set()
    joined.heartbeat()
    assert joined.child._child_state.running["s"].delivered == {"x"}


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


def test_an_input_whose_letter_went_astray_is_found_by_comparing(joined):
    joined.submit("s", "a: x")
    joined.notifications()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_a_withheld_input_drops_what_waits_for_it(joined):
    joined.submit("s", "a: x", "b:")
    joined.notifications()
    joined.store.deliver("s", "x", None)
    joined.notifications()
    joined.work()
    kinds = [kind for _, kind in joined.words()]
    assert (kinds.count("node_succeeded"), kinds[-1]) == (1, "stage_ended")


def test_inputs_that_came_before_the_claim_are_handed_over_with_the_start(joined):
    joined.submit("s", "a: x")
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.heartbeat()
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_a_cancel_whose_letter_went_astray_is_found_by_comparing(busy):
    busy.store.cancel("s")
    busy.heartbeat(HEARTBEATS_PER_COMPARISON)
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")


def test_a_stage_that_was_cancelled_between_lease_and_claim_gives_the_lease_back(joined):
    joined.submit("s")
    joined.flaky.before["claim"] = lambda: joined.store.cancel("s")
    joined.heartbeat()
    assert joined.words() == [("s", "stage_ended")]
    assert all_is_free(joined)


def test_a_stage_that_was_cancelled_between_claim_and_start_is_stopped(joined):
    joined.submit("s")
    joined.flaky.before["get"] = lambda: joined.store.cancel("s")
    joined.heartbeat()
    joined.notifications()
    joined.work()
    assert [kind for _, kind in joined.words()][-1] == "stage_ended"
    assert all_is_free(joined)


@pytest.mark.parametrize(
    "method",
    [pytest.param("claim", id="the answer to the claim is lost"), pytest.param("get", id="the code for it cannot be had")],
)
def test_a_claim_of_which_nothing_runs_is_given_back(joined, method):
    joined.flaky.mute = {method}
    joined.submit("s")
    joined.notifications()
    assert (joined.running(), joined.view().claimed) == (set(), 1)
    joined.flaky.mute = set()
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert joined.view().claimed == 0
    assert joined.words()[-1] == ("s", "stage_lost")
    assert joined.response[-1].reason is Reason.LEDGER_UNREACHABLE
    assert all_is_free(joined)


def test_a_stage_that_the_host_cannot_start_is_lost_and_holds_nothing(joined, monkeypatch):
    def refuse(*_args):
        raise RuntimeAdapterError("Ray is gone")

    monkeypatch.setattr(joined.host, "start", refuse)
    joined.submit("s")
    joined.notifications()
    assert joined.words() == [("s", "stage_lost")]
    assert joined.response[0].reason is Reason.WORKER_LOST
    assert all_is_free(joined)


def test_a_claim_that_was_not_taken_in_is_made_again(joined):
    joined.flaky.down = {"claim"}
    joined.submit("s")
    joined.notifications()
    assert joined.paid() == set()
    joined.flaky.down = set()
    joined.heartbeat()
    assert joined.running() == {"s"}


def test_a_claim_that_is_refused_because_too_much_is_claimed_is_made_again(joined):
    def refuse():
        raise TooManyClaims("end something")

    joined.flaky.before = {"claim": refuse}
    joined.submit("s")
    joined.notifications()
    assert (joined.running(), joined.paid()) == (set(), set())
    joined.heartbeat()
    assert joined.running() == {"s"}


def test_a_claim_whose_run_was_forgotten_while_it_is_given_back_is_let_go(joined):
    joined.flaky.mute = {"claim"}
    joined.submit("s")
    joined.notifications()
    joined.flaky.mute = set()
    joined.flaky.before["report"] = lambda: joined.store.forget("r", ())
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert all_is_free(joined)
    assert joined.view().alive


def test_values_of_a_run_whose_end_nobody_told_are_let_go_by_comparing(joined):
    joined.submit("s")
    joined.heartbeat()
    joined.work()
    joined.store.forget("r", ())
    assert joined.host.held() == {"r": "s"}
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert joined.host.is_empty
    assert joined.host.held() == {}


def test_values_of_a_run_that_goes_on_are_kept_when_its_stages_here_have_ended(joined):
    joined.submit("s")
    joined.heartbeat()
    joined.work()
    joined.heartbeat(2 * HEARTBEATS_PER_COMPARISON)
    assert not joined.host.is_empty
    assert joined.host.held() == {"r": "s"}


def test_while_the_ledger_learns_no_values_are_let_go(joined):
    joined.submit("s")
    joined.heartbeat()
    joined.work()
    before = joined.store.copied()
    joined.store.forget("r", ())
    joined.store.lose_writes(before)
    joined.store.forget("r", ())
    beats = 0
    while joined.store.snapshot().learn_ms:
        beats += 1
        joined.child._is_comparing = True
        joined.heartbeat()
        assert joined.host.held() == {"r": "s"} or not joined.child._child_session.response.learn_ms
    assert beats > 1
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert joined.host.held() == {}


def with_an_end():
    """A federation whose stage `s` has ended, and its store as it was before."""
    federation = Federation()
    federation.heartbeat()
    federation.submit("s")
    federation.heartbeat()
    before = federation.store.copied()
    federation.work()
    return federation, before


def test_a_claim_whose_end_the_store_has_lost_is_ended_again():
    federation, before = with_an_end()
    federation.words()
    federation.store.lose_writes(before)
    federation.words()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON + 1)
    assert federation.words() == [("s", "node_started"), ("s", "node_succeeded"), ("s", "stage_ended")]
    assert federation.held() == 0


def test_an_end_that_was_lost_is_told_again_though_the_loss_is_found_by_comparing():
    federation, before = with_an_end()
    epoch = federation.store.snapshot().epoch
    federation.store.lose_writes(before)
    federation.words()
    federation.child._claims.compare()  # Before a heartbeat has told of the new epoch.
    assert federation.child._child_session.held().epoch == epoch
    federation.child._reporter.report()
    assert federation.words()[-1] == ("s", "stage_ended")


def test_a_claim_whose_end_was_told_too_long_ago_to_be_told_again_is_given_back():
    federation, before = with_an_end()
    federation.words()
    federation.heartbeat(math.ceil(KEPT_MS / soonest_ms(HEARTBEAT_MS)))
    federation.store.lose_writes(before)
    federation.words()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON + 1)
    assert federation.words() == [("s", "stage_lost")]
    assert federation.response[-1].reason is Reason.LEDGER_UNREACHABLE


@pytest.mark.parametrize("lost", ["the claim", "the claim and its lease"])
def test_a_stage_whose_claim_the_store_has_lost_goes_on_under_its_old_token(joined, lost):
    if lost == "the claim":
        joined.submit("earlier")
        joined.notifications()
        joined.work()
        joined.words()
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    claim = joined.child._child_state.running["s"].claim
    joined.work()
    assert [kind for _, kind in joined.words()] == ["stage_started", "node_started", "node_succeeded", "node_started"]
    joined.store.lose_writes(before)
    joined.heartbeat()
    assert [held.claim for held in joined.store.claims_of(joined.child._child_session.held())] == [claim]
    assert [kind for _, kind in joined.words()] == ["stage_started", "node_started", "node_succeeded", "node_started"]
    joined.heartbeat(HEARTBEATS_PER_COMPARISON)
    assert (joined.running(), joined.host._stages["s"].cancelled) == ({"s"}, False)
    joined.work()
    assert [kind for _, kind in joined.words()] == ["node_succeeded", "stage_ended"]
    assert all_is_free(joined)


def test_a_stage_that_has_ended_under_a_claim_that_the_store_has_lost_does_not_run_again(joined):
    joined.submit("s")
    before = joined.store.copied()
    joined.notifications()
    joined.work()
    joined.heartbeat(IDLE_HEARTBEATS + 1)
    assert joined.held() == 0  # What paid for it is given back.
    joined.words()
    joined.store.lose_writes(before)
    joined.words()
    joined.heartbeat()
    assert [kind for _, kind in joined.words()] == ["stage_started", "node_started", "node_succeeded", "stage_ended"]
    joined.heartbeat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS) + 1)
    assert joined.words() == []
    assert all_is_free(joined)


def test_a_report_that_is_refused_for_want_of_the_claim_is_told_when_that_is_made_again(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    joined.work()
    joined.store.lose_writes(before)
    joined.words()
    joined.work()  # Before any heartbeat has told of the new epoch.
    assert joined.words() == []
    joined.heartbeat()
    response = ["stage_started", "node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert [kind for _, kind in joined.words()] == response
    assert all_is_free(joined)


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_claim_on_a_stage_that_is_submitted_again_while_the_ledger_learns_is_made_again_then(joined, has_ended):
    before = joined.store.copied()
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    joined.work()
    joined.store.lose_writes(before)
    joined.heartbeat()
    joined.words()
    if has_ended:
        joined.work()
        assert joined.running() == set()
    assert joined.words() == []
    joined.submit("s", "a:", "b: a")
    joined.heartbeat()
    joined.work()
    response = ["stage_started", "node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert [kind for _, kind in joined.words()] == response
    assert all_is_free(joined)


def test_a_stage_that_nobody_submits_again_stops_when_learning_is_over(joined):
    before = joined.store.copied()
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    joined.store.lose_writes(before)
    joined.heartbeat()
    assert not joined.host._stages["s"].cancelled
    joined.heartbeat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS) + 1)
    assert joined.host._stages["s"].cancelled
    joined.work()
    assert joined.words() == []
    assert all_is_free(joined)


def test_a_stage_of_which_something_was_told_too_long_ago_is_not_claimed_again(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    joined.child._reporter._response.drop_old(joined.clock.monotonic_ms() + KEPT_MS)
    joined.clock.advance(1)
    joined.store.lose_writes(before)
    joined.heartbeat()
    assert joined.host._stages["s"].cancelled


def test_a_stage_that_was_cancelled_meanwhile_stops(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    joined.work(10)
    joined.store.lose_writes(before)
    joined.store.cancel("s")
    joined.words()
    joined.heartbeat()
    assert joined.host._stages["s"].cancelled
    joined.work()
    assert (joined.running(), joined.words()) == (set(), [])
    assert all_is_free(joined)


def test_another_claim_on_the_stage_stands_and_the_lost_one_stops(joined):
    joined.submit("s", "a:", "b: a")
    before = joined.store.copied()
    joined.notifications()
    lost = joined.child._child_state.running["s"]
    joined.work(10)
    joined.store.lose_writes(before)
    session = joined.child._child_session.held()
    joined.child._child_session.renew(joined.store, joined.child._child_state, joined.clock.monotonic_ms())
    joined.store._learn = 0
    claimed = joined.store.claim(joined.child._child_session.held(), "s", lost.paid_by)
    assert claimed.claim.token > lost.claim.token
    assert session.incarnation == claimed.claim.incarnation
    joined.words()
    joined.child._reporter.report_again()
    joined.heartbeat()
    assert (lost.is_disowned, joined.host._stages["s"].cancelled) == (True, True)
    assert joined.words() == []


def test_a_claim_that_is_no_older_than_the_epoch_is_not_made_again_and_its_stage_does_not_run_on():
    federation = Federation()
    federation.heartbeat()
    federation.submit("s")
    before = federation.store.copied()
    federation.heartbeat()
    assert federation.running() == {"s"}
    federation.store.lose_writes(before)  # In the same moment: its token may be given out again.
    assert federation.held() == 0
    federation.heartbeat(HEARTBEATS_PER_COMPARISON)
    federation.work()
    assert federation.view().claimed == len(federation.running()) == 0  # Nothing new begins while the ledger learns.
    federation.heartbeat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS))
    assert federation.running() == federation.paid() == {"s"}
    assert federation.view().claimed == 1


def test_however_many_claims_are_in_doubt_no_call_asks_about_too_many(joined, monkeypatch):
    monkeypatch.setattr("federation.child.status_reporter.RESUMED_MAX", 2)
    for name in "stu":
        joined.submit(name, "a:", "b: a")
    joined.notifications()
    joined.work(10)
    joined.words()
    asked = slow(joined, "resume", 0)
    joined.store.restart()
    joined.heartbeat()
    assert [len(claims) for _, claims in asked] == [2, 1]
    assert joined.running() == set("stu")


def test_what_an_earlier_process_has_told_is_not_asked_for_as_if_it_could_be_told_again(joined):
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    running = joined.child._child_state.running["s"]
    running.is_whole = False
    asked = slow(joined, "resume", 0)
    joined.store.restart()
    joined.heartbeat()
    ((_, (held,)),) = asked
    assert (held.is_whole, held.has_ended, held.lease) == (False, False, running.paid_by)


def test_a_claim_under_a_lease_that_was_revoked_hard_is_let_go_and_does_not_go_round_in_circles(joined):
    joined.submit("s", "a:", "b: a")
    joined.notifications()
    joined.words()
    running = joined.child._child_state.running["s"]
    joined.store.revoke(tenant="acme", hard=True)
    joined.work()
    assert running.is_disowned
    assert joined.words() == []


def test_nothing_is_claimed_while_what_the_mesh_runs_on_is_gone_and_the_root_hears_of_it_at_once(joined):
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


def test_of_many_that_could_start_one_finds_out_that_what_the_mesh_runs_on_is_gone(joined):
    """Each look may take half a second, and a heartbeat has to go out meanwhile."""
    for number in range(4):
        joined.submit(f"s{number}")
    joined.host.is_there, looks = False, joined.host.looks
    joined.notifications()
    assert (joined.host.looks - looks, joined.running()) == (1, set())


def test_what_runs_when_the_control_service_goes_away_ends_as_ever_and_nothing_follows_it(joined):
    joined.submit("s1", slot=ResourceSet.of({"cpu": 4}))
    joined.submit("s2", slot=ResourceSet.of({"cpu": 4}))
    joined.heartbeat()
    assert joined.running() == {"s1"}
    joined.host.is_there = False
    joined.work()
    assert ("s1", "stage_ended") in joined.words()
    joined.heartbeat(2)
    assert (joined.running(), joined.view().claimed) == (set(), 0)
