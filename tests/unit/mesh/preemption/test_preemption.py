"""Score and verdict of each preemption candidate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from running_tasks import NOW_MS, RULES, choose, demand, runs, verdict_on, victims

from mesh.core.reasons import Reason
from mesh.preemption.rules import (
    PRESETS,
    Candidate,
    PreemptionRules,
    PreemptionRulesError,
    evaluate,
    parse_cross_label,
    remaining_ms,
    score,
)

# -- the score ---------------------------------------------------------------------------------------------------------


def test_s9_the_score_is_priority_gap_less_weighted_rest():
    rules = PreemptionRules(kappa_per_s=0.01, lost_work_per_s=0.0)
    candidate = runs(priority=2.0, started_ms=NOW_MS - 50_000, estimated_ms=150_000)
    assert remaining_ms(candidate, NOW_MS) == 100_000
    assert score(candidate, 9.0, rules, NOW_MS) == pytest.approx(9.0 - 2.0 - 0.01 * 100)


def test_more_that_remains_makes_a_victim_less_likely_not_more():
    """A wrong sign would stop priority 5 with 1,000 s left before priority 1 with 1 s left."""
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


def test_state_saved_before_this_attempt_saves_none_of_its_work():
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
        pytest.param(runs(label="other"), RULES, Reason.LABEL_ISOLATED, id="another label without a rule"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"": ("other",)}), Reason.ELIGIBLE, id="another label with a rule"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"*": ("other",)}), Reason.ELIGIBLE, id="a rule for every label"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"": ("*",)}), Reason.ELIGIBLE, id="a rule that opens every label"),
        pytest.param(runs(label="other"), replace(RULES, cross_label={"x": ("*",)}), Reason.LABEL_ISOLATED, id="a rule for somebody else"),
        pytest.param(
            runs(started_ms=NOW_MS - 999), replace(RULES, min_run_ms=1_000), Reason.BELOW_MIN_RUN_TIME, id="just short of its minimum"
        ),
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
        pytest.param({"started_ms": NOW_MS}, Reason.BELOW_MIN_RUN_TIME, id="not its minimum run time"),
    ],
)
def test_a_label_rule_lifts_nothing_but_isolation(facts: dict, expected: Reason):
    """All other protections stay."""
    rules = replace(RULES, cross_label={"": ("batch",)}, protected_pools=frozenset({"guarded"}), min_run_ms=10)
    assert verdict_on(runs(label="batch", **facts), rules=rules) is expected


def test_a_plugin_decides_about_worth_only():
    wild = lambda *_: 1e9  # noqa: E731  what a plugin might hand in
    assert verdict_on(runs(priority=9.0), scorer=wild) is Reason.PRIORITY_NOT_LOWER
    assert verdict_on(runs(), rules=replace(RULES, threshold=1e6), scorer=wild) is Reason.ELIGIBLE


def test_a_score_that_is_no_number_never_preempts():
    assert verdict_on(runs(), scorer=lambda *_: float("nan")) is Reason.BELOW_THRESHOLD


def test_the_dry_run_tells_of_every_candidate_in_words():
    scored = evaluate(demand(), [runs("a"), runs("b", priority=9.0), runs("c", pool="q")], RULES, NOW_MS)
    assert [(one.candidate.task, one.is_eligible) for one in scored] == [("a", True), ("b", False), ("c", False)]
    assert [one.words for one in scored] == [
        "its score is 8.000",
        "its priority 9 is not lower than 9",
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


def test_a_thousand_candidates_are_scored_once_each():
    """No other process is asked."""
    asked = []
    crowd = [runs(f"t{place}", row=place % 50, priority=float(place % 7)) for place in range(1_000)]
    scored = evaluate(demand(), crowd, RULES, NOW_MS, scorer=lambda *facts: asked.append(facts) or score(*facts))
    assert len(asked) == len(scored) == 1_000
