"""Stages that a mesh takes out of its queue, their inputs, and claims of which only one side knows."""

from __future__ import annotations

import math

import pytest
from child_bed import GRACE_MS, HEARTBEAT_MS, TTL_MS, Federation, all_is_free, slow, stored

from federation.child import BEATS_PER_COMPARISON
from federation.errors import TooManyClaims
from mesh.errors import RuntimeDoorError
from mesh.reasons import Reason


def test_an_input_is_brought_when_its_letter_comes_and_once(joined):
    joined.submit("s", "a: x")
    joined.mail()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.mail()
    joined.mail()
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_however_many_letters_tell_of_a_stage_its_inputs_are_asked_for_once(joined):
    joined.submit("s", "a: x y z")
    joined.mail()
    questions = slow(joined, "inputs_of", 0)
    for node in "xyz":
        joined.store.deliver("s", node, stored(joined.store, "seven"))
    joined.mail()
    assert questions == [("s",)]
    assert joined.child._books.running["s"].delivered == set("xyz")


def test_a_heartbeat_goes_before_the_rest_of_the_inputs(joined):
    for name in "stu":
        joined.submit(name, "a: x")
    joined.mail()
    questions = slow(joined, "inputs_of", TTL_MS // 4)
    for name in "stu":
        joined.store.deliver(name, "x", stored(joined.store, "seven"))
    joined.mail()
    assert questions == [("s",)]
    joined.beat(3)
    assert questions == [("s",), ("t",), ("u",)]
    assert joined.view().alive


def test_inputs_that_could_not_be_had_are_asked_for_again_after_the_next_heartbeat(joined):
    joined.submit("s", "a: x")
    joined.mail()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.flaky.down = {"inputs_of"}
    joined.mail()
    joined.flaky.down = set()
    joined.beat()
    assert joined.child._books.running["s"].delivered == {"x"}


def test_a_heartbeat_goes_before_the_rest_of_a_comparison(joined):
    for name in "stu":
        joined.submit(name, "a: x")
    joined.mail()
    for name in "stu":
        joined.store.deliver(name, "x", stored(joined.store, "seven"))
    reads = slow(joined, "get", TTL_MS // 4)
    joined.beat(BEATS_PER_COMPARISON - 2)
    assert reads == []
    joined.beat()
    assert len(reads) == 1
    joined.beat(2 * len("stu"))
    assert len(reads) == len("stu")


def test_an_input_whose_letter_went_astray_is_found_by_comparing(joined):
    joined.submit("s", "a: x")
    joined.mail()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.beat(BEATS_PER_COMPARISON)
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_a_withheld_input_drops_what_waits_for_it(joined):
    joined.submit("s", "a: x", "b:")
    joined.mail()
    joined.store.deliver("s", "x", None)
    joined.mail()
    joined.work()
    kinds = [kind for _, kind in joined.words()]
    assert (kinds.count("node_succeeded"), kinds[-1]) == (1, "stage_ended")


def test_inputs_that_came_before_the_claim_are_handed_over_with_the_start(joined):
    joined.submit("s", "a: x")
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.beat()
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_a_cancel_whose_letter_went_astray_is_found_by_comparing(busy):
    busy.store.cancel("s")
    busy.beat(BEATS_PER_COMPARISON)
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")


def test_a_stage_that_was_cancelled_between_lease_and_claim_gives_the_lease_back(joined):
    joined.submit("s")
    joined.flaky.before["claim"] = lambda: joined.store.cancel("s")
    joined.beat()
    assert joined.words() == [("s", "stage_ended")]
    assert all_is_free(joined)


def test_a_stage_that_was_cancelled_between_claim_and_start_is_stopped(joined):
    joined.submit("s")
    joined.flaky.before["get"] = lambda: joined.store.cancel("s")
    joined.beat()
    joined.mail()
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
    joined.mail()
    assert (joined.running(), joined.view().claimed) == (set(), 1)
    joined.flaky.mute = set()
    joined.beat(BEATS_PER_COMPARISON)
    assert joined.view().claimed == 0
    assert joined.words()[-1] == ("s", "stage_lost")
    assert joined.told[-1].reason is Reason.LEDGER_UNREACHABLE
    assert all_is_free(joined)


def test_a_stage_that_the_host_cannot_start_is_lost_and_holds_nothing(joined, monkeypatch):
    def refuse(*_args):
        raise RuntimeDoorError("Ray is gone")

    monkeypatch.setattr(joined.host, "start", refuse)
    joined.submit("s")
    joined.mail()
    assert joined.words() == [("s", "stage_lost")]
    assert joined.told[0].reason is Reason.WORKER_LOST
    assert all_is_free(joined)


def test_a_claim_that_was_not_taken_in_is_made_again(joined):
    joined.flaky.down = {"claim"}
    joined.submit("s")
    joined.mail()
    assert joined.paid() == set()
    joined.flaky.down = set()
    joined.beat()
    assert joined.running() == {"s"}


def test_a_claim_that_is_refused_because_too_much_is_claimed_is_made_again(joined):
    def refuse():
        raise TooManyClaims("end something")

    joined.flaky.before = {"claim": refuse}
    joined.submit("s")
    joined.mail()
    assert (joined.running(), joined.paid()) == (set(), set())
    joined.beat()
    assert joined.running() == {"s"}


def test_a_claim_whose_run_was_forgotten_while_it_is_given_back_is_let_go(joined):
    joined.flaky.mute = {"claim"}
    joined.submit("s")
    joined.mail()
    joined.flaky.mute = set()
    joined.flaky.before["report"] = lambda: joined.store.forget("r", ())
    joined.beat(BEATS_PER_COMPARISON)
    assert all_is_free(joined)
    assert joined.view().alive


def test_values_of_a_run_whose_end_nobody_told_are_let_go_by_comparing(joined):
    joined.submit("s")
    joined.beat()
    joined.work()
    joined.store.forget("r", ())
    assert joined.host.held() == {"r": "s"}
    joined.beat(BEATS_PER_COMPARISON)
    assert joined.host.is_empty
    assert joined.host.held() == {}


def test_values_of_a_run_that_goes_on_are_kept_when_its_stages_here_have_ended(joined):
    joined.submit("s")
    joined.beat()
    joined.work()
    joined.beat(2 * BEATS_PER_COMPARISON)
    assert not joined.host.is_empty
    assert joined.host.held() == {"r": "s"}


def test_while_the_ledger_learns_no_values_are_let_go(joined):
    joined.submit("s")
    joined.beat()
    joined.work()
    before = joined.store.copied()
    joined.store.forget("r", ())
    joined.store.lose_writes(before)
    joined.store.forget("r", ())
    beats = 0
    while joined.store.snapshot().learn_ms:
        beats += 1
        joined.child._is_comparing = True
        joined.beat()
        assert joined.host.held() == {"r": "s"} or not joined.child._tenure.told.learn_ms
    assert beats > 1
    joined.beat(BEATS_PER_COMPARISON)
    assert joined.host.held() == {}


def test_a_claim_whose_end_the_store_has_lost_is_given_back():
    federation = Federation()
    federation.beat()
    federation.submit("s")
    federation.beat()
    before = federation.store.copied()
    federation.work()
    assert (federation.running(), federation.paid()) == (set(), set())
    federation.store.lose_writes(before)
    federation.words()
    federation.beat(BEATS_PER_COMPARISON + 1)
    assert ("s", "stage_lost") in federation.words()
    assert federation.held() == 0


def test_a_stage_whose_claim_and_lease_the_store_has_lost_does_not_run_on_unclaimed():
    federation = Federation()
    federation.beat()
    federation.submit("s")
    before = federation.store.copied()
    federation.beat()
    assert federation.running() == {"s"}
    federation.store.lose_writes(before)
    assert federation.held() == 0
    federation.beat(BEATS_PER_COMPARISON)
    federation.work()
    assert federation.view().claimed == len(federation.running()) == 0  # Nothing new begins while the ledger learns.
    federation.beat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS))
    assert federation.running() == federation.paid() == {"s"}
    assert federation.view().claimed == 1
