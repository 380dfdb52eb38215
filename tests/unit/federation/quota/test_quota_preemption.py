from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from federation.quota.policies import KUEUE, MESH, Policies, QueueSettings, Strategy
from federation.quota.policies import PreemptionMode as Policy
from federation.quota.preemption.choice import victims_for
from federation.quota.preemption.fair import Outlook
from federation.quota.quota_fixtures import BLUE, RED, QuotaNode, ask_for, runs, snapshot_of, work
from mesh.core.reasons import Reason

FAIR = replace(KUEUE, fair_sharing=True)
DEFAULT = replace(MESH, min_run_ms=0)
LOWER = Policies(within_queue=Policy.LOWER_PRIORITY)
ALL = Policies(within_queue=Policy.LOWER_PRIORITY, reclaim=Policy.ANY)


def victims(snapshot, workload, **asked) -> dict[str, Reason]:
    found = victims_for(snapshot, ask_for(snapshot, workload, **asked))
    return {victim.running.workload.workload: victim.reason for victim in found}


def test_looking_for_victims_leaves_no_trace():
    snapshot = snapshot_of(
        [runs(work("b1", "b", 4))], KUEUE, all=QuotaNode(), a=QuotaNode(parent="all", nominal=4, policies=ALL), b=QuotaNode(parent="all")
    )
    before = snapshot.ledger.usage()
    assert victims(snapshot, work("in", "a", 4))
    assert (snapshot.ledger.usage(), snapshot.mark()) == (before, 0)


def test_workload_without_the_needed_resource_is_no_candidate():
    running = [runs(work("blue", "a", 4, priority=-9), key=BLUE), runs(work("red", "a", 4, priority=-1))]
    snapshot = snapshot_of(running, KUEUE, a=QuotaNode(nominal=4, blue=4, policies=LOWER))
    assert victims(snapshot, work("in", "a", 4)) == {"red": Reason.PREEMPTED_WITHIN_TENANT}


def test_leaving_workload_is_chosen_before_a_less_urgent_one():
    running = [runs(work("least", "a", 2, priority=-9)), runs(work("leaving", "a", 2, priority=-1), is_leaving=True)]
    snapshot = snapshot_of(running, KUEUE, a=QuotaNode(nominal=4, policies=LOWER))
    assert victims(snapshot, work("in", "a", 2)) == {"leaving": Reason.PREEMPTED_WITHIN_TENANT}


def test_equal_candidates_are_ordered_by_least_lost_work():
    running = [runs(work("saved", "a", 2, priority=-1), since_ms=0, saved_ms=990), runs(work("newer", "a", 2, priority=-1), since_ms=500)]
    tree = {"a": QuotaNode(nominal=4, policies=LOWER)}
    assert victims(snapshot_of(running, DEFAULT, 1_000, **tree), work("in", "a", 2)) == {"saved": Reason.PREEMPTED_WITHIN_TENANT}
    assert victims(snapshot_of(running, KUEUE, 1_000, **tree), work("in", "a", 2)) == {"newer": Reason.PREEMPTED_WITHIN_TENANT}


@pytest.mark.parametrize(
    ("own_ms", "taken"),
    [pytest.param(None, False, id="by the configured time"), pytest.param(0, True, id="unless its queue sets 0")],
)
def test_workload_below_its_minimum_run_time_is_spared(own_ms: int | None, taken: bool):
    young = runs(work("young", "a", 4, priority=-1), since_ms=950)
    settings = QueueSettings(min_run_ms=own_ms)
    snapshot = snapshot_of([young], replace(MESH, min_run_ms=100), 1_000, a=QuotaNode(nominal=4, settings=settings, policies=LOWER))
    assert bool(victims(snapshot, work("in", "a", 4))) is taken


def test_work_that_may_not_be_preempted_is_spared():
    stays = runs(work("stays", "a", 4, priority=-1)._replace(is_preemptible=False))
    assert not victims(snapshot_of([stays], DEFAULT, a=QuotaNode(nominal=4, policies=LOWER)), work("in", "a", 4))


def test_pass_without_borrowing_follows_a_failed_one_with_it():
    """Priority 5 is above the threshold, so only a queue that ends within its own quota can preempt `b1`."""
    policies = Policies(within_queue=Policy.LOWER_PRIORITY, reclaim=Policy.ANY, borrow=Policy.LOWER_PRIORITY, borrow_priority_max=0)
    running = [runs(work("a1", "a", 2)), runs(work("b1", "b", 2, priority=5))]
    tree = {"all": QuotaNode(), "a": QuotaNode(parent="all", nominal=4, policies=policies), "b": QuotaNode(parent="all")}
    snapshot = snapshot_of(running, KUEUE, **tree)
    assert victims(snapshot, work("in", "a", 4, priority=1)) == {"a1": Reason.PREEMPTED_WITHIN_TENANT, "b1": Reason.QUOTA_RECLAIMED}


def test_cohort_that_does_not_borrow_is_closed_to_outsiders():
    tree = {
        "root": QuotaNode(nominal=0),
        "rich": QuotaNode(parent="root", nominal=4),
        "inside": QuotaNode(parent="rich"),
        "poor": QuotaNode(parent="root", nominal=2, policies=ALL),
    }
    snapshot = snapshot_of([runs(work("w", "inside", 4)), runs(work("own", "poor", 2))], FAIR, **tree)
    assert not victims(snapshot, work("in", "poor", 1))


def test_shares_that_would_only_be_turned_round_allow_nothing():
    tree = {"all": QuotaNode(nominal=6), "a": QuotaNode(parent="all", policies=ALL), "b": QuotaNode(parent="all")}
    snapshot = snapshot_of([runs(work("b1", "b", 3)), runs(work("a1", "a", 3, priority=5))], FAIR, **tree)
    assert not victims(snapshot, work("in", "a", 3))


@pytest.mark.parametrize(
    ("strategies", "taken"),
    [
        pytest.param((Strategy.FINAL_SHARE,), {}, id="a huge job is safe from what leaves it with less"),
        pytest.param((Strategy.INITIAL_SHARE,), {"huge": Reason.FAIR_SHARE}, id="a huge job is preempted for a small one"),
        pytest.param(
            (Strategy.FINAL_SHARE, Strategy.INITIAL_SHARE), {"huge": Reason.FAIR_SHARE}, id="a huge job is preempted in the second try"
        ),
    ],
)
def test_strategy_decides_between_one_huge_and_many_small_jobs(strategies, taken):
    tree = {"all": QuotaNode(nominal=6), "a": QuotaNode(parent="all", policies=ALL), "b": QuotaNode(parent="all")}
    snapshot = snapshot_of([runs(work("huge", "b", 6))], replace(FAIR, strategies=strategies), **tree)
    assert victims(snapshot, work("in", "a", 2)) == taken


@pytest.mark.parametrize(
    ("asked", "is_hopeless"),
    [pytest.param(3, False, id="own work lifts the limit"), pytest.param(4, True, id="all own work is too little")],
)
def test_no_search_begins_beyond_the_own_limit(asked: int, is_hopeless: bool):
    running = [runs(work("own", "a", 1, priority=-1)), runs(work("b", "b", 8))]
    tree = {"all": QuotaNode(nominal=9), "a": QuotaNode(parent="all", borrowing=3, policies=ALL), "b": QuotaNode(parent="all")}
    snapshot = snapshot_of(running, DEFAULT, **tree)
    ask = ask_for(snapshot, work("in", "a", asked))
    assert Outlook(snapshot, ask).is_hopeless(ask.amounts) == is_hopeless
    assert bool(victims_for(snapshot, ask)) != is_hopeless


@pytest.mark.parametrize("others", [1, 9])
def test_siblings_with_other_work_are_passed_over(others: int):
    tree = {f"blue{number}": QuotaNode(parent="all", blue=0) for number in range(others)}
    running = [runs(work(name, name, 6), key=BLUE) for name in tree] + [runs(work("red", "b", 4))]
    nodes = {"all": QuotaNode(nominal=4, blue=99), "a": QuotaNode(parent="all", policies=ALL), "b": QuotaNode(parent="all"), **tree}
    assert victims(snapshot_of(running, DEFAULT, **nodes), work("in", "a", 1)) == {"red": Reason.FAIR_SHARE}


def test_queue_within_quota_after_own_preemption_goes_by_shares():
    """By its weight of 1/10 its share is the highest, so its own work goes first; then it uses at most its 3."""
    tree = {
        "all": QuotaNode(nominal=3),
        "a": QuotaNode(parent="all", nominal=3, weight=Fraction(1, 10), policies=ALL),
        "b": QuotaNode(parent="all"),
    }
    running = [runs(work("low", "a", 1, priority=-1)), runs(work("b1", "b", 2)), runs(work("b2", "b", 3))]
    assert victims(snapshot_of(running, FAIR, **tree), work("in", "a", 3)) == {
        "low": Reason.PREEMPTED_WITHIN_TENANT,
        "b1": Reason.FAIR_SHARE,
    }
    due = snapshot_of([runs(work("b1", "b", 2)), runs(work("b2", "b", 4))], FAIR, **tree)
    assert victims(due, work("in", "a", 2)) == {"b1": Reason.QUOTA_RECLAIMED}


def test_preemptor_cannot_be_preempted_by_its_victim_by_default():
    tree = {"all": QuotaNode(nominal=4), "a": QuotaNode(parent="all", policies=ALL), "b": QuotaNode(parent="all", policies=ALL)}
    snapshot = snapshot_of([runs(work("b1", "b", 4))], DEFAULT, **tree)
    assert victims(snapshot, work("in", "a", 2)) == {"b1": Reason.FAIR_SHARE}
    snapshot.displaces = lambda by, victim: (by.workload, victim.workload) == ("in", "b1")
    assert not victims(snapshot, work("in", "a", 2))
    within = {**tree, "a": QuotaNode(parent="all", nominal=2, policies=ALL)}
    reclaiming = snapshot_of([runs(work("b1", "b", 6))], DEFAULT, **within)
    reclaiming.displaces = lambda *_: True
    assert victims(reclaiming, work("in", "a", 2)) == {"b1": Reason.QUOTA_RECLAIMED}


def test_work_that_is_listed_later_is_found_by_a_search():
    tree = {
        "root": QuotaNode(nominal=4),
        "a": QuotaNode(parent="root", policies=Policies(reclaim=Policy.ANY), nominal=2),
        "b": QuotaNode(parent="root"),
        "c": QuotaNode(parent="root"),
    }
    snapshot, looked_at = snapshot_of([], MESH, 10**6, **tree), list[str]()
    for queue in ("b", "c"):
        running = runs(work(f"{queue}1", queue, 6 if queue == "b" else 0))._replace(mesh="east")
        node = snapshot.forest.index[queue]
        snapshot.ledger.charge(node, running.amounts)
        snapshot.list_later(node, RED[0], "east", lambda running=running: looked_at.append(running.workload.queue) or [running])
    assert victims(snapshot, work("in", "a", 2)) == {"b1": Reason.QUOTA_RECLAIMED}
    assert looked_at == ["b"]
    assert snapshot.queues_with_work("east") == {snapshot.forest.index["b"], snapshot.forest.index["c"]}
