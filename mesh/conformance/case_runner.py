"""From the text of a file of cases to a verdict on each case. An error in a case fails that case only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mesh.conformance.fields import CaseError, Fields
from mesh.conformance.kinds import KINDS, STEPPED, Run
from mesh.conformance.program import line_of, parsed

FORMAT = "schedulemesh-mesh-cases/1"
_EXAMPLE = f'{{"format": "{FORMAT}", "cases": [{{"id": "…", "kind": "…", "expect": …}}]}}'
_REMEDY = f"write {_EXAMPLE}; for cases of quota use `python -m federation.conformance quota FILE`"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """Result of one case."""

    id: str
    kind: str
    passed: bool
    expected: Any
    got: Any  #: `{"broken": why}` when the case could not be run.


def read_cases(text: str) -> list[Any]:
    """Return the cases of a file.

    Raises:
        CaseError: The file is invalid; the message begins with the line, `3: …`.
    """
    written = parsed(text, _EXAMPLE)
    try:
        with Fields(written, "the file") as file:
            form, cases = file.take("format"), file.take("cases")
            file.take("notes", [])
    except CaseError as wrong:
        raise CaseError(f"1: {wrong}; {_REMEDY}") from None
    if form != FORMAT:
        raise CaseError(f'{line_of(text, "format")}: the format is {form!r}; this program reads "{FORMAT}"; {_REMEDY}')
    if not isinstance(cases, list):
        raise CaseError(f"{line_of(text, 'cases')}: `cases` is {type(cases).__name__}, not a list; write {_EXAMPLE}")
    if not cases:
        raise CaseError(f"{line_of(text, 'cases')}: `cases` is empty; write some, or leave the file out")
    return cases


def run_all(cases: list[Any]) -> Iterator[CaseResult]:
    """Yield a verdict on each case, in order; a duplicate id fails."""
    seen: set[str] = set()
    for place, case in enumerate(cases):
        name = _name(case) or f"case {place}"
        verdict = judge(case, name)
        if name in seen:
            verdict = _broken(case, name, f"another case has the id {name}")
        seen.add(name)
        yield verdict


def judge(case: Any, name: str) -> CaseResult:
    """Run one case and compare. If both values are objects, only the keys of `expect` count."""
    try:
        with Fields(case, name) as fields:
            kind, expected = fields.take("kind"), fields.take("expect")
            _check_id(fields.take("id"))
            _check_expected(expected)
            _check_steps(kind, fields.take("steps", []))
            for known in ("given", "note", "source"):
                fields.take(known, None)
        got = json.loads(json.dumps(_runner(kind)(case)))
        return CaseResult(id=name, kind=kind, passed=_meets(got, expected), expected=expected, got=got)
    except CaseError as wrong:
        return _broken(case, name, str(wrong))
    except Exception as broke:  # noqa: BLE001  any error fails this case only
        return _broken(case, name, f"{type(broke).__name__}: {broke}")


def _name(case: Any) -> str:
    return case["id"] if isinstance(case, Mapping) and isinstance(case.get("id"), str) else ""


def _check_id(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise CaseError(f"`id` must be a text that is not empty and unique, got {name!r}")


def _check_expected(expected: Any) -> None:
    if expected == {}:
        raise CaseError("`expect` is empty, so nothing would be compared; name a key of the result")


def _check_steps(kind: Any, steps: Any) -> None:
    """Check that the kind takes steps: ignored steps would seem to have passed."""
    if not isinstance(steps, list):
        raise CaseError(f"`steps` must be a list, got {type(steps).__name__}")
    if steps and _runner(kind) not in STEPPED:
        stepped = sorted(name for name, run in KINDS.items() if run in STEPPED)
        raise CaseError(f"a case of kind {kind!r} has no steps; kinds with steps: {stepped}")


def _runner(kind: Any) -> Run:
    if not isinstance(kind, str) or kind not in KINDS:
        raise CaseError(f"unknown kind {kind!r}; known: {sorted(KINDS)}")
    return KINDS[kind]


def _meets(got: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        unknown = sorted(expected.keys() - got.keys())
        if unknown:
            raise CaseError(f"`expect` has unknown keys {unknown}; known: {sorted(got)}")
        return all(got[key] == value for key, value in expected.items())
    return bool(got == expected)


def _broken(case: Any, name: str, why: str) -> CaseResult:
    result = case if isinstance(case, Mapping) else {}
    return CaseResult(id=name, kind=str(result.get("kind", "")), passed=False, expected=result.get("expect"), got={"broken": why})
