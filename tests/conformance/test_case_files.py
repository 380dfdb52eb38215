"""Every file of cases in this folder passes, every kind has cases, and the program says so."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mesh.conformance.__main__ import main
from mesh.conformance.case_runner import read_cases, run_all
from mesh.conformance.kinds import KINDS

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.json"))
CASES = {file.stem: read_cases(file.read_text(encoding="utf-8")) for file in FILES}


def case_id(case: dict[str, Any]) -> str:
    return str(case["id"]).replace("-", " ")


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{stem}: {case_id(case)}") for stem, cases in CASES.items() for case in cases])
def test_a_case_passes(case: dict[str, Any]):
    (verdict,) = run_all([case])
    assert verdict.passed, f"expected {verdict.expected}, got {verdict.got}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_cases(kind: str):
    assert any(case["kind"] == kind for cases in CASES.values() for case in cases)


@pytest.mark.parametrize("stem", CASES)
def test_an_id_names_one_case(stem: str):
    assert [name for name, count in Counter(case["id"] for case in CASES[stem]).items() if count > 1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_program_passes_the_file(file: Path):
    out, errors = io.StringIO(), io.StringIO()
    assert main([str(file), "--json"], out, errors) == 0
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert lines[-1] == {"passed": len(CASES[file.stem]), "failed": 0}
    assert all(line.keys() == {"id", "kind", "passed", "expected", "got"} for line in lines[:-1])
    assert errors.getvalue() == ""
