"""Elements of a generator that are mapped while it goes on, on a runner of a real cluster."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray
from patience import eventually
from ray.util.placement_group import placement_group, remove_placement_group

from mesh.core.reasons import Reason
from mesh.stages.messages import NodeFailed, NodeSucceeded
from mesh.stages.spec import TaskSpec

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray

PARTS = 4
#: Elements of each part.
SHARES = ([0], [1], [2, 3], [4, 5, 6, 7])


def numbers_behind_readers(folder: str, count: int) -> Iterator[int]:
    """Yield numbers; from the third on, each after a reader has read the number two before it."""
    for number in range(count):
        while 2 <= number <= 4 and not Path(folder, str(number - 2)).exists():
            time.sleep(0.01)
        yield number


async def later(folder: str, count: int) -> AsyncIterator[int]:
    for number in numbers_behind_readers(folder, count):
        await asyncio.sleep(0)
        yield number


def breaks(folder: str, count: int) -> Iterator[int]:
    """Fail, in the first attempt, after a reader has begun with the first number."""
    yield from (10, 11)
    if not Path(folder, "again").exists():
        while not Path(folder, "10").exists():
            time.sleep(0.01)
        raise ConnectionError("no more")
    yield from range(12, 10 + count)


def changes(folder: str, count: int) -> Iterator[int]:
    """Do so, and yield other numbers in the second attempt."""
    yield from breaks(folder, count) if not Path(folder, "again").exists() else range(count)


def ends_early(folder: str, count: int) -> Iterator[int]:
    """Do so, and yield no numbers in the second attempt."""
    yield from breaks(folder, count) if not Path(folder, "again").exists() else ()


def dies(folder: str, _count: int) -> Iterator[int]:
    """Yield numbers, and end the process after a reader has begun."""
    yield from (10, 11)
    while not Path(folder, "10").exists():
        time.sleep(0.01)
    os._exit(1)


def never_ends(_folder: str, _count: int) -> Iterator[int]:
    yield from (10, 11)
    while True:
        time.sleep(0.01)


def read(number: int, folder: str) -> int:
    Path(folder, str(number)).touch()
    return number


def read_at_the_gate(number: int, folder: str) -> int:
    """Wait for the gate with the first number."""
    Path(folder, str(number)).touch()
    while number == 10 and not Path(folder, "gate").exists():
        time.sleep(0.01)
    return number


@pytest.fixture
def stream(runner_log: Any, task: Callable[..., TaskSpec], tmp_path: Path) -> Callable[..., list[TaskSpec]]:
    """Return a factory of tasks: a generator, and the parts of an array of its elements."""

    def make(makes: Any, reads: Any = read, *, attempt: int = 1, numbers: tuple[int, ...] = tuple(range(PARTS))) -> list[TaskSpec]:
        made = task("made", runner_log.function(makes), str(tmp_path), 8, attempt=attempt)
        function = runner_log.function(reads)
        forms = {number: {"$each": {"$ref": "made"}, "share": [number, PARTS], "stream": True} for number in numbers}
        return [made, *(task(f"a@{number}", function, form, str(tmp_path), inputs=("made",)) for number, form in forms.items())]

    return make


def values(runner_log: Any, run: str, ends: dict[str, Any], task: Any) -> list[Any]:
    """Return what the parts that succeeded have returned, by a stage that reads them."""
    parts = [node for node, end in ends.items() if node.startswith("a@") and isinstance(end, NodeSucceeded)]
    end = runner_log.end(
        runner_log.start(
            task("all", "call:mesh.stages.arrays:joined", [{"$ref": part} for part in parts], inputs=tuple(parts), export=True), run=run
        )
    )["all"]
    return [int(number) for number in runner_log.blobs[end.stored.sha256].decode().strip("[]").split(",")]


@pytest.mark.parametrize("makes", [numbers_behind_readers, later], ids=["a generator", "an async generator"])
def test_parts_begin_while_the_generator_goes_on(runner_log, task, stream, makes):
    run = f"grows-{makes.__name__}"
    ends = runner_log.end(runner_log.start(*stream(makes), run=run))
    assert {node: type(end) for node, end in ends.items()} == dict.fromkeys(["made", "a@0", "a@1", "a@2", "a@3"], NodeSucceeded)
    assert values(runner_log, run, ends, task) == list(range(8))
    assert [ends[f"a@{number}"].elements for number in range(PARTS)] == [None, None, None, 8]


def test_a_single_slot_runs_the_generator_and_then_its_readers(runner_log, task, stream):
    group = placement_group([{"CPU": 1}])
    ends = runner_log.end(runner_log.start(*stream(lambda _folder, count: (yield from range(count))), run="narrow", group=group))
    assert values(runner_log, "narrow", ends, task) == list(range(8))
    remove_placement_group(group)


def failed(runner_log: Any, stage: Any) -> NodeFailed:
    message: NodeFailed = runner_log.until(stage, lambda message: isinstance(message, NodeFailed) and message.node == "made")
    return message


def test_readers_outlive_the_failure_of_the_generator(runner_log, task, stream, tmp_path):
    stage = runner_log.start(*stream(breaks, read_at_the_gate), run="broken")
    assert failed(runner_log, stage).failure.message == "no more"
    (tmp_path / "gate").touch()
    ends = runner_log.end(stage)
    assert isinstance(ends["a@0"], NodeSucceeded)
    (tmp_path / "again").touch()
    left = tuple(number for number in range(PARTS) if not isinstance(ends.get(f"a@{number}"), NodeSucceeded))
    again = runner_log.end(runner_log.start(*stream(breaks, attempt=2, numbers=left), run="broken"))
    assert all(isinstance(end, NodeSucceeded) for end in again.values())
    ended = dict(sorted({**ends, **again}.items()))
    assert values(runner_log, "broken", ended, task) == list(range(10, 18))


@pytest.mark.parametrize(
    ("makes", "words"),
    [
        pytest.param(changes, "yielded 8 elements, and not the element 0 that a@0 has read", id="other elements"),
        pytest.param(ends_early, "yielded 0 elements, and not the element 0 that a@0 has read", id="fewer elements"),
    ],
)
def test_a_generator_that_changes_fails(runner_log, stream, tmp_path, makes, words):
    run = f"changed-{makes.__name__}"
    stage = runner_log.start(*stream(makes, read_at_the_gate), run=run)
    failed(runner_log, stage)
    (tmp_path / "gate").touch()
    runner_log.end(stage)
    (tmp_path / "again").touch()
    ends = runner_log.end(runner_log.start(*stream(makes, attempt=2, numbers=(1, 2, 3)), run=run))
    assert words in ends["made"].failure.message
    assert {node for node, end in ends.items() if isinstance(end, NodeSucceeded)} == set()


def test_what_was_handed_out_outlives_the_worker(runner_log, stream, tmp_path):
    stage = runner_log.start(*stream(dies, read_at_the_gate), run="dead")
    assert failed(runner_log, stage).failure.reason is Reason.WORKER_LOST
    (tmp_path / "gate").touch()
    assert isinstance(runner_log.end(stage)["a@0"], NodeSucceeded)


def test_a_cancelled_stage_stops_generator_and_readers(runner_log, stream, tmp_path):
    stage = runner_log.start(*stream(never_ends, read_at_the_gate), run="cancelled")
    eventually((tmp_path / "10").exists, 120)
    ray.get(runner_log.actor.cancel.remote(stage, 0.5))
    ends = runner_log.end(stage)
    assert not any(isinstance(ends.get(node), NodeSucceeded) for node in ("made", "a@0", "a@3"))
