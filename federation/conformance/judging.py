"""From the text of a file of cases to a verdict on each. A case that breaks has failed, and is told why; it stops nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from federation.conformance.fields import Fields
from mesh.conformance.fields import CaseError
from mesh.conformance.program import parsed

#: Of a case and what is asked about it (of the expectation only its keys may be read) to what the core says.
Run = Callable[[Fields, Mapping[str, Any]], dict[str, Any]]

#: Lists that are sets: their order in an expectation says nothing.
SETS = frozenset({"victims", "already_evicted", "admitted", "pending", "preempted", "parked"})
#: Objects that are compared whole: a key that the expectation does not have is one too many.
WHOLE = frozenset({"reasons", "assignments", "lendable", "flavors"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one case."""

    id: str
    passed: bool
    expected: Any
    got: Any  #: `{"broken": why}` when the case could not be run.


def read_cases(text: str) -> list[Any]:
    """The cases of a file: a list, or an object that holds it as `cases`.

    Raises:
        CaseError: It is no such file; the message begins with the line.
    """
    written = parsed(text)
    cases = written.get("cases") if isinstance(written, dict) else written
    if not isinstance(cases, list):
        raise CaseError('1: there is no list of `cases`; write {"cases": […]}')
    return cases


def judge_all(cases: list[Any], run: Run) -> Iterator[Verdict]:
    """A verdict on each case, in their order; an id that came before fails, and so does a list without cases."""
    if not cases:
        yield Verdict(id="", passed=False, expected=None, got={"broken": "the list of cases is empty; what checks nothing passes nothing"})
    seen: set[str] = set()
    for place, case in enumerate(cases):
        name = str(case.get("id") or f"case {place}") if isinstance(case, dict) else f"case {place}"
        verdict = _judge(case, name, run)
        if name in seen:
            verdict = Verdict(id=name, passed=False, expected=verdict.expected, got={"broken": f"another case has the id {name}"})
        seen.add(name)
        yield verdict


def _judge(case: Any, name: str, run: Run) -> Verdict:
    expected = case.get("expect") if isinstance(case, dict) else None
    try:
        got = json.loads(json.dumps(run(_checked(case, name), expected or {})))  # As it is shown: two that look alike are alike.
        return Verdict(id=name, passed=_meets(got, expected), expected=expected, got=_shown(got, expected))
    except CaseError as wrong:
        return Verdict(id=name, passed=False, expected=expected, got={"broken": str(wrong)})
    except Exception as broke:  # noqa: BLE001  whatever a stranger's case does to the core is this case's failure, not the program's end
        return Verdict(id=name, passed=False, expected=expected, got={"broken": f"{type(broke).__name__}: {broke}"})


def _checked(case: Any, name: str) -> Fields:
    fields = Fields(case, name)
    fields.require("id", "kind", "expect")
    if not fields.inner("expect").keys:
        raise CaseError(f"{name}: `expect` is empty: nothing would be checked")
    return fields


def _meets(got: Any, expected: Any, name: str = "") -> bool:
    """Of objects only the keys of the expectation count, down to where it holds lists and values."""
    if isinstance(expected, dict) and isinstance(got, dict):
        if name in WHOLE:
            return got.keys() == expected.keys() and all(_meets(got[key], value, key) for key, value in expected.items())
        unknown = sorted(expected.keys() - got.keys())
        if unknown:
            raise CaseError(f"`expect` asks for {', '.join(unknown)}, of which nothing is known")
        return all(_meets(got[key], value, key) for key, value in expected.items())
    if name in SETS and isinstance(expected, list):
        return isinstance(got, list) and sorted(map(_text, got)) == sorted(map(_text, expected))
    return _text(got) == _text(expected)


def _shown(got: Any, expected: Any, name: str = "") -> Any:
    """The part of `got` that `_meets` compares: a verdict that failed shows where the two differ."""
    if isinstance(got, dict) and isinstance(expected, dict) and name not in WHOLE:
        return {key: _shown(got[key], expected[key], key) for key in got if key in expected}
    return got


def _text(value: Any) -> str:
    """JSON in one form, as a verdict shows it: `1`, `1.0` and `true` are three values, and what looks alike is alike."""
    return json.dumps(value, sort_keys=True)
