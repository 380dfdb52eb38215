"""Async functions, generators, outputs and environments of nodes on a runner of a real cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import cloudpickle
import pytest
from patience import eventually
from ray.util.placement_group import placement_group, remove_placement_group

from mesh.core.functions import SELECTED
from mesh.core.reasons import Reason
from mesh.ray.worker.exporting import import_value
from mesh.stages.messages import NodeFailed, NodeStarted, NodeSucceeded

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray


async def waits(value):
    await asyncio.sleep(0)
    return value


async def waits_and_yields(count):
    for number in range(count):
        await asyncio.sleep(0)
        yield number


def yields(count):
    yield from range(count)


class Yields:
    """Object that is called like a generator."""

    def __call__(self, count):
        yield from range(count)


def pair(value):
    return value, [value]


def nothing_of(value):
    return type(value)()


def pid_and_variable(name):
    return os.getpid(), os.environ.get(name)


def touch(path):
    Path(path).touch()


def load_on_sound_workers(path, sick):
    """Return a function; the first workers that ask are sick and cannot load it. Each worker writes its process id down."""
    pids = Path(path).read_text().split() if Path(path).exists() else []
    if (pid := str(os.getpid())) not in pids:
        pids.append(pid)
        Path(path).write_text(" ".join(pids))
    if pids.index(pid) < sick:
        raise ImportError("libshop.so: cannot open shared object file")
    return lambda value: value


class Loaded:
    """Function that is loaded by `load_on_sound_workers`."""

    def __init__(self, path, sick):
        self.how = str(path), sick

    def __reduce__(self):
        return load_on_sound_workers, self.how


async def waits_for_ever(started, stopped):
    try:
        touch(started)
        await asyncio.sleep(600)
    finally:
        touch(stopped)


@pytest.fixture
def slot(ray_driver):
    """Return a group of one slot: a worker runs its tasks."""
    group = placement_group([{"CPU": 1}])
    assert group.wait(60)
    yield group
    remove_placement_group(group)


def answer(message, runner_log):
    """Return the value that a message carries."""
    assert isinstance(message, NodeSucceeded), message
    return import_value(message.stored, runner_log.blobs.get(message.stored.sha256))


def test_the_value_of_every_kind_of_function_is_final(runner_log, task, slot):
    kinds = {"async": waits, "generator": yields, "async-generator": waits_and_yields, "object": Yields(), "plain": len}
    stage = runner_log.start(
        *(task(name, runner_log.function(function), "abc" if name == "plain" else 3, export=True) for name, function in kinds.items()),
        task("alone", runner_log.function(yields), 2, export=True, is_isolated=True),
        run="kinds",
        group=slot,
    )
    ended = runner_log.end(stage)
    values = {name: answer(ended[name], runner_log) for name in (*kinds, "alone")}
    assert values == {"async": 3, "generator": [0, 1, 2], "async-generator": [0, 1, 2], "object": [0, 1, 2], "plain": 3, "alone": [0, 1]}


@pytest.mark.parametrize("is_isolated", [False, True], ids=["in a worker", "as a Ray task"])
def test_outputs_are_values_of_their_own(runner_log, task, slot, is_isolated):
    stage = runner_log.start(
        task("split", runner_log.function(pair), runner_log.argument(b"x" * 200_000), num_returns=2, is_isolated=is_isolated),
        task("split[0]", SELECTED, {"$ref": "split", "path": [0]}, inputs=("split",)),
        task("split[1]", SELECTED, {"$ref": "split", "path": [1]}, inputs=("split",)),
        task("left", runner_log.function(len), {"$ref": "split[0]"}, inputs=("split[0]",), export=True),
        task("right", runner_log.function(len), {"$ref": "split[1]"}, inputs=("split[1]",), export=True),
        run=f"outputs-{is_isolated}",
        group=slot,
    )
    ended = runner_log.end(stage)
    assert (answer(ended["left"], runner_log), answer(ended["right"], runner_log)) == (200_000, 1)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param(pair, "num_returns=3, but the function returned 2 values: return 3", id="too few"),
        pytest.param(len, "num_returns=3, but the function returned int: return a tuple of 3 values", id="a single value"),
        pytest.param(lambda _: None, "num_returns=3, but the function returned NoneType", id="none"),
    ],
)
def test_another_number_of_outputs_fails_the_node(runner_log, task, slot, function, words):
    stage = runner_log.start(task("split", runner_log.function(function), "ab", num_returns=3), run="mismatch", group=slot)
    failed = runner_log.end(stage)["split"]
    assert isinstance(failed, NodeFailed)
    assert (failed.failure.reason, words in failed.failure.message) == (Reason.USER_ERROR, True)


def test_a_generator_may_give_the_outputs(runner_log, task, slot):
    stage = runner_log.start(
        task("split", runner_log.function(yields), 2, num_returns=2),
        task("last", SELECTED, {"$ref": "split", "path": [1]}, inputs=("split",), export=True),
        run="yields-outputs",
        group=slot,
    )
    assert answer(runner_log.end(stage)["last"], runner_log) == 1


def test_an_empty_value_is_a_value(runner_log, task, slot):
    empty = {"none": None, "zero": 7, "text": "a", "list": [1], "dict": {"a": 1}}
    stage = runner_log.start(
        *(task(name, runner_log.function(nothing_of), value) for name, value in empty.items()),
        task(
            "all", runner_log.function(lambda *values: list(values)), *({"$ref": name} for name in empty), inputs=tuple(empty), export=True
        ),
        run="empty",
        group=slot,
    )
    assert answer(runner_log.end(stage)["all"], runner_log) == [None, 0, "", [], {}]


def test_a_node_with_its_own_environment_runs_in_it(runner_log, task, slot):
    env = {"runtime_env": {"env_vars": {"OF_THE_NODE": "yes"}}}
    stage = runner_log.start(
        task("own", runner_log.function(pid_and_variable), "OF_THE_NODE", export=True, ray_options=env),
        task("other", runner_log.function(pid_and_variable), "OF_THE_NODE", export=True),
        run="environments",
        group=slot,
    )
    ended = runner_log.end(stage)
    own, other = answer(ended["own"], runner_log), answer(ended["other"], runner_log)
    assert (own[1], other[1]) == ("yes", None)
    assert own[0] != other[0]


def test_cancel_interrupts_an_async_function(runner_log, task, slot, tmp_path):
    started, stopped = tmp_path / "started", tmp_path / "stopped"
    stage = runner_log.start(task("a", runner_log.function(waits_for_ever), str(started), str(stopped)), run="async-cancel", group=slot)
    runner_log.until(stage, lambda message: isinstance(message, NodeStarted))
    eventually(started.exists)
    runner_log.actor.cancel.remote(stage, 600.0)  # Longer than the test may take: no process is killed.
    assert runner_log.end(stage)["a"].failure.reason is Reason.CANCELLED_BY_USER
    eventually(stopped.exists)


def test_a_missing_module_fails_one_task_and_starts_no_other(runner_log, task, slot, tmp_path):
    counted = tmp_path / "started"
    names = [f"n{number}" for number in range(300)]
    stage = runner_log.start(
        *(task(name, "call:no_such_shop:load", number) for number, name in enumerate(names)),
        task("good", runner_log.function(touch), str(counted)),
        run="missing-module",
        group=slot,
    )
    ended = runner_log.end(stage)
    failures = [ended[name].failure for name in names]
    assert {failure.reason for failure in failures} == {Reason.CODE_UNAVAILABLE}
    loaded = [failure for failure in failures if failure.traceback]
    assert len(loaded) == 1
    assert "no worker has the module no_such_shop; send it along" in loaded[0].message
    others = [failure.message for failure in failures if not failure.traceback]
    assert all("its function cannot be loaded on this mesh, as n" in message for message in others)
    assert isinstance(ended["good"], NodeSucceeded)


def test_tasks_of_a_worker_that_loads_nothing_run_on_another(runner_log, task, slot, tmp_path):
    asked = tmp_path / "pids"
    key = runner_log.function(Loaded(asked, sick=1))
    names = [f"n{number}" for number in range(20)]
    stage = runner_log.start(*(task(name, key, number, export=True) for number, name in enumerate(names)), run="sick-worker", group=slot)
    ended = runner_log.end(stage)
    assert [answer(ended[name], runner_log) for name in names] == list(range(20))
    assert len(asked.read_text().split()) == 2


def test_code_that_two_workers_cannot_load_fails_its_tasks(runner_log, task, slot, tmp_path):
    asked = tmp_path / "pids"
    key = runner_log.function(Loaded(asked, sick=9))
    stage = runner_log.start(*(task(name, key, 1) for name in "abc"), run="no-worker", group=slot)
    ended = runner_log.end(stage)
    assert {ended[name].failure.reason for name in "abc"} == {Reason.CODE_UNAVAILABLE}
    (message,) = [ended[name].failure.message for name in "abc" if ended[name].failure.traceback]
    assert "libshop.so" in message
    assert "more than one worker tried" in message
    assert len(asked.read_text().split()) == 2
