"""Verdicts on the cases of a file. A case that raises an error has failed, with the reason; the other cases still run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from federation.conformance.fields import Fields
from mesh.conformance.fields import CaseError
from mesh.conformance.program import line_of, parsed

#: Runs a case; gets the case and its expectation, of which only the keys may be read, and returns the core's results.
Run = Callable[[Fields, Mapping[str, Any]], dict[str, Any]]

#: Lists that are sets: their order in an expectation is irrelevant.
SETS = frozenset({"victims", "already_evicted", "admitted", "pending", "preempted", "parked"})
#: Objects that are compared as a whole: a key outside the expectation is an error.
WHOLE = frozenset({"reasons", "assignments", "lendable", "flavors"})


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCaseResult:
    """Result of one case."""

    id: str
    passed: bool
    expected: Any
    got: Any  #: `{"broken": why}` if the case could not run.


def read_cases(text: str) -> list[Any]:
    """Return the cases of a file: a list, or an object with the list under `cases`.

    Raises:
        CaseError: The file has another form; the message begins with the line.
    """
    written = parsed(text, '{"cases": […]}')
    cases = written.get("cases") if isinstance(written, dict) else written
    if not isinstance(cases, list):
        raise CaseError(f'{line_of(text, "cases")}: there is no list of `cases`; write {{"cases": […]}}')
    if isinstance(written, dict) and "format" in written:
        described = f"the file has the format {written['format']!r}, and cases of quota have none"
        raise CaseError(f"{line_of(text, 'format')}: {described}; for such a file use `python -m mesh.conformance FILE`")
    return cases


def run_all(cases: list[Any], run: Run) -> Iterator[QuotaCaseResult]:
    """Yield a verdict on each case, in order. A repeated id fails, and so does an empty list."""
    if not cases:
        yield QuotaCaseResult(id="", passed=False, expected=None, got={"broken": "the list of cases is empty; add a case"})
    seen: set[str] = set()
    for place, case in enumerate(cases):
        name = name_of(case, place)
        verdict = _judge(case, name, run)
        if name in seen:
            verdict = QuotaCaseResult(id=name, passed=False, expected=verdict.expected, got={"broken": f"another case has the id {name}"})
        seen.add(name)
        yield verdict


def name_of(case: Any, place: int) -> str:
    """Return the id of a case, or its place in the file."""
    return str(case.get("id") or f"case {place}") if isinstance(case, dict) else f"case {place}"


def _judge(case: Any, name: str, run: Run) -> QuotaCaseResult:
    expected = case.get("expect") if isinstance(case, dict) else None
    try:
        got = json.loads(json.dumps(run(checked(case, name), expected or {})))  # In its printed form: values that look alike are equal.
        return QuotaCaseResult(id=name, passed=meets(got, expected), expected=expected, got=shown(got, expected))
    except CaseError as wrong:
        return QuotaCaseResult(id=name, passed=False, expected=expected, got={"broken": str(wrong)})
    except Exception as broke:  # noqa: BLE001  an error of one case must not stop the others
        return QuotaCaseResult(id=name, passed=False, expected=expected, got={"broken": f"{type(broke).__name__}: {broke}"})


def checked(case: Any, name: str) -> Fields:
    """Return the case for reading. Raises CaseError if it lacks an id, a kind or an expectation."""
    fields = Fields(case, name)
    fields.require("id", "kind", "expect")
    if not fields.inner("expect").keys:
        raise CaseError(f"{name}: `expect` is empty, so nothing would be checked")
    return fields


def meets(got: Any, expected: Any, name: str = "") -> bool:
    """Compare. In objects only the keys of the expectation count, at every level down to lists and values."""
    if isinstance(expected, dict) and isinstance(got, dict):
        if name in WHOLE:
            return got.keys() == expected.keys() and all(meets(got[key], value, key) for key, value in expected.items())
        unknown = sorted(expected.keys() - got.keys())
        if unknown:
            raise CaseError(f"`expect` asks for {', '.join(unknown)}, which the core does not return")
        return all(meets(got[key], value, key) for key, value in expected.items())
    if name in SETS and isinstance(expected, list):
        return isinstance(got, list) and sorted(map(_text, got)) == sorted(map(_text, expected))
    return _text(got) == _text(expected)


def shown(got: Any, expected: Any, name: str = "") -> Any:
    """Return the part of `got` that `meets` compares, so a failed verdict shows the difference."""
    if isinstance(got, dict) and isinstance(expected, dict) and name not in WHOLE:
        return {key: shown(got[key], expected[key], key) for key in got if key in expected}
    return got


def _text(value: Any) -> str:
    """Return the JSON form of a value: `1`, `1.0` and `true` are three values, and values that look alike are equal."""
    return json.dumps(value, sort_keys=True)
