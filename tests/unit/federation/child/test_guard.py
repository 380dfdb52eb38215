"""Behaviour of a child whose store fails."""

from __future__ import annotations

from itertools import pairwise

import pytest
from child_bed import TTL_MS, Federation, all_is_free

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON
from federation.child.guard import remedy_of, will_pass
from federation.errors import BatchTooLarge, EpochChanged, ForgedReceipt, FutureToken, LedgerUninitialised, StoreUnavailable, UnfitName
from mesh.errors import AmountError, IllegalTransition, RuntimeAdapterError

VERBS = (
    "join",
    "heartbeat",
    "acquire",
    "release",
    "queued",
    "heads_of",
    "claim",
    "claims_of",
    "remembered",
    "report",
    "inputs_of",
    "explain",
    "get",
    "put",
)
ERRORS = (LedgerUninitialised, ForgedReceipt, FutureToken, UnfitName, AmountError, BatchTooLarge, RuntimeAdapterError, IllegalTransition)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("verb", VERBS)
def test_mesh_recovers_from_every_unanswered_call(verb, error):
    federation = Federation(quota=1)
    if verb != "join":
        federation.heartbeat()
    federation.flaky.broken = {verb: error("what nobody has foreseen")}
    federation.submit("s", "a: x")
    federation.submit("t")
    federation.heartbeat()
    federation.store.deliver("s", "x", None)
    federation.notifications()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON)
    federation.work()
    federation.heartbeat(HEARTBEATS_PER_COMPARISON)
    federation.flaky.broken = {}
    for _ in range(2 * HEARTBEATS_PER_COMPARISON):  # Leases of an earlier session are free after its expiry.
        federation.heartbeat()
        federation.store.sweep()
    federation.submit("u")
    for _ in range(6):
        federation.notifications()
        federation.work()
        federation.heartbeat()
    assert ("u", "stage_ended") in federation.kinds()
    assert all_is_free(federation)


def test_no_call_follows_an_unanswered_one_before_a_heartbeat(busy):
    calls = []
    busy.flaky.heard = calls.append
    busy.flaky.down = set(VERBS) - {"heartbeat"}
    busy.submit("t")
    for number in range(1, 6):
        busy.heartbeat()
        busy.notifications()
        busy.work()
        assert calls.count("heartbeat") == number
        assert len(calls) == 2 * number
    assert busy.view().alive


def test_failing_call_does_not_starve_the_others(busy):
    calls = []
    busy.flaky.heard = calls.append
    busy.flaky.down = {"queued"}
    busy.heartbeat(2 * HEARTBEATS_PER_COMPARISON)
    assert calls.count("queued") == 2 * HEARTBEATS_PER_COMPARISON
    assert calls.count("claims_of") == 2


def test_calls_that_take_long_leave_a_heartbeat_its_time(busy):
    renewed = [busy.clock.now_ms]
    busy.flaky.heard = lambda verb: renewed.append(busy.clock.now_ms) if verb == "heartbeat" else busy.clock.advance(TTL_MS // 5)
    for number in range(30):
        busy.submit(f"t{number}", slot=busy.record.pools[0].capacity)
    busy.heartbeat(12)
    assert busy.running() == {"s"}
    assert max(later - earlier for earlier, later in pairwise(renewed)) < TTL_MS // 2


def test_refounded_ledger_learns_held_leases_at_once(busy):
    busy.flaky.broken = {"queued": LedgerUninitialised("empty")}
    busy.heartbeat()
    assert busy.child.due_in_ms() == 0
    assert busy.running() == {"s"}


@pytest.mark.parametrize("error", ERRORS)
def test_lasting_error_is_logged_with_its_remedy(error):
    assert not will_pass(error("no"))
    assert remedy_of(error("no"))


def test_transient_errors_need_no_operator():
    assert will_pass(StoreUnavailable("no answer"))
    assert will_pass(EpochChanged("another one", epoch=2, recovery_ms=1))
