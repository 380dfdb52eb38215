"""Verdicts on quota cases that ran on a federation as it is deployed, and the ratchet of known differences.

A case of kind `preempt` is compared in the words of the running system: the reason of a victim is that work of its own tenant
preempted it, or that its quota was reclaimed, and no more.
The federation runs until nothing changes, a case of kind `admit` is one cycle: of the parked workloads only those of the case count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, TextIO

from federation.conformance.deployed_cases import NotExpressible
from federation.conformance.known_differences import KnownDifference
from federation.conformance.quota_case_runner import Run, checked, meets, name_of
from federation.conformance.quota_cases import REASONS
from mesh.conformance.fields import CaseError
from mesh.core.reasons import Reason


class Outcome(str, Enum):
    """Outcome of a case."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_EXPRESSIBLE = "not expressible"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedResult:
    """Result of one case."""

    id: str
    kind: str
    outcome: Outcome
    why: str  #: Reason why the case is not expressible, or the known difference that it shows.
    expected: Any  #: In the words of the running system.
    got: Any  #: `{"broken": why}` if the case could not run.
    surprise: str = ""  #: Repair that the code or the list of known differences needs; empty: none.


def run_all_deployed(cases: Iterable[Any], run: Run, known: Mapping[str, KnownDifference]) -> Iterator[DeployedResult]:
    """Yield a result for each case, in order. A repeated id is a surprise.

    Args:
        known: The known differences by case.
    """
    seen: set[str] = set()
    for place, case in enumerate(cases):
        name = name_of(case, place)
        result = _judge(case, name, run, known)
        yield replace(result, surprise="another case has the same id") if name in seen else result
        seen.add(name)


def _judge(case: Any, name: str, run: Run, known: Mapping[str, KnownDifference]) -> DeployedResult:
    kind = str(case.get("kind")) if isinstance(case, dict) else ""
    difference = known.get(name)

    def result(outcome: Outcome, expected: Any, got: Any, why: str, surprise: str) -> DeployedResult:
        return DeployedResult(id=name, kind=kind, outcome=outcome, why=why, expected=expected, got=got, surprise=surprise)

    written = case.get("expect") if isinstance(case, dict) else None
    try:
        got = json.loads(json.dumps(run(checked(case, name), written or {})))  # In its printed form: values that look alike are equal.
        expected = in_words_of_the_system(kind, written)
        passed = meets(_as_of_the_first_cycle(got, expected), expected)
    except NotExpressible as refused:
        listed = "" if difference is None else f"is not expressible, and listed under {difference.name!r}"
        return result(Outcome.NOT_EXPRESSIBLE, written, None, str(refused), listed)
    except CaseError as wrong:
        return result(Outcome.FAILED, written, {"broken": str(wrong)}, "", f"could not run: {wrong}")
    except Exception as broke:  # noqa: BLE001  an error of one case must not stop the others
        words = f"{type(broke).__name__}: {broke}"
        return result(Outcome.FAILED, written, {"broken": words}, "", f"could not run: {words}")
    if passed:
        listed = "" if difference is None else f"passes, and is listed under {difference.name!r}; remove it from the list"
        return result(Outcome.PASSED, expected, got, "", listed)
    if difference is not None:
        return result(Outcome.FAILED, expected, got, f"{difference.name}: {difference.why}", "")
    return result(Outcome.FAILED, expected, got, "", "differs, and is not listed as a known difference")


def _as_of_the_first_cycle(got: Any, expected: Any) -> Any:
    """Leave out the parked workloads that the case does not name: a case is one cycle of Kueue, which parks its losers in the next one."""
    if "parked" not in expected or "parked" not in got:
        return got
    return {**got, "parked": [name for name in got["parked"] if name in expected["parked"]]}


def in_words_of_the_system(kind: str, written: Any) -> Any:
    """Return the expectation as the running system would word it."""
    if kind != "preempt" or not isinstance(written, dict) or "victims" not in written:
        return written
    own = REASONS[Reason.PREEMPTED_WITHIN_TENANT]
    reasons = {
        name: (Reason.PREEMPTED_WITHIN_TENANT if reason == own else Reason.QUOTA_RECLAIMED).value
        for name, reason in written.get("reasons", {}).items()
    }
    return {**written, **({"reasons": reasons} if "reasons" in written else {})}


def report(results: Iterable[DeployedResult], *, as_json: bool, out: TextIO, errors: TextIO) -> int:
    """Write a line per case and the sum, and the surprises to `errors`; return the exit code: 1 if there are surprises or no cases."""
    outcomes: Counter[Outcome] = Counter()
    surprises = 0
    for one in results:
        out.write(json.dumps(asdict(one), ensure_ascii=False) + "\n")
        outcomes[one.outcome] += 1
        if one.surprise:
            surprises += 1
            errors.write(f"{one.id}: {one.surprise}\n")
    if as_json:
        out.write(json.dumps({outcome.name.lower(): outcomes[outcome] for outcome in Outcome}) + "\n")
    else:
        out.write(", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome) + "\n")
    return 1 if surprises or not outcomes else 0
