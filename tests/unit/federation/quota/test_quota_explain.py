from __future__ import annotations

from dataclasses import replace

import pytest

from federation.quota.explain import Change, Lever, changes_for, dry_run, explain
from federation.quota.ledger import QuotaLedger
from federation.quota.policies import MESH, Policies, QueueSettings, TimeWindow
from federation.quota.policies import PreemptionMode as Policy
from federation.quota.quota_fixtures import RED, QuotaNode, forest_of, scheduler_of, work
from mesh.core.reasons import Reason
from mesh.errors import LedgerError

ALL = Policies(within_queue=Policy.LOWER_PRIORITY, reclaim=Policy.ANY)
QUICK = replace(MESH, min_run_ms=0)


def change(lever: Lever, tenant: str, units: int) -> Change:
    return Change(lever=lever, tenant=tenant, flavor="red", resource="gpu", units=units)


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        pytest.param(2, [], id="nothing, when it fits"),
        pytest.param(3, [change(Lever.FREE, "all", 1)], id="others have to free some"),
        pytest.param(6, [change(Lever.BORROWED, "a", 1), change(Lever.FREE, "all", 4)], id="it borrows too much already"),
        pytest.param(8, [change(Lever.BORROWING_LIMIT, "a", 1), change(Lever.FREE, "all", 6)], id="its limit is always too low"),
        pytest.param(
            11, [change(Lever.BORROWING_LIMIT, "a", 4), change(Lever.NOMINAL, "all", 1)], id="all tenants together own too little"
        ),
    ],
)
def test_needed_changes_name_tenant_and_amount(units: int, expected: list[Change]):
    forest = forest_of({"all": QuotaNode(), "a": QuotaNode(parent="all", nominal=4, borrowing=3), "b": QuotaNode(parent="all", nominal=6)})
    ledger = QuotaLedger(forest, keeps_local=True)
    ledger.charge(forest.index["a"], {RED: 2})
    ledger.charge(forest.index["b"], {RED: 6})
    assert list(changes_for(ledger, forest.index["a"], RED, units)) == expected


def test_request_fits_after_all_listed_changes():
    for lending in (None, 1):
        nodes = {
            "all": QuotaNode(nominal=1),
            "a": QuotaNode(parent="all", nominal=4, borrowing=2),
            "b": QuotaNode(parent="all", nominal=3, lending=lending),
        }
        forest = forest_of(nodes)
        ledger = QuotaLedger(forest, keeps_local=True)
        ledger.charge(forest.index["a"], {RED: 3})
        for units in range(1, 12):
            room = ledger.available(forest.index["a"], RED)
            changes = list(changes_for(ledger, forest.index["a"], RED, units))
            assert bool(changes) is (units > room)


def test_a_place_in_the_queue_counts_what_goes_first():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=2))
    for number, priority in enumerate((0, 0, 7)):
        scheduler.submit(work(f"w{number}", "a", 4, priority=priority, created_ms=number))
    assert [explain(scheduler, f"w{number}").position for number in range(3)] == [1, 2, 0]


def test_wait_is_explained_with_amounts_and_a_time():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4))
    scheduler.submit(work("runs", "a", 3, runs_ms=500))
    scheduler.round(0)
    scheduler.submit(work("first", "a", 4, created_ms=1, runs_ms=1_000))
    scheduler.submit(work("second", "a", 2, created_ms=2))
    scheduler.round(10)
    first, second = explain(scheduler, "first"), explain(scheduler, "second")
    assert (first.reason, first.start_ms, first.is_parked) == (Reason.QUOTA_EXHAUSTED, 500, True)
    assert [(one.wanted, one.available, one.most) for one in first.refusals] == [(4, 1, 4)]
    assert first.changes == (change(Lever.FREE, "a", 3),)
    assert (second.position, second.start_ms) == (1, 1_500)


def test_start_is_unknown_when_ends_are_unknown():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4))
    scheduler.submit(work("runs", "a", 3))
    scheduler.round(0)
    scheduler.submit(work("waits", "a", 4))
    assert explain(scheduler, "waits").start_ms is None


def test_never_fitting_request_names_the_limit():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4))
    scheduler.submit(work("huge", "a", 9))
    explanation = explain(scheduler, "huge")
    assert (explanation.reason, explanation.changes, explanation.start_ms) == (
        Reason.QUOTA_TOO_SMALL,
        (change(Lever.NOMINAL, "a", 5),),
        None,
    )


def test_dry_run_lists_victims_and_preempts_none():
    scheduler = scheduler_of(QUICK, all=QuotaNode(), a=QuotaNode(parent="all", nominal=4, policies=ALL), b=QuotaNode(parent="all"))
    scheduler.submit(work("b1", "b", 4))
    scheduler.round(0)
    explanation = dry_run(scheduler, work("if", "a", 3))
    assert [(one.running.workload.workload, one.reason) for one in explanation.victims] == [("b1", Reason.QUOTA_RECLAIMED)]
    assert explanation.reason is None
    assert scheduler.round(1) == []
    with pytest.raises(LedgerError):
        explain(scheduler, "if")


def test_closed_window_names_its_opening_time():
    window = TimeWindow(opens_ms=500, lasts_ms=100, every_ms=1_000)
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4, settings=QueueSettings(windows=(window,))))
    scheduler.submit(work("w", "a", 1))
    explanation = explain(scheduler, "w")
    assert (explanation.reason, explanation.start_ms) == (Reason.OUTSIDE_WINDOW, 500)


def test_preemptor_is_explained_by_its_victims():
    scheduler = scheduler_of(QUICK, all=QuotaNode(), a=QuotaNode(parent="all", nominal=4, policies=ALL), b=QuotaNode(parent="all"))
    scheduler.submit(work("b1", "b", 4))
    scheduler.round(0)
    scheduler.submit(work("a1", "a", 4))
    scheduler.round(1)
    assert explain(scheduler, "a1").reason is Reason.WAITING_FOR_VICTIMS


def test_behind_a_head_of_a_strict_queue_the_head_is_the_reason():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4, settings=QueueSettings(is_strict=True)))
    scheduler.submit(work("head", "a", 9, created_ms=0))
    scheduler.submit(work("behind", "a", 1, created_ms=1))
    assert explain(scheduler, "behind").reason is Reason.BEHIND_HEAD
