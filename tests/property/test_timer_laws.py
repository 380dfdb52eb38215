"""Laws of timers and of waits before retries."""

from __future__ import annotations

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.alarms import Alarms
from dag.run.node_facts import TimerKind
from dag.run.node_table import NodeTable
from dag.run.retrying import RetryRules
from dag.run.states import NodeState
from dag.run.timers import Timers
from dag.spec.retry_options import Backoff
from dag.store.node_rows import changed_rows, table_of

NODES = ("a", "b", "c")
MOMENTS = st.integers(1, 20)

steps = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(NODES), st.sampled_from(TimerKind), MOMENTS),
    st.tuples(st.just("drop"), st.sampled_from(NODES), st.sampled_from(TimerKind)),
    st.tuples(st.just("end"), st.sampled_from(NODES)),
    st.tuples(st.just("store")),
    st.tuples(st.just("take"), MOMENTS),
)


@settings(max_examples=examples(100))
@given(st.lists(steps, max_size=30))
def test_timers_are_due_once_in_order_also_after_a_reload(taken):
    nodes = NodeTable(NODES)
    timers, rows = Timers(nodes), {}
    model: dict[tuple[str, TimerKind], int] = {}
    for kind, *arguments in taken:
        if kind == "set":
            node, of, due_ms = arguments
            if nodes[node].state is NodeState.WAITING:
                timers.set(nodes[node], of, due_ms)
                model[node, of] = due_ms
        elif kind == "drop":
            node, of = arguments
            timers.drop(nodes[node], of)
            model.pop((node, of), None)
        elif kind == "end":
            nodes[arguments[0]].state = NodeState.SKIPPED
            model = {key: due_ms for key, due_ms in model.items() if key[0] != arguments[0]}
        elif kind == "store":
            rows.update(changed_rows(nodes, nodes.take_changes()))
            nodes = table_of(NODES, rows)
            timers = Timers(nodes)
        else:
            now_ms = arguments[0]
            due = sorted((due_ms, NODES.index(node), of) for (node, of), due_ms in model.items() if due_ms <= now_ms)
            assert [(node.node, of) for of, node in timers.take_due(now_ms)] == [(NODES[row], of) for _, row, of in due]
            model = {key: due_ms for key, due_ms in model.items() if due_ms > now_ms}
        assert timers.next_ms() == min(model.values(), default=None)


@settings(max_examples=examples(100))
@given(st.lists(st.one_of(st.tuples(st.sampled_from("rst"), MOMENTS), MOMENTS), max_size=30))
def test_no_run_is_woken_later_than_it_asked(taken):
    alarms = Alarms()
    wanted: dict[str, int] = {}
    for step in taken:
        if isinstance(step, tuple):
            run, due_ms = step
            alarms.set(run, due_ms)
            wanted[run] = min(due_ms, wanted.get(run, due_ms))
        else:
            due = alarms.take_due(step)
            assert len(due) == len(set(due))
            assert set(due) == {run for run, due_ms in wanted.items() if due_ms <= step}
            wanted = {run: due_ms for run, due_ms in wanted.items() if due_ms > step}
        assert alarms.next_ms() == min(wanted.values(), default=None)


backoffs = st.builds(
    Backoff,
    initial_ms=st.none() | st.integers(0, 10_000),
    factor=st.none() | st.floats(1, 100),
    max_ms=st.none() | st.integers(0, 100_000),
    jitter=st.none() | st.floats(0, 1),
)


@settings(max_examples=examples(100))
@given(backoffs, st.text(max_size=5), st.integers(1, 500))
def test_waits_grow_up_to_their_limit_and_jitter_within_it(backoff, who, failures):
    rules = RetryRules(wait_ms=100, wait_max_ms=5_000)
    exact = Backoff(initial_ms=backoff.initial_ms, factor=backoff.factor, max_ms=backoff.max_ms, jitter=0)
    base_ms, next_ms = (rules.wait_after_ms(who, number, exact) for number in (failures, failures + 1))
    wait_ms = rules.wait_after_ms(who, failures, backoff)
    jitter = 0.5 if backoff.jitter is None else backoff.jitter
    assert base_ms <= next_ms
    assert base_ms <= wait_ms <= base_ms * (1 + jitter)
    assert wait_ms == rules.wait_after_ms(who, failures, backoff)
    if backoff.max_ms is not None:
        assert base_ms <= backoff.max_ms
