"""Laws of the run machine, on random graphs, placements, orders of messages, and losses of every kind."""

from __future__ import annotations

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_world import Meshes, choices, graphs

from dag.run.states import NODE_ENDS, RUN_ENDS, STAGE_ENDS, NodeState, RunState
from mesh.core.reasons import Reason

sixty = settings(max_examples=examples(300))


@sixty
@given(graphs(), choices, st.sets(st.integers(0, 7), max_size=1))
def test_ends_of_many_tasks_change_what_single_ends_change(plans, choices, failing):
    world = Meshes(plans, failing={f"n{number}" for number in failing}, on_error="continue", with_twin=True)
    world.run(choices)
    assert world.record.state in RUN_ENDS


@sixty
@given(graphs(), choices)
def test_a_run_survives_any_loss_without_a_cycle_of_stages(plans, choices):
    world = Meshes(plans)
    world.run(choices)
    assert world.record.state is RunState.SUCCEEDED
    assert all(kept.state is NodeState.SUCCEEDED for kept in world.record.nodes.values())
    assert all(world.record.nodes[node].stored is not None for node, plan in plans.items() if plan.is_output)
    assert world.forgotten


@sixty
@given(graphs(with_actors=True), choices)
def test_an_actor_without_retries_ends_with_its_process(plans, choices):
    world = Meshes(plans, on_error="continue")
    world.run(choices)
    lost = {node for node, kept in world.record.nodes.items() if kept.state is NodeState.FAILED}
    assert all(plans[node].never_on for node in lost)
    assert all(world.record.nodes[node].failure.reason is Reason.WORKER_LOST for node in lost)
    for kept in world.record.nodes.values():
        assert kept.state is NodeState.SUCCEEDED or kept.node in lost or (kept.roots and set(kept.roots) <= lost)
    assert world.forgotten


@sixty
@given(graphs(), choices, st.sets(st.integers(0, 7), max_size=2))
def test_with_continue_only_dependents_of_a_failure_are_skipped(plans, choices, failing):
    failing = {f"n{number}" for number in failing} & set(plans)
    below = set()
    for node, plan in plans.items():
        if (failing | below) & {*plan.task.inputs, *plan.task.after}:
            below.add(node)
    world = Meshes(plans, failing=failing, on_error="continue")
    world.run(choices)
    assert world.record.state is (RunState.FAILED if failing else RunState.SUCCEEDED)
    for node, kept in world.record.nodes.items():
        wanted = NodeState.SKIPPED if node in below else NodeState.FAILED if node in failing else NodeState.SUCCEEDED
        assert kept.state is wanted
        if node in below:
            assert kept.roots
            assert set(kept.roots) <= failing


@sixty
@given(graphs(), choices, st.sets(st.integers(0, 7), min_size=1, max_size=2))
def test_with_fail_fast_the_run_stops_and_every_node_has_ended(plans, choices, failing):
    failing = {f"n{number}" for number in failing} & set(plans)
    world = Meshes(plans, failing=failing)
    world.run(choices)
    assert world.record.state is (RunState.FAILED if failing else RunState.SUCCEEDED)
    assert all(kept.state in NODE_ENDS for kept in world.record.nodes.values())
    assert all(stage.state in STAGE_ENDS for stage in world.record.stages.values())


@sixty
@given(graphs(), choices, st.integers(0, 60))
def test_a_run_can_be_cancelled_at_any_moment(plans, choices, cancel_at):
    world = Meshes(plans)
    world.run(choices, cancel_at=cancel_at)
    assert world.record.state in (RunState.CANCELLED, RunState.SUCCEEDED)
    assert all(kept.state in NODE_ENDS for kept in world.record.nodes.values())
    assert all(stage.state in STAGE_ENDS for stage in world.record.stages.values())


@sixty
@given(graphs(), choices, st.sets(st.integers(0, 60), min_size=1, max_size=4), st.sampled_from(["fail_fast", "continue"]))
def test_only_waiting_work_can_be_refused_at_any_moment(plans, choices, refuse_at, on_error):
    world = Meshes(plans, on_error=on_error)
    world.run(choices, refuse_at=refuse_at)
    nodes = world.record.nodes.values()
    refused = {kept.node for kept in nodes if kept.state is NodeState.FAILED}
    assert world.record.state is (RunState.FAILED if refused else RunState.SUCCEEDED)
    assert all(kept.failure.reason is Reason.WAITED_TOO_LONG for kept in nodes if kept.node in refused)
    assert all(kept.state in NODE_ENDS for kept in nodes)
    assert all(stage.state in STAGE_ENDS for stage in world.record.stages.values())
    assert all(set(kept.roots) <= refused and kept.roots for kept in nodes if kept.state is NodeState.SKIPPED)
