"""Runs of small cases on a federation, their comparison, and the ratchet of known differences."""

from __future__ import annotations

import copy
import io
import json
from functools import partial
from typing import Any

import pytest
from deployed_builders import case, pod_set, preempting, queue, quota, running, waiting

from federation.conformance.__main__ import main
from federation.conformance.case_stores import memory_store
from federation.conformance.deployed_case_runner import DeployedResult, Outcome, in_words_of_the_system, report, run_all_deployed
from federation.conformance.deployed_runs import run_deployed
from federation.conformance.known_differences import KnownDifference
from federation.quota.policies import KUEUE

LISTED = {"made": KnownDifference(name="a habit", why="it is so", cases=("made",))}
LOW, HIGH = running("low", "a", 1, priority=-1), running("high", "a", 1, priority=5)


def run(written: Any, known: dict[str, KnownDifference] | None = None) -> DeployedResult:
    (result,) = run_all_deployed([written], partial(run_deployed, memory_store, KUEUE), known or {})
    return result


# ---- what a federation does


def test_less_urgent_work_is_preempted_and_the_new_starts():
    result = run(preempting({"victims": ["low"], "reasons": {"low": "InClusterQueue"}}, LOW, HIGH))
    assert (result.outcome, result.surprise) == (Outcome.PASSED, "")
    assert result.got["reasons"] == {"low": "PREEMPTED_WITHIN_TENANT"}


def test_work_that_waits_says_why():
    result = run(preempting({"victims": [], "reasons": {}}, HIGH, running("other", "a", 1, priority=5)))
    assert (result.outcome, result.got["waits"]) == (Outcome.PASSED, {"new": "QUOTA_EXHAUSTED"})


def test_lent_quota_is_reclaimed_from_another_tenant():
    cohort = {"name": "all", "parent": None, "weight": 1, "quotas": []}
    queues = [queue("a", quota(1), cohort="all"), queue("b", quota(1), cohort="all")]
    incoming = {
        "name": "new",
        "queue": "a",
        "priority": 0,
        "created": 990,
        "requests": {"spot": {"cpu": 1}},
        "preempt_on": [["spot", "cpu"]],
    }
    expect = {"victims": ["lent"], "reasons": {"lent": "InCohortReclamation"}}
    work = [running("own", "b", 1), running("lent", "b", 1, reserved_at=1001)]
    assert run(case("preempt", *queues, cohorts=[cohort], admitted=work, incoming=incoming, expect=expect)).outcome is Outcome.PASSED


def test_victims_hold_their_quota_while_admission_is_compared():
    expect = {"admitted": [], "pending": ["new"], "preempted": ["low"], "parked": []}
    made = case("admit", queue("a", quota(1)), admitted=[LOW], incoming=[waiting("new", "a", pod_set(1, cpu=1), priority=1)], expect=expect)
    result = run(made)
    assert (result.outcome, result.got["waits"]) == (Outcome.PASSED, {"new": "WAITING_FOR_VICTIMS"})


def test_a_shrunk_set_is_admitted_with_its_flavor_and_count():
    expect = {"admitted": ["new"], "assignments": {"new": {"main": {"count": 4, "flavors": {"cpu": "spot"}}}}}
    made = case("admit", queue("a", quota(5)), incoming=[waiting("new", "a", pod_set(6, least=2, cpu=1))], expect=expect)
    assert run(made).outcome is Outcome.PASSED


def test_the_next_flavor_is_taken_where_the_first_is_used_up():
    expect = {"admitted": ["new"], "assignments": {"new": {"main": {"count": 1, "flavors": {"cpu": "standard"}}}}}
    two = queue(
        "a",
        quota(1),
        quota(1, "standard"),
        policies={"within_queue": "Never", "reclaim_within_cohort": "Never", "borrow_within_cohort": None},
    )
    made = case("admit", two, admitted=[HIGH], incoming=[waiting("new", "a", pod_set(1, cpu=1))], expect=expect)
    assert run(made).outcome is Outcome.PASSED


def test_work_beyond_its_quota_leaves_nothing_available():
    made = case(
        "available",
        queue("a", quota(2)),
        admitted=[running("big", "a", 3)],
        expect={"a/spot/cpu": {"available": 0, "potential": 2, "usage": 3}},
    )
    assert run(made).outcome is Outcome.PASSED


def test_shares_are_those_of_the_ledgers_leases():
    cohort = {"name": "all", "parent": None, "weight": 1, "quotas": []}
    queues = [queue("a", quota(1), cohort="all"), queue("b", quota(3), cohort="all")]
    expect = {"a": {"share": 500, "resource": "cpu", "borrowing": True, "node": "queue"}, "cohort:all": {"share": 0, "node": "cohort"}}
    assert run(case("share", *queues, cohorts=[cohort], admitted=[running("wide", "a", 3)], expect=expect)).outcome is Outcome.PASSED


# ---- comparison


def test_all_reasons_of_other_queues_are_one_to_a_victim():
    written = {"victims": ["x", "y"], "reasons": {"x": "InClusterQueue", "y": "InCohortFairSharing"}}
    assert in_words_of_the_system("preempt", written) == {
        "victims": ["x", "y"],
        "reasons": {"x": "PREEMPTED_WITHIN_TENANT", "y": "QUOTA_RECLAIMED"},
    }


def test_parked_work_that_the_case_does_not_name_is_left_out():
    queues = [queue("a", quota(1)), queue("b", quota(0))]
    incoming = [waiting("none", "b", pod_set(1, cpu=1)), waiting("small", "a", pod_set(2, cpu=1))]
    made = case("admit", *queues, incoming=incoming, expect={"admitted": [], "parked": ["none"]})
    result = run(made)
    assert (result.outcome, result.got["parked"]) == (Outcome.PASSED, ["none", "small"])


@pytest.mark.parametrize("kind", ["preempt", "admit", "available", "share"])
def test_no_value_of_an_expectation_reaches_the_federation(kind: str):
    made = {
        "preempt": preempting({"victims": ["low"], "reasons": {"low": "InClusterQueue"}}, LOW, HIGH),
        "admit": case("admit", queue("a", quota(1)), incoming=[waiting("new", "a", pod_set(1, cpu=1))], expect={"admitted": ["new"]}),
        "available": case("available", queue("a", quota(2)), expect={"a/spot/cpu": {"available": 2}}),
        "share": case("share", queue("a", quota(2)), expect={"a": {"share": 0}}),
    }[kind]

    def other(value: Any) -> Any:
        return {key: other(one) for key, one in value.items()} if isinstance(value, dict) else "something else"

    wrong = {**copy.deepcopy(made), "expect": other(made["expect"])}
    assert (run(made).outcome, run(wrong).outcome) == (Outcome.PASSED, Outcome.FAILED)
    assert run(wrong).got == run(made).got


# ---- the ratchet

DIFFERS = preempting({"victims": ["high"], "reasons": {}}, LOW, HIGH)
PASSES = preempting({"victims": ["low"]}, LOW, HIGH)


@pytest.mark.parametrize(
    ("written", "known", "outcome", "surprise"),
    [
        pytest.param(DIFFERS, {}, Outcome.FAILED, "not listed", id="an unlisted difference"),
        pytest.param(DIFFERS, LISTED, Outcome.FAILED, "", id="a listed difference"),
        pytest.param(PASSES, {}, Outcome.PASSED, "", id="an unlisted pass"),
        pytest.param(PASSES, LISTED, Outcome.PASSED, "remove it", id="a listed pass"),
        pytest.param({**PASSES, "kind": "odd"}, LISTED, Outcome.FAILED, "could not run", id="a listed case that cannot be read"),
        pytest.param(7, {}, Outcome.FAILED, "could not run", id="no case"),
        pytest.param(
            preempting({"candidate_order": []}),
            LISTED,
            Outcome.NOT_EXPRESSIBLE,
            "is not expressible",
            id="a listed case that says too much",
        ),
        pytest.param(preempting({"candidate_order": []}), {}, Outcome.NOT_EXPRESSIBLE, "", id="an order of candidates"),
    ],
)
def test_the_list_of_differences_is_a_ratchet(written: Any, known: dict[str, KnownDifference], outcome: Outcome, surprise: str):
    result = run(written, known)
    assert result.outcome is outcome
    assert surprise in result.surprise
    assert bool(surprise) is bool(result.surprise)


def test_a_known_difference_is_shown_with_its_case():
    assert run(DIFFERS, LISTED).why == "a habit: it is so"


def test_an_id_names_one_case():
    first, second = run_all_deployed([PASSES, PASSES], partial(run_deployed, memory_store, KUEUE), {})
    assert (first.surprise, second.surprise) == ("", "another case has the same id")


def test_surprises_are_named_and_decide_the_exit_code():
    out, errors = io.StringIO(), io.StringIO()
    results = [run(PASSES), run(DIFFERS)]
    assert report(results, as_json=False, out=out, errors=errors) == 1
    assert out.getvalue().splitlines()[-1] == "1 passed, 1 failed, 0 not expressible"
    assert errors.getvalue() == "made: differs, and is not listed as a known difference\n"


def test_no_case_at_all_is_a_failure():
    assert report([], as_json=False, out=io.StringIO(), errors=io.StringIO()) == 1


# ---- the command


def command(folder, *options: str) -> tuple[int, list[str], str]:
    file = folder / "cases.json"
    file.write_text(json.dumps([PASSES]), encoding="utf-8")
    out, errors = io.StringIO(), io.StringIO()
    return main(["quota", str(file), *options], out, errors), out.getvalue().splitlines(), errors.getvalue()


def test_the_command_writes_a_line_per_case_and_the_sum(tmp_path):
    code, lines, errors = command(tmp_path, "--as", "deployed", "--json")
    assert (code, errors, json.loads(lines[0])["outcome"]) == (0, "", "passed")
    assert json.loads(lines[-1]) == {"passed": 1, "failed": 0, "not_expressible": 0}


def test_an_unreachable_server_is_named(tmp_path):
    code, lines, errors = command(tmp_path, "--as", "deployed", "--redis", "redis://127.0.0.1:1")
    assert (code, lines) == (2, [])
    assert errors.startswith("--redis redis://127.0.0.1:1: ")


def test_the_core_has_no_server(tmp_path):
    with pytest.raises(SystemExit, match="2"):
        command(tmp_path, "--redis", "redis://127.0.0.1:1")
