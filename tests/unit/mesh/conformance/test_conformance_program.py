"""Program that runs files of conformance cases: reports, exit codes and errors."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mesh.conformance.__main__ import main
from mesh.conformance.case_runner import FORMAT, CaseResult, read_cases, run_all
from mesh.conformance.fields import CaseError, Fields
from mesh.conformance.kinds import KINDS, STEPPED

PAGE = Path(__file__).parents[4] / "docs" / "conformance.md"

GOOD = {"id": "good", "kind": "amount", "given": {"a": 1, "b": 2}, "expect": {"less": True}}
BAD = {"id": "bad", "kind": "amount", "given": {"a": 1, "b": 2}, "expect": {"sum": 4}}


def checks(case: Any) -> CaseResult:
    (verdict,) = run_all([case])
    return verdict


def file_of(folder: Path, text: str) -> str:
    path = folder / "cases.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


def run(*arguments: str) -> tuple[int, list[str], str]:
    out, errors = io.StringIO(), io.StringIO()
    code = main(arguments, out, errors)
    return code, out.getvalue().splitlines(), errors.getvalue()


# -- the program -------------------------------------------------------------------------------------------------------


def test_one_line_of_json_per_case_and_then_the_sum(tmp_path):
    file = file_of(tmp_path, json.dumps({"format": FORMAT, "notes": ["two"], "cases": [GOOD, BAD]}))
    code, lines, errors = run(file)
    assert (code, lines[-1], errors) == (1, "1 passed, 1 failed", "")
    first, second = map(json.loads, lines[:-1])
    assert (first["id"], first["kind"], first["passed"], first["expected"], first["got"]["less"]) == (
        "good",
        "amount",
        True,
        {"less": True},
        True,
    )
    assert (second["passed"], second["got"]["sum"]) == (False, 3)


def test_all_passed_is_exit_code_zero_and_the_sum_can_be_json(tmp_path):
    code, lines, _ = run(file_of(tmp_path, json.dumps({"format": FORMAT, "cases": [GOOD]})), "--json")
    assert (code, json.loads(lines[-1])) == (0, {"passed": 1, "failed": 0})


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        pytest.param('{\n  "format": ,\n}', 2, "not JSON", id="no JSON"),
        pytest.param(" \n", 1, "the file is empty; write {", id="an empty file"),
        pytest.param('{"cases": []}', 1, "python -m federation.conformance quota FILE", id="cases of quota"),
        pytest.param('{"\\u0066ormat": "other/1", "cases": []}', 1, "this program reads", id="a key with an escape"),
        pytest.param("[]", 1, "not an object", id="a list"),
        pytest.param('{"cases": []}', 1, "no key 'format'", id="no format"),
        pytest.param('{\n"cases": [],\n"format": "other/1"}', 3, "this program reads", id="another format"),
        pytest.param(f'{{"format": "{FORMAT}",\n"cases": 7}}', 2, "`cases` is int, not a list; write {", id="cases that are no list"),
        pytest.param(f'{{"format": "{FORMAT}",\n"cases": []}}', 2, "`cases` is empty", id="no cases"),
        pytest.param(f'{{"format": "{FORMAT}", "cases": [], "casez": []}}', 1, "unknown keys ['casez']", id="an unknown key"),
    ],
)
def test_an_unreadable_file_is_reported_with_its_line(tmp_path, text, place, words):
    file = file_of(tmp_path, text)
    code, lines, errors = run(file)
    assert (code, lines) == (2, [])
    assert errors.startswith(f"{file}:{place}: ")
    assert words in errors


def test_a_missing_file_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, errors = run("nowhere.json")
    assert code == 2
    assert errors == f"nowhere.json: there is no such file (it is looked up from {tmp_path}); check the path\n"


def test_a_folder_is_reported(tmp_path):
    assert run(str(tmp_path)) == (2, [], f"{tmp_path}: this is a folder; name the files in it, such as *.json\n")


def test_bytes_that_are_not_utf8_are_reported_with_their_line(tmp_path):
    (tmp_path / "cases.json").write_bytes(b'{"notes":\n["\xff"]}')
    code, _, errors = run(str(tmp_path / "cases.json"))
    assert (code, "cases.json:2: byte 12 is not UTF-8; save the file as UTF-8" in errors) == (2, True)


def test_a_byte_order_mark_is_skipped(tmp_path):
    (tmp_path / "cases.json").write_text(json.dumps({"format": FORMAT, "cases": [GOOD]}), encoding="utf-8-sig")
    assert run(str(tmp_path / "cases.json"))[0] == 0


# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "why"),
    [
        pytest.param({**GOOD, "kind": "poem"}, "unknown kind 'poem'; known:", id="an unknown kind"),
        pytest.param({**GOOD, "verse": 1}, "unknown keys ['verse']", id="an unknown key of the case"),
        pytest.param({**GOOD, "given": {"a": 1, "c": 2}}, "given has unknown keys ['c']", id="an unknown key of what is given"),
        pytest.param({**GOOD, "expect": {"rhyme": True}}, "`expect` has unknown keys ['rhyme']", id="an unknown key of what is expected"),
        pytest.param({**GOOD, "steps": [{"sing": 1}]}, "unknown step 'sing'", id="an unknown step"),
        pytest.param({**GOOD, "steps": {"add": 1}}, "`steps` must be a list, got dict", id="steps that are no list"),
        pytest.param({**GOOD, "expect": {}}, "`expect` is empty", id="nothing to compare"),
        pytest.param({**GOOD, "steps": [{}]}, "exactly one is expected", id="an empty step"),
        pytest.param({"id": "x", "kind": "amount", "expect": {"a": 1}}, "KeyError: 'given'", id="nothing given"),
        pytest.param({"id": "x", "kind": "amount", "given": {"a": 1}}, "no key 'expect'", id="nothing expected"),
        pytest.param({**GOOD, "given": [1]}, "given is list, not an object", id="a list where an object is expected"),
        pytest.param("x", "not an object", id="a case that is no object"),
        pytest.param(
            {"id": "x", "kind": ["amount"], "given": {}, "expect": {"a": 1}}, "unknown kind ['amount']", id="a kind that is no word"
        ),
    ],
)
def test_a_broken_case_fails_with_its_reason_and_others_run(case, why):
    broken, good = run_all([case, {**GOOD, "id": "next"}])
    assert (broken.passed, good.passed) == (False, True)
    assert why in broken.got["broken"]


def test_only_the_keys_that_are_expected_count():
    assert checks({**GOOD, "expect": {"less": True, "sum": 3}}).passed
    assert not checks({**GOOD, "expect": {"less": True, "sum": 4}}).passed


def test_an_id_that_came_before_fails():
    first, second = run_all([GOOD, GOOD])
    assert (first.passed, second.passed, second.got) == (True, False, {"broken": "another case has the id good"})


@pytest.mark.parametrize(
    ("case", "why"),
    [
        pytest.param({key: value for key, value in GOOD.items() if key != "id"}, "no key 'id'", id="no id"),
        pytest.param({**GOOD, "id": ""}, "`id` must be a text that is not empty and unique, got ''", id="an empty id"),
        pytest.param({**GOOD, "id": 7}, "`id` must be a text that is not empty and unique, got 7", id="an id that is no text"),
    ],
)
def test_a_case_without_an_id_fails_under_its_position(case, why):
    verdict = checks(case)
    assert (verdict.id, verdict.passed) == ("case 0", False)
    assert why in verdict.got["broken"]


@pytest.mark.parametrize("kind", sorted(kind for kind, run in KINDS.items() if run not in STEPPED))
def test_steps_of_a_kind_that_takes_none_fail(kind):
    verdict = checks({"id": "x", "kind": kind, "given": {}, "steps": [{"add": 1}], "expect": {"a": 1}})
    assert (verdict.passed, "has no steps" in verdict.got["broken"]) == (False, True)


@pytest.mark.parametrize("kind", sorted(kind for kind, run in KINDS.items() if run in STEPPED))
def test_a_step_that_the_kind_does_not_know_fails(kind):
    (example,) = re.findall(r"^```json\n([\s\S]*?)^```", sections()[kind], flags=re.MULTILINE)
    verdict = checks({**json.loads(example), "steps": [{"sing": 1}]})
    assert (verdict.passed, "sing" in verdict.got["broken"]) == (False, True)


# -- fields ------------------------------------------------------------------------------------------------------------


def test_the_fields_of_an_object_are_taken_by_name():
    with Fields({"a": 1}, "here") as fields:
        assert (fields.take("a"), fields.take("b", 7)) == (1, 7)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param({"a": 1, "z": 2}, "here has unknown keys ['z']; known: ['a']", id="a key that nobody takes"),
        pytest.param({}, "here has no key 'a'", id="a key that is not there"),
        pytest.param(None, "here is NoneType, not an object", id="no object"),
    ],
)
def test_wrong_fields_are_reported_with_their_path(written, words):
    with pytest.raises(CaseError, match=re.escape(words)), Fields(written, "here") as fields:
        fields.take("a")


# -- the page ----------------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    text = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"^### `(\w+)`\n([\s\S]*?)(?=^##|\Z)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_an_example_on_the_page_that_passes(kind):
    (example,) = re.findall(r"^```json\n([\s\S]*?)^```", sections()[kind], flags=re.MULTILINE)
    case = json.loads(example)
    assert case["kind"] == kind
    verdict = checks(case)
    assert verdict.passed, verdict.got


def test_the_page_tells_of_no_kind_that_is_not_there():
    assert set(sections()) == set(KINDS)


def test_the_file_on_the_page_can_be_read():
    text = PAGE.read_text(encoding="utf-8")
    (example,) = re.findall(r"^## The file\n[\s\S]*?^```json\n([\s\S]*?)^```", text, flags=re.MULTILINE)
    assert all(verdict.passed for verdict in run_all(read_cases(example)))


def test_a_misspelt_key_of_a_step_is_reported_with_its_step():
    steps = [{"reserve": "a", "pool": "p", "amounts": {"cpu": 1}}, {"reserve": "b", "pol": "p", "amounts": {"cpu": 1}}]
    given = {"pools": [{"pool": "p", "capacity": {"cpu": 2}}]}
    verdict = checks({"id": "x", "kind": "pool", "given": given, "steps": steps, "expect": {"answers": ["done", "done"]}})
    assert (verdict.passed, verdict.got) == (False, {"broken": "step 2 (reserve) has no key 'pool'; is 'pol' misspelt?"})
