"""Laws of placement, on random graphs and pools."""

from __future__ import annotations

from math import inf

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.placement.bounds import lower_bound
from dag.placement.heuristics import cpop, heft, peft
from dag.placement.planner import plan
from dag.placement.problem import Interval, Need, Pool, Problem, violations

TIMES = st.integers(0, 20)


@st.composite
def problems(draw, *, slots_max=3):
    count, pools = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    nodes = draw(st.permutations(range(count)))
    needs = [[] for _ in nodes]
    pairs = [(nodes[low], nodes[high]) for high in range(count) for low in range(high)]
    for source, target in draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30)) if pairs else []:
        needs[target].append(Need(source, draw(TIMES)))
    rows = [[draw(TIMES | st.just(inf)) for _ in range(pools)] for _ in nodes]
    for row in rows:
        row[draw(st.integers(0, pools - 1))] = draw(TIMES)
    busy = [tuple((Interval(at, at + draw(TIMES)),) for at in draw(st.lists(TIMES, max_size=1))) for _ in range(pools)]
    made = tuple(Pool(slots=draw(st.integers(1, slots_max)), busy=used) for used in busy)
    return Problem(pools=made, run_times=rows, needs=needs)


@given(problems())
@settings(max_examples=examples(300))
def test_no_schedule_breaks_a_rule_or_the_bound(problem):
    for schedule in (heft(problem), cpop(problem), peft(problem), plan(problem), heft(problem, with_gaps=False)):
        assert violations(problem, schedule) == ()
        assert schedule.makespan >= lower_bound(problem) - 1e-6


@given(problems())
@settings(max_examples=examples(200))
def test_the_plan_is_never_longer_than_heft(problem):
    assert plan(problem).makespan <= heft(problem).makespan


@given(problems())
@settings(max_examples=examples(100))
def test_a_pool_that_may_run_nothing_changes_nothing(problem):
    rows = [[*row, inf] for row in problem.run_times]
    beside = Problem(pools=(*problem.pools, Pool(slots=2)), run_times=rows, needs=problem.needs)
    assert heft(beside) == heft(problem)


@given(problems(slots_max=1), st.integers(1, 3))
@settings(max_examples=examples(100))
def test_gaps_are_found_as_by_looking_at_every_slot(problem, slots):
    """A pool of slots gives the times that single slots give, asked one after the other."""
    pools = tuple(Pool(slots=slots) for _ in problem.pools)
    wide = Problem(pools=pools, run_times=problem.run_times, needs=[()] * len(problem.needs), rank_share=0)
    rows = [[time for time in row for _ in range(slots)] for row in problem.run_times]
    single = Problem(pools=(Pool(slots=1),) * len(rows[0]), run_times=rows, needs=wide.needs, rank_share=0)
    assert [(run.start, run.end) for run in heft(wide).runs] == [(run.start, run.end) for run in heft(single).runs]
