"""The cases of Kueue in this folder pass by Kueue's rules; by the default rules only those differ that ADR 0018 names."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from federation.conformance.quota_case_runner import read_cases, run_all
from federation.conformance.quota_cases import run_case
from federation.quota.policies import KUEUE, MESH

FOLDER = Path(__file__).parent
ADR = Path(__file__).parents[3] / "docs" / "adr" / "0018-quota-rules.md"
CASES = [case for file in sorted(FOLDER.glob("*.json")) for case in read_cases(file.read_text(encoding="utf-8"))]


def differing() -> set[str]:
    """The ids that the ADR names."""
    return set(re.findall(r"^\| `(\w+-[\w-]+)` \|", ADR.read_text(encoding="utf-8"), flags=re.MULTILINE))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"].replace("-", " ")) for case in CASES])
def test_a_case_passes_by_the_rules_that_it_is_about(case: dict[str, Any]):
    (verdict,) = run_all([case], partial(run_case, KUEUE))
    assert verdict.passed, f"expected {json.dumps(verdict.expected)}, got {json.dumps(verdict.got)}"


def test_default_rules_differ_only_in_the_listed_cases():
    failed = {verdict.id for verdict in run_all(CASES, partial(run_case, MESH)) if not verdict.passed}
    assert failed == differing()
    assert failed
