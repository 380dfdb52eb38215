"""Verdicts on cases of planning: known ranks, schedules and makespans, and no schedule below the optimum.

A file is an object with lists `classic` and `random`. A case has run times `w`, by node and then by processor, and edges `e`: from, to,
time of the transfer. All else is expected: `heft`, `cpop`, `peft`, `published`, `optimal`, `ranku`, `rankd`, `oct`, `rank_oct`,
`heft_no_insertion`, and schedules of [processor, start, end] by node. Two laws are checked on each case too: a processor that may run
nothing changes nothing, and no schedule breaks the rules of the problem. For the case of Topcuoglu 2002 two more lines follow: a
fourth processor of infinite cost, and the same DAG once more on the processors that are busy with the first.

Source: Topcuoglu 2002, Fig. 2; Arabnejad and Barbosa 2014, Fig. 1; the busy processors are a test of github.com/mackncheesiest/heft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from dag.placement.heuristics import cpop, heft, peft
from dag.placement.planner import plan
from dag.placement.problem import Interval, Need, Pool, Problem, Schedule, violations
from dag.placement.ranks import downward, optimistic_costs, upward
from mesh.conformance.fields import CaseError
from mesh.conformance.program import line_of, parsed

_EXAMPLE = '{"classic": [{"name": "two", "w": [[1, 2], [2, 1]], "e": [[0, 1, 3]], "heft": 3}]}'
_LISTS = ("classic", "random")
#: Known ranks are rounded to three digits.
_ROUNDED = 0.000_6
#: The DAG of Topcuoglu 2002, scheduled again from `at` on the processors that its first schedule keeps busy.
_BUSY = {
    "topcuoglu2002-fig2": (
        10,
        109,
        {
            0: [(10, 24), (40, 51), (62, 74), (74, 81)],
            1: [(42, 50), (87, 99), (102, 109)],
            2: [(49, 67), (67, 76), (77, 91)],
        },
    )
}
_ALGORITHMS: dict[str, Callable[[Problem], Schedule]] = {"heft": heft, "cpop": cpop, "peft": peft}
#: Keys of a case that describe it; all others are expectations.
_CASE_KEYS = frozenset({"name", "w", "e", "heft_order", "cpop_order", "peft_order"})
_EXPECTED_KEYS = frozenset(
    {
        *("heft", "cpop", "peft", "heft_schedule", "cpop_schedule", "peft_schedule"),
        *("published", "optimal", "ranku", "rankd", "oct", "rank_oct", "heft_no_insertion"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningResult:
    """Result of one case."""

    id: str
    passed: bool
    expected: Any
    got: Any  #: `{"broken": why}` if the case could not run.


def read_planning_cases(text: str) -> list[Any]:
    """Return the cases of a file. Raises CaseError; the message begins with the line."""
    written = parsed(text, _EXAMPLE)
    lists = [written.get(key, []) for key in _LISTS] if isinstance(written, dict) else []
    if not any(lists) or not all(isinstance(one, list) for one in lists):
        raise CaseError(f"{line_of(text, 'classic')}: there is no list `classic` or `random` with cases; write {_EXAMPLE}")
    return [case for one in lists for case in one]


def run_planning_cases(cases: list[Any]) -> Iterator[PlanningResult]:
    """Yield a verdict on each case, in order. A repeated name fails."""
    seen: set[str] = set()
    for place, case in enumerate(cases):
        name = str(case.get("name") or f"case {place}") if isinstance(case, dict) else f"case {place}"
        try:
            for subject, expected, got in _run(case, name, is_repeated=name in seen):
                yield PlanningResult(id=subject, passed=expected == got, expected=expected, got=got)
            seen.add(name)
        except CaseError as wrong:
            yield PlanningResult(id=name, passed=False, expected=None, got={"broken": str(wrong)})
        except Exception as broke:  # noqa: BLE001  an error of one case must not stop the others
            yield PlanningResult(id=name, passed=False, expected=None, got={"broken": f"{type(broke).__name__}: {broke}"})


def _run(case: Any, name: str, *, is_repeated: bool) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield what is expected of a case, and what came out, under the same keys; more of the case with a known answer."""
    if is_repeated:
        raise CaseError(f"another case has the name {name}; rename one")
    problem = _problem(case, name)
    wanted = {key: value for key, value in case.items() if key not in _CASE_KEYS}
    unknown = sorted(wanted.keys() - _EXPECTED_KEYS)
    if unknown or not wanted:
        words = f"expects {', '.join(unknown)}, which is not known" if unknown else "expects nothing, so nothing would be checked"
        raise CaseError(f"{name}: it {words}; known are {', '.join(sorted(_EXPECTED_KEYS))}")
    schedules = {key: algorithm(problem) for key, algorithm in _ALGORITHMS.items()}
    planned = plan(problem)
    expected: dict[str, Any] = {}
    got: dict[str, Any] = {}
    for key, value in wanted.items():
        if key == "published":
            for algorithm, makespan in value.items():
                if algorithm.lower() in schedules:
                    expected[f"published {algorithm}"] = makespan
                    got[f"published {algorithm}"] = _shown(schedules[algorithm.lower()].makespan)
            continue
        if key == "optimal":
            lengths = {**{algorithm: schedule.makespan for algorithm, schedule in schedules.items()}, "plan": planned.makespan}
            expected["below the optimum"] = []
            got["below the optimum"] = [algorithm for algorithm, length in lengths.items() if length < value]
            continue
        expected[key], got[key] = value, _result(key, problem, schedules, value)
    expected |= {"plan above heft": False, "wrong": []}
    got["plan above heft"] = planned.makespan > schedules["heft"].makespan
    got["wrong"] = [wrong for one in (*schedules.values(), planned) for wrong in violations(problem, one)]
    beside = heft(_with_idle_processor(problem))
    expected["heft with a processor that may run nothing"] = _runs(schedules["heft"])
    got["heft with a processor that may run nothing"] = _runs(beside)
    yield name, expected, got
    if name in _BUSY:
        start, makespan, busy = _BUSY[name]
        yield f"{name}: infinite-cost processor", {"heft": case.get("heft")}, {"heft": _shown(beside.makespan)}
        again = heft(_with_busy_processors(problem, schedules["heft"]), start=start)
        used = {pool: sorted((_shown(run.start), _shown(run.end)) for run in again.runs if run.pool == pool) for pool in busy}
        yield (
            f"{name}: busy processors",
            {"heft": makespan, "runs": _listed(busy)},
            {"heft": _shown(again.makespan), "runs": _listed(used)},
        )


def _runs(schedule: Schedule) -> list[list[float]]:
    return [[run.pool, _shown(run.start), _shown(run.end)] for run in schedule.runs]


def _listed(used: Mapping[int, Iterable[tuple[float, float]]]) -> dict[str, list[list[float]]]:
    return {f"P{pool + 1}": [list(one) for one in runs] for pool, runs in used.items()}


def _result(key: str, problem: Problem, schedules: dict[str, Schedule], value: Any) -> Any:
    """Return the result for a key in the form of the expectation; rounded ranks count as equal, and are returned as expected."""
    if key in _ALGORITHMS:
        return _shown(schedules[key].makespan)
    if key.endswith("_schedule"):
        return _runs(schedules[key.removesuffix("_schedule")])
    if key == "heft_no_insertion":
        return _shown(heft(problem, with_gaps=False).makespan)
    if key == "oct":
        return [[_shown(cost) for cost in row] for row in optimistic_costs(problem)]
    if key == "rank_oct":
        ranks = [sum(row) / len(row) for row in optimistic_costs(problem)]
    else:
        ranks = upward(problem) if key == "ranku" else downward(problem)
    is_same = len(ranks) == len(value) and all(abs(rank - known) < _ROUNDED for rank, known in zip(ranks, value, strict=True))
    return value if is_same else [round(rank, 3) for rank in ranks]


def _problem(case: Any, name: str) -> Problem:
    """Return the planning problem of a case. Raises CaseError."""
    if not isinstance(case, dict):
        raise CaseError(f"{name}: is {type(case).__name__}, not an object; write {_EXAMPLE}")
    rows, edges = case.get("w"), case.get("e") or []
    if not _is_table(rows) or not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
        raise CaseError(f"{name}: `w` must list run times from 0 for each node, as many as there are processors, like [[1, 2], [2, 1]]")
    if not _is_table(edges):
        raise CaseError(f"{name}: `e` must list edges of [from, to, transfer time], like [[0, 1, 3]]")
    needs: list[list[Need]] = [[] for _ in rows]
    for at, edge in enumerate(edges):
        source, target = edge[:2] if len(edge) == 3 else (-1, -1)  # noqa: PLR2004  from, to, time
        if not all(isinstance(node, int) and 0 <= node < len(rows) for node in (source, target)):
            raise CaseError(f"{name}: `e`[{at}] is {edge}; write [from, to, transfer time] with nodes from 0 to {len(rows) - 1}")
        needs[target].append(Need(source, edge[2]))
    try:
        return Problem(pools=(Pool(slots=1),) * len(rows[0]), run_times=rows, needs=needs)
    except ValueError as wrong:
        raise CaseError(f"{name}: {wrong}") from None


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list) and all(isinstance(one, (int, float)) and not isinstance(one, bool) and 0 <= one < inf for one in row)
        for row in value
    )


def _with_idle_processor(problem: Problem) -> Problem:
    rows = [(*times, inf) for times in problem.run_times]
    return Problem(pools=(*problem.pools, Pool(slots=1)), run_times=rows, needs=problem.needs)


def _with_busy_processors(problem: Problem, first: Schedule) -> Problem:
    used = [sorted(Interval(run.start, run.end) for run in first.runs if run.pool == pool) for pool in range(len(problem.pools))]
    return replace(problem, pools=tuple(Pool(slots=1, busy=(tuple(of_pool),)) for of_pool in used))


def _shown(time: float) -> float | int:
    """Return a time as it is written: whole numbers without a point, rounding of sums removed."""
    near = round(time, 6)
    return int(near) if near == int(near) else near
