"""Workers of slots on a real cluster: chunks of nodes, long ones, errors, deaths, interrupts, large values."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray
from patience import eventually
from ray.util.placement_group import placement_group, remove_placement_group

import mesh
from mesh.core.reasons import Reason
from mesh.ray.worker.exporting import import_value
from mesh.stages.messages import NodeFailed, NodeStarted, NodeSucceeded

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

LARGE = 200_000


def process(folder: str, name: str) -> int:
    """Leave a line, and return the process."""
    with Path(folder, name).open("a") as file:
        file.write("begun\n")
    return os.getpid()


def add(*numbers: int) -> int:
    return 1 + sum(numbers)


def grow(values: list[int]) -> list[int]:
    """Change the argument in place: the next reader must not see it."""
    values.append(len(values))
    return values


def blow_up(size: int) -> bytes:
    return b"x" * size


def size_of(value: bytes) -> int:
    return len(value)


def die(folder: str, times: int) -> str:
    """End the process at the first runs."""
    with Path(folder, "die").open("a") as file:
        file.write("begun\n")
    if len(Path(folder, "die").read_text().splitlines()) <= times:
        os._exit(1)
    return "lives"


def fail() -> None:
    raise ValueError("no")


def hold_a_lock() -> Any:
    import threading

    return [threading.Lock()] * 3


def sleep_on(folder: str, name: str) -> None:
    try:
        Path(folder, f"{name}.begun").touch()
        time.sleep(600)
    finally:
        Path(folder, f"{name}.ended").touch()


def save_and_wait(folder: str) -> None:
    """Save a checkpoint and wait until asked to stop."""
    task = mesh.current_task()
    task.save_checkpoint({"step": 1})
    Path(folder, "saved").touch()
    while True:
        time.sleep(0.01)
        task.stop_if_asked()


@pytest.fixture
def slot(ray_driver: Any) -> Iterator[Any]:
    group = placement_group([{"CPU": 1}])
    assert group.wait(60)
    yield group
    remove_placement_group(group)


def reference(node: str) -> dict[str, str]:
    return {"$ref": node}


def value_of(message: Any, runner_log: Any) -> Any:
    assert isinstance(message, NodeSucceeded), getattr(message, "failure", message)
    return import_value(message.stored, runner_log.blobs.get(message.stored.sha256))


def test_nodes_of_a_slot_share_a_process(runner_log, task, slot, tmp_path):
    function = runner_log.function(process)
    tasks = [task(f"n{at}", function, str(tmp_path), f"n{at}", export=True) for at in range(50)]
    ended = runner_log.end(runner_log.start(*tasks, run="shared", group=slot))
    assert len({value_of(ended[f"n{at}"], runner_log) for at in range(50)}) == 1
    again = runner_log.end(runner_log.start(task("n", function, str(tmp_path), "n", export=True), run="shared again", group=slot))
    assert value_of(again["n"], runner_log) == value_of(ended["n0"], runner_log)
    own = task("n", function, str(tmp_path), "own", export=True, ray_options={"max_calls": 1})
    other = runner_log.end(runner_log.start(own, run="own process", group=slot))
    assert value_of(other["n"], runner_log) != value_of(ended["n0"], runner_log)


def test_each_reader_gets_a_value_of_its_own(runner_log, task, slot):
    function = runner_log.function(grow)
    readers = [task(name, function, reference("a"), inputs=("a",), export=True) for name in "bcd"]
    stage = runner_log.start(task("a", function, [7]), *readers, run="own values", group=slot)
    ended = runner_log.end(stage)
    assert [value_of(ended[name], runner_log) for name in "bcd"] == [[7, 1, 2]] * 3


def test_large_values_go_from_chunk_to_chunk(runner_log, task, slot):
    make, measure = runner_log.function(blow_up), runner_log.function(size_of)
    large = [task(f"large{at}", make, LARGE + at) for at in range(3)]
    sizes = [task(f"size{at}", measure, reference(f"large{at}"), inputs=(f"large{at}",), export=True) for at in range(3)]
    ended = runner_log.end(runner_log.start(*large, *sizes, run="large", group=slot))
    assert [value_of(ended[f"size{at}"], runner_log) for at in range(3)] == [LARGE, LARGE + 1, LARGE + 2]
    later = task("later", measure, reference("large2"), inputs=("large2",), export=True)
    assert value_of(runner_log.end(runner_log.start(later, run="large", group=slot))["later"], runner_log) == LARGE + 2


def test_an_error_fails_its_node_and_drops_those_behind(runner_log, task, slot):
    function = runner_log.function(add)
    stage = runner_log.start(
        task("a", function),
        task("bad", runner_log.function(fail), after=("a",)),
        task("behind", function, reference("bad"), inputs=("bad",)),
        task("good", function, reference("a"), inputs=("a",), export=True),
        run="an error",
        group=slot,
    )
    ended = runner_log.end(stage)
    assert ended.keys() == {"a", "bad", "good"}
    assert value_of(ended["good"], runner_log) == 2
    failure = ended["bad"].failure
    assert (failure.reason, failure.type_name, failure.message) == (Reason.USER_ERROR, "builtins.ValueError", "no")
    assert "mesh/ray" not in failure.traceback


def test_a_value_that_cannot_be_pickled_fails_its_node_alone(runner_log, task, slot):
    stage = runner_log.start(
        task("a", runner_log.function(add), export=True), task("lock", runner_log.function(hold_a_lock)), run="a lock", group=slot
    )
    ended = runner_log.end(stage)
    assert value_of(ended["a"], runner_log) == 1
    assert ended["lock"].failure.reason is Reason.RESULT_UNSERIALIZABLE


def test_a_node_that_kills_its_worker_fails_alone(runner_log, task, slot, tmp_path):
    function = runner_log.function(add)
    others = [task(f"n{at}", function) for at in range(20)]
    stage = runner_log.start(*others[:10], task("dies", runner_log.function(die), str(tmp_path), 1), *others[10:], run="dies", group=slot)
    ended = runner_log.end(stage)
    succeeded = Counter(message.node for message in runner_log.messages[stage] if isinstance(message, NodeSucceeded))
    assert succeeded == Counter(f"n{at}" for at in range(20))
    assert ended["dies"].failure.reason is Reason.WORKER_LOST
    assert (tmp_path / "die").read_text() == "begun\n"


def test_a_cancelled_node_is_interrupted_in_its_sleep(runner_log, task, slot, tmp_path):
    function = runner_log.function(sleep_on)
    stage = runner_log.start(*(task(name, function, str(tmp_path), name) for name in "ab"), run="a sleep", group=slot)
    eventually((tmp_path / "a.begun").exists, 60.0)
    runner_log.until(stage, lambda message: isinstance(message, NodeStarted))
    ray.get(runner_log.actor.cancel.remote(stage, 60.0))
    ended = runner_log.end(stage)
    assert [message.failure.reason for message in ended.values() if isinstance(message, NodeFailed)] == [Reason.CANCELLED_BY_USER]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.begun", "a.ended"]


def test_a_node_that_listens_saves_before_it_stops(runner_log, task, slot, tmp_path):
    stage = runner_log.start(task("a", runner_log.function(save_and_wait), str(tmp_path)), run="listens", group=slot)
    eventually((tmp_path / "saved").exists, 60.0)
    runner_log.until(stage, lambda message: message.kind == "node_checkpoint")
    ray.get(runner_log.actor.cancel.remote(stage, 60.0))
    assert runner_log.end(stage)["a"].kind == "node_failed"
