"""Plugins behind a fence: a failing plugin is replaced by the default and reported."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mesh.core.ids import PoolName, TaskId
from mesh.plugins import CandidateFacts, Plugin, PluginError, PluginFenced, Plugins, TaskFacts
from mesh.policies import hybrid
from mesh.policies.binpack import BINPACK
from mesh.policies.catalogue import Catalogue
from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView
from mesh.policies.policy_fixtures import demand, node, view

NODES = view(node(cpu=(2, 8)), node(cpu=(8, 8)), node(cpu=(5, 8)))
TASK = TaskFacts(task=TaskId("t"), pool=PoolName("p"), priority=5.0)
CANDIDATE = CandidateFacts(task=TaskId("t"), pool=PoolName("p"), priority=2.0, priority_delta=3.0, ran_ms=1_000, lost_ms=500)


class StepClock:
    """Clock that advances by so many milliseconds at each look."""

    def __init__(self, step_ms: float = 0.0) -> None:
        self.step_ms = step_ms
        self.at_ms = 0.0

    def __call__(self) -> float:
        self.at_ms += self.step_ms
        return self.at_ms


def plugins(*loaded: Plugin, step_ms: float = 0.0, **options: Any) -> Plugins:
    return Plugins(loaded, now_ms=StepClock(step_ms), **options)


def raises(*_: object) -> Any:
    raise RuntimeError("no\nmore of it")


def exits(*_: object) -> Any:
    sys.exit(3)


def recurses(*_: object) -> Any:
    return recurses()


def scores(row: int) -> Callable[[NodeDemand, NodeScoringView], FloatArray]:
    return lambda _, rows: (np.arange(len(rows.total)) == row).astype(np.float64)


def test_s13_a_score_plugin_decides_which_node_is_taken():
    policy = plugins(Plugin(name="mine", score=scores(2))).policies["mine"]
    assert policy.pick(policy.score(demand(cpu=1), NODES), demand(cpu=1), lambda _: 0) == 2


def test_s13_a_score_plugin_is_a_policy_by_its_name():
    mine = plugins(Plugin(name="mine", score=scores(2)))
    assert Catalogue(mine.policies).policy("mine") is mine.policies["mine"]


def test_s13_a_priority_plugin_replaces_the_users_priority():
    assert plugins(Plugin(name="mine", priority=lambda facts: facts.priority * 2)).priority(TASK) == 10.0
    assert plugins().priority(TASK) == 5.0


def test_s13_a_preemption_plugin_scores_victims_or_abstains():
    assert plugins(Plugin(name="mine", preemption_policy=lambda facts: facts.priority_delta)).preempt_score(CANDIDATE, 1.5) == 3.0
    assert plugins(Plugin(name="mine", preemption_policy=lambda _: None)).preempt_score(CANDIDATE, 1.5) is None
    assert plugins().preempt_score(CANDIDATE, 1.5) == 1.5


@pytest.mark.parametrize(
    ("score", "why"),
    [
        pytest.param(raises, "raised RuntimeError: no", id="it raises"),
        pytest.param(exits, "raised SystemExit: 3", id="it wants to end the process"),
        pytest.param(recurses, "raised RecursionError: maximum recursion depth", id="it recurses for ever"),
        pytest.param(lambda *_: None, "answered an array of shape [] for 3 nodes", id="it answers nothing"),
        pytest.param(lambda *_: "best", "answered str, which is not one number per node", id="it answers words"),
        pytest.param(lambda *_: np.zeros(2), "answered an array of shape [2] for 3 nodes", id="a node is missing"),
        pytest.param(lambda *_: np.zeros((3, 3)), "answered an array of shape [3, 3] for 3 nodes", id="a table and no row"),
        pytest.param(lambda *_: [1.0, math.nan, 2.0], "answered NaN or infinity", id="a score is not a number"),
        pytest.param(lambda *_: [1.0, math.inf, 2.0], "answered NaN or infinity", id="a score is infinite"),
        pytest.param(
            lambda _, rows: rows.free.fill(0), "raised ValueError: assignment destination is read-only", id="it writes into the ledger"
        ),
    ],
)
def test_s13_a_failing_score_plugin_is_replaced_by_the_default(score: Any, why: str):
    loaded = plugins(Plugin(name="bad", score=score))
    policy, wanted, free = loaded.policies["bad"], demand(cpu=1), NODES.free.copy()
    assert (policy.score(wanted, NODES) == hybrid.score(wanted, NODES)).all()
    (fenced,) = loaded.take_fenced()
    assert (fenced.plugin, fenced.hook) == ("bad", "score")
    assert fenced.why.startswith(why)
    assert (NODES.free == free).all()


def test_s13_a_fenced_plugin_is_not_called_and_reported_once():
    calls = []

    def score(*_: object) -> Any:
        calls.append(1)
        return None

    loaded = plugins(Plugin(name="bad", score=score))
    for _ in range(3):
        loaded.policies["bad"].score(demand(cpu=1), NODES)
    assert len(calls) == 1
    assert len(loaded.take_fenced()) == 1
    assert loaded.take_fenced() == ()


def test_s13_after_the_fence_the_default_picks_as_well():
    loaded = plugins(Plugin(name="bad", score=raises), default=hybrid.HYBRID)
    policy, wanted = loaded.policies["bad"], demand(cpu=1, top_k_absolute=3)
    assert policy.pick(policy.score(wanted, NODES), wanted, lambda count: count - 1) == 0, "the last of hybrid's three, not the best score"


def test_s13_another_default_can_be_chosen():
    policy = plugins(Plugin(name="bad", score=raises), default=BINPACK).policies["bad"]
    assert policy.pick(policy.score(demand(cpu=1), NODES), demand(cpu=1), lambda _: 0) == 0


def test_s13_a_plugin_over_its_time_budget_is_fenced():
    loaded = plugins(Plugin(name="slow", score=scores(2)), step_ms=80.0, budget_ms=50.0)
    assert (loaded.policies["slow"].score(demand(cpu=1), NODES) == hybrid.score(demand(cpu=1), NODES)).all()
    assert loaded.take_fenced() == (PluginFenced(plugin="slow", hook="score", why="took 80 ms of 50"),)


def test_s13_a_plugin_within_its_budget_stays():
    loaded = plugins(Plugin(name="quick", score=scores(2)), step_ms=49.0, budget_ms=50.0)
    assert loaded.policies["quick"].score(demand(cpu=1), NODES).tolist() == [0.0, 0.0, 1.0]
    assert loaded.take_fenced() == ()


@pytest.mark.parametrize(
    "answer", [None, "high", math.nan, math.inf, True, [1.0]], ids=["none", "words", "nan", "infinity", "a flag", "a list"]
)
def test_s13_a_priority_that_is_no_number_fences_the_plugin_off(answer: Any):
    loaded = plugins(Plugin(name="bad", priority=lambda _: answer))
    assert loaded.priority(TASK) == 5.0
    assert [fenced.hook for fenced in loaded.take_fenced()] == ["priority"]


@pytest.mark.parametrize("check_targets", [raises, lambda _: "yes", lambda _: math.nan], ids=["it raises", "words", "nan"])
def test_s13_a_failing_preemption_plugin_leaves_the_usual_score(check_targets: Any):
    loaded = plugins(Plugin(name="bad", preemption_policy=check_targets))
    assert loaded.preempt_score(CANDIDATE, 1.5) == 1.5
    assert [fenced.hook for fenced in loaded.take_fenced()] == ["preemption_policy"]


def test_s13_one_fenced_hook_leaves_the_others_of_its_plugin():
    loaded = plugins(Plugin(name="half", score=raises, priority=lambda _: 9.0))
    loaded.policies["half"].score(demand(cpu=1), NODES)
    assert loaded.priority(TASK) == 9.0


def test_a_kept_array_of_a_plugin_cannot_change_scores_later():
    kept = np.zeros(3)
    policy = plugins(Plugin(name="mine", score=lambda *_: kept)).policies["mine"]
    answered = policy.score(demand(cpu=1), NODES)
    kept[1] = 99.0
    assert answered.tolist() == [0.0, 0.0, 0.0]


def test_a_score_of_minus_infinity_keeps_the_node_out():
    policy = plugins(Plugin(name="mine", score=lambda *_: [-np.inf, -5.0, -np.inf])).policies["mine"]
    assert policy.pick(policy.score(demand(cpu=1), NODES), demand(cpu=1), lambda _: 0) == 1


def test_an_interrupt_of_the_user_goes_through_the_fence():
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plugins(Plugin(name="mine", score=interrupted)).policies["mine"].score(demand(cpu=1), NODES)


def test_two_plugins_cannot_order_one_mesh():
    with pytest.raises(PluginError, match=r"a and b both have priority\(\)"):
        plugins(Plugin(name="a", priority=lambda _: 1.0), Plugin(name="b", priority=lambda _: 2.0))


def test_two_plugins_cannot_have_one_name():
    with pytest.raises(PluginError, match="two plugins have one name"):
        plugins(Plugin(name="a", score=scores(0)), Plugin(name="a", score=scores(1)))


def test_s13_in_a_sum_a_score_counts_from_0_to_1():
    mine = Plugin(name="mine", score=lambda *_: [7.0, -np.inf, 0.5])
    policy = Catalogue(plugins(mine).policies).policy("0.5*mine+0.5*binpack")
    packed = BINPACK.score(demand(cpu=1), NODES)
    assert policy.score(demand(cpu=1), NODES).tolist() == [(1.0 + packed[0]) / 2, -np.inf, (0.5 + packed[2]) / 2]


def test_s13_a_sum_without_its_fenced_plugin_is_the_rest():
    loaded = plugins(Plugin(name="bad", score=raises))
    policy = Catalogue(loaded.policies).policy("0.75*bad+0.25*binpack")
    assert policy.score(demand(cpu=1), NODES).tolist() == (0.25 * BINPACK.score(demand(cpu=1), NODES)).tolist()
    assert policy.pick(policy.score(demand(cpu=1), NODES), demand(cpu=1), lambda _: 0) == 0
    assert [one.why for one in loaded.take_fenced()] == ["raised RuntimeError: no"]


def test_the_hooks_of_each_plugin_are_listed():
    loaded = plugins(Plugin(name="a", score=scores(0)), Plugin(name="b", score=raises, priority=raises))
    assert loaded.hooks == {"a": ("score",), "b": ("score", "priority")}
