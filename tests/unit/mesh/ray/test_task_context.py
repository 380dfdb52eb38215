"""Context of a task's own code: checkpoints, waits and cancellation."""

from __future__ import annotations

import threading

import pytest

from mesh.core.ids import TaskId
from mesh.core.reasons import Reason
from mesh.ray.user_code.task_context import NoCurrentTask, TaskContext, TaskPreempted, current_task, make_current


@pytest.fixture
def sent():
    return []


@pytest.fixture
def context(sent):
    return TaskContext(
        task=TaskId("t"), attempt=1, saved=None, saved_bytes_max=1_000, send=lambda kind, payload: sent.append((kind, payload))
    )


@pytest.fixture
def _stopping(context):
    context.ask_to_stop(Reason.PREEMPTED)


def test_outside_of_a_task_there_is_none():
    with pytest.raises(NoCurrentTask, match="a class that an agent hosts"):
        current_task()


def test_every_thread_of_the_process_sees_its_task(context):
    make_current(context)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(current_task()))
    thread.start()
    thread.join()
    make_current(None)
    assert seen == [context]


def test_a_new_task_has_no_past(context):
    assert (context.last_checkpoint(), context.progress, context.should_stop()) == (None, None, False)
    context.stop_if_asked()


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_progress_goes_from_0_to_1(context, fraction):
    with pytest.raises(ValueError, match="from 0 to 1"):
        context.report_progress(fraction)
    with pytest.raises(ValueError, match="from 0 to 1"):
        context.save_checkpoint("x", progress=fraction)
    assert context.last_checkpoint() is None


def test_a_checkpoint_is_a_copy(context):
    state = [1]
    context.save_checkpoint(state)
    state.append(2)
    assert context.last_checkpoint() == [1]
    assert context.last_checkpoint() is not context.last_checkpoint()


def test_a_checkpoint_is_reported_with_its_bytes(context, sent):
    context.report_progress(0.25)
    context.save_checkpoint("one")
    context.save_checkpoint("two", progress=0.5)
    snapshots = [payload for kind, payload in sent if kind == "checkpoint"]
    assert [(snapshot.checkpoint.number, snapshot.progress, snapshot.attempt) for snapshot in snapshots] == [(1, 0.25, 1), (2, 0.5, 1)]
    assert all(snapshot.checkpoint_bytes for snapshot in snapshots)


def test_an_unpicklable_checkpoint_is_refused_without_effect(context):
    context.save_checkpoint("kept")
    with pytest.raises(TypeError, match=r"a checkpoint \(lock\) cannot be pickled"):
        context.save_checkpoint(threading.Lock())
    assert context.last_checkpoint() == "kept"


@pytest.mark.usefixtures("_stopping")
def test_s17_a_checkpoint_is_kept_before_the_task_stops(context, sent):
    with pytest.raises(TaskPreempted, match="PREEMPTED"):
        context.save_checkpoint("last", progress=1)
    assert context.last_checkpoint() == "last"
    assert len(sent) == 1


@pytest.mark.usefixtures("_stopping")
def test_s17_progress_is_kept_before_the_task_stops(context):
    with pytest.raises(TaskPreempted):
        context.report_progress(0.75)
    assert context.progress == 0.75


@pytest.mark.usefixtures("_stopping")
def test_code_that_asks_has_noticed(context):
    assert not context.has_noticed
    assert context.should_stop()
    assert context.has_noticed


def test_waiting_for_another_task_and_its_end_are_reported(context, sent):
    def wait():
        with context.blocked():
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - any will do
        wait()
    assert sent == [("blocked", None), ("unblocked", None)]
