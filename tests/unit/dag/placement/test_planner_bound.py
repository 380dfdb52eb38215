"""The bound of the planner, which runs inside the coordinator's loop."""

from __future__ import annotations

import pytest

from dag.placement.planner import NODES_MAX, plan
from dag.placement.problem import Interval, Pool, Problem


@pytest.mark.parametrize(
    ("count", "first"),
    [pytest.param(5, 0, id="few nodes use a gap"), pytest.param(NODES_MAX + 1, 6, id="many nodes go behind it")],
)
def test_a_large_problem_is_planned_without_gaps(count, first):
    problem = Problem(pools=(Pool(slots=1, busy=((Interval(5, 6),),)),), run_times=[[1.0]] * count, needs=[()] * count)
    assert min(run.start for run in plan(problem).runs) == first
