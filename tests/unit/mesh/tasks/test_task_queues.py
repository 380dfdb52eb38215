"""Queues by state: sums of each, and refused transitions."""

from __future__ import annotations

import itertools

import pytest

from mesh.core.resources import AMOUNT_MAX, NOTHING, ResourceSet
from mesh.core.task_spec import TRANSITIONS, TaskState
from mesh.errors import IllegalTransition, LedgerError
from mesh.tasks.task_queues import HISTORY_LENGTH_MAX, ReadyQueue, SchedulingQueues, TaskQueue

S = TaskState
ONE, TWO = ResourceSet.of({"cpu": 1}), ResourceSet.of({"cpu": 2, "gpu": 1})


@pytest.fixture
def queues():
    """Queues that check their own state when the test ends."""
    made = SchedulingQueues()
    yield made
    assert made.check() == []


# -- one queue ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[TaskQueue, ReadyQueue], ids=["a task queue", "the ready queue"])
def queue(request):
    return request.param()


def test_s30_a_queue_keeps_arrival_order_after_removals(queue):
    for number in range(5):
        queue.add(f"t{number}", ONE)
    assert queue.remove("t0")
    assert queue.remove("t3")
    queue.add("t0", ONE)
    assert (list(queue), len(queue)) == (["t1", "t2", "t4", "t0"], 4)


def test_s30_a_queue_finds_its_tasks_and_what_each_wants(queue):
    queue.add("t", TWO)
    assert ("t" in queue, "u" in queue, queue.resources_of("t")) == (True, False, TWO)
    with pytest.raises(LedgerError):
        queue.resources_of("u")


def test_s30_the_sum_of_what_is_wanted_follows_every_change(queue):
    seen = [queue.wanted]
    queue.add("a", ONE)
    queue.add("b", TWO)
    seen.append(queue.wanted)
    queue.remove("a")
    seen.append(queue.wanted)
    queue.remove("b")
    seen.append(queue.wanted)
    assert seen == [NOTHING, ResourceSet.of({"cpu": 3, "gpu": 1}), TWO, NOTHING]


def test_a_task_is_in_a_queue_once(queue):
    queue.add("t", ONE)
    with pytest.raises(LedgerError, match="already"):
        queue.add("t", TWO)
    assert not queue.remove("u")
    assert queue.wanted == ONE


def test_a_sum_that_overflows_reads_as_the_maximum(queue):
    whole = ResourceSet({"memory": AMOUNT_MAX})
    queue.add("a", whole)
    queue.add("b", whole)
    assert queue.wanted == whole
    queue.remove("a")
    queue.remove("b")
    assert queue.wanted == NOTHING


def test_s30_ready_tasks_are_found_by_their_shape():
    queue = ReadyQueue()
    for task, shape in (("a", ONE), ("b", TWO), ("c", ONE)):
        queue.add(task, shape)
    assert (queue.shapes(), queue.of_shape(ONE), queue.of_shape(NOTHING)) == ((ONE, TWO), ("a", "c"), ())
    queue.remove("a")
    queue.remove("c")
    assert (queue.shapes(), queue.of_shape(ONE)) == ((TWO,), ())


def test_s30_one_shape_that_does_not_fit_skips_all_tasks_of_it():
    queue = ReadyQueue()
    for number in range(1_000):
        queue.add(f"large {number}", TWO)
    queue.add("small", ONE)
    asked = []

    def fits(shape):
        asked.append(shape)
        return shape == ONE

    assert [task for shape in queue.shapes() if fits(shape) for task in queue.of_shape(shape)] == ["small"]
    assert len(asked) == 2


# -- from state to state -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(before, after, id=f"from {before.value} to {after.value}") for before, after in itertools.product(S, S)],
)
def test_s29_a_task_goes_where_the_table_says_and_nowhere_else(before, after):
    queues = SchedulingQueues()
    queues.add("t", before, ONE)
    if after in TRANSITIONS[before]:
        queues.move("t", after)
        assert (queues.state_of("t"), queues.in_state(after), queues.in_state(before)) == (after, ("t",), ())
    else:
        with pytest.raises(IllegalTransition):
            queues.move("t", after)
        assert queues.state_of("t") is before
    assert queues.check() == []


def test_s29_every_state_of_ray_has_its_queue(queues):
    ray = ["PLACEABLE", "WAITING", "READY", "RUNNING", "BLOCKED", "INFEASIBLE", "WAITING_FOR_ACTOR_CREATION", "SWAP", "DRIVER"]
    for name in ray:
        queues.add(name, S(name), ONE)
    assert {state.value: count for state, count in queues.counts().items() if count} == dict.fromkeys(ray, 1)


def test_a_refused_transition_shows_the_tasks_history(queues):
    queues.add("t", S.PLACEABLE)
    for state in (S.READY, S.SWAP, S.RUNNING, S.SUCCEEDED):
        queues.move("t", state)
    with pytest.raises(IllegalTransition, match="t cannot become RUNNING: states so far: PLACEABLE > READY > SWAP > RUNNING > SUCCEEDED"):
        queues.move("t", S.RUNNING)


def test_the_history_of_an_endlessly_retried_task_is_bounded(queues):
    queues.add("t", S.PLACEABLE)
    for _ in range(HISTORY_LENGTH_MAX):
        queues.move("t", S.READY)
        queues.move("t", S.PLACEABLE)
    with pytest.raises(IllegalTransition) as refused:
        queues.move("t", S.RUNNING)
    states = str(refused.value).partition("states so far: ")[2].split(" > ")
    assert len(states) == HISTORY_LENGTH_MAX
    assert states[-2:] == ["READY", "PLACEABLE"]


def test_a_known_task_is_not_added_and_an_unknown_one_not_moved(queues):
    queues.add("t", S.PLACEABLE)
    with pytest.raises(LedgerError, match="already known, states so far: PLACEABLE"):
        queues.add("t", S.WAITING)
    with pytest.raises(LedgerError, match="there is no task u"):
        queues.move("u", S.READY)
    assert (len(queues), "t" in queues, "u" in queues) == (1, True, False)


def test_a_task_that_is_removed_is_forgotten_everywhere(queues):
    queues.add("t", S.READY, ONE, job="j", agent="a")
    assert queues.remove("t") is S.READY
    assert queues.remove("t") is None
    assert (queues.of_job("j"), queues.of_agent("a"), queues.wanted(S.READY), queues.ready.shapes()) == ((), (), NOTHING, ())


# -- looked up ---------------------------------------------------------------------------------------------------------


def test_s30_tasks_are_found_by_their_job_and_by_their_agent(queues):
    queues.add("leader", S.RUNNING, job="j", agent="a")
    queues.add("worker", S.PLACEABLE, job="j")
    queues.add("call", S.WAITING_FOR_ACTOR_CREATION, agent="a")
    assert (queues.of_job("j"), queues.of_agent("a"), queues.of_job("k"), queues.of_agent("b")) == (
        ("leader", "worker"),
        ("leader", "call"),
        (),
        (),
    )


def test_s30_tasks_are_filtered_by_their_state(queues):
    queues.add("a", S.READY)
    queues.add("b", S.RUNNING)
    queues.add("c", S.READY)
    assert queues.only(["c", "b", "a", "unknown"], S.READY) == ("c", "a")


def test_s30_what_is_wanted_is_summed_per_queue_and_over_queues(queues):
    queues.add("a", S.READY, ONE)
    queues.add("b", S.RUNNING, TWO)
    queues.add("c", S.PLACEABLE, TWO)
    queues.move("c", S.READY)
    assert (queues.wanted(S.PLACEABLE), queues.wanted(S.READY), queues.wanted(S.READY, S.RUNNING), queues.wanted()) == (
        NOTHING,
        ResourceSet.of({"cpu": 3, "gpu": 1}),
        ResourceSet.of({"cpu": 5, "gpu": 2}),
        NOTHING,
    )


def test_a_queue_can_be_read_as_it_stands(queues):
    queues.add("a", S.READY, ONE)
    assert list(queues.queue(S.READY)) == ["a"]
    assert queues.queue(S.READY) is queues.ready


def test_the_check_of_states_reports_inconsistent_state():
    queues = SchedulingQueues()
    queues.add("a", S.READY, ONE)
    queues.queue(S.RUNNING).add("ghost", ONE)
    queues.queue(S.PLACEABLE).add("another", ONE)
    queues.ready.remove("a")
    assert queues.check() == ["a has state READY, but is not in that queue", "1 task is known, 2 are queued"]
