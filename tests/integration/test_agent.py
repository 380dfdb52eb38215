"""Agent on a real cluster, with a supervisor that only records reports."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray
from patience import PATIENCE_S, eventually
from ray.exceptions import RayActorError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.core.ids import TaskId
from mesh.core.reasons import Reason
from mesh.core.saved_state import SavedState, SnapshotLevel, StateSnapshot, register_state_handlers
from mesh.ray.local.agent.agent import Agent
from mesh.ray.local.agent.agent_errors import CallPreempted, NoSuchMethod, NothingHosted
from mesh.ray.local.agent_messages import (
    AgentStatus,
    Failed,
    HostCommand,
    Hosted,
    RestoreHow,
    StopCommand,
    StopHow,
    call_name,
)
from mesh.ray.local.pickled_code import pickled_arguments, pickled_class, pickled_handlers
from mesh.ray.user_code.task_context import current_task

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

PATIENT_MS = int(PATIENCE_S * 1000)
NAMESPACE, SUPERVISOR = "agents", "schedulemesh:agents"
unpickled = pickle.loads


@dataclass(frozen=True)
class Heard:
    agent: str
    task: str | None
    attempt: int
    kind: str
    payload: Any


class Listener:
    """Supervisor, as an agent sees it."""

    def __init__(self):
        self.heard = []

    def report(self, agent, task, attempt, kind, payload):
        self.heard.append(Heard(agent, task, attempt, kind, payload))

    def all(self):
        return self.heard


# -- what users write --------------------------------------------------------------------------------------------------


class Box:
    def __init__(self, value, *, database=None):
        self.value = value
        self.database = database and sqlite3.connect(database)

    def get(self, method=None):
        return self.value if method is None else (self.value, method)

    def put(self, value):
        self.value = value

    def ask(self):
        return self.database.execute("select 40 + 2").fetchone()

    async def get_later(self):
        await asyncio.sleep(0)
        return self.value

    def each(self, n):
        yield from range(n)

    async def each_async(self, n):
        for index in range(n):
            yield index

    def fail(self):
        raise LookupError("of my own")

    def where(self):
        return os.getpid(), ray.get_gpu_ids(), os.environ.get("FLAVOR")


@ray.remote
class RemoteBox(Box):
    pass


class Trainer:
    """Counter in files that the test reads."""

    def train(self, steps, folder):
        task = current_task()
        done = task.last_checkpoint() or 0
        while done < steps:
            done += 1
            (Path(folder) / f"{done}-by-{task.attempt}").touch()
            task.save_checkpoint(done, progress=done / steps)
            if done == 3 and task.attempt == 1:
                while True:  # Busy in Python until it is preempted.
                    task.stop_if_asked()
        return done

    def sleep_in_c(self, started):
        Path(started).touch()
        time.sleep(600)

    def spin(self, started):
        Path(started).touch()
        while True:
            pass


class Broken:
    def __init__(self, path):
        raise FileNotFoundError(path)


class Waiter:
    def __init__(self):
        self.met = threading.Barrier(3)

    def meet(self):
        return self.met.wait(PATIENCE_S) >= 0


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def supervisor(ray_driver) -> Iterator[Any]:
    listener = ray.remote(num_cpus=0)(Listener).options(name=SUPERVISOR, namespace=NAMESPACE).remote()
    ray.get(listener.all.remote())
    yield listener
    ray.kill(listener)


@pytest.fixture(scope="module")
def new_agent(supervisor) -> Iterator[Callable[..., Any]]:
    handles, names = [], count(1)

    def started(**options):
        handle = Agent.options(**options).remote("agents", SUPERVISOR, NAMESPACE, f"agent-{next(names)}")
        handles.append(handle)
        return handle

    yield started
    for handle in handles:
        ray.kill(handle)


@pytest.fixture(scope="module")
def kept_agent(new_agent) -> Any:
    """Share one process among all tests of this file: it has to be clean again after each."""
    return new_agent()


_tasks = count(1)


def order(cls: Any, *args: Any, task: str | None = None, attempt: int = 1, options: dict[str, Any] | None = None, **kwargs: Any):
    return HostCommand(
        task=TaskId(task or f"task-{next(_tasks)}"),
        attempt=attempt,
        code=pickled_class(cls),
        arguments=pickled_arguments(*args, **kwargs),
        **(options or {}),
    )


def run(agent: Any, hosted: HostCommand) -> tuple[Any, Any]:
    """Call the entry method; return the references of its end and of its value."""
    ended, value = agent.run.remote(hosted.task, hosted.attempt)
    return ended, value


def get(ref: Any) -> Any:
    return ray.get(ref, timeout=PATIENCE_S)


def stop(agent: Any, hosted: HostCommand | AgentStatus, **options: Any):
    """Stop a task with more time than the product's default, for slow machines."""
    times = {"grace_ms": PATIENT_MS, "preserve_ms_max": PATIENT_MS}
    return ray.get(agent.stop.remote(StopCommand(task=hosted.task, attempt=hosted.attempt, **{**times, **options})), timeout=2 * PATIENCE_S)


@pytest.fixture
def agent(kept_agent) -> Iterator[Any]:
    yield kept_agent
    status = get(kept_agent.report.remote())
    if status.task is not None:
        stopped = stop(kept_agent, status)
        assert stopped.reusable, stopped.why


def heard(supervisor: Any, kind: str, *, task: str) -> list[Heard]:
    return [one for one in get(supervisor.all.remote()) if one.kind == kind and one.payload is not None and one.task == task]


# -- hosting and calls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [pytest.param(Box, id="a plain class"), pytest.param(RemoteBox, id="a class of @ray.remote")])
def test_s8_a_users_class_is_hosted_and_called(agent, cls):
    given = order(cls, ray.put(41), database=":memory:")
    hosted = get(agent.host.remote(given))
    assert isinstance(hosted, Hosted)
    assert hosted.methods == ("ask", "each", "each_async", "fail", "get", "get_later", "put", "where")
    assert (hosted.pid, hosted.restored) == (get(agent.report.remote()).pid, RestoreHow.NOTHING)
    assert get(agent.call.remote("get")) == 41
    assert get(agent.call.remote("get", method="also a name of ours")) == (41, "also a name of ours")
    assert get(agent.call.remote("get_later")) == 41
    assert get(agent.call.remote("ask")) == (42,), "the constructor's thread is the methods' thread"
    assert get(agent.host.remote(given)) == hosted, "the same order again has the same answer"


def test_refs_are_values_as_arguments_and_stay_refs_within_them(agent):
    get(agent.host.remote(order(Box, [ray.put("inner")])))
    (inner,) = get(agent.call.remote("get"))
    assert get(inner) == "inner"
    get(agent.call.remote("put", ray.put("later")))
    assert get(agent.call.remote("get")) == "later"


def test_a_call_by_the_name_of_a_task_reaches_its_attempt_only(agent):
    given = order(Box, 1)
    get(agent.host.remote(given))
    mine = agent.call_named.options(name=call_name(given.task, 1, "get"))
    other = agent.call_named.options(name=call_name(given.task, 2, "get"))
    assert get(mine.remote()) == 1
    assert get(mine.remote(method="x")) == (1, "x")
    with pytest.raises(NothingHosted):
        get(other.remote())
    stop(agent, given)
    get(agent.host.remote(order(Box, 2)))
    with pytest.raises(NothingHosted):
        get(mine.remote())


@pytest.mark.parametrize("method", ["each", "each_async"])
def test_a_stream_comes_value_by_value(agent, method):
    get(agent.host.remote(order(Box, 0)))
    stream = agent.stream.options(num_returns="streaming").remote(method, 3)
    assert [get(ref) for ref in stream] == [0, 1, 2]


def test_a_users_error_keeps_its_type_and_its_traceback(agent):
    get(agent.host.remote(order(Box, 0)))
    with pytest.raises(LookupError, match="of my own") as caught:
        get(agent.call.remote("fail"))
    assert isinstance(caught.value, RayTaskError)
    assert "in fail" in str(caught.value)


def test_a_method_that_does_not_exist_is_not_answered(agent):
    get(agent.host.remote(order(Box, 0)))
    with pytest.raises(NoSuchMethod, match="no method 'gett'; it has: ask"):
        get(agent.call.remote("gett"))


def test_an_agent_without_a_task_says_so(agent):
    with pytest.raises(NothingHosted, match="hosts no task"):
        get(agent.call.remote("get"))
    ended, value = map(get, run(agent, order(Box, 1)))
    assert ("hosts no task" in ended.error, value) == (True, None)


def test_an_agent_hosts_one_task_at_a_time(agent):
    get(agent.host.remote(order(Box, 1)))
    refused = get(agent.host.remote(order(Box, 2)))
    assert (refused.reason, refused.is_final) == (Reason.START_FAILED, False)
    assert get(agent.call.remote("get")) == 1


def test_several_calls_run_at_once_where_the_actor_has_threads(new_agent):
    agent = new_agent(max_concurrency=3)
    get(agent.host.remote(order(Waiter)))
    assert get([agent.call.remote("meet") for _ in range(3)]) == [True] * 3


# -- failing to host ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason", "words", "frame"),
    [
        pytest.param(lambda: order(Box), Reason.USER_ERROR, "missing 1 required positional argument: 'value'", "", id="p01: arguments"),
        pytest.param(
            lambda: order(Broken, "model.bin"), Reason.USER_ERROR, "FileNotFoundError: model.bin", "in __init__", id="p28: raises"
        ),
        pytest.param(
            lambda: HostCommand(task=TaskId("torn"), attempt=1, code=b"\x80"), Reason.CODE_UNAVAILABLE, "", "", id="its code cannot be read"
        ),
        pytest.param(lambda: order(Box, failing.remote()), Reason.UPSTREAM_FAILED, "upstream", "", id="an argument has failed"),
        pytest.param(
            lambda: order(Box, never.remote(), options={"arguments_ms_max": 10}),
            Reason.WAITING_FOR_INPUTS,
            "",
            "",
            id="a late argument",
        ),
    ],
)
def test_a_failed_constructor_reports_and_frees_its_process(agent, given, reason, words, frame):
    given = given()
    failed = get(agent.host.remote(given))
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.reusable) == (reason, True), failed.detail
    assert words in failed.detail
    assert frame in failed.traceback
    assert "hosted_task.py" not in failed.traceback or not frame
    assert get(agent.host.remote(given)) == failed
    assert isinstance(get(agent.host.remote(order(Box, 1))), Hosted)


@ray.remote(num_cpus=0, max_retries=0)
def failing():
    raise ValueError("upstream")


@ray.remote(num_cpus=100)
def never():
    pass


# -- telling -----------------------------------------------------------------------------------------------------------


def test_s15_an_agent_reports_every_period(agent, supervisor):
    given = order(Box, 1, options={"metrics_period_ms": 50})
    get(agent.host.remote(given))
    get(agent.call.remote("get"))
    with pytest.raises(LookupError):
        get(agent.call.remote("fail"))
    reports = eventually(
        lambda: [one for one in heard(supervisor, "report", task=given.task) if (one.payload.calls, one.payload.running) == (2, 0)][2:]
    )
    report: AgentStatus = reports[-1].payload
    assert (report.failures, report.attempt, report.running, report.stopping) == (1, 1, 0, False)
    assert report.rss_bytes > 10 * 2**20
    assert [one.payload.at_ms for one in reports] == sorted({one.payload.at_ms for one in reports})
    assert stop(agent, given).reusable


def test_an_entry_method_that_returned_frees_its_agent(agent):
    given = order(Box, 7, options={"entry": "get", "entry_arguments": pickled_arguments("x")})
    hosted = get(agent.host.remote(given))
    ended, value = map(get, run(agent, given))
    assert (unpickled(ended.result), value, ended.error, ended.spoiled) == ((7, "x"), None, "", "")
    assert get(agent.report.remote()).task is None
    get(agent.host.remote(order(Box, 8)))
    assert get(agent.host.remote(given)) == hosted  # As a restarted supervisor does.
    assert get(run(agent, given)[0]) == ended
    assert get(agent.call.remote("get")) == 8


def test_a_failed_entry_method_keeps_its_task_until_its_stop(agent):
    given = order(Box, 7, options={"entry": "fail"})
    get(agent.host.remote(given))
    ended = get(run(agent, given)[0])
    assert (ended.error, ended.spoiled) == ("builtins.LookupError: of my own", None)
    assert get(agent.report.remote()).ended == ended


def test_a_large_result_of_an_entry_method_stays_with_ray(agent):
    get(agent.host.remote(given := order(Box, bytes(3 * 2**20), options={"entry": "get"})))
    ended, value = run(agent, given)
    assert (get(ended).result, get(ended).error) == (None, "")
    assert len(get(value)) == 3 * 2**20
    again, value = run(agent, given)  # As a restarted supervisor does, without its refs.
    assert get(again) == get(ended)
    assert len(get(value)) == 3 * 2**20


def test_a_result_with_a_ref_in_it_stays_with_ray(agent):
    get(agent.host.remote(given := order(Box, [ray.put("inner")], options={"entry": "get"})))
    ended, value = run(agent, given)
    assert (get(ended).result, get(ended).error) == (None, "")
    assert get(get(value)[0]) == "inner"


# -- stopping and resuming ---------------------------------------------------------------------------------------------


def test_s17_a_preempted_task_resumes_elsewhere_at_its_step(agent, new_agent, supervisor, tmp_path):
    entry = {"entry": "train", "entry_arguments": pickled_arguments(5, str(tmp_path))}
    first = order(Trainer, options=entry)
    get(agent.host.remote(first))
    training, _ = run(agent, first)
    eventually((tmp_path / "3-by-1").exists)
    eventually(lambda: heard(supervisor, "checkpoint", task=first.task))  # A late checkpoint comes with the stop only.
    stopped = stop(agent, first, reason=Reason.PREEMPTED)
    assert (stopped.how, stopped.reusable, stopped.why) == (StopHow.STOPPED, True, "")
    assert (unpickled(stopped.saved.checkpoint_bytes), stopped.saved.progress) == (3, 0.6)
    assert get(training).stopped
    assert stop(agent, first) == stopped
    checkpoint: StateSnapshot = heard(supervisor, "checkpoint", task=first.task)[-1].payload
    assert checkpoint.checkpoint.number <= 3

    second = order(Trainer, task=first.task, attempt=2, options={**entry, "saved": stopped.saved})
    elsewhere = new_agent()
    assert get(elsewhere.host.remote(second)).restored is RestoreHow.DEFAULT
    assert unpickled(get(run(elsewhere, second)[0]).result) == 5
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1-by-1", "2-by-1", "3-by-1", "4-by-2", "5-by-2"]


def test_s17_the_users_handlers_save_and_restore_state(agent):
    handlers = register_state_handlers(
        preserver=lambda ctx: SavedState(payload=ctx.actor_state["value"]),
        restorer=lambda ctx, saved: ctx.actor_ref.put(saved.payload),
    )
    first = order(Box, 1, options={"handlers": pickled_handlers(handlers)})
    get(agent.host.remote(first))
    get(agent.call.remote("put", "grown"))
    saved = stop(agent, first).saved
    assert (saved.level, saved.why) == (SnapshotLevel.CUSTOM, "")
    second = order(Box, 1, task=first.task, attempt=2, options={"handlers": pickled_handlers(handlers), "saved": saved})
    assert get(agent.host.remote(second)).restored is RestoreHow.RESTORER
    assert get(agent.call.remote("get")) == "grown"


def test_s17_failing_handlers_fall_back_to_the_default(agent):
    @register_state_handlers(preserver=lambda _ctx: SavedState(payload=1), restorer=lambda _ctx, _saved: 1 / 0)
    class Spoiled(Box):
        pass

    first = order(Spoiled, 5)
    get(agent.host.remote(first))
    saved = stop(agent, first).saved
    hosted = get(agent.host.remote(order(Spoiled, 5, task=first.task, attempt=2, options={"saved": saved})))
    assert (hosted.restored, "ZeroDivisionError" in hosted.why) == (RestoreHow.DEFAULT, True)
    assert get(agent.call.remote("get")) == 5


@pytest.mark.parametrize("method", ["sleep_in_c", "spin"])
def test_p17_a_victim_that_does_not_stop_holds_nobody_up(new_agent, tmp_path, method):
    victim, given = new_agent(), order(Trainer)
    get(victim.host.remote(given))
    call = victim.call.remote(method, str(tmp_path / "started"))
    eventually((tmp_path / "started").exists)
    stopped = stop(victim, given, grace_ms=100)
    assert (stopped.how, stopped.reusable, stopped.saved.level) == (StopHow.STILL_RUNNING, False, SnapshotLevel.DEFAULT)
    assert get(victim.ping.remote()), "orders are answered while the object is busy"
    assert get(victim.report.remote()).stopping
    ray.kill(victim)
    with pytest.raises(RayActorError):
        get(call)


def test_calls_of_a_stopped_task_are_redirected(agent):
    given = order(Box, 1)
    get(agent.host.remote(given))
    stop(agent, given)
    with pytest.raises((NothingHosted, CallPreempted)):
        get(agent.call.remote("get"))


def test_an_order_stopped_before_its_arrival_is_not_carried_out(agent):
    given = order(Box, 1)
    assert stop(agent, given).how is StopHow.NOT_HERE
    refused = get(agent.host.remote(given))
    assert (refused.reason, refused.reusable) == (Reason.PREEMPTED, True)


def test_one_process_hosts_task_after_task(agent):
    pids = set()
    for flavor in ("a", "b"):
        given = order(Box, flavor, options={"environment": {"FLAVOR": flavor}})
        get(agent.host.remote(given))
        pid, _, seen = get(agent.call.remote("where"))
        assert seen == flavor
        pids.add(pid)
        assert stop(agent, given, keep_state=False).reusable
    assert len(pids) == 1


# -- the process -------------------------------------------------------------------------------------------------------


def test_p14_the_death_of_the_process_ends_the_wait_for_it(new_agent):
    agent = new_agent()
    end = agent.wait_end.remote()
    hosted = get(agent.host.remote(order(Box, 1)))
    assert ray.wait([end], timeout=0)[0] == []
    os.kill(hosted.pid, signal.SIGKILL)
    with pytest.raises(RayActorError):  # Dead or unreachable: Ray does not wait long for the reason.
        get(end)


def test_p20_an_agent_in_a_placement_group_has_its_gpus(new_agent):
    group = placement_group([{"CPU": 1, "GPU": 1}])
    try:
        get(group.ready())
        agent = new_agent(num_gpus=1, num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0))
        get(agent.host.remote(order(Box, 1)))
        _, gpus, _ = get(agent.call.remote("where"))
        assert len(gpus) == 1
        assert get(agent.report.remote()).gpu_ids == (str(gpus[0]),)
    finally:
        remove_placement_group(group)
