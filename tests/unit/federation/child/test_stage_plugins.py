"""Plugins of a federated mesh: they choose nodes and victims, and one that fails is replaced and reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
import structlog
from child_bed import CPU, HEARTBEAT_MS, Federation, nodes, pool

from federation.child.stage_plugins import StagePlugins
from federation.snapshot import PluginRecord
from mesh.core.resources import ResourceSet
from mesh.plugins import Plugin, PluginError
from mesh.policies.catalogue import UnknownPolicy
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.messages import NodeCheckpoint

TAKES = PreemptionPolicy(takes=True, min_run_ms=0, reservation_timeout_ms=10 * HEARTBEAT_MS)


def largest(_demand, view):
    return view.total[:, 0] / 30_000


def raises(*_):
    raise OSError("the model\x1b[2J\nis gone")


def placed(*plugins, policy):
    """Run a stage of one slot on a mesh with nodes of 1 and 3 CPUs; return the federation and the node's name."""
    federation = Federation(replace(pool("general", 4), policy=policy), plugins=plugins)
    federation.host.nodes = lambda: nodes(CPU, ResourceSet.of({"cpu": 3}))
    federation.submit("s")
    federation.heartbeat()
    assert federation.running() == {"s"}
    (node,) = federation.child.state.admission.placement.nodes_of("s")
    return federation, node


@pytest.mark.parametrize("policy", ["mine", "0.7*mine+0.3*binpack"])
def test_s13_a_pools_policy_may_be_a_plugin(policy):
    federation, node = placed(Plugin(name="mine", score=largest), policy=policy)
    assert node == "n1"
    assert federation.view().record.plugins == (PluginRecord(plugin="mine", hooks=("score",)),)


def test_s13_a_failing_plugin_is_replaced_and_reported_once():
    with structlog.testing.capture_logs() as logs:
        federation, _ = placed(Plugin(name="bad", score=raises), policy="bad")
        federation.heartbeat(3)
    why = r"raised OSError: the model\x1b[2J"
    assert federation.view().record.plugins == (PluginRecord(plugin="bad", fenced={"score": why}),)
    assert [log["plugin"] for log in logs if log["event"] == "a plugin is disabled"] == ["bad"]


def test_a_fenced_plugin_stays_off_after_a_lost_session():
    federation, _ = placed(Plugin(name="bad", score=raises), policy="bad")
    federation.store.leave(federation.session())
    federation.heartbeat(2)
    assert federation.child.is_joined
    assert list(federation.view().record.plugins[0].fenced) == ["score"]


def victims_with(**hooks):
    """Fill a mesh of two CPUs with stages of priorities 0 and 1, and submit an urgent one; return the federation and its victims."""
    federation = Federation(pool("general", 2), quota=2, plugins=[Plugin(name="mine", **hooks)])
    for name, priority in (("a", 0), ("b", 1)):
        federation.submit(name, priority=priority)
        federation.heartbeat()
    federation.submit("urgent", priority=5, preemption=TAKES)
    federation.notifications()
    return federation, set(federation.host.stopping)


def test_s13_a_plugin_chooses_the_victim_of_a_tenant():
    seen = []

    def least_urgent_last(facts):
        seen.append((facts.task, facts.tenant, facts.pool, facts.priority_delta, facts.resources))
        return -facts.priority_delta

    _, victims = victims_with(preemption_policy=least_urgent_last)
    assert victims == {"b"}
    assert {("a", "acme", "general", 5, CPU), ("b", "acme", "general", 4, CPU)} == set(seen)


def test_a_plugin_sees_the_work_since_the_last_checkpoint():
    seen = {}

    def notes(facts):
        seen[facts.task] = facts.ran_ms, facts.lost_ms
        return 0

    federation = Federation(pool("general", 2), quota=2, plugins=[Plugin(name="mine", preemption_policy=notes)])
    for name in "ab":
        federation.submit(name)
    federation.heartbeat()
    federation.clock.advance(60)
    checkpoint = NodeCheckpoint(stage="a", node="a", attempt=1, number=1, stored=None)
    federation.child.state.running["a"].heed((checkpoint,), federation.clock.monotonic_ms())
    federation.clock.advance(40)
    federation.submit("urgent", priority=5, preemption=TAKES)
    federation.notifications()
    assert seen == {"a": (100, 40), "b": (100, 100)}


def test_s13_a_plugin_may_spare_all_candidates():
    assert victims_with(preemption_policy=lambda _: None)[1] == set()


def test_s13_a_failing_choice_of_victims_leaves_the_usual_one():
    federation, victims = victims_with(preemption_policy=raises)
    assert victims == {"a"}
    federation.heartbeat()
    assert list(federation.view().record.plugins[0].fenced) == ["preemption_policy"]


def test_a_federated_mesh_names_the_hook_that_it_does_not_call():
    plugins = StagePlugins([Plugin(name="mine", score=largest, priority=raises), Plugin(name="other", score=largest, priority=raises)])
    words = "is not called: in a federation, the tenants' priorities order the queues"
    assert plugins.unused == (f"priority() of plugin mine {words}", f"priority() of plugin other {words}")
    assert plugins.records == (PluginRecord(plugin="mine", hooks=("score",)), PluginRecord(plugin="other", hooks=("score",)))


def test_one_plugin_of_a_mesh_chooses_victims():
    with pytest.raises(PluginError, match=r"a and b both have preemption_policy\(\)"):
        StagePlugins([Plugin(name=name, preemption_policy=raises) for name in "ab"])


def test_a_plugin_may_not_have_a_taken_name():
    with pytest.raises(UnknownPolicy, match="choose another name"):
        StagePlugins([Plugin(name="binpack", score=largest)])
