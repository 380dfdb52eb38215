"""Who gives way: the score, the verdict on each candidate, and the victims that are chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.nodes import NodeTable
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.preemption import (
    PRESETS,
    Candidate,
    PreemptionPlan,
    PreemptionRefused,
    PreemptionRules,
    PreemptionRulesError,
    Preemptor,
    evaluate,
    free_rows,
    parse_cross_label,
    plan,
    remaining_ms,
    score,
)

NOW_MS = 100_000
RULES = PreemptionRules(threshold=0.0, kappa_per_s=0.0, lost_work_per_s=0.0, min_run_ms=0)


def runs(task="t", **facts):
    """A running task: one CPU on row 0 of pool p, priority 1, since the beginning."""
    kept = {"label": "", "pool": "p", "tenant": "", "priority": 1.0, "cpu": 1, "row": 0, "started_ms": 0} | facts
    amounts = {"cpu": kept.pop("cpu")} | ({"gpu": kept.pop("gpu")} if "gpu" in kept else {})
    kept.setdefault("kept_ms", kept["started_ms"])
    return Candidate(task=task, resources=ResourceSet.of(amounts), **kept)


def wants(priority=9.0, **facts):
    return Preemptor(**({"task": "new", "label": "", "pool": "p", "priority": priority} | facts))


def cpu(count):
    return ResourceSet.of({"cpu": count})


def verdict_on(candidate, preemptor=None, rules=RULES, **more):
    return evaluate(preemptor or wants(), [candidate], rules, NOW_MS, **more)[0].verdict


def choose(candidates, *, wanted=1, short=NOTHING, free=None, rules=RULES, preemptor=None, **more):
    """Dry run and plan; every row without anything free, unless told otherwise."""
    preemptor = preemptor or wants()
    free = {row: {"cpu": 10_000 * free.get(row, 0)} for row in {*free, *(one.row for one in candidates)}} if free is not None else None
    by_row = free if free is not None else {one.row: {} for one in candidates}
    wanted = wanted if isinstance(wanted, ResourceSet) else cpu(wanted)
    scored = evaluate(preemptor, candidates, rules, NOW_MS)
    return plan(wanted, pool=preemptor.pool, pool_short=short, free_by_row=by_row, scored=scored, preemptor=preemptor, rules=rules, **more)


def victims(found):
    assert isinstance(found, PreemptionPlan), found
    return {victim.task for victim in found.victims}


# -- the score ---------------------------------------------------------------------------------------------------------


def test_s9_the_score_is_the_difference_of_priorities_less_kappa_times_what_remains():
    rules = PreemptionRules(kappa_per_s=0.01, lost_work_per_s=0.0)
    candidate = runs(priority=2.0, started_ms=NOW_MS - 50_000, estimated_ms=150_000)
    assert remaining_ms(candidate, NOW_MS) == 100_000
    assert score(candidate, 9.0, rules, NOW_MS) == pytest.approx(9.0 - 2.0 - 0.01 * 100)


def test_more_that_remains_makes_a_victim_less_likely_not_more():
    """The peer had the sign turned, and killed a job of priority 5 with 1,000 s left before one of priority 1 with 1 s left."""
    rules = replace(RULES, kappa_per_s=0.1)
    long_way = runs("long", priority=5.0, estimated_ms=NOW_MS + 1_000_000)
    nearly_done = runs("short", priority=1.0, estimated_ms=NOW_MS + 1_000)
    assert score(nearly_done, 9.0, rules, NOW_MS) > score(long_way, 9.0, rules, NOW_MS)
    assert victims(choose([long_way, nearly_done], rules=rules)) == {"short"}


@pytest.mark.parametrize(
    "estimated_ms",
    [pytest.param(None, id="nobody said how long it takes"), pytest.param(10, id="it is overdue")],
)
def test_an_unknown_rest_counts_as_nothing_whatever_the_age(estimated_ms: int | None):
    rules = replace(RULES, kappa_per_s=1.0)
    scores = {score(runs(started_ms=at, estimated_ms=estimated_ms), 9.0, rules, NOW_MS) for at in (0, 50_000, 99_000)}
    assert scores == {8.0}


def test_work_since_the_last_kept_state_protects():
    rules = replace(RULES, lost_work_per_s=0.01)
    fresh, stale = runs("fresh", kept_ms=NOW_MS - 1_000), runs("stale", kept_ms=NOW_MS - 90_000)
    assert score(fresh, 9.0, rules, NOW_MS) - score(stale, 9.0, rules, NOW_MS) == pytest.approx(0.89)
    assert victims(choose([stale, fresh], rules=rules)) == {"fresh"}


def test_a_state_that_was_kept_before_this_attempt_saves_none_of_its_work():
    assert score(runs(started_ms=NOW_MS - 1_000, kept_ms=0), 9.0, PreemptionRules(kappa_per_s=0.0, lost_work_per_s=1.0), NOW_MS) == 7.0


# -- the verdict on each candidate -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidate", "rules", "expected"),
    [
        pytest.param(runs(), RULES, Reason.ELIGIBLE, id="lower priority, same pool and label"),
        pytest.param(runs(preemptible=False), RULES, Reason.NOT_PREEMPTIBLE, id="its user said no"),
        pytest.param(runs(priority=9.0), RULES, Reason.PRIORITY_NOT_LOWER, id="the same priority"),
        pytest.param(runs(priority=9.5), RULES, Reason.PRIORITY_NOT_LOWER, id="a higher priority"),
        pytest.param(runs(pool="q"), RULES, Reason.OTHER_POOL, id="another pool"),
        pytest.param(runs(pool="q"), replace(RULES, cross_pool=True), Reason.ELIGIBLE, id="another pool where pools may preempt"),
        pytest.param(
            runs(pool="q"),
            replace(RULES, cross_pool=True, protected_pools=frozenset({"q"})),
            Reason.PROTECTED,
            id="another pool that is protected",
        ),
        pytest.param(runs(), replace(RULES, protected_pools=frozenset({"p"})), Reason.ELIGIBLE, id="its own pool, protected from others"),
        pytest.param(runs(label="other"), RULES, Reason.ISOLATED, id="another label without a rule"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"": ("other",)}), Reason.ELIGIBLE, id="another label with a rule"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"*": ("other",)}), Reason.ELIGIBLE, id="a rule for every label"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"": ("*",)}), Reason.ELIGIBLE, id="a rule that opens every label"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"x": ("*",)}), Reason.ISOLATED, id="a rule for somebody else"),
        pytest.param(runs(started_ms=NOW_MS - 999), replace(RULES, min_run_ms=1_000), Reason.TOO_YOUNG, id="just short of its minimum"),
        pytest.param(runs(started_ms=NOW_MS - 1_000), replace(RULES, min_run_ms=1_000), Reason.ELIGIBLE, id="just past its minimum"),
        pytest.param(runs(priority=7.0), replace(RULES, threshold=2.0), Reason.BELOW_THRESHOLD, id="a score at the threshold"),
        pytest.param(runs(priority=6.9), replace(RULES, threshold=2.0), Reason.ELIGIBLE, id="a score above the threshold"),
    ],
)
def test_s9_each_candidate_gets_its_verdict(candidate: Candidate, rules: PreemptionRules, expected: Reason):
    assert verdict_on(candidate, rules=rules) is expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({"priority": 9.5}, Reason.PRIORITY_NOT_LOWER, id="not a higher priority"),
        pytest.param({"pool": "guarded"}, Reason.PROTECTED, id="not a protected pool"),
        pytest.param({"pool": "q"}, Reason.OTHER_POOL, id="not another pool"),
        pytest.param({"preemptible": False}, Reason.NOT_PREEMPTIBLE, id="not its user's will"),
        pytest.param({"started_ms": NOW_MS}, Reason.TOO_YOUNG, id="not its minimum run time"),
    ],
)
def test_a_label_rule_lifts_nothing_but_isolation(facts: dict, expected: Reason):
    """In the peer a rule about labels skipped every other protection."""
    rules = replace(RULES, cross_label={"": ("batch",)}, protected_pools=frozenset({"guarded"}), min_run_ms=10)
    assert verdict_on(runs(label="batch", **facts), rules=rules) is expected


def test_a_plugin_decides_about_worth_only():
    wild = lambda *_: 1e9  # noqa: E731  what a plugin might hand in
    assert verdict_on(runs(priority=9.0), scorer=wild) is Reason.PRIORITY_NOT_LOWER
    assert verdict_on(runs(), rules=replace(RULES, threshold=1e6), scorer=wild) is Reason.ELIGIBLE


def test_a_score_that_is_no_number_never_preempts():
    assert verdict_on(runs(), scorer=lambda *_: float("nan")) is Reason.BELOW_THRESHOLD


def test_the_dry_run_tells_of_every_candidate_in_words():
    told = evaluate(wants(), [runs("a"), runs("b", priority=9.0), runs("c", pool="q")], RULES, NOW_MS)
    assert [(one.candidate.task, one.is_eligible) for one in told] == [("a", True), ("b", False), ("c", False)]
    assert [one.words for one in told] == [
        "its score is 8.000",
        "its priority is 9, that of the other 9",
        "it runs in pool q, and cross_pool is off",
    ]


def test_a_lower_weight_makes_other_labels_less_likely():
    rules = replace(RULES, cross_label={"": ("other",)}, threshold=3.0)
    assert verdict_on(runs(label="other"), rules=replace(rules, cross_label_weight=0.5)) is Reason.ELIGIBLE
    assert verdict_on(runs(label="other"), rules=replace(rules, cross_label_weight=0.25)) is Reason.BELOW_THRESHOLD
    assert verdict_on(runs(), rules=replace(rules, cross_label_weight=0.25)) is Reason.ELIGIBLE


# -- the rules ---------------------------------------------------------------------------------------------------------


def test_presets_differ_in_how_easily_they_preempt():
    high, medium, low = (PreemptionRules.of(name) for name in ("high", "medium", "low"))
    assert high.threshold < medium.threshold < low.threshold
    assert high.min_run_ms < medium.min_run_ms < low.min_run_ms
    assert high.kappa_per_s < medium.kappa_per_s < low.kappa_per_s
    assert set(PRESETS) == {"high", "medium", "low"}


def test_a_preset_takes_single_changes():
    assert PreemptionRules.of("low", threshold=1.0, cross_pool=True) == replace(PRESETS["low"], threshold=1.0, cross_pool=True)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: PreemptionRules.of("fierce"), id="a preset that is not there"),
        pytest.param(lambda: PreemptionRules(cross_label_weight=0.0), id="a weight of nothing"),
        pytest.param(lambda: PreemptionRules(cross_label_weight=1.5), id="a weight above one"),
        pytest.param(lambda: PreemptionRules(kappa_per_s=-0.1), id="a kappa that turns the sign"),
        pytest.param(lambda: parse_cross_label({"tier": ["premium"]}), id="a list where ranks are expected"),
        pytest.param(lambda: parse_cross_label({"tier": {"premium": "batch"}}), id="a word where a list is expected"),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong):
    with pytest.raises(PreemptionRulesError):
        wrong()


def test_rules_between_labels_are_read_as_people_write_them():
    parsed = parse_cross_label({"tier": {"premium": ["standard", "batch"], "standard": ["batch"]}})
    assert parsed == {"tier:premium": ("tier:standard", "tier:batch"), "tier:standard": ("tier:batch",)}


# -- the victims -------------------------------------------------------------------------------------------------------


def test_two_small_victims_make_room_for_a_large_task():
    """The peer took one victim or none."""
    found = choose([runs("a"), runs("b")], wanted=2)
    assert victims(found) == {"a", "b"}
    assert found.frees == cpu(2)


def test_victims_are_on_one_node():
    found = choose([runs("a", row=0), runs("b", row=1), runs("c", row=1, priority=3.0)], wanted=2)
    assert victims(found) == {"b", "c"}
    assert found.row == 1


def test_what_is_free_there_counts():
    assert victims(choose([runs("a", row=0), runs("b", row=1)], wanted=2, free={0: 0, 1: 1})) == {"b"}


def test_nobody_is_stopped_who_is_not_needed():
    found = choose([runs("small", priority=1.0, cpu=1), runs("large", priority=2.0, cpu=4)], wanted=4)
    assert victims(found) == {"large"}


def test_nobody_is_stopped_where_there_is_room():
    """In the peer an innocent victim was killed with two CPUs free."""
    found = choose([runs("a", row=0)], wanted=2, free={0: 0, 1: 2})
    assert victims(found) == set()
    assert found.row == 1


def test_the_lower_priority_goes_first():
    assert victims(choose([runs("a", priority=3.0), runs("b", priority=2.0), runs("c", priority=4.0)])) == {"b"}


def test_two_cheap_ones_go_before_one_dear_one():
    found = choose([runs("dear", priority=8.0, cpu=2), runs("a", row=1), runs("b", row=1)], wanted=2)
    assert victims(found) == {"a", "b"}


def test_one_large_one_goes_before_many_small_ones_of_its_priority():
    small = [runs(f"s{place}", priority=2.0) for place in range(4)]
    assert victims(choose([*small, runs("large", priority=2.5, cpu=4)], wanted=4)) == {"large"}


def test_s9_the_own_label_gives_way_before_any_other_however_cheap():
    rules = replace(RULES, cross_label={"": ("other",)}, cross_label_weight=1.0)
    assert victims(choose([runs("own", priority=8.0, row=1), runs("other", label="other", priority=0.0)], rules=rules)) == {"own"}


def test_another_label_gives_way_where_the_own_cannot():
    rules = replace(RULES, cross_label={"": ("other",)})
    assert victims(choose([runs("own"), runs("other", label="other")], wanted=2, rules=rules)) == {"own", "other"}
    assert victims(choose([runs("other", label="other")], rules=rules)) == {"other"}


def test_a_victim_in_another_pool_does_not_help_a_pool_that_lacks_quota():
    """The peer killed in another pool and failed all the same."""
    rules = replace(RULES, cross_pool=True)
    elsewhere, own = runs("elsewhere", pool="q", priority=0.0), runs("own", priority=5.0)
    assert victims(choose([elsewhere, own], short=cpu(1), rules=rules)) == {"own"}
    refused = choose([elsewhere], short=cpu(1), rules=rules)
    assert isinstance(refused, PreemptionRefused)
    assert refused.reason is Reason.PREEMPTION_TOO_LITTLE
    assert refused.detail == "pool p would lack {cpu: 1} even then"


def test_a_victim_in_another_pool_helps_where_only_the_node_is_full():
    rules = replace(RULES, cross_pool=True)
    assert victims(choose([runs("elsewhere", pool="q")], rules=rules)) == {"elsewhere"}


def test_quota_alone_may_come_from_any_node():
    found = choose([runs("a", row=1)], short=cpu(1), free={0: 4, 1: 0})
    assert victims(found) == {"a"}
    assert found.row == 0


def test_room_and_quota_may_come_from_different_nodes():
    rules = replace(RULES, cross_pool=True)
    found = choose([runs("room", pool="q", row=0), runs("quota", row=1)], short=cpu(1), free={0: 0}, rules=rules)
    assert found.row in (0, 1)
    assert victims(found) in ({"room", "quota"}, {"quota"})
    only_row_0 = plan(
        cpu(1),
        pool="p",
        pool_short=cpu(1),
        free_by_row={0: {}},
        scored=evaluate(wants(), [runs("room", pool="q", row=0), runs("quota", row=1)], rules, NOW_MS),
        preemptor=wants(),
        rules=rules,
    )
    assert victims(only_row_0) == {"room", "quota"}


def test_every_resource_has_to_fit():
    wanted = ResourceSet.of({"cpu": 1, "gpu": 1})
    assert victims(choose([runs("cpu only", priority=0.0), runs("both", gpu=1, priority=5.0)], wanted=wanted)) == {"both"}


def test_a_group_that_serves_as_it_stands_is_worth_a_point_of_priority():
    other, suits = runs("other", priority=2.0), runs("suits", priority=2.5, group="g1")
    found = choose([other, suits], reusable={"g1"})
    assert victims(found) == {"suits"}
    assert found.reuses == "g1"
    assert found.row == 0
    assert victims(choose([other, replace(suits, priority=4.0)], reusable={"g1"})) == {"other"}


def test_a_group_is_reused_on_its_own_row_even_when_others_have_room():
    found = choose([runs("suits", group="g1", row=3)], short=cpu(1), free={0: 4, 3: 4}, reusable={"g1"})
    assert (found.row, found.reuses) == (3, "g1")


def test_why_nobody_gives_way_is_told():
    nothing = choose([])
    assert isinstance(nothing, PreemptionRefused)
    assert nothing == PreemptionRefused(reason=Reason.NOBODY_GIVES_WAY, detail="nothing runs that could give way")
    refused = choose([runs("a", priority=9.0), runs("b", pool="q"), runs("c", pool="q")])
    assert isinstance(refused, PreemptionRefused)
    assert refused.detail == "2 OTHER_POOL, 1 PRIORITY_NOT_LOWER"


def test_what_lacks_on_the_nearest_node_is_told():
    refused = choose([runs("a", row=0), runs("b", row=1, cpu=3)], wanted=4)
    assert isinstance(refused, PreemptionRefused)
    assert (refused.reason, refused.detail) == (
        Reason.PREEMPTION_TOO_LITTLE,
        "the node that comes nearest would lack {cpu: 1} even then",
    )


# -- how often ---------------------------------------------------------------------------------------------------------


def test_a_label_gives_way_only_so_often_in_a_minute():
    rules = replace(RULES, per_minute_max=2)
    assert verdict_on(runs(), rules=rules, given_way={"": 1}) is Reason.ELIGIBLE
    assert verdict_on(runs(), rules=rules, given_way={"": 2}) is Reason.PREEMPTION_LIMIT
    assert verdict_on(runs(), rules=rules, given_way={"other": 2}) is Reason.ELIGIBLE


def test_the_victims_of_one_plan_count_together():
    rules = replace(RULES, per_minute_max=2)
    both = [runs("a"), runs("b")]
    assert victims(choose(both, wanted=2, rules=rules)) == {"a", "b"}
    refused = choose(both, wanted=2, rules=rules, given_way={"": 1})
    assert isinstance(refused, PreemptionRefused)
    assert refused.detail == "at most 2 tasks of a label give way in a minute, and more are needed"


# -- the table, and size -----------------------------------------------------------------------------------------------


def test_free_room_is_read_from_the_table():
    table = NodeTable()
    table.join("n1", ResourceSet.of({"cpu": 4}), {})
    table.join("n2", ResourceSet.of({"cpu": 2, "memory": "1GiB"}), {})
    table.promise(0, table.vector(cpu(3)))
    assert free_rows(table, [0, 1]) == {0: {"cpu": 10_000, "memory": 0}, 1: {"cpu": 20_000, "memory": 2**30}}
    assert free_rows(table, []) == {}


def test_a_thousand_candidates_are_scored_once_each():
    """The peer asked another process about each, 2.5 s for a thousand; here nobody is asked."""
    asked = []
    crowd = [runs(f"t{place}", row=place % 50, priority=float(place % 7)) for place in range(1_000)]
    scored = evaluate(wants(), crowd, RULES, NOW_MS, scorer=lambda *facts: asked.append(facts) or score(*facts))
    assert len(asked) == len(scored) == 1_000
