"""Laws over the quota cases of `tests/conformance`: equivalent cases and renamed ones have equal results."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.conformance.fields import Fields
from federation.conformance.quota_case_runner import read_cases, run_all
from federation.conformance.quota_cases import run_case
from federation.quota.policies import KUEUE, MESH
from mesh.conformance.case_runner import run_all as judge_mesh_cases

Case = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "conformance" / "quota"
CASES = [case for file in sorted(FOLDER.glob("*.json")) for case in read_cases(file.read_text(encoding="utf-8"))]


def nodes(case: Case) -> list[Case]:
    return [*case["cohorts"], *case["queues"]]


def works(case: Case) -> list[Case]:
    """Return the running and the waiting workloads."""
    incoming = case.get("incoming") or []
    waiting = incoming if isinstance(incoming, list) else [incoming]
    return [*case["admitted"], *waiting, *case.get("history", {}).get("requests", {}).values()]


def requests(case: Case) -> Iterator[dict[str, int]]:
    """Yield the mappings of units by resource, to be changed in place."""
    for work in works(case):
        yield from work.get("requests", {}).values()
        yield from (one["requests"] for one in work.get("pod_sets", ()))


def shuffled(case: Case, random_stream: Random) -> None:
    """Declare everything in another order."""
    lists = [case["cohorts"], case["queues"], case["admitted"], *(node["quotas"] for node in nodes(case))]
    for listed in [*lists, case["incoming"]] if case["kind"] == "admit" else lists:
        random_stream.shuffle(listed)


def renamed(case: Case, random_stream: Random) -> None:
    """Rename the nodes, in another order of the alphabet."""

    def names(listed: list[Case], notification: str) -> dict[str, str]:
        numbers = random_stream.sample(range(len(listed)), len(listed))
        return {node["name"]: f"{notification}{number}" for node, number in zip(listed, numbers, strict=True)}

    cohorts, queues = names(case["cohorts"], "x"), names(case["queues"], "y")
    for above, listed, new in (("parent", case["cohorts"], cohorts), ("cohort", case["queues"], queues)):
        for node in listed:
            node["name"], node[above] = new[node["name"]], cohorts.get(node[above])
    for work in works(case):
        if work.get("queue", "*") != "*":
            work["queue"] = queues[work["queue"]]

    def key(name: str) -> str:
        node, slash, rest = name.removeprefix("cohort:").partition("/")
        of_cohort = name.startswith("cohort:") or node not in queues
        return ("cohort:" if name.startswith("cohort:") else "") + (cohorts if of_cohort else queues)[node] + slash + rest

    if case["kind"] in ("available", "share"):
        case["expect"] = {key(name): value for name, value in case["expect"].items()}


def scaled(case: Case, random_stream: Random) -> None:
    """Change the units; pods are counted, and stay."""
    factor = random_stream.choice([2, 7, 1000])
    for quota in (quota for node in nodes(case) for quota in node["quotas"] if quota["resource"] != "pods"):
        for name in ("nominal", "borrowing_limit", "lending_limit"):
            quota[name] = None if quota[name] is None else quota[name] * factor
    for amounts in requests(case):
        amounts.update({resource: units * factor for resource, units in amounts.items() if resource != "pods"})
    if case["kind"] == "available":
        for share in case["expect"].values():
            for inner in (share, share.get("lendable", {})):
                inner.update({name: value * factor for name, value in inner.items() if isinstance(value, int)})


def earlier(case: Case, random_stream: Random) -> None:
    """Move all times into the past."""
    ago = random_stream.choice([1, 500, 1e6])
    for work in works(case):
        work.update({name: work[name] - ago for name in ("created", "reserved_at") if name in work})


def with_a_cohort_above(case: Case, random_stream: Random) -> None:
    """Add a cohort above the top. A top has no share and admits what is oversubscribed."""
    del random_stream
    if case["kind"] in ("share", "admit"):
        return
    for cohort in [cohort for cohort in case["cohorts"] if cohort["parent"] is None]:
        cohort["parent"] = f"above {cohort['name']}"
        case["cohorts"].append({"name": cohort["parent"], "parent": None, "weight": 1, "quotas": []})


def with_a_cohort_between(case: Case, random_stream: Random) -> None:
    """Give some queues a cohort of their own, of their weight, without quota. Nobody asks for its own share."""
    if case["kind"] == "share":
        return
    for queue in (queue for queue in case["queues"] if queue["cohort"] is not None and random_stream.random() < 0.7):
        own = f"of {queue['name']}"
        case["cohorts"].append({"name": own, "parent": queue["cohort"], "weight": queue["weight"], "quotas": []})
        queue["cohort"] = own


def with_a_tree_beside(case: Case, random_stream: Random) -> None:
    """Add a tree of strangers with work of theirs, which changes only a choice among all trees."""
    if not case["queues"]:
        return
    quota = {
        "flavor": "default",
        "resource": "cpu",
        "nominal": random_stream.randint(0, 9_000),
        "borrowing_limit": None,
        "lending_limit": None,
    }
    case["cohorts"].append({"name": "strangers", "parent": None, "weight": 1, "quotas": [quota]})
    like = copy.deepcopy(case["queues"][0])
    case["queues"].append({**like, "name": "stranger", "cohort": "strangers", "weight": 1, "quotas": [quota]})
    work = {"name": "strange", "queue": "stranger", "priority": -9, "created": 0, "reserved_at": 999}
    case["admitted"].append({**work, "requests": {"default": {"cpu": random_stream.randint(0, 9_000)}}})
    case["expect"].pop("candidate_order", None)


def with_what_nobody_wants(case: Case, random_stream: Random) -> None:
    """Add a resource that all have and nobody requests. A cohort could then lend more."""
    if any("lendable" in share for share in case["expect"].values() if isinstance(share, dict)):
        return
    for node in nodes(case):
        limits = {"borrowing_limit": random_stream.choice([None, 1]), "lending_limit": random_stream.choice([None, 1])}
        node["quotas"].append({"flavor": "default", "resource": "idle", "nominal": random_stream.randint(0, 5), **limits})


def answered(case: Case, rules: Any) -> Case:
    """Return the case with its results as its expectation."""
    asked = case["expect"]
    return {**copy.deepcopy(case), "expect": run_case(rules, Fields(case, case["id"]), asked)}


@pytest.mark.parametrize("rules", [pytest.param(KUEUE, id="rules of Kueue"), pytest.param(MESH, id="default rules")])
@pytest.mark.parametrize(
    "vary",
    [
        pytest.param(vary, id=vary.__name__.replace("_", " "))
        for vary in (
            shuffled,
            renamed,
            scaled,
            earlier,
            with_a_cohort_above,
            with_a_cohort_between,
            with_a_tree_beside,
            with_what_nobody_wants,
        )
    ],
)
@settings(max_examples=60)
@given(case=st.sampled_from(CASES), seed=st.integers(0, 2**32))
def test_equivalent_cases_give_equal_results(vary: Callable[[Case, Random], None], rules: Any, case: Case, seed: int):
    varied = answered(case, rules)
    vary(varied, Random(seed))
    (verdict,) = run_all([varied], partial(run_case, rules))
    assert verdict.passed, f"expected {json.dumps(verdict.expected)}, got {json.dumps(verdict.got)}"


def flawed(value: Any, random_stream: Random) -> Any:
    """Change, drop, double or add one part of the value, anywhere."""
    inside = value if isinstance(value, (dict, list)) and value and random_stream.random() < 0.8 else None
    if isinstance(inside, dict):
        key = random_stream.choice(sorted(inside))
        kept = {name: one for name, one in inside.items() if name != key}
        return kept if random_stream.random() < 0.3 and kept else {**kept, key: flawed(inside[key], random_stream)}
    if isinstance(inside, list):
        place = random_stream.randrange(len(inside))
        changed = random_stream.choice([[], [flawed(inside[place], random_stream)], [inside[place]] * 2])
        return [*inside[:place], *changed, *inside[place + 1 :]]
    others: list[Any] = [None, True, 0, 1, 1.0, "1", [], {}, [value]]
    return random_stream.choice([one for one in others if json.dumps(one) != json.dumps(value)])


@settings(max_examples=300)
@given(case=st.sampled_from(CASES), seed=st.integers(0, 2**32))
def test_a_failed_quota_case_shows_where_the_two_differ(case: Case, seed: int):
    right = answered(case, KUEUE)
    expected = flawed(right["expect"], Random(seed))
    (verdict,) = run_all([{**right, "expect": expected}], partial(run_case, KUEUE))
    if not verdict.passed:
        assert json.dumps(verdict.expected, sort_keys=True) != json.dumps(verdict.got, sort_keys=True)


MESH_FOLDER = FOLDER.parent
MESH_CASES = [case for file in sorted(MESH_FOLDER.glob("*.json")) for case in json.loads(file.read_text(encoding="utf-8"))["cases"]]


@settings(max_examples=100)
@given(case=st.sampled_from(MESH_CASES), seed=st.integers(0, 2**32))
def test_a_failed_mesh_case_shows_where_the_two_differ(case: Case, seed: int):
    expected = flawed(case["expect"], Random(seed))
    (verdict,) = judge_mesh_cases([{**case, "expect": expected}])
    if not verdict.passed:
        assert json.dumps(verdict.expected, sort_keys=True) != json.dumps(verdict.got, sort_keys=True)
