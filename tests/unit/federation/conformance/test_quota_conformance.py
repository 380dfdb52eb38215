from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest

from federation.conformance.__main__ import main

CASES = Path(__file__).parents[3] / "conformance" / "quota" / "kueue.json"


def case(kind: str) -> dict[str, Any]:
    """Return the first case of a kind."""
    found = (one for one in json.loads(CASES.read_text(encoding="utf-8"))["cases"] if one["kind"] == kind)
    return copy.deepcopy(next(one for one in found if any(one["expect"].values())))


def documented() -> list[dict[str, Any]]:
    """Return the cases in the documents."""
    page = (Path(__file__).parents[4] / "docs" / "quota.md").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(page.partition("```json\n")[2].partition("```")[0])["cases"]
    return cases


def run(folder: Path, cases: Any, *options: str) -> tuple[int, list[str], str]:
    file = folder / "cases.json"
    file.write_text(cases if isinstance(cases, str) else json.dumps(cases), encoding="utf-8")
    out, errors = io.StringIO(), io.StringIO()
    code = main(["quota", str(file), *options], out, errors)
    return code, out.getvalue().splitlines(), errors.getvalue()


def changed(kind: str, *path: Any, to: Any) -> dict[str, Any]:
    changed_case = case(kind)
    *above, last = path
    place: Any = changed_case
    for step in above:
        place = place[step]
    if to is KeyError:
        del place[last]
    else:
        place[last] = to
    return changed_case


@pytest.mark.parametrize("kind", ["available", "share", "preempt", "admit"])
def test_a_case_gets_one_line_and_all_a_sum(tmp_path: Path, kind: str):
    code, lines, _ = run(tmp_path, {"cases": [case(kind)]})
    assert json.loads(lines[0]).keys() == {"id", "passed", "expected", "got"}
    assert (code, lines[1:]) == (0, ["1 passed, 0 failed"])


def test_the_sum_is_json_when_asked(tmp_path: Path):
    assert run(tmp_path, [case("share")], "--json")[1][-1] == '{"passed": 1, "failed": 0}'


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(changed("share", "kind", to="shares"), id="an unknown kind"),
        pytest.param(changed("share", "kind", to=KeyError), id="no kind"),
        pytest.param(changed("share", "expect", to={}), id="nothing expected"),
        pytest.param(changed("share", "expect", to=KeyError), id="no expectation"),
        pytest.param(changed("share", "expect", to={"nobody": {"share": 0}}), id="an unknown node"),
        pytest.param(changed("share", "queues", to=KeyError), id="no queues"),
        pytest.param(changed("share", "queues", 0, "quotas", 0, "nominal", to="4"), id="an amount that is text"),
        pytest.param(changed("share", "queues", 0, "quotas", 0, "nominal", to=-4), id="a negative amount"),
        pytest.param(changed("preempt", "queues", 0, "policies", to=KeyError), id="no policies"),
        pytest.param(changed("preempt", "queues", 0, "policies", "within_queue", to="Maybe"), id="an unknown policy"),
        pytest.param(changed("preempt", "incoming", "queue", to="nowhere"), id="an unknown queue"),
        pytest.param(changed("preempt", "admitted", 0, "priority", to=KeyError), id="no priority"),
        pytest.param(changed("preempt", "expect", to={"victims": [], "reason": {}}), id="an expectation of an unknown key"),
        pytest.param(changed("admit", "incoming", 0, "pod_sets", 0, "count", to=KeyError), id="no count"),
        pytest.param(changed("admit", "expect", "admitted", to=["somebody"]), id="something else expected"),
        pytest.param(changed("share", "queues", 0, "quotas", 0, "borrowing_limit", to=-4), id="a negative limit"),
        pytest.param(changed("share", "queues", 0, "weight", to=float("inf")), id="an infinite weight"),
        pytest.param(changed("share", "queues", 0, "cohort", to="nowhere"), id="an unknown cohort"),
        pytest.param(changed("share", "incoming", to={"queue": "nowhere", "requests": {}}), id="more work for an unknown node"),
        pytest.param(changed("available", "history", to={"add": ["somebody"]}), id="a history of work without requests"),
        pytest.param(
            changed("available", "history", to={"requests": {"a": {"queue": "nowhere", "requests": {}}}}), id="a history elsewhere"
        ),
        pytest.param(changed("preempt", "incoming", "requests", to={"default": {"cpu": -1}}), id="a negative request"),
        pytest.param(changed("preempt", "incoming", "created", to=float("nan")), id="an invalid time"),
        pytest.param(changed("preempt", "admitted", 0, "reserved_at", to=float("inf")), id="an infinite time"),
        pytest.param(changed("preempt", "admitted", to=case("preempt")["admitted"][:1] * 2), id="a duplicate name"),
        pytest.param(changed("admit", "queues", 0, "queueing_strategy", to="Lifo"), id="an unknown strategy of a queue"),
        pytest.param(changed("admit", "queues", 0, "fungibility", "when_can_borrow", to="Always"), id="an unknown flavor policy"),
        pytest.param(changed("admit", "incoming", 0, "pod_sets", 0, "count", to=-1), id="a negative count"),
        pytest.param(changed("admit", "incoming", 0, "pod_sets", 0, "requests", to={"cpu": "1500m"}), id="an amount with a unit"),
        pytest.param([], id="no object"),
    ],
)
def test_a_case_that_is_wrong_has_failed_and_the_others_go_on(tmp_path: Path, broken: Any):
    code, lines, _ = run(tmp_path, {"cases": [broken, {**case("available"), "id": "right"}]})
    assert (code, lines[-1]) == (1, "1 passed, 1 failed")
    verdict = json.loads(lines[0])
    assert not verdict["passed"]
    assert "Error: " not in str(verdict["got"])  # Errors are in words, not raw exceptions.


def test_a_victim_that_is_named_twice_stands_for_no_other(tmp_path: Path):
    found = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    several = next(one for one in found if one["kind"] == "preempt" and len(one["expect"].get("victims", ())) > 1)
    victims = several["expect"]["victims"]
    assert run(tmp_path, [several])[1][-1] == "1 passed, 0 failed"
    several["expect"] = {"victims": [victims[0]] * len(victims)}
    assert run(tmp_path, [several])[1][-1] == "0 passed, 1 failed"


def test_a_reason_too_many_is_shown(tmp_path: Path):
    several = case("preempt")
    reasons = several["expect"]["reasons"]
    several["expect"]["reasons"] = dict(list(reasons.items())[1:])
    verdict = json.loads(run(tmp_path, [several])[1][0])
    assert (verdict["passed"], verdict["got"]["reasons"]) == (False, reasons)


def test_behind_the_head_of_a_queue_others_wait(tmp_path: Path):
    """The head is the most important workload, then the oldest; the others are pending, not parked."""
    (page_case,) = [one for one in documented() if one["kind"] == "admit"]
    (head,) = page_case["incoming"]
    page_case["incoming"] = [
        {**head, "name": "later", "created": 995},
        head,
        {**head, "name": "lesser", "priority": -1, "created": 0},
    ]
    page_case["expect"] = {"admitted": ["new"], "pending": ["later", "lesser"], "parked": []}
    assert run(tmp_path, [page_case])[1][-1] == "1 passed, 0 failed"


def test_incoming_and_admitted_workloads_may_share_a_name(tmp_path: Path):
    both = case("preempt")
    both["incoming"]["name"] = both["admitted"][0]["name"]
    assert run(tmp_path, [both])[1][-1] == "1 passed, 0 failed"


@pytest.mark.parametrize("kind", ["available", "share", "preempt", "admit"])
def test_no_expectation_reaches_what_comes_of_a_case(tmp_path: Path, kind: str):
    """Other values under the same keys fail, and the core's answer stays the same."""
    right = case(kind)

    def other(value: Any) -> Any:
        return {key: other(one) for key, one in value.items()} if isinstance(value, dict) and value else "something else"

    wrong = {**copy.deepcopy(right), "expect": {key: other(value) for key, value in right["expect"].items()}}
    got = [json.loads(run(tmp_path, [one])[1][0])["got"] for one in (right, wrong)]
    assert {key: got[1][key] for key in got[0]} == got[0] or kind == "available"
    assert run(tmp_path, [wrong])[0] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('{"cases": [}', ":1: not JSON", id="no JSON"),
        pytest.param('{"case": []}', ":1: there is no list of `cases`", id="no list"),
        pytest.param("[" * 100_000, ":1: JSON cannot be parsed", id="nested too deep"),
        pytest.param("[" + "9" * 5_000 + "]", ":1: JSON cannot be parsed", id="a number of thousands of digits"),
    ],
)
def test_invalid_file_is_reported_with_its_line(tmp_path: Path, text: str, words: str):
    code, lines, errors = run(tmp_path, text)
    assert (code, lines) == (2, [])
    assert words in errors


def test_a_file_without_cases_has_failed(tmp_path: Path):
    code, lines, _ = run(tmp_path, {"cases": []})
    assert (code, lines[-1]) == (1, "0 passed, 1 failed")
    assert "empty" in json.loads(lines[0])["got"]["broken"]


def test_an_id_names_one_case(tmp_path: Path):
    assert run(tmp_path, [case("share"), case("share")])[0] == 1


def test_missing_file_is_reported():
    errors = io.StringIO()
    assert main(["quota", "/nowhere.json"], io.StringIO(), errors) == 2
    assert errors.getvalue() == "/nowhere.json: there is no such file; check the path\n"


def test_cases_of_the_mesh_are_refused_with_their_program(tmp_path):
    file, errors = tmp_path / "cases.json", io.StringIO()
    file.write_text('{"cases": [],\n"format": "schedulemesh-mesh-cases/1"}', encoding="utf-8")
    assert main(["quota", str(file)], io.StringIO(), errors) == 2
    assert errors.getvalue().startswith(f"{file}:2: ")
    assert "use `python -m mesh.conformance FILE`" in errors.getvalue()


def test_the_example_in_the_documents_passes(tmp_path: Path):
    code, lines, errors = run(tmp_path, {"cases": documented()})
    assert (code, errors, lines[-1]) == (0, "", "2 passed, 0 failed")


def test_every_case_key_is_documented():
    page = (Path(__file__).parents[4] / "docs" / "quota.md").read_text(encoding="utf-8")
    cases = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    lists = [entry for one in cases for name in ("cohorts", "queues", "admitted") for entry in one[name]]
    inner = [entry[name] for entry in lists for name in ("policies", "fungibility") if entry.get(name)]
    keys = {key for part in (*cases, *lists, *inner) for key in part}
    assert {key for key in keys if f"`{key}`" not in page} == set()
