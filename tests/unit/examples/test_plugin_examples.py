"""The example plugins: loaded as users load them, asked as the scheduler asks them, and none is fenced off."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from mesh.core.ids import PoolName, TaskId
from mesh.core.resources import ResourceSet
from mesh.plugins import CandidateFacts, Plugins, TaskFacts
from mesh.policies.catalogue import Catalogue
from mesh.policies.policy_fixtures import demand, node, view
from mesh.ray.plugins.plugin_loading import load_plugin

FOLDER = Path(__file__).parents[3] / "examples" / "plugins"
NODES = view(node(cpu=(8, 8)), node(cpu=(2, 8)), node(cpu=(8, 8), gpu=(4, 4)), node(cpu=(8, 8), gpu=(1, 4)))


def loaded(source: str) -> Plugins:
    return Plugins([load_plugin("mine", source, folder=FOLDER)], now_ms=lambda: time.monotonic() * 1000, budget_ms=60_000.0)


def row_of(plugins: Plugins, **wanted: float) -> int | None:
    policy, asked = Catalogue(plugins.policies).policy("mine"), demand(**wanted)
    fits = (NODES.free >= asked.wanted).all(axis=1)
    return policy.pick(np.where(fits, policy.score(asked, NODES), -np.inf), asked, lambda _: 0)


def candidate(gpu: float = 0, lost_ms: int = 60_000) -> CandidateFacts:
    return CandidateFacts(
        task=TaskId("t"),
        pool=PoolName("p"),
        priority=2,
        priority_delta=3,
        resources=ResourceSet.of({"gpu": gpu}),
        ran_ms=0,
        lost_ms=lost_ms,
    )


def task(**facts: object) -> TaskFacts:
    return TaskFacts(task=TaskId("t"), pool=PoolName("p"), priority=5.0, **facts)


def test_s13_the_python_example_decides_through_all_three_hooks():
    plugins = loaded("examples.plugins.near_full_gpu:NearFullGpu")
    assert row_of(plugins, cpu=1, gpu=1) == 3
    assert row_of(plugins, cpu=1) == 0
    assert plugins.priority(task(workload_type="interactive")) == 7.0
    assert plugins.preempt_score(candidate(), 0.0) == 2.0
    assert plugins.preempt_score(candidate(lost_ms=4_000_000), 0.0) is None
    assert plugins.take_fenced() == ()


def test_s13_the_webassembly_example_uses_all_hooks():
    plugins = loaded("gpu_last.wat")
    assert row_of(plugins, cpu=1) == 1
    assert row_of(plugins, cpu=1, gpu=1) == 2
    assert plugins.priority(task(estimated_ms=30_000)) == 6.0
    assert plugins.priority(task(estimated_ms=None)) == 5.0
    assert plugins.preempt_score(candidate(), 0.0) == 2.0
    assert plugins.preempt_score(candidate(gpu=1), 0.0) is None
    assert plugins.take_fenced() == ()


@pytest.mark.parametrize("source", ["examples.plugins.near_full_gpu:NearFullGpu", "gpu_last.wat"])
def test_the_score_of_a_row_depends_on_the_row_alone(source: str):
    score = loaded(source).policies["mine"].score
    whole = score(demand(cpu=1), NODES)
    assert score(demand(cpu=1), view(node(cpu=(2, 8)))).tolist() == [whole[1]]
