"""Laws of victims: sufficient, minimal, own label first, never in cycles."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.preemption.rules import (
    Candidate,
    PreemptionRules,
    Preemptor,
    eligible,
    evaluate,
)
from mesh.preemption.victims import PreemptionPlan, PreemptionRefused, plan

NOW_MS = 100_000
ROWS = range(3)
RULES = PreemptionRules(threshold=0.0, min_run_ms=0, cross_pool=True, cross_label={"own": ("other",)})
PREEMPTOR = Preemptor(task="new", label="own", pool="p", priority=9.0)

amounts = st.builds(
    lambda cpu, gpu: ResourceSet({"cpu": cpu, "gpu": gpu}), st.sampled_from([0, 5_000, 10_000, 20_000]), st.sampled_from([0, 10_000])
)


@st.composite
def crowds(draw: st.DrawFn) -> list[Candidate]:
    """Return running tasks in two pools, under three labels, one of them protected."""
    return [
        Candidate(
            task=f"t{place}",
            label=draw(st.sampled_from(["own", "other", "isolated"])),
            pool=draw(st.sampled_from(["p", "q"])),
            tenant="",
            priority=draw(st.sampled_from([0.0, 1.0, 5.0, 9.0])),
            resources=draw(amounts),
            row=draw(st.sampled_from(ROWS)),
            started_ms=0,
            kept_ms=draw(st.integers(0, NOW_MS)),
            estimated_ms=draw(st.none() | st.integers(0, 10 * NOW_MS)),
            group=draw(st.sampled_from([None, f"g{place}"])),
        )
        for place in range(draw(st.integers(0, 8)))
    ]


@st.composite
def questions(draw: st.DrawFn) -> dict:
    """Return arguments of `plan`."""
    wanted = draw(amounts.filter(len))
    crowd = draw(crowds())
    rules = replace(RULES, per_minute_max=draw(st.sampled_from([None, None, 1, 2])))
    return {
        "wanted": wanted,
        "pool": "p",
        "pool_short": draw(st.sampled_from([NOTHING, wanted, ResourceSet({"cpu": 10_000})])),
        "free_by_row": {row: draw(amounts) for row in ROWS},
        "scored": evaluate(PREEMPTOR, crowd, rules, NOW_MS),
        "preemptor": PREEMPTOR,
        "rules": rules,
        "reusable": frozenset(draw(st.sets(st.sampled_from([f"g{place}" for place in range(8)])))),
    }


def covers(question: dict, row: int, victims: list[Candidate]) -> bool:
    """Return, without the search, whether stopping these admits the demand on that row."""
    here = sum((one.resources for one in victims if one.row == row), start=NOTHING) + ResourceSet(dict(question["free_by_row"][row]))
    of_pool = sum((one.resources for one in victims if one.pool == question["pool"]), start=NOTHING)
    return question["wanted"] <= here and question["pool_short"] <= of_pool


def who_may_be_asked(question: dict) -> list[Candidate]:
    return [found.candidate for found in question["scored"] if found.is_eligible]


@given(questions())
@settings(max_examples=examples(300))
def test_a_plan_suffices_and_none_of_its_victims_can_be_spared(question):
    found = plan(**question)
    if isinstance(found, PreemptionRefused):
        return
    victims = list(found.victims)
    assert covers(question, found.row, victims)
    assert not any(covers(question, found.row, [one for one in victims if one is not spared]) for spared in victims)
    assert set(victims) <= set(who_may_be_asked(question))
    assert len(set(victims)) == len(victims)
    most = question["rules"].per_minute_max
    assert most is None or all(sum(one.label == label for one in victims) <= most for label in ("own", "other"))


@given(questions())
@settings(max_examples=examples(300))
def test_a_plan_is_found_whenever_all_candidates_would_suffice(question):
    question["rules"] = replace(question["rules"], per_minute_max=None)
    found = plan(**question)
    everybody = who_may_be_asked(question)
    enough = any(covers(question, row, everybody) for row in ROWS)
    assert isinstance(found, PreemptionPlan) == enough
    if isinstance(found, PreemptionRefused):
        assert found.reason is (Reason.PREEMPTION_INSUFFICIENT if everybody else Reason.NO_PREEMPTION_CANDIDATES)


@given(questions())
@settings(max_examples=examples(300))
def test_no_other_label_is_preempted_where_the_own_suffices(question):
    question["rules"] = replace(question["rules"], per_minute_max=None)
    own = [one for one in who_may_be_asked(question) if one.label == "own"]
    found = plan(**question)
    if any(covers(question, row, own) for row in ROWS):
        assert isinstance(found, PreemptionPlan)
        assert {one.label for one in found.victims} <= {"own"}


@given(questions())
@settings(max_examples=examples(100))
def test_the_same_question_has_the_same_answer_in_any_order(question):
    turned = {**question, "scored": question["scored"][::-1], "free_by_row": dict(reversed(question["free_by_row"].items()))}
    assert plan(**question) == plan(**turned)


@given(st.lists(st.tuples(st.integers(0, 7), crowds(), st.sampled_from(["own", "other"])), max_size=20), st.data())
@settings(max_examples=examples(100))
def test_no_history_of_plans_evicts_in_a_cycle(history, data):
    """A task keeps its priority over all restarts, so preemption follows an order."""
    priorities = {f"t{place}": data.draw(st.sampled_from([0.0, 1.0, 1.0, 5.0, 9.0]), label=f"priority of t{place}") for place in range(8)}
    rules = replace(RULES, cross_label={"*": ("*",)}, threshold=-100.0)
    evicted = nx.DiGraph()
    for place, crowd, label in history:
        preemptor = Preemptor(task=f"t{place}", label=label, pool="p", priority=priorities[f"t{place}"])
        running = [replace(one, priority=priorities[one.task]) for one in crowd if one.task != preemptor.task]
        found = plan(
            ResourceSet({"cpu": 10_000}),
            pool="p",
            pool_short=NOTHING,
            free_by_row={row: {} for row in ROWS},
            scored=evaluate(preemptor, running, rules, NOW_MS),
            preemptor=preemptor,
            rules=rules,
        )
        if isinstance(found, PreemptionPlan):
            evicted.add_edges_from((preemptor.task, victim.task) for victim in found.victims)
    assert nx.is_directed_acyclic_graph(evicted)


@given(crowds(), st.sampled_from([0.0, 2.0, 6.0]), st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=examples(100))
def test_the_short_eligibility_check_agrees_with_the_dry_run(crowd, threshold, per_minute_max, cross_pool):
    rules = replace(RULES, threshold=threshold, per_minute_max=per_minute_max, cross_pool=cross_pool)
    recent_preemptions = {"own": 1}
    candidates = evaluate(PREEMPTOR, crowd, rules, NOW_MS, recent_preemptions=recent_preemptions)
    assert eligible(PREEMPTOR, crowd, rules, NOW_MS, recent_preemptions=recent_preemptions) == tuple(
        found for found in candidates if found.is_eligible
    )
