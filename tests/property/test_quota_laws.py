"""Laws of the quota core over random trees, limits, policies and work."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from federation.quota.decisions import Admit, Evict, Preempt
from federation.quota.explain import explain
from federation.quota.forest import ForestNode, QuotaForest
from federation.quota.ledger import QuotaLedger, recompute
from federation.quota.policies import KUEUE, MESH, OnCut, Policies, QueueSettings, ResourceGroup, Rules
from federation.quota.policies import Preempt as Policy
from federation.quota.scheduler import QuotaScheduler
from federation.quota.shares import dominant_share
from federation.quota.workloads import ReplicaSet, Workload
from federation.tenants import Quota
from mesh.ids import FlavorName
from mesh.reasons import Reason

RED, BLUE = (FlavorName("red"), "gpu"), (FlavorName("blue"), "gpu")
KEYS = [RED, BLUE, (FlavorName("red"), "cpu")]
GROUPS = (ResourceGroup(resources=("cpu",), flavors=("red",)), ResourceGroup(resources=("gpu",), flavors=("red", "blue")))
units = st.integers(0, 12)
limit = st.none() | units


@st.composite
def forests(draw) -> QuotaForest:
    """Up to four cohorts under each other or side by side, up to six queues in them or alone."""
    quota = st.builds(Quota, nominal=units, borrowing_limit=limit, lending_limit=limit)
    nodes = []
    for number in range(draw(st.integers(1, 4))):
        parent = draw(st.none() | st.sampled_from([node.name for node in nodes])) if nodes else None
        nodes.append(ForestNode(name=f"c{number}", parent=parent, quotas=draw(st.dictionaries(st.sampled_from(KEYS), quota))))
    for number in range(draw(st.integers(1, 6))):
        parent = draw(st.sampled_from([None, *(node.name for node in nodes if node.name.startswith("c"))]))
        quotas = {**dict.fromkeys(KEYS, Quota()), **draw(st.dictionaries(st.sampled_from(KEYS), quota))}
        weight = draw(st.sampled_from([Fraction(0), Fraction(1), Fraction(1, 2), Fraction(3)]))
        nodes.append(ForestNode(name=f"q{number}", parent=parent, quotas=quotas, weight=weight, is_queue=True))
    return QuotaForest(nodes)


@st.composite
def used(draw):
    """A forest, charges that came and went, and the ledger that counted them."""
    forest = draw(forests())
    ledger = QuotaLedger(forest, keeps_local=draw(st.booleans()))
    charges = []
    for _ in range(draw(st.integers(0, 20))):
        if charges and draw(st.booleans()):
            ledger.discharge(*charges.pop(draw(st.integers(0, len(charges) - 1))))
            continue
        charge = draw(st.sampled_from(forest.queues)), draw(st.dictionaries(st.sampled_from(KEYS), st.integers(0, 15), max_size=2))
        charges.append(charge)
        ledger.charge(*charge)
    return forest, ledger, charges


policies = st.builds(
    Policies,
    within_queue=st.sampled_from([Policy.NEVER, Policy.LOWER_PRIORITY, Policy.LOWER_OR_NEWER]),
    reclaim=st.sampled_from([Policy.NEVER, Policy.LOWER_PRIORITY, Policy.ANY]),
    borrow=st.sampled_from([Policy.NEVER, Policy.LOWER_PRIORITY]),
    borrow_priority_max=st.none() | st.integers(0, 2),
)
settings_of_queue = st.builds(
    QueueSettings, policies=policies, groups=st.just(GROUPS), is_strict=st.booleans(), running_max=st.none() | st.integers(1, 3)
)
rules = st.builds(
    replace, st.just(MESH), fair_sharing=st.booleans(), min_run_ms=st.sampled_from([0, 20]), hold_ms=st.sampled_from([0, 30, 10_000])
)
replica_sets = st.builds(
    ReplicaSet,
    name=st.just("main"),
    count=st.integers(1, 4),
    count_min=st.none() | st.just(1),
    amounts=st.dictionaries(st.sampled_from(["gpu", "cpu"]), st.integers(0, 4), min_size=1),
)


@st.composite
def scheduled(draw, with_rules=rules, priorities=st.integers(0, 2)):
    """A scheduler with queues, and work to submit to it."""
    forest = draw(forests())
    settings = {queue: draw(settings_of_queue) for queue in forest.queues}
    names = [forest.names[queue] for queue in forest.queues]
    works = [
        Workload(
            workload=f"w{number}",
            queue=draw(st.sampled_from(names)),
            created_ms=draw(st.integers(0, 5)),
            priority=draw(priorities),
            replica_sets=(draw(replica_sets),),
            expected_run_ms=draw(st.none() | st.integers(1, 50)),
        )
        for number in range(draw(st.integers(1, 10)))
    ]
    return QuotaScheduler(forest, settings, draw(with_rules)), works


def deficits(scheduler: QuotaScheduler) -> dict[tuple[int, object], int]:
    """What running work, holds aside, uses beyond the limits at each node."""
    ledger = QuotaLedger(scheduler.forest, keeps_local=False)
    for node, several in scheduler.snapshot.running.items():
        for running in several.values():
            ledger.charge(node, running.amounts)
    return {(node, key): ledger.deficit(node, key) for node in range(len(scheduler.forest.names)) for key in KEYS}


def books_agree(scheduler: QuotaScheduler) -> None:
    """What was counted step by step is what running work and holds come to."""
    charges = [(node, one.amounts) for node, several in scheduler.snapshot.running.items() for one in several.values()]
    held = [(scheduler.forest.index[hold.workload.queue], hold.assignment.amounts) for hold in scheduler.holds.values()]
    assert scheduler.snapshot.ledger.usage() == recompute(scheduler.forest, [*charges, *held])
    for node in range(len(scheduler.forest.names)):
        assert scheduler.counts.of(node) == sum(
            len(several) for queue, several in scheduler.snapshot.running.items() if node in scheduler.forest.paths[queue]
        )


def leaving(scheduler: QuotaScheduler) -> list[str]:
    return sorted(name for several in scheduler.snapshot.running.values() for name, one in several.items() if one.is_leaving)


@given(used())
def test_use_that_was_counted_step_by_step_is_the_use_from_scratch(case):
    forest, ledger, charges = case
    assert ledger.usage() == recompute(forest, charges)


@given(used(), st.sampled_from(KEYS))
def test_what_is_available_can_be_charged_and_no_more(case, key):
    forest, ledger, _ = case
    for queue in forest.queues:
        room = ledger.available(queue, key)
        before = {step: ledger.deficit(step, key) for step in range(len(forest.names))}
        if room:
            ledger.charge(queue, {key: room})
            assert {step: ledger.deficit(step, key) for step in before} == before or not ledger.keeps_local
            for step in forest.paths[queue]:
                assert ledger.deficit(step, key) <= max(before[step], 0)
            ledger.discharge(queue, {key: room})
        assert ledger.available(queue, key) == room


@given(used(), st.sampled_from(KEYS))
def test_what_a_node_keeps_is_there_for_it_whatever_deficit_stands_above(case, key):
    forest, ledger, _ = case
    for queue in forest.queues:
        if ledger.keeps_local:
            assert ledger.available(queue, key) >= ledger.local_room(queue, key)
        assert ledger.available(queue, key) <= max(0, forest.rows(key).potential[queue])


@given(used(), st.sampled_from(KEYS), st.integers(1, 9))
def test_a_share_never_falls_when_more_is_used_and_never_rises_when_less_is(case, key, more):
    forest, ledger, _ = case
    for queue in forest.queues:
        before = [dominant_share(ledger, step).key for step in forest.paths[queue]]
        ledger.charge(queue, {key: more})
        after = [dominant_share(ledger, step).key for step in forest.paths[queue]]
        ledger.discharge(queue, {key: more})
        assert all(later >= sooner for later, sooner in zip(after, before, strict=True))
        assert [dominant_share(ledger, step).key for step in forest.paths[queue]] == before


@given(scheduled(), st.data())
def test_nothing_is_granted_beyond_any_limit_whatever_comes_and_goes(case, data):
    scheduler, works = case
    for now_ms in range(0, 120, 10):
        if works and data.draw(st.booleans()):
            scheduler.submit(works.pop())
        for decision in scheduler.round(now_ms):
            if isinstance(decision, Admit):
                assert not any(deficits(scheduler).values())
        books_agree(scheduler)
        assert not any(deficits(scheduler).values())
        for name in leaving(scheduler):
            if data.draw(st.booleans()):
                scheduler.stopped(name, now_ms)
        running = sorted(name for several in scheduler.snapshot.running.values() for name in several)
        if running and data.draw(st.booleans()):
            scheduler.end(data.draw(st.sampled_from(running)), now_ms)
        books_agree(scheduler)


@given(scheduled())
def test_evictions_end_when_nothing_comes_and_nothing_ends(case):
    scheduler, works = case
    for work in works:
        scheduler.submit(work)
    evictions = 0
    for number in range(60):
        decisions = scheduler.round(number * 25)
        for name in leaving(scheduler):
            scheduler.stopped(name, number * 25 + 1)
            evictions += 1
        if number > 45:
            assert not any(isinstance(decision, (Admit, Preempt, Evict)) for decision in decisions)
    assert evictions <= len(works) * 4


@given(scheduled())
def test_two_workloads_never_evict_each_other_but_for_what_is_their_queues_own(case):
    scheduler, works = case
    for work in works:
        scheduler.submit(work)
    pairs = set()
    for number in range(20):
        for decision in scheduler.round(number * 25):
            if isinstance(decision, Preempt):
                by_right = {one.running.workload.workload for one in decision.victims if one.reason is not Reason.QUOTA_RECLAIMED}
                fresh = {one.running.workload.workload for one in decision.victims if not one.running.is_leaving}
                pairs |= {(decision.workload, name) for name in by_right & fresh}
        for name in leaving(scheduler):
            scheduler.stopped(name, number * 25 + 1)
    assert not {(victim, by) for by, victim in pairs} & pairs


@given(scheduled())
def test_the_same_calls_give_the_same_decisions(case):
    scheduler, works = case
    other = QuotaScheduler(scheduler.forest, scheduler.settings, scheduler.rules)
    for work in works:
        scheduler.submit(work)
    for work in works:
        other.submit(work)
    for now_ms in (0, 100, 200):
        assert scheduler.round(now_ms) == other.round(now_ms)
        for name in leaving(scheduler):
            scheduler.stopped(name, now_ms)
            other.stopped(name, now_ms)


@given(scheduled())
def test_an_explanation_changes_nothing_and_every_wait_has_a_reason(case):
    scheduler, works = case
    for work in works:
        scheduler.submit(work)
    scheduler.round(0)
    before = scheduler.snapshot.ledger.usage()
    for work in works:
        if any(work.workload == waiting.workload for waiting in scheduler.waiting(work.queue)):
            told = explain(scheduler, work.workload)
            assert told.reason is not None or told.position or told.victims
            assert scheduler.snapshot.ledger.usage() == before
    assert scheduler.snapshot.mark() == 0


@given(scheduled(), forests(), st.data())
def test_after_a_cut_what_is_beyond_the_limits_only_falls(case, after, data):
    scheduler, works = case
    for work in works:
        scheduler.submit(work)
    scheduler.round(0)
    nodes = [
        ForestNode(
            name=name,
            parent=None if scheduler.forest.parents[node] < 0 else scheduler.forest.names[scheduler.forest.parents[node]],
            quotas={key: Quota(nominal=data.draw(st.integers(0, 4))) for key in KEYS},
            is_queue=node in scheduler.forest.queues,
        )
        for node, name in enumerate(scheduler.forest.names)
    ]
    settings = {
        node: replace(scheduler.settings[node], on_cut=data.draw(st.sampled_from(list(OnCut)))) for node in scheduler.forest.queues
    }
    decided = scheduler.reshape(QuotaForest(nodes), settings, 1)
    for decision in decided:
        assert isinstance(decision, Evict)
        assert decision.reason is Reason.QUOTA_CUT
        assert settings[scheduler.forest.index[scheduler.find(decision.workload).queue]].on_cut is OnCut.EVICT
    before = deficits(scheduler)
    for now_ms in range(50, 400, 50):
        for name in leaving(scheduler):
            scheduler.stopped(name, now_ms)
        scheduler.round(now_ms)
        now = deficits(scheduler)
        assert all(now[place] <= before[place] for place in now)
        before = now
        books_agree(scheduler)


