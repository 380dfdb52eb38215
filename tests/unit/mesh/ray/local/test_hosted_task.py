"""Object of a task in an agent, without Ray: calls, stopping points, saved state, reuse of the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from mesh.core.ids import AgentId, TaskId
from mesh.core.reasons import Reason
from mesh.core.saved_state import Checkpoint, SavedState, SnapshotLevel, StateHandlers, StateSnapshot, handlers_of, register_state_handlers
from mesh.ray.local.agent.agent_errors import CallPreempted, NoSuchMethod, NothingHosted
from mesh.ray.local.agent.hosted_task import HostedTask
from mesh.ray.local.agent_messages import AgentStatus, HostCommand, RestoreHow, StopCommand, StopHow, call_name
from mesh.ray.local.pickled_code import pickled_arguments
from mesh.ray.user_code import task_context
from mesh.ray.user_code.task_context import NoCurrentTask, TaskPreempted

TASK, AGENT = TaskId("t"), AgentId("a")
STATUS = AgentStatus(agent=AGENT, task=TASK, attempt=1, at_ms=0, pid=1, node="n")
WAIT_S = 60.0
unpickled = pickle.loads


class Gate:
    """Events shared by a test and the object that it hosts in this process."""

    entered = threading.Event()
    leave = threading.Event()

    @classmethod
    def reset(cls):
        cls.entered, cls.leave = threading.Event(), threading.Event()


def _unreadable():
    raise ValueError("unreadable")


class Unreadable:
    """Cannot be unpickled."""

    def __reduce__(self):
        return _unreadable, ()


class Counter:
    def __init__(self, start=0, *, step=1):
        self.value, self.step = start, step

    def add(self, by=1, method=0):
        self.value += by * self.step + method
        return self.value

    def fail(self, kind=ValueError):
        raise kind("no")

    async def add_async(self, by):
        await asyncio.sleep(0)
        return self.add(by)

    async def wait_async(self):
        Gate.entered.set()
        await asyncio.sleep(3600)

    async def deaf_async(self):
        Gate.entered.set()
        while not Gate.leave.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def busy(self):
        """Block in C, without a stopping point."""
        Gate.entered.set()
        Gate.leave.wait(WAIT_S)
        return "done"

    def count(self, values):
        for value in values:
            Gate.entered.set()
            yield value

    async def count_async(self, values):
        for value in values:
            await asyncio.sleep(0)
            yield value

    def train(self, steps):
        task = task_context.current_task()
        done = task.last_checkpoint() or 0
        while done < steps:
            done += 1
            if done == 3:
                Gate.entered.set()
                Gate.leave.wait(WAIT_S)
            task.save_checkpoint(done, progress=done / steps)
        return f"trained {done} steps"

    def poll(self):
        Gate.entered.set()
        while not task_context.current_task().should_stop():
            Gate.leave.wait(0.005)
        return "early"

    def swallow(self):
        Gate.entered.set()
        while True:
            try:
                Gate.leave.wait(0.005)
                task_context.current_task().stop_if_asked()
            except Exception:  # noqa: BLE001, S110 - what a training loop does
                pass


class Holder:
    """Hosted task, with the reports that it made."""

    def __init__(self, cls=Counter, *, args=(), kwargs=None, handlers=None, attempt=1, saved=None, **order):
        self.sent = []
        self.order = HostCommand(
            task=TASK, attempt=attempt, code=b"", saved=saved, arguments=pickled_arguments(*args, **(kwargs or {})), **order
        )
        self.task = HostedTask(self.order, AGENT, lambda kind, payload: self.sent.append((kind, payload)))
        self.restored, self.methods = self.task.build(cls, handlers or handlers_of(cls), saved)

    def call(self, method, /, *args, **kwargs):
        return self.task.call(method, args, kwargs)

    def stop(self, *, grace_ms=60_000, preserve_ms_max=60_000, **order):
        return self.task.stop(
            StopCommand(task=TASK, attempt=self.order.attempt, grace_ms=grace_ms, preserve_ms_max=preserve_ms_max, **order)
        )


@pytest.fixture(autouse=True)
def _gate():
    Gate.reset()
    yield
    Gate.leave.set()
    task_context.make_current(None)


@pytest.fixture
def beside():
    """Run calls on other threads that end with the test."""
    with ThreadPoolExecutor(4) as pool:
        all_here = threading.Barrier(5)  # Start all threads before a task looks for stray ones.
        for _ in range(4):
            pool.submit(all_here.wait, WAIT_S)
        all_here.wait(WAIT_S)
        yield pool.submit
        Gate.leave.set()


# -- calls -------------------------------------------------------------------------------------------------------------


def test_methods_are_called_with_their_arguments():
    holder = Holder(args=(5,), kwargs={"step": 2})
    assert holder.call("add", 3) == 11
    assert holder.call("add", method=4) == 17
    assert (holder.task.calls, holder.task.failures, holder.task.running) == (2, 0, 0)


def test_an_async_method_is_called_like_any_other():
    assert Holder().call("add_async", 3) == 3


def test_async_methods_of_several_calls_run_at_once(beside):
    class Meeting:
        def __init__(self):
            self.here, self.all_here = 0, asyncio.Event()

        async def meet(self, wanted):
            self.here += 1
            if self.here == wanted:
                self.all_here.set()
            await self.all_here.wait()
            return self.here

    holder = Holder(Meeting)
    calls = [beside(holder.call, "meet", 3) for _ in range(3)]
    assert [call.result(WAIT_S) for call in calls] == [3, 3, 3]


@pytest.mark.parametrize(
    "method", [pytest.param("ad", id="a name that is near"), pytest.param("value", id="no method"), pytest.param("__init__", id="hidden")]
)
def test_an_unknown_method_is_an_error_with_the_known_ones(method):
    with pytest.raises(NoSuchMethod, match=r"no method .*; it has: add, add_async, busy, count") as caught:
        Holder().call(method)
    assert isinstance(caught.value, AttributeError)


def test_a_users_error_comes_out_as_it_is_and_is_counted():
    holder = Holder()
    with pytest.raises(ValueError, match="no") as caught:
        holder.call("fail")
    assert caught.traceback[-1].name == "fail"
    with pytest.raises(SystemExit):
        holder.call("fail", SystemExit)
    assert (holder.task.calls, holder.task.failures, holder.task.running) == (2, 2, 0)


def test_a_raised_non_exception_is_reported_as_one():
    class Odd(BaseException):
        pass

    with pytest.raises(RuntimeError, match="Odd: no"):
        Holder().call("fail", Odd)


def test_a_sys_exit_in_an_async_method_ends_the_call_only():
    class Leaver:
        async def leave(self):
            raise SystemExit(3)

        async def stay(self):
            return "here"

    holder = Holder(Leaver)
    with pytest.raises(SystemExit):
        holder.call("leave")
    assert holder.call("stay") == "here"


def test_a_call_name_reaches_its_own_attempt_alone():
    holder = Holder(attempt=2)
    assert holder.call(call_name(TASK, 2, "add"), 1) == 1
    assert holder.call(call_name(TASK, 2, "add"), 1) == 2
    with pytest.raises(NothingHosted, match="attempt 2"):
        holder.call(call_name(TASK, 1, "add"), 1)


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["count", "count_async"])
def test_a_generator_gives_its_values_one_by_one(method):
    holder = Holder()
    assert list(holder.task.stream(method, ([1, 2, 3],), {})) == [1, 2, 3]
    assert (holder.task.calls, holder.task.running) == (1, 0)


@pytest.mark.parametrize("method", ["count", "count_async"])
def test_between_two_values_a_stream_stops(method):
    holder = Holder()
    stream = holder.task.stream(method, (range(1000),), {})
    assert next(stream) == 0
    holder.task.context.ask_to_stop(Reason.PREEMPTED)
    with pytest.raises(CallPreempted):
        list(stream)
    assert holder.stop().reusable


def test_a_stream_that_nobody_reads_on_is_closed():
    holder = Holder()
    stream = holder.task.stream("count", (range(1000),), {})
    next(stream)
    stream.close()
    assert holder.task.running == 0


def test_call_and_stream_tell_each_other_apart():
    holder = Holder()
    with pytest.raises(TypeError, match="use `stream`"):
        holder.call("count", [])
    with pytest.raises(TypeError, match="use `call`"):
        list(holder.task.stream("add", (), {}))
    with pytest.raises(TypeError, match="use `call`"):
        list(holder.task.stream("add_async", (1,), {}))


# -- the entry method --------------------------------------------------------------------------------------------------


def test_the_entry_method_runs_once():
    holder = Holder(entry="add", entry_arguments=pickled_arguments(5))
    ended, value = holder.task.run()
    assert (ended.error, unpickled(ended.result), value) == ("", 5, None)
    assert holder.task.run()[0] is ended
    assert (holder.task.calls, holder.call("add", 0)) == (1, 5)


def test_an_object_is_released_after_its_entry_method():
    holder = Holder(entry="add", entry_arguments=pickled_arguments(5))
    assert holder.task.release() is None
    ended, _ = holder.task.run()
    released = holder.task.release()
    assert (released.result, released.spoiled, holder.task.release()) == (ended.result, "", None)
    with pytest.raises(CallPreempted):
        holder.call("add", 0)
    stopped = holder.task.stop(StopCommand(task=TASK, attempt=1))
    assert (stopped.ended, stopped.reusable) == (released, True)


def test_an_object_with_every_attribute_looked_up_is_released():
    class Table:
        def __getattr__(self, name):
            return {}[name]

        def run(self):
            return 5

    holder = Holder(Table, entry="run")
    holder.task.run()
    released = holder.task.release()
    assert (unpickled(released.result), released.spoiled) == (5, "")


def test_an_error_of_the_release_ends_the_process(monkeypatch):
    holder = Holder(entry="add", entry_arguments=pickled_arguments(5))
    holder.task.run()

    def refuse(_):
        raise PermissionError("not there")

    monkeypatch.setattr(os, "chdir", refuse)
    released = holder.task.release()
    assert unpickled(released.result) == 5
    assert "cannot be released: builtins.PermissionError: not there" in released.spoiled


class Maker:
    def large(self):
        return bytes(2**21)

    def lock(self):
        return threading.Lock()

    def large_with_a_lock(self):
        return [bytes(2**21), threading.Lock()]


def test_a_large_result_is_left_to_ray():
    ended, value = Holder(Maker, entry="large").task.run()
    assert (ended.error, ended.result, len(value)) == ("", None, 2**21)


@pytest.mark.parametrize("method", ["lock", "large_with_a_lock"])
def test_an_unpicklable_result_is_an_error_of_the_task(method):
    ended, value = Holder(Maker, entry=method).task.run()
    assert ended.error.startswith("builtins.TypeError: the result (")
    assert (ended.result, value) == (None, None)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_failure_of_the_entry_method_is_reported(kind):
    holder = Holder(entry="fail", entry_arguments=pickled_arguments(kind))
    ended, _ = holder.task.run()
    assert ended.error == f"builtins.{kind.__name__}: no"
    assert "in fail" in ended.traceback
    assert "agent/hosted_task.py" not in ended.traceback
    assert isinstance(unpickled(ended.pickled), kind)


def test_an_arguments_traceback_begins_with_the_users_code():
    broken = pickled_arguments(Unreadable())
    ended, _ = Holder(entry="add", entry_arguments=broken).task.run()
    assert ended.error == "builtins.ValueError: unreadable"
    assert "in _unreadable" in ended.traceback
    assert "local/pickled_code.py" not in ended.traceback


def test_a_missing_entry_method_is_reported():
    assert "no method 'nope'" in Holder(entry="nope").task.run()[0].error
    assert "no entry method" in Holder().task.run()[0].error


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_s17_a_training_loop_resumes_from_its_last_checkpoint(beside):
    first = Holder(entry="train", entry_arguments=pickled_arguments(5))
    run = beside(first.task.run)
    assert Gate.entered.wait(WAIT_S)
    stop = beside(first.stop, reason=Reason.PREEMPTED)
    while not first.task.context.should_stop():
        Gate.leave.wait(0.001)
    Gate.leave.set()  # In step 3, which is saved before the loop stops.
    stopped = stop.result(WAIT_S)
    assert run.result(WAIT_S)[0].stopped
    assert (stopped.how, stopped.ended, stopped.saved.level) == (StopHow.STOPPED, None, SnapshotLevel.DEFAULT)
    assert unpickled(stopped.saved.checkpoint_bytes) == 3
    assert (stopped.saved.progress, stopped.saved.checkpoint.number) == (0.6, 3)
    assert [kind for kind, _ in first.sent] == ["checkpoint"] * 3

    second = Holder(entry="train", entry_arguments=pickled_arguments(5), attempt=2, saved=stopped.saved)
    assert second.restored.how is RestoreHow.DEFAULT
    assert unpickled(second.task.run()[0].result) == "trained 5 steps"
    assert [payload.checkpoint.number for kind, payload in second.sent if kind == "checkpoint"] == [4, 5]


def test_an_idle_object_stops_at_once_and_frees_its_process():
    holder = Holder(args=(1,))
    stopped = holder.stop()
    assert (stopped.how, stopped.reusable, stopped.why) == (StopHow.IDLE, True, "")
    assert stopped.saved.arguments is not None
    with pytest.raises(NoCurrentTask):
        task_context.current_task()


def test_s17_a_second_stop_gives_the_same_answer(beside):
    holder = Holder()
    beside(holder.call, "busy")
    assert Gate.entered.wait(WAIT_S)
    stops = [beside(holder.stop) for _ in range(2)]
    Gate.leave.set()
    assert stops[0].result(WAIT_S) is stops[1].result(WAIT_S) is holder.stop(keep_state=False)


def test_p17_a_busy_method_is_awaited_for_the_grace_only(beside):
    holder = Holder()
    call = beside(holder.call, "busy")
    assert Gate.entered.wait(WAIT_S)
    stopped = holder.stop(grace_ms=10)
    assert (stopped.how, stopped.reusable) == (StopHow.STILL_RUNNING, False)
    assert "10 ms after it was asked" in stopped.why
    assert stopped.saved.level is SnapshotLevel.DEFAULT
    assert not call.done()


def test_p17_a_busy_async_method_is_cancelled(beside):
    holder = Holder()
    call = beside(holder.call, "wait_async")
    assert Gate.entered.wait(WAIT_S)
    stopped = holder.stop()
    assert (stopped.how, stopped.reusable, stopped.why) == (StopHow.STOPPED, True, "")
    with pytest.raises(CallPreempted):
        call.result(WAIT_S)


def test_an_async_method_that_will_not_be_cancelled_runs_still(beside):
    holder = Holder()
    beside(holder.call, "deaf_async")
    assert Gate.entered.wait(WAIT_S)
    assert holder.stop(grace_ms=30).how is StopHow.STILL_RUNNING


def test_a_loop_that_catches_every_exception_is_stopped(beside):
    assert not issubclass(TaskPreempted, Exception)
    holder = Holder()
    call = beside(holder.call, "swallow")
    assert Gate.entered.wait(WAIT_S)
    assert holder.stop().how is StopHow.STOPPED
    with pytest.raises(CallPreempted):
        call.result(WAIT_S)


def test_an_entry_method_that_stops_on_request_has_not_finished(beside):
    holder = Holder(entry="poll")
    run = beside(holder.task.run)
    assert Gate.entered.wait(WAIT_S)
    stopped = holder.stop()
    assert run.result(WAIT_S)[0].stopped
    assert (stopped.how, stopped.ended) == (StopHow.STOPPED, None)
    assert holder.sent == []


def test_an_entry_method_that_finished_before_its_stop_counts(beside):
    holder = Holder(entry="busy")
    run = beside(holder.task.run)
    assert Gate.entered.wait(WAIT_S)
    stop = beside(holder.stop)
    while not holder.task.described(STATUS, is_blocked=False).stopping:
        Gate.leave.wait(0.001)
    Gate.leave.set()
    ended, _ = run.result(WAIT_S)
    assert unpickled(ended.result) == "done"
    assert stop.result(WAIT_S).ended is ended


def test_calls_after_the_stop_are_refused_as_stopped():
    holder = Holder()
    holder.call("add")
    holder.stop()
    for method in ("add", "fail"):
        with pytest.raises(CallPreempted, match="was asked to stop"):
            holder.call(method)
    with pytest.raises(CallPreempted):
        list(holder.task.stream("count", ([1],), {}))


def test_without_keeping_there_is_no_snapshot():
    assert Holder().stop(keep_state=False).saved is None


def test_a_constructor_that_is_asked_to_stop_leaves_nothing(beside):
    class Slow:
        def __init__(self):
            Gate.entered.set()
            while True:
                task_context.current_task().stop_if_asked()
                Gate.leave.wait(0.005)

    task = HostedTask(HostCommand(task=TASK, attempt=1, code=b""), AGENT, lambda *_sent: None)
    build = beside(task.build, Slow, StateHandlers(), None)
    assert Gate.entered.wait(WAIT_S)
    stopped = task.stop(StopCommand(task=TASK, attempt=1))
    assert (stopped.how, stopped.saved, stopped.reusable) == (StopHow.STOPPED, None, True)
    with pytest.raises((CallPreempted, TaskPreempted)):
        build.result(WAIT_S)


# -- what is left behind -----------------------------------------------------------------------------------------------


def test_the_environment_of_a_task_ends_with_it():
    os.environ["SCHEDULEMESH_TEST_OLD"] = "before"
    holder = Holder(environment={"SCHEDULEMESH_TEST_OLD": "within", "SCHEDULEMESH_TEST_NEW": "1"})
    assert (os.environ["SCHEDULEMESH_TEST_OLD"], os.environ["SCHEDULEMESH_TEST_NEW"]) == ("within", "1")
    holder.stop()
    assert os.environ.pop("SCHEDULEMESH_TEST_OLD") == "before"
    assert "SCHEDULEMESH_TEST_NEW" not in os.environ


def test_a_process_with_a_stray_thread_is_not_reused():
    class Starter:
        def __init__(self):
            threading.Thread(target=Gate.leave.wait, name="straggler", daemon=True).start()

    stopped = Holder(Starter).stop()
    assert not stopped.reusable
    assert "left threads: straggler" in stopped.why


def test_a_process_with_a_stray_child_is_not_reused():
    class Starter:
        def __init__(self, children):
            children.append(subprocess.Popen(["sleep", "600"]))

    children = []
    holder = Holder(lambda: Starter(children))
    stopped = holder.stop()
    children[0].kill()
    children[0].wait()
    assert f"left child processes: {children[0].pid}" in stopped.why


def test_a_process_with_a_surviving_object_is_not_reused():
    kept = []

    class Clinging:
        def __init__(self):
            kept.append(self)

    assert "still refers" in Holder(Clinging).stop().why


def test_an_object_can_say_farewell():
    class Polite:
        def __init__(self):
            self.kept = Gate

        def __ray_shutdown__(self):
            self.kept.entered.set()

    assert Holder(Polite).stop().reusable
    assert Gate.entered.is_set()


# -- preserver and restorer --------------------------------------------------------------------------------------------


HANDLERS = register_state_handlers(
    preserver=lambda ctx: SavedState(payload=pickle.dumps(ctx.actor_state), notes={"of": ctx.task}),
    restorer=lambda ctx, saved: vars(ctx.actor_ref).update(unpickled(saved.payload)),
)


def test_s17_the_users_handlers_carry_the_objects_state():
    first = Holder(args=(5,), handlers=HANDLERS)
    first.call("add", 2)
    saved = first.stop(reason=Reason.PREEMPTED).saved
    assert (saved.level, saved.why) == (SnapshotLevel.CUSTOM, "")
    second = Holder(args=(5,), handlers=HANDLERS, attempt=2, saved=saved)
    assert second.restored.how is RestoreHow.RESTORER
    assert second.call("add", 0) == 7


def test_s17_handlers_on_the_class_are_used():
    @HANDLERS
    class Own(Counter):
        pass

    assert Holder(Own).stop().saved.level is SnapshotLevel.CUSTOM


def test_s17_a_preserver_sees_the_whole_task():
    seen = []

    def preserve(ctx):
        seen.append(ctx)
        return SavedState(payload=None)

    holder = Holder(args=(1,), kwargs={"step": 3}, handlers=StateHandlers(preserve))
    holder.task.context.save_checkpoint({"n": 1}, progress=0.5)
    holder.stop(reason=Reason.PREEMPTED)
    (ctx,) = seen
    assert (ctx.task, ctx.agent, ctx.attempt, ctx.reason) == (TASK, AGENT, 1, Reason.PREEMPTED)
    assert (ctx.args, ctx.kwargs, ctx.progress, ctx.last_checkpoint) == ((1,), {"step": 3}, 0.5, {"n": 1})
    assert (ctx.checkpoint.number, ctx.checkpoint.progress, ctx.is_running) == (1, 0.5, False)
    assert ctx.actor_state == {"value": 1, "step": 3} == vars(ctx.actor_ref)


def raises(ctx):
    raise OSError("disk full")


def hangs(ctx):
    Gate.leave.wait(WAIT_S)


@pytest.mark.parametrize(
    ("preserver", "why"),
    [
        pytest.param(raises, "the preserver raised builtins.OSError: disk full", id="it raises"),
        pytest.param(lambda _ctx: {"payload": 1}, "the preserver returned a dict, not a SavedState", id="it returns something else"),
        pytest.param(lambda _ctx: None, "the preserver returned a NoneType", id="it returns nothing"),
        pytest.param(lambda _ctx: SavedState(payload=threading.Lock()), "cannot be pickled", id="its payload cannot be pickled"),
        pytest.param(lambda _ctx: SavedState(payload=bytes(10_000)), "larger than the", id="its payload is too large"),
    ],
)
def test_s17_a_failing_preserver_falls_back_to_the_default(preserver, why):
    holder = Holder(args=(5,), handlers=StateHandlers(preserver), saved_bytes_max=5_000)
    holder.task.context.save_checkpoint("kept")
    stopped = holder.stop()
    assert (why in stopped.saved.why, why in stopped.unkept) == (True, True)
    assert stopped.saved.level is SnapshotLevel.DEFAULT
    assert unpickled(stopped.saved.checkpoint_bytes) == "kept"
    assert stopped.reusable


def test_s17_a_preserver_that_hangs_is_left_behind():
    holder = Holder(handlers=StateHandlers(hangs))
    stopped = holder.stop(preserve_ms_max=20)
    assert "did not return within 0.02 s" in stopped.saved.why
    assert (stopped.saved.level, stopped.reusable) == (SnapshotLevel.DEFAULT, False)


def test_s17_a_preserver_knows_that_a_method_still_runs(beside):
    handlers = StateHandlers(lambda ctx: SavedState(payload=ctx.is_running))
    holder = Holder(handlers=handlers)
    beside(holder.call, "busy")
    assert Gate.entered.wait(WAIT_S)
    stopped = holder.stop(grace_ms=10)
    assert unpickled(stopped.saved.saved_bytes).payload is True
    assert (stopped.how, stopped.lost_ms) == (StopHow.STILL_RUNNING, 0)


def spoil(ctx, saved):
    ctx.actor_ref.value = -1
    raise RuntimeError("half way")


def spoil_and_hang(ctx, saved):
    ctx.actor_ref.value = -1
    Gate.leave.wait(WAIT_S)


@pytest.mark.parametrize(
    ("restorer", "restore_ms_max", "why"),
    [
        pytest.param(spoil, 60_000, "the restorer raised builtins.RuntimeError: half way", id="it raises"),
        pytest.param(spoil_and_hang, 50, "did not return within 0.05 s", id="it hangs"),
        pytest.param(None, 60_000, "no restorer", id="there is none"),
    ],
)
def test_s17_a_failing_restorer_falls_back_to_a_fresh_object(restorer, restore_ms_max, why):
    first = Holder(args=(5,), handlers=HANDLERS)
    first.task.context.save_checkpoint("kept", progress=0.5)
    saved = first.stop().saved
    second = Holder(args=(5,), handlers=StateHandlers(None, restorer), attempt=2, saved=saved, restore_ms_max=restore_ms_max)
    assert second.restored.how is RestoreHow.DEFAULT
    assert why in second.restored.unrestored
    assert second.call("add", 0) == 5
    assert (second.task.context.last_checkpoint(), second.task.context.progress) == ("kept", 0.5)


def test_s17_missing_arguments_come_from_the_snapshot():
    saved = Holder(args=(5,)).stop().saved
    task = HostedTask(HostCommand(task=TASK, attempt=2, code=b"", saved=saved), AGENT, lambda *_sent: None)
    task.build(Counter, StateHandlers(), saved)
    assert task.call("add", (0,), {}) == 5


def test_s17_arguments_too_large_for_a_snapshot_are_left_out():
    stopped = Holder(args=(bytes(5_000),), saved_bytes_max=1_000).stop()
    assert stopped.saved.arguments is None
    assert "the arguments take" in stopped.saved.why


def test_s17_a_checkpoint_too_large_keeps_the_previous_one():
    holder = Holder(saved_bytes_max=1_000)
    context = holder.task.context
    assert context.save_checkpoint("small", progress=0.1)
    assert not context.save_checkpoint(bytes(2_000), progress=0.2)
    assert context.last_checkpoint() == "small"
    saved = holder.stop().saved
    assert (saved.level, saved.progress, saved.checkpoint.progress) == (SnapshotLevel.DEFAULT, 0.2, 0.1)
    assert "larger than 1,000 bytes" in saved.why


def test_s17_without_a_small_checkpoint_metadata_is_kept():
    holder = Holder(saved_bytes_max=100)
    assert not holder.task.context.save_checkpoint(bytes(2_000), progress=0.2)
    saved = holder.stop().saved
    assert (saved.level, saved.progress, saved.checkpoint) == (SnapshotLevel.METADATA, 0.2, None)


def test_work_since_the_last_kept_state_is_reported(monkeypatch):
    clock_s = [0.0]
    monkeypatch.setattr(task_context, "time", SimpleNamespace(monotonic=lambda: clock_s[0], time_ns=time.time_ns))
    holder = Holder()
    clock_s[0] = 100.0
    assert holder.task.context.unkept_ms == 100_000
    holder.task.context.save_checkpoint(1)
    clock_s[0] = 105.0
    assert holder.stop().lost_ms == 5_000


def test_a_checkpoint_of_an_earlier_attempt_is_kept_on():
    saved = StateSnapshot(
        task=TASK,
        attempt=1,
        at_ms=1,
        level=SnapshotLevel.DEFAULT,
        progress=0.5,
        checkpoint=Checkpoint(number=7, at_ms=1, size_bytes=5),
        checkpoint_bytes=pickle.dumps(7),
    )
    again = Holder(attempt=2, saved=saved).stop().saved
    assert (again.attempt, again.checkpoint, again.checkpoint_bytes) == (2, saved.checkpoint, saved.checkpoint_bytes)
