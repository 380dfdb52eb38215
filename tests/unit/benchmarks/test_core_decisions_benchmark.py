from __future__ import annotations

import pytest

from benchmarks import core_decisions
from benchmarks.measuring import Series


@pytest.fixture(scope="module")
def found():
    return core_decisions.measure(1, nodes=(60, 120), queued=500, ends=50)


def test_a_full_core_starts_about_one_task_for_each_that_ends(found):
    assert [(side.policy, side.nodes) for side in found] == [(policy, nodes) for nodes in (60, 120) for policy in core_decisions.POLICIES]
    for side in found:
        assert side.starts_per_s > 0
        assert side.full_p95_ms >= side.full_ms > 0
        assert 0.5 < side.starts_a_call < 2


def test_growth_is_relative_to_the_fewest_nodes_of_a_policy(found):
    few, many = ({side.policy: side for side in found if side.nodes == nodes} for nodes in (60, 120))
    for policy in core_decisions.POLICIES:
        assert few[policy].growth == 1.0
        grown = many[policy].full_ms / few[policy].full_ms
        assert 0 < many[policy].growth < grown


def test_the_metrics_of_the_core_come_as_json_too(found):
    document = core_decisions.as_json(found)
    assert document["name"] == "core_decisions"
    assert [side["policy"] for side in document["sides"]] == [*core_decisions.POLICIES, *core_decisions.POLICIES]


def test_a_percentile_is_the_nearest_rank():
    hundred = Series(name="all", samples_ms=tuple(float(number) for number in range(100, 0, -1)))
    assert (hundred.p95_ms, hundred.p99_ms) == (95.0, 99.0)


def test_the_p99_of_few_samples_is_the_greatest():
    assert Series(name="few", samples_ms=(3.0, 9.0, 1.0)).p99_ms == 9.0
