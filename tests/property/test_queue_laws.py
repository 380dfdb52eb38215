"""Laws of the order of label queues: under any history, equal to a fresh sort by the formula."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.task_spec import TRANSITIONS, TaskState
from mesh.tasks.queues import LabelQueues, LabelSettings
from mesh.tasks.task_queues import SchedulingQueues

LABELS = ["", "gold", "plain"]
eighths = st.integers(-16, 80)  # Eighths of a point: exact in binary, so the formula has no rounding.
thousandths = st.sampled_from([0, 1, 10, 333, 5000])  # Thousandths of a point per second.
moments = st.integers(0, 2_000_000)


class AnyQueue(RuleBasedStateMachine):
    """Model of every queued task with its own facts, and of each label's settings."""

    @initialize()
    def begin(self):
        self.queues = LabelQueues()
        self.facts = {}
        self.settings = dict.fromkeys(LABELS, (0, 10))
        self.own = set()
        self.arrivals = 0

    def formula(self, task, now_ms):
        label, _, priority, since_ms, _ = self.facts[task]
        label_priority, ageing = self.settings[label]
        return Fraction(label_priority + priority, 8) + Fraction(ageing, 1000) * Fraction(now_ms - since_ms, 1000)

    def sorted_anew(self, now_ms):
        return sorted(self.facts, key=lambda task: (-self.formula(task, now_ms), self.facts[task][-1], task))

    def queue(self, task):
        label, shape, priority, since_ms, arrival = self.facts[task]
        self.queues.add(task, bucket=(label, shape), label=label, priority=priority / 8, since_ms=since_ms, arrival=arrival)

    @rule(label=st.sampled_from(LABELS), shape=st.integers(0, 2), priority=eighths, since_ms=moments)
    def add(self, label, shape, priority, since_ms):
        task = f"t{self.arrivals}"
        self.facts[task] = (label, shape, priority, since_ms, self.arrivals)
        self.arrivals += 1
        self.queue(task)

    @precondition(lambda self: self.facts)
    @rule(data=st.data())
    def remove(self, data):
        task = data.draw(st.sampled_from(sorted(self.facts)))
        assert self.queues.remove(task)
        assert not self.queues.remove(task)
        del self.facts[task]

    @precondition(lambda self: self.facts)
    @rule(data=st.data(), now_ms=moments)
    def come_back(self, data, now_ms):
        task = data.draw(st.sampled_from(sorted(self.facts)))
        before = list(self.queues.walk(now_ms))
        self.queues.remove(task)
        self.queue(task)
        assert list(self.queues.walk(now_ms)) == before

    @rule(label=st.sampled_from([*LABELS, None]), priority=eighths, ageing=thousandths)
    def configure(self, label, priority, ageing):
        self.queues.configure(label, LabelSettings(priority=priority / 8, aging_per_s=ageing / 1000))
        if label is not None:
            self.own.add(label)
        for name in LABELS:
            if name == label or (label is None and name not in self.own):
                self.settings[name] = (priority, ageing)

    @rule(now_ms=moments, fitting=st.sets(st.tuples(st.sampled_from(LABELS), st.integers(0, 2))), most=st.integers(0, 6))
    def admit_what_fits(self, now_ms, fitting, most):
        """Admit until the limit: one task of an unfitting bucket is tried, and each task of the others."""
        turn, looked_at, expected, closed = self.queues.round(now_ms), [], [], set()
        for task in self.sorted_anew(now_ms):
            bucket = self.facts[task][:2]
            if len(expected) < most and bucket not in closed:
                expected.append(task)
                closed |= {bucket} - fitting
        while len(looked_at) < most and (found := turn.next()) is not None:
            bucket, task = found
            looked_at.append(task)
            if bucket in fitting:
                self.queues.remove(task)
                del self.facts[task]
                turn.again(bucket)
        assert looked_at == expected

    @rule(now_ms=moments)
    def tell_positions_and_priorities(self, now_ms):
        for place, task in enumerate(self.sorted_anew(now_ms)):
            assert self.queues.position(task, now_ms) == place + 1
            assert self.queues.workload_priority(task, now_ms) == float(self.formula(task, now_ms))

    @rule(one_ms=moments, other_ms=moments, label=st.sampled_from(LABELS))
    def compare_two_moments(self, one_ms, other_ms, label):
        """Check that the order within a label never changes."""
        orders = [[task for task in self.queues.walk(now_ms) if self.facts[task][0] == label] for now_ms in (one_ms, other_ms)]
        assert orders[0] == orders[1]

    @invariant()
    def the_order_is_that_of_the_formula(self):
        assert list(self.queues.walk(1_000_000)) == self.sorted_anew(1_000_000)

    @invariant()
    def the_state_is_consistent(self):
        assert self.queues.check() == []
        assert len(self.queues) == len(self.facts)
        assert set(self.queues.buckets()) == {facts[:2] for facts in self.facts.values()}


TestAnyQueue = AnyQueue.TestCase
TestAnyQueue.settings = settings(max_examples=50, stateful_step_count=30)


@settings(max_examples=80)
@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(TaskState), st.integers(0, 3)), max_size=60),
)
def test_tasks_are_conserved_over_all_moves_between_states(steps):
    queues, model = SchedulingQueues(), {}
    for number, state, cpus in steps:
        task = f"t{number}"
        if task not in model:
            model[task] = (state, ResourceSet({"cpu": cpus}))
            queues.add(task, state, model[task][1], job=f"j{number % 2}")
        elif state in TRANSITIONS[model[task][0]]:
            model[task] = (state, model[task][1])
            queues.move(task, state)
        elif cpus == 0:
            assert queues.remove(task) is model.pop(task)[0]
        assert queues.check() == []
    assert {task: queues.state_of(task) for task in model} == {task: state for task, (state, _) in model.items()}
    for state in TaskState:
        there = [wanted for kept, wanted in model.values() if kept is state]
        assert queues.wanted(state) == sum(there, start=NOTHING)
        assert queues.counts()[state] == len(there)
    assert {*queues.of_job("j0"), *queues.of_job("j1")} == model.keys()
