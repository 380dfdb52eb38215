from __future__ import annotations

from dataclasses import replace

import pytest

from federation.errors import UnknownTenant
from federation.quota.decisions import Admit, Evict, Preempt, Wait
from federation.quota.policies import KUEUE, MESH, OnQuotaReduction, Policies, QueueSettings, Rules, Stop, TimeWindow
from federation.quota.policies import PreemptionMode as Policy
from federation.quota.quota_fixtures import RED, QuotaNode, forest_of, scheduler_of, settings_of, work
from federation.quota.scheduler import QuotaScheduler
from federation.quota.workloads import ReplicaSet
from mesh.core.reasons import Reason
from mesh.errors import LedgerError

ALL = Policies(within_queue=Policy.LOWER_PRIORITY, reclaim=Policy.ANY)
QUICK = replace(MESH, min_run_ms=0, reservation_timeout_ms=1_000)
HOUR_MS = 3_600_000


def started(scheduler: QuotaScheduler, now_ms: int) -> list[str]:
    return [decision.workload for decision in scheduler.round(now_ms) if isinstance(decision, Admit)]


def reasons(scheduler: QuotaScheduler, now_ms: int) -> dict[str, Reason]:
    return {decision.workload: decision.reason for decision in scheduler.round(now_ms) if isinstance(decision, Wait)}


def shared(rules: Rules = QUICK) -> QuotaScheduler:
    """`a` has a quota of 4 that `b` borrows with one workload."""
    scheduler = scheduler_of(
        rules, all=QuotaNode(), a=QuotaNode(parent="all", nominal=4, policies=ALL), b=QuotaNode(parent="all"), c=QuotaNode(parent="all")
    )
    scheduler.submit(work("b1", "b", 4))
    assert started(scheduler, 0) == ["b1"]
    return scheduler


def test_work_starts_in_the_order_of_its_queue():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=3))
    for number, priority in enumerate((0, 5, 0)):
        scheduler.submit(work(f"w{number}", "a", 1, priority=priority, created_ms=number))
    assert [started(scheduler, now_ms) for now_ms in (10, 20, 30)] == [["w1"], ["w0"], ["w2"]]


def test_a_strict_queue_tries_nothing_behind_a_head_that_waits():
    free, strict = QuotaNode(nominal=2), QuotaNode(nominal=2, settings=QueueSettings(is_strict=True))
    for node, expected in ((free, ["small"]), (strict, [])):
        scheduler = scheduler_of(QUICK, a=node)
        scheduler.submit(work("big", "a", 3, created_ms=0))
        scheduler.submit(work("small", "a", 1, created_ms=1))
        assert [*started(scheduler, 5), *started(scheduler, 6)] == expected


def crowded(rules: Rules) -> QuotaScheduler:
    """`v` has borrowed 10 of 12; `a` reclaims its 5, and `b` and `c` reclaim 2 each, of which 2 are free."""
    owners = {name: QuotaNode(parent="all", nominal=nominal, policies=ALL) for name, nominal in (("a", 5), ("b", 4), ("c", 3))}
    scheduler = scheduler_of(rules, all=QuotaNode(), v=QuotaNode(parent="all"), **owners)
    scheduler.submit(work("v1", "v", 10))
    scheduler.round(0)
    for name, units in (("a", 5), ("b", 2), ("c", 2)):
        scheduler.submit(work(f"{name}1", name, units, priority=9 if name == "a" else 0))
    return scheduler


def test_workload_waits_until_its_victims_have_stopped():
    scheduler = crowded(QUICK)
    decisions = scheduler.round(10)
    assert [(type(one), one.workload) for one in decisions] == [(Preempt, "a1"), (Admit, "b1"), (Wait, "c1")]
    assert scheduler.waits["c1"].reason is Reason.WAITING_FOR_VICTIMS
    scheduler.stopped("v1", 20)
    assert started(scheduler, 30) == ["a1", "c1"]


def test_by_the_rules_of_kueue_it_starts_beside_them():
    assert started(crowded(replace(KUEUE, fair_sharing=True)), 10) == ["b1", "c1"]


def test_inadmissible_head_blocks_no_workload_behind_it():
    """Its first resource set leaves flavors untried, so a pass requeues it; a second try would give the same answer."""
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4, blue=4, flavors=("red", "blue")))
    first, second = ReplicaSet(name="first", count=1, amounts={"gpu": 1}), ReplicaSet(name="second", count=1, amounts={"gpu": 9})
    for number in range(2):
        scheduler.submit(work(f"big{number}", "a", 1, created_ms=number)._replace(replica_sets=(first, replace(second, count=number + 1))))
    scheduler.submit(work("small", "a", 1, created_ms=9))
    assert [started(scheduler, now_ms) for now_ms in (10, 20, 30)] == [[], [], ["small"]]


def test_parked_workload_is_retried_when_its_tree_frees_quota():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=2), z=QuotaNode(nominal=2))
    for name, queue in (("a1", "a"), ("z1", "z")):
        scheduler.submit(work(name, queue, 2))
    scheduler.round(0)
    scheduler.submit(work("a2", "a", 2))
    assert reasons(scheduler, 1) == {"a2": Reason.NO_RECLAIM_CANDIDATES}
    assert scheduler.is_parked("a2")
    scheduler.end("z1", 2)
    assert scheduler.round(3) == []
    scheduler.end("a1", 4)
    assert started(scheduler, 5) == ["a2"]


def test_a_shape_that_was_parked_parks_what_is_like_it():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=2))
    for number in range(50):
        scheduler.submit(work(f"w{number:02}", "a", 3, created_ms=number))
    assert len(scheduler.round(1)) == 1
    scheduler.submit(work("late", "a", 3, created_ms=60))
    assert scheduler.round(2) == []
    scheduler.submit(work("urgent", "a", 3, priority=1))
    assert list(reasons(scheduler, 3)) == ["urgent"]


def test_freed_room_is_held_for_who_freed_it():
    scheduler = shared()
    scheduler.submit(work("a1", "a", 4, created_ms=1))
    (decision,) = scheduler.round(10)
    assert isinstance(decision, Preempt)
    assert [victim.running.workload.workload for victim in decision.victims] == ["b1"]
    scheduler.stopped("b1", 20)
    scheduler.submit(work("thief", "c", 4, priority=9))
    assert started(scheduler, 30) == ["a1"]


def test_order_alone_gives_a_preemptor_its_quota_without_a_hold():
    scheduler = shared(replace(KUEUE, fair_sharing=True))
    scheduler.submit(work("a1", "a", 4, created_ms=1))
    scheduler.round(10)
    scheduler.end("b1", 20)
    scheduler.submit(work("b2", "b", 4, priority=9))
    assert started(scheduler, 30) == ["a1"]  # It stays within its own quota, so it goes first.


def test_a_preemptor_stays_the_head_of_its_queue():
    scheduler = shared(replace(KUEUE, fair_sharing=True))
    scheduler.submit(work("a1", "a", 4, created_ms=1))
    scheduler.round(10)
    scheduler.submit(work("a2", "a", 4, priority=9, created_ms=2))
    assert [workload.workload for workload in scheduler.waiting("a")] == ["a1", "a2"]
    scheduler.end("b1", 20)
    assert started(scheduler, 30) == ["a1"]


def test_a_hold_that_is_not_used_in_time_is_given_up():
    scheduler = shared()
    scheduler.submit(work("a1", "a", 4, created_ms=1))
    scheduler.round(10)
    decisions = scheduler.round(1_010)
    assert [type(decision) for decision in decisions] == [Wait, Preempt]
    assert decisions[0].reason is Reason.RESERVATION_EXPIRED  # type: ignore[union-attr]  # of `Wait`, as the line above says
    assert all(victim.running.is_leaving for victim in decisions[1].victims)  # type: ignore[union-attr]  # of `Preempt`


def test_evicted_workload_keeps_its_queue_position():
    scheduler = shared()
    scheduler.submit(work("a1", "a", 4, created_ms=1))
    scheduler.submit(work("b2", "b", 4, created_ms=5))
    scheduler.round(10)
    scheduler.stopped("b1", 20)
    assert [workload.workload for workload in scheduler.waiting("b")] == ["b1", "b2"]


def test_protected_workload_is_preempted_after_its_minimum():
    scheduler = shared(replace(QUICK, min_run_ms=500))
    scheduler.submit(work("a1", "a", 4, created_ms=1))
    assert reasons(scheduler, 10) == {"a1": Reason.NO_RECLAIM_CANDIDATES}
    assert [type(decision) for decision in scheduler.round(500)] == [Preempt]


def test_overdue_workload_gets_all_freed_quota():
    settings = QueueSettings(max_wait_ms=1_000)
    scheduler = scheduler_of(QUICK, all=QuotaNode(nominal=4), a=QuotaNode(parent="all", settings=settings), b=QuotaNode(parent="all"))
    for name in ("b1", "b2"):
        scheduler.submit(work(name, "b", 2))
    assert [*started(scheduler, 0), *started(scheduler, 0)] == ["b1", "b2"]
    scheduler.submit(work("big", "a", 4, created_ms=0))
    scheduler.round(10)
    scheduler.end("b1", 500)
    scheduler.submit(work("b3", "b", 2))
    assert started(scheduler, 600) == ["b3"]
    scheduler.end("b3", 1_100)
    scheduler.submit(work("b4", "b", 2))
    assert started(scheduler, 1_200) == []
    scheduler.end("b2", 1_300)
    assert started(scheduler, 1_400) == ["big"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(QueueSettings(running_max=1), {"u2": Reason.RUNNING_LIMIT}, id="of a tenant"),
        pytest.param(QueueSettings(running_max_per_user=1), {"u2": Reason.USER_LIMIT}, id="of a user"),
    ],
)
def test_limits_on_running_work_hold_for_all_below_a_tenant(settings: QueueSettings, expected: dict[str, Reason]):
    scheduler = scheduler_of(QUICK, all=QuotaNode(nominal=9, settings=settings), a=QuotaNode(parent="all"), b=QuotaNode(parent="all"))
    scheduler.submit(work("u1", "a", 1, user="ann"))
    scheduler.submit(work("u2", "b", 1, user="ann"))
    assert started(scheduler, 0) == ["u1"]
    assert {name: gate.reason for name, gate in scheduler.gates.items()} == expected
    assert {gate.node for gate in scheduler.gates.values()} == {"all"}
    scheduler.end("u1", 1)
    assert started(scheduler, 2) == ["u2"]


def test_user_at_the_limit_blocks_no_other():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=9, settings=QueueSettings(running_max_per_user=1)))
    for number, user in enumerate(("ann", "ann", "bob")):
        scheduler.submit(work(f"{user}{number}", "a", 1, created_ms=number, user=user))
    assert [started(scheduler, now_ms) for now_ms in (5, 6)] == [["ann0"], ["bob2"]]


@pytest.mark.parametrize(
    ("stop", "decided", "reason"),
    [
        pytest.param(Stop.HOLD, [], Reason.TENANT_SUSPENDED, id="on hold"),
        pytest.param(Stop.DRAIN, [Evict(workload="a1", reason=Reason.TENANT_DRAINED)], Reason.TENANT_DRAINED, id="drained"),
    ],
)
def test_a_tenant_that_is_stopped_starts_nothing(stop: Stop, decided: list, reason: Reason):
    open_, closed = (
        {"all": QuotaNode(nominal=4, settings=QueueSettings(stop=way)), "a": QuotaNode(parent="all")} for way in (Stop.NONE, stop)
    )
    scheduler = scheduler_of(QUICK, **open_)
    scheduler.submit(work("a1", "a", 1))
    scheduler.round(0)
    forest = forest_of(closed)
    scheduler.reshape(forest, settings_of(forest, closed), 1)
    scheduler.submit(work("a2", "a", 1))
    assert scheduler.round(2) == decided
    assert scheduler.gates["a2"].reason is reason


def test_work_starts_only_inside_of_the_windows():
    window = TimeWindow(opens_ms=22 * HOUR_MS, lasts_ms=4 * HOUR_MS)
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4, settings=QueueSettings(windows=(window,))))
    scheduler.submit(work("night", "a", 1))
    assert started(scheduler, 12 * HOUR_MS) == []
    assert scheduler.gates["night"].reason is Reason.OUTSIDE_WINDOW
    assert started(scheduler, 25 * HOUR_MS) == ["night"]


@pytest.mark.parametrize(
    ("on_quota_reduction", "stopped"),
    [
        pytest.param(OnQuotaReduction.KEEP, [], id="continue"),
        pytest.param(OnQuotaReduction.EVICT, ["low"], id="preempt as few as possible"),
    ],
)
def test_quota_cut_does_what_the_tenant_chose(on_quota_reduction: OnQuotaReduction, stopped: list[str]):
    before, after = ({"a": QuotaNode(nominal=nominal, settings=QueueSettings(on_quota_reduction=on_quota_reduction))} for nominal in (4, 3))
    scheduler = scheduler_of(QUICK, **before)
    scheduler.submit(work("low", "a", 2))
    scheduler.submit(work("high", "a", 2, priority=5))
    assert [*started(scheduler, 0), *started(scheduler, 0)] == ["high", "low"]
    forest = forest_of(after)
    assert [decision.workload for decision in scheduler.reshape(forest, settings_of(forest, after), 1)] == stopped
    scheduler.submit(work("new", "a", 1))
    assert started(scheduler, 2) == []


def test_a_tenant_takes_its_work_along_to_another_parent():
    before = {"x": QuotaNode(nominal=4), "y": QuotaNode(nominal=4), "a": QuotaNode(parent="x"), "b": QuotaNode(parent="y")}
    scheduler = scheduler_of(QUICK, **before)
    scheduler.submit(work("a1", "a", 3))
    scheduler.round(0)
    after = {**before, "a": QuotaNode(parent="y"), "z": QuotaNode(parent="x")}
    forest = forest_of(after)
    assert scheduler.reshape(forest, settings_of(forest, after), 1) == []
    ledger = scheduler.snapshot.ledger
    assert [ledger.use(forest.index[name], RED) for name in ("x", "y", "a")] == [0, 3, 3]


def test_a_tenant_with_work_does_not_vanish():
    scheduler = scheduler_of(QUICK, a=QuotaNode(nominal=4), b=QuotaNode(nominal=4))
    scheduler.submit(work("a1", "a", 3))
    forest = forest_of({"b": QuotaNode(nominal=4)})
    with pytest.raises(UnknownTenant):
        scheduler.reshape(forest, {}, 1)
    assert started(scheduler, 2) == ["a1"]


def test_less_past_use_goes_first():
    rules = replace(QUICK, fair_sharing=False, history_half_life_ms=1_000)
    scheduler = scheduler_of(rules, all=QuotaNode(nominal=4), a=QuotaNode(parent="all"), b=QuotaNode(parent="all"))
    scheduler.submit(work("a1", "a", 4))
    scheduler.round(0)
    scheduler.end("a1", 2_000)
    scheduler.submit(work("urgent", "a", 4, priority=9))
    scheduler.submit(work("light", "b", 4, created_ms=5))
    assert started(scheduler, 2_000) == ["light"]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda scheduler: scheduler.submit(work("b1", "b", 1)), id="a duplicate workload id"),
        pytest.param(lambda scheduler: scheduler.end("nobody", 1), id="an end of an unknown workload"),
        pytest.param(lambda scheduler: scheduler.stopped("waits", 1), id="a stop of an idle workload"),
    ],
)
def test_impossible_event_is_refused(call):
    scheduler = shared()
    scheduler.submit(work("waits", "a", 9))
    before = scheduler.snapshot.ledger.usage()
    with pytest.raises(LedgerError):
        call(scheduler)
    assert scheduler.snapshot.ledger.usage() == before
