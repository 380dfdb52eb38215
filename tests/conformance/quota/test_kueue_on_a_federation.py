"""Kueue's cases on a federation: only those differ that are listed, and the documents list the same."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest

from federation.conformance.case_stores import memory_store
from federation.conformance.deployed_case_runner import DeployedResult, Outcome, run_all_deployed
from federation.conformance.deployed_runs import run_deployed
from federation.conformance.known_differences import KNOWN_DIFFERENCES, by_case
from federation.conformance.quota_case_runner import read_cases
from federation.quota.policies import KUEUE, MESH

CASES = read_cases((Path(__file__).parent / "kueue.json").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"


@cache
def results() -> tuple[DeployedResult, ...]:
    return tuple(run_all_deployed(CASES, partial(run_deployed, memory_store, KUEUE), by_case()))


def test_only_listed_cases_differ_and_no_listed_one_passes():
    assert [f"{one.id}: {one.surprise}" for one in results() if one.surprise] == []


def test_a_federation_can_express_all_but_a_few_cases():
    outcomes = Counter((one.kind, one.outcome) for one in results())
    assert {kind for kind, outcome in outcomes if outcome is Outcome.NOT_EXPRESSIBLE} == {"preempt"}
    assert sum(count for (_, outcome), count in outcomes.items() if outcome is Outcome.NOT_EXPRESSIBLE) <= 4
    assert {outcome for kind, outcome in outcomes if kind in ("available", "share")} == {Outcome.PASSED}


def test_every_listed_case_is_listed_once_and_exists():
    listed = [case for difference in KNOWN_DIFFERENCES for case in difference.cases]
    assert sorted(listed) == sorted(set(listed) & {case["id"] for case in CASES})


def test_the_documents_list_the_same_differences():
    row = r"^\| ([^|`]+) \| ([^|]+) \| (?:\[\w+\]\(([^)]+)\)|none) \| (`[^|]+`) \|$"
    rows = re.findall(row, PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    expressed = [(name, why, page, tuple(re.findall(r"`([^`]+)`", cases))) for name, why, page, cases in rows]
    assert expressed == [(one.name, one.why, one.decided_in, one.cases) for one in KNOWN_DIFFERENCES]


def test_the_documents_count_the_cases():
    counted = Counter(one.outcome for one in results())
    words = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{counted[Outcome.PASSED]} of Kueue's {len(CASES)} cases end as in Kueue" in words
    assert f"{counted[Outcome.FAILED]} differ for the reasons below, and {counted[Outcome.NOT_EXPRESSIBLE]} cannot be expressed" in words


@pytest.mark.parametrize("kind", ["preempt", "admit"])
def test_by_default_rules_the_same_cases_differ(kind: str):
    """Kueue's rules that no file can set change nothing of what a federation does in these cases."""
    some = [case for case in CASES if case["kind"] == kind]
    assert [one.id for one in run_all_deployed(some, partial(run_deployed, memory_store, MESH), by_case()) if one.surprise] == []
