"""Laws of graphs that grow: functions return nodes at random, among branches, waits, cleanup, time limits, losses and resumptions.

The run is written and read as a store does it, and at any moment another coordinator may go on from that.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples_of_laws import examples
from graphs_of_calls import growth, spec_of
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_world import FAULTS_MAX, Meshes, choices

from dag.run.events import NodeGrown, ResumeRequested, SignalSent, TimersDue
from dag.run.machine import RunMachine
from dag.run.retrying import RetryRules
from dag.run.runs import ForgetRun, RunRecord, graph_of
from dag.run.states import NODE_ENDS, RUN_ENDS, STAGE_ENDS, NodeState, RunState
from dag.spec.control import COND, SIGNAL, SLEEP
from dag.spec.growth import BETWEEN
from dag.spec.plans import plans_of
from dag.spec.spec import kept_form
from dag.store.node_rows import changed_rows
from dag.store.rows import fixed_fields, moving_fields, record_of, stage_rows
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue, json_value

DEPTH_MAX = 2
RETRYING = RetryRules(kills_max=FAULTS_MAX + 1, losses_max=FAULTS_MAX + 3, resume_window_ms=1_000)


@dataclass(frozen=True)
class Written:
    """A graph in words: for `spec_of` and `growth`."""

    nodes: tuple[str, ...]
    given: dict[str, dict]
    outputs: tuple[str, ...] = ()


@st.composite
def graphs(draw, *, with_limits=False, prefix="n", most=6, with_outputs=True):
    """Return a graph with nodes of all kinds; each needs some of those before it."""
    nodes, given = [], {}
    for number in range(draw(st.integers(1, most))):
        name, earlier = f"{prefix}{number}", [f"{prefix}{other}" for other in range(number)]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        kind = draw(st.sampled_from(("work", "work", "work", "cond", "sleep", "signal", "cleanup")))
        order = draw(st.integers(0, len(needs)))
        options = given.setdefault(name, {})
        if kind == "cond" and len(needs) > 1:
            test, *branches = sorted(needs, key=lambda need: int(need[len(prefix) :]))  # A branch comes after the test.
            options.update(call=COND, args=[{"$ref": each} for each in (test, *branches)] + [None] * (2 - len(branches)))
            nodes.append(f"{name}: {' '.join(needs)}")
            continue
        if kind == "sleep":
            options.update(call=SLEEP, args=[0.01])
        elif kind == "signal":
            options.update(call=SIGNAL, args=["go", draw(st.sampled_from((None, 0.05)))])
        elif kind == "cleanup" and order:
            options["when"] = draw(st.sampled_from(("always", "failure")))
        if kind in ("sleep", "signal"):
            order = len(needs)
        else:
            options.update(draw(limits) if with_limits else {}, retries=draw(st.integers(0, 1)))
        nodes.append(f"{name}: {' '.join(f'~{need}' if place < order else need for place, need in enumerate(needs))}")
    names = [f"{prefix}{number}" for number in range(len(nodes))]
    outputs = draw(st.lists(st.sampled_from(names), unique=True, min_size=1)) if with_outputs else ()
    return Written(tuple(nodes), {name: options for name, options in given.items() if options}, tuple(outputs))


limits = st.fixed_dictionaries(
    {},
    optional={
        "schedule_to_start_s": st.just(0.02),
        "schedule_to_close_s": st.just(0.05),
        "backoff": st.just({"initial_s": 0.005, "jitter": 0}),
    },
)


class GrowingMeshes(Meshes):
    """A run whose functions may return nodes: those whose place among the names has `grows`, down to `DEPTH_MAX`."""

    def __init__(self, written, children, grows, *, failing=frozenset(), on_error="fail_fast", truth=True):
        self.children, self.grows, self.truth, self.on_error = children, grows, truth, on_error
        spec = kept_form(spec_of(*written.nodes, outputs=written.outputs, **written.given))
        record = RunRecord(run="r", tenant="acme", digest="", spec=spec, created_ms=1)
        self.fields, self.node_rows, self.stage_rows = {}, {}, {}
        machine = self.machine_for(record)
        super().__init__(machine.plans, failing=failing, on_error=on_error, machine=machine)
        self.fields.update({**fixed_fields(record), **moving_fields(record, version=0)})
        self.resumptions = 0

    def machine_for(self, record):
        return RunMachine(record, plans_of(graph_of(record)), runtime_env={}, on_error=self.on_error, retrying=RETRYING)

    def report(self, *events):
        change = super().report(*events)
        if any(isinstance(decision, ForgetRun) for decision in change.decisions):
            self.values.clear()
        self.record.version += 1
        self.fields.update(moving_fields(self.record, version=self.record.version, change=change))
        self.node_rows.update(changed_rows(self.record.nodes, change.nodes))
        self.stage_rows.update(stage_rows(change.stages, self.record.nodes))
        if change.growths:
            self.use(self.record)

    def use(self, record):
        """Go on with a machine for the record."""
        self.machine, self.record = self.machine_for(record), record

    def take_over(self):
        """Let another coordinator go on from what the store has."""
        assert self.fields["version"] == str(self.record.version).encode()
        self.use(record_of("r", self.fields, self.node_rows, self.stage_rows.values()))

    # -- what can happen next

    def actions(self, *, with_faults):
        common = list(super().actions(with_faults=with_faults))
        if with_faults:
            common.append(("take over",))
        due_ms = self.machine.next_timer_ms()
        if due_ms is not None and (with_faults or not common):
            common.append(("time", due_ms))
        if not common and any(kept.reason is Reason.WAITING_FOR_SIGNAL for kept in self.record.nodes.values()):
            common.append(("signal",))
        return common

    def do(self, action, choice=0):
        kind, *arguments = action
        if kind == "take over":
            self.take_over()
        elif kind == "time":
            self.now_ms = max(self.now_ms, *arguments)
            self.report(TimersDue())
            self.settle_all()
        elif kind == "signal":
            self.report(SignalSent(name="go", value=json_value(b"1")))
            self.settle_all()
        else:
            super().do(action, choice)

    def has_ended_without_value(self, stage, task, fields):
        depth = task.node.count(BETWEEN)
        if task.node in self.failing or depth >= DEPTH_MAX or int.from_bytes(task.node.encode(), "big") % 3 not in self.grows:
            return False
        stage.failed.add(task.node)
        written = self.children[len(task.node) % len(self.children)]
        added = growth(task.node, *written.nodes, before=self.record.growths, **written.given)
        graph = StoredValue(sha256=f"graph {task.node} {task.attempt}", size_bytes=1, encoding=Encoding.GRAPH)
        self.say(stage, NodeGrown(**fields, growth=added, graph=graph))
        return True

    def value_of(self, node):
        return json_value(b"true" if self.truth else b"false") if node.rpartition(BETWEEN)[2] == "n0" else super().value_of(node)

    def go_on(self, choices=()):
        """As `run`, and resume a run that did not succeed, once, without its failures."""
        self.run(choices)
        if self.record.state in (RunState.FAILED, RunState.CANCELLED):
            self.resumptions += 1
            self.failing, self.forgotten = frozenset(), False
            self.report(ResumeRequested())
            self.run(choices)

    def check_end(self):
        record = self.record
        nodes = record.nodes
        assert record.state in RUN_ENDS
        assert all(kept.state in NODE_ENDS for kept in nodes.values())
        assert all(stage.state in STAGE_ENDS for stage in record.stages.values())
        assert len({each.node for each in record.growths}) == len(record.growths)
        added = [name for each in record.growths for name in each.names()]
        assert {name for name in nodes if BETWEEN in name} == set(added)
        assert len(added) == len(set(added))
        for each in record.growths:
            parent, value = nodes[each.node], nodes[each.value_of()]
            assert parent.stage is None
            if parent.state is NodeState.SUCCEEDED:
                assert (value.state, value.stored) == (NodeState.SUCCEEDED, parent.stored)
            else:
                assert value.state is not NodeState.SUCCEEDED or parent.state is NodeState.CANCELLED or self.has_stopped()
        assert all(nodes[output].stored is not None for output in self.outputs() if nodes[output].state is NodeState.SUCCEEDED)

    def has_stopped(self):
        return self.record.state is not RunState.SUCCEEDED

    def outputs(self):
        return [output.node for output in graph_of(self.record).outputs.values()]


laws = settings(max_examples=examples(60), deadline=None)
children = st.lists(graphs(prefix="c", most=3, with_outputs=False), min_size=1, max_size=2)
grows = st.sets(st.integers(0, 2), min_size=1)


@laws
@given(graphs(), children, grows, choices, st.booleans())
def test_a_growing_run_survives_any_loss_and_any_coordinator(written, children, grows, choices, truth):
    world = GrowingMeshes(written, children, grows, truth=truth, on_error="continue")
    world.run(choices)
    world.check_end()


@laws
@given(graphs(), children, grows, choices, st.sets(st.integers(0, 5), max_size=2), st.sampled_from(["fail_fast", "continue"]))
def test_a_growing_run_can_be_resumed(written, children, grows, choices, failing, on_error):
    world = GrowingMeshes(written, children, grows, failing=frozenset(f"n{number}" for number in failing), on_error=on_error)
    world.go_on(choices)
    world.check_end()


@laws
@given(graphs(with_limits=True), children, grows, choices, st.sets(st.integers(0, 5), max_size=1))
def test_time_limits_hold_in_growing_runs(written, children, grows, choices, failing):
    world = GrowingMeshes(written, children, grows, failing=frozenset(f"n{number}" for number in failing), on_error="continue")
    world.go_on(choices)
    world.check_end()


@laws
@given(graphs(), children, grows, choices, st.integers(0, 60))
def test_a_growing_run_can_be_cancelled_at_any_moment(written, children, grows, choices, cancel_at):
    world = GrowingMeshes(written, children, grows)
    world.run(choices, cancel_at=cancel_at)
    world.check_end()


@laws
@given(graphs(), children, choices)
def test_without_failures_all_that_no_branch_left_out_succeeds(written, children, choices):
    world = GrowingMeshes(written, children, {0, 1, 2})
    world.run([choice | 1 for choice in choices])  # Without faults.
    world.check_end()
    assert world.record.state is RunState.SUCCEEDED or any(
        kept.failure is not None and kept.failure.reason in (Reason.SIGNAL_TIMED_OUT, Reason.CONDITION_UNDECIDED)
        for kept in world.record.nodes.values()
    )
