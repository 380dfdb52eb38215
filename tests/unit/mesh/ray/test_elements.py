"""Elements of a part of an array, in the process of a worker."""

from __future__ import annotations

import threading

import pytest

from mesh.core.reasons import Reason
from mesh.ray.user_code.task_context import TaskContext, TaskPreempted, current_task, make_current
from mesh.ray.worker import elements
from mesh.ray.worker.elements import ElementsFailed, Rules, run_elements
from mesh.stages.arrays import ArrayArgument, Piece

RULES = Rules(check=str, ends_worker=lambda error: error if isinstance(error, SystemExit) else None)


def argument(items, first=0, of=None, **more):
    return ArrayArgument({"$each": None, "span": [first, len(items) if of is None else of], **more}, items)


@pytest.fixture
def part():
    """The task that is the part; what it has saved is there for the next attempt."""
    context = TaskContext(task="a@0", attempt=1, saved=None, saved_bytes_max=10**6, send=lambda *_: None)
    make_current(context)
    yield context
    make_current(None)


def run(function, given, *, args=None, attempt=1, **kwargs):
    return run_elements(function, [given] if args is None else args, kwargs, given, RULES, attempt)


def test_each_element_goes_with_the_other_arguments():
    given = argument([1, 2, 3], first=4, of=9)
    assert run(lambda x, y, z: (x, y, z), given, args=[given, "y"], z="z") == Piece(4, 9, [(1, "y", "z"), (2, "y", "z"), (3, "y", "z")])


def test_an_element_may_be_a_list_of_arguments():
    given = argument([(1, 2), [3, 4]], star=True)
    assert run(lambda x, y: x + y, given).values == [3, 7]


def test_a_failed_element_does_not_stop_the_others(part):
    ran = []

    def work(x):
        ran.append(x)
        if x % 2:
            raise ValueError(f"odd {x}")
        return x

    with pytest.raises(ElementsFailed, match=r"element 11 of 50: odd 1 \(2 elements of this part failed: 11, 13\)") as failed:
        run(work, argument([0, 1, 2, 3], first=10, of=50))
    assert ran == [0, 1, 2, 3]
    assert [(one.index, one.type_name, one.message) for one in failed.value.elements] == [
        (11, "ValueError", "odd 1"),
        (13, "ValueError", "odd 3"),
    ]
    assert part.last_checkpoint() == {0: 0, 2: 2}


def test_the_next_attempt_runs_only_what_has_not_succeeded(part):
    ran = []

    def work(x):
        ran.append(x)
        if x == 2 and ran.count(2) < 2:
            raise ValueError("not yet")
        return x

    with pytest.raises(ElementsFailed):
        run(work, argument([1, 2, 3]))
    assert run(work, argument([1, 2, 3]), attempt=2) == Piece(0, 3, [1, 2, 3])
    assert ran == [1, 2, 3, 2]


def test_a_part_that_is_asked_to_stop_keeps_what_is_done(part, monkeypatch):
    monkeypatch.setattr(elements, "SAVE_EVERY_S", 0.0)

    def work(x):
        if x == 2:
            part.ask_to_stop(Reason.PREEMPTED)
        return x

    with pytest.raises(TaskPreempted):
        run(work, argument([1, 2, 3]))
    assert part.last_checkpoint() == {0: 1, 1: 2}
    assert part.progress == pytest.approx(2 / 3)


def test_the_element_whose_value_cannot_be_pickled_is_named(part):
    with pytest.raises(ElementsFailed, match="element 1 of 2") as failed:
        run(lambda x: threading.Lock() if x else [x], argument([0, 1]))
    assert isinstance(failed.value.first, elements.Unpicklable)


def test_code_sees_a_task_of_its_element(part):
    seen = []

    def work(x):
        task = current_task()
        task.save_checkpoint(x)
        seen.append(task.task)

    run(work, argument([1, 2], first=5, of=9))
    assert seen == ["a@0[5]", "a@0[6]"]
    assert part.last_checkpoint() is None
    assert current_task() is part


def test_the_end_of_the_worker_is_no_error_of_an_element(part):
    def work(_):
        raise SystemExit

    with pytest.raises(SystemExit):
        run(work, argument([1]))
