"""Arrays over two real Ray clusters: lists of any length, failures by element, retries, losses, cancels."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, REPOSITORY, coordinator_of, eventually, processes_of, submit

import dag
from dag.errors import RunFailed, UnknownArray
from dag.run.states import RunState
from dag.store.remote import Client, Run
from examples.etl.etl import PAGES
from serve_apps.schemas.nodes import NodesView
from serve_apps.schemas.runs import RunView
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]


def numbers(count: int) -> list[int]:
    return list(range(count))


def square(number: int) -> int:
    return number * number


def plus(left: int, right: int) -> int:
    return left + right


def yields(count: int) -> Iterator[int]:
    yield from range(count)


async def yields_later(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


def breaks_after(count: int) -> Iterator[int]:
    yield from range(count)
    raise ConnectionError(f"after {count} elements")


def yields_behind_the_gate(count: int, folder: str) -> Iterator[int]:
    """Yield numbers; leave a line, and wait for the file `go` in the second half."""
    with Path(folder, "generator.began").open("a") as began:
        began.write(f"{os.getpid()}\n")
    for number in range(count):
        while number >= HALF and not Path(folder, "go").exists():
            time.sleep(0.01)
        yield number


def breaks_behind_readers(count: int, folder: str) -> Iterator[int]:
    """Yield numbers; fail in the first attempt, when readers have read the first half."""
    yield from range(HALF)
    while not Path(folder, "failed").exists():
        if len(calls_in(Path(folder))) == HALF:
            Path(folder, "failed").touch()
            raise ConnectionError("once")
        time.sleep(0.01)
    yield from range(HALF, count)


def noted(number: int, folder: str) -> int:
    """Leave a line."""
    with Path(folder, f"{number}.calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    return number


def total(values: list[int]) -> int:
    return sum(values)


def odd_only(number: int) -> int:
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


def fails_once(number: int, folder: str) -> int:
    """Fail for each third number, the first time; leave a line for each call."""
    with Path(folder, f"{number}.calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    if number % 3 == 0 and len(Path(folder, f"{number}.calls").read_text().splitlines()) == 1:
        raise ConnectionError(f"no answer to {number}")
    return number


def slow(number: int, folder: str) -> int:
    """Leave a line, and wait for the file `go` in the second half."""
    with Path(folder, f"{number}.calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    while number >= HALF and not Path(folder, "go").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    return number


COUNT, HALF = 12, 8


def calls_in(folder: Path) -> Counter[int]:
    """Return how often each element was called."""
    return Counter({int(path.stem): len(path.read_text().splitlines()) for path in folder.glob("*.calls")})


@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_the_length_of_a_list_may_be_known_at_run_time(client, count):
    squares = dag.map(square, dag.bind(numbers, count), parts=16)
    run = submit(client, {"squares": squares, "sum": dag.reduce(total, dag.map(plus, squares, 1), arity=3)})
    assert run.result(LIMIT_S) == {"squares": [n * n for n in range(count)], "sum": sum(n * n + 1 for n in range(count))}
    view = RunView.model_validate(client.ask(run.path))
    assert view.counts == {"SUCCEEDED": 4}
    assert [(array.node, array.elements, array.counts) for array in view.arrays] == [
        ("square", count, {"SUCCEEDED": count} if count else {}),
        ("plus", count, {"SUCCEEDED": count} if count else {}),
    ]


def test_a_literal_list_of_pairs_and_of_nodes(client):
    pairs = dag.starmap(plus, [(1, 2), (3, 4)])
    of_nodes = dag.map(square, [dag.bind(plus, 1, 1), dag.bind(plus, 2, 1)])
    assert submit(client, {"a": pairs, "b": of_nodes}).result(LIMIT_S) == {"a": [3, 7], "b": [4, 9]}


def test_elements_of_generators_are_mapped(client):
    kinds = {"plain": yields, "streaming": dag.task(yields, num_returns="streaming"), "async": yields_later}
    outputs = {name: dag.map(square, dag.bind(kind, 5), parts=2) for name, kind in kinds.items()}
    again = dag.map(yields, dag.bind(yields, 3))
    found = submit(client, {**outputs, "lists": again, "sum": dag.reduce(total, dag.bind(yields, 5), arity=2)}).result(LIMIT_S)
    assert found == {**{name: [0, 1, 4, 9, 16] for name in kinds}, "lists": [[], [0], [0, 1]], "sum": 10}


def test_a_generator_that_fails_midway_has_no_elements(client):
    with pytest.raises(RunFailed, match="after 3 elements"):
        submit(client, dag.map(square, dag.bind(breaks_after, 3))).result(LIMIT_S)


def assert_mapped_early(client: Client, run: Run) -> None:
    """Check that the first half has been mapped, while nobody knows the length."""
    arrays = RunView.model_validate(client.ask(run.path)).arrays
    assert arrays
    assert (arrays[0].elements, arrays[0].counts) == (None, {"SUCCEEDED": HALF})


def test_elements_are_mapped_while_the_generator_goes_on(client: Client, tmp_path: Path):
    made = dag.task(yields_behind_the_gate, mesh="east").bind(COUNT, str(tmp_path))
    read = dag.map(dag.task(noted, mesh="east"), made, str(tmp_path))
    run = submit(client, {"read": read, "squares": dag.map(dag.task(square, mesh="east"), read), "sum": dag.bind(total, made)})
    eventually(lambda: assert_mapped_early(client, run))
    (tmp_path / "go").touch()
    assert run.result(LIMIT_S) == {"read": numbers(COUNT), "squares": [n * n for n in range(COUNT)], "sum": sum(range(COUNT))}
    arrays = RunView.model_validate(client.ask(run.path)).arrays
    assert [(array.node, array.elements, array.counts) for array in arrays or ()] == [
        ("noted", COUNT, {"SUCCEEDED": COUNT}),
        ("square", COUNT, {"SUCCEEDED": COUNT}),
    ]
    assert calls_in(tmp_path) == dict.fromkeys(range(COUNT), 1)


def test_mapped_elements_outlive_the_failure_of_their_generator(client: Client, tmp_path: Path):
    made = dag.task(breaks_behind_readers, mesh="east", retries=1).bind(COUNT, str(tmp_path))
    run = submit(client, dag.map(dag.task(noted, mesh="east"), made, str(tmp_path)))
    assert run.result(LIMIT_S) == numbers(COUNT)
    assert all(calls <= 2 for calls in calls_in(tmp_path).values())
    failures = [event.attempt for event in run.events() if event.node == "breaks_behind_readers" and event.after == "SUCCEEDED"]
    assert failures == [2]


def test_a_failed_element_is_named(client: Client):
    run = submit(client, dag.map(odd_only, [1, 3, 4, 5, 6, 7], parts=2), on_error="continue")
    with pytest.raises(RunFailed, match=r"odd_only .*element 4 of 6: 6 is even") as failed:
        run.result(LIMIT_S)
    assert isinstance(failed.value.__cause__, ValueError)
    view = RunView.model_validate(client.ask(run.path))
    assert view.counts == {"FAILED": 1}
    (array,) = view.arrays
    assert (array.state, array.failed, array.counts) == ("FAILED", "2, 4", {"SUCCEEDED": 4, "FAILED": 2})
    assert [(one.index, one.message) for one in run.elements("odd_only", state="FAILED")] == [(2, "4 is even"), (4, "6 is even")]
    (node,) = NodesView.model_validate(client.ask(f"{run.path}/nodes", {"state": "FAILED"})).nodes
    assert (node.node, node.state) == ("odd_only", "FAILED")
    with pytest.raises(UnknownArray, match="its arrays: odd_only"):
        list(run.elements("nobody"))


def test_a_retry_runs_only_the_failed_elements(client, tmp_path):
    run = submit(client, dag.map(dag.task(fails_once, retries=1), numbers(30), str(tmp_path), parts=4))
    assert run.result(LIMIT_S) == numbers(30)
    assert calls_in(tmp_path) == {number: 2 if number % 3 == 0 else 1 for number in range(30)}


LONG = [pytest.mark.faults, pytest.mark.slow]


def kill_worker(_stack: Stack, folder: Path) -> None:
    (pid,) = {int(pid) for pid in (folder / "0.calls").read_text().split()}
    os.kill(pid, signal.SIGKILL)


def kill_generator(_stack: Stack, folder: Path) -> None:
    os.kill(int((folder / "generator.began").read_text().split()[0]), signal.SIGKILL)


def kill_runner(stack: Stack, _folder: Path) -> None:
    for runner in processes_of(stack, "first", "ray::Runner"):
        runner.kill()


def kill_child(stack: Stack, _folder: Path) -> None:
    os.kill(stack.children["east"].pid, signal.SIGKILL)


def kill_coordinator(stack: Stack, _folder: Path) -> None:
    coordinator_of(stack).kill()


@pytest.mark.parametrize(
    ("kill", "starts_max"),
    [
        pytest.param(kill_worker, 2, id="worker"),
        pytest.param(kill_runner, 2, id="runner"),
        pytest.param(kill_child, 2, id="child", marks=LONG),  # Back too late on a busy machine, it has its work run again.
        pytest.param(kill_coordinator, 1, id="coordinator", marks=LONG),
    ],
)
def test_saved_elements_do_not_run_again_after_a_kill(
    client: Client, stack: Stack, tmp_path: Path, kill: Callable[[Stack, Path], None], starts_max: int
):
    run = submit(client, dag.map(dag.task(slow, mesh="east"), numbers(COUNT), str(tmp_path), parts=1))

    def saved() -> None:
        arrays = RunView.model_validate(client.ask(run.path)).arrays  # None, until the root has planned the run.
        assert arrays
        assert arrays[0].counts.get("SUCCEEDED", 0) >= HALF - 1

    eventually(saved)
    kill(stack, tmp_path)
    (tmp_path / "go").touch()
    assert run.result(LIMIT_S) == numbers(COUNT)
    calls = calls_in(tmp_path)
    assert all(calls[number] == 1 for number in range(HALF - 1))
    assert max(calls.values()) <= starts_max


@pytest.mark.parametrize(
    ("kill", "calls_max"),
    [
        pytest.param(kill_generator, 1, id="worker of the generator"),
        pytest.param(kill_runner, 2, id="runner"),
        pytest.param(kill_child, 2, id="child", marks=LONG),
        pytest.param(kill_coordinator, 1, id="coordinator", marks=LONG),
    ],
)
def test_mapped_elements_outlive_a_kill(client: Client, stack: Stack, tmp_path: Path, kill: Callable[[Stack, Path], None], calls_max: int):
    made = dag.task(yields_behind_the_gate, mesh="east").bind(COUNT, str(tmp_path))
    run = submit(client, dag.map(dag.task(noted, mesh="east"), made, str(tmp_path)))
    eventually(lambda: assert_mapped_early(client, run))
    kill(stack, tmp_path)
    (tmp_path / "go").touch()
    assert run.result(LIMIT_S) == numbers(COUNT)
    calls = calls_in(tmp_path)
    assert all(calls[number] <= calls_max for number in range(HALF))
    assert all(calls[number] == 1 for number in range(HALF, COUNT))


def test_a_cancelled_generator_stops_with_its_readers(client: Client, tmp_path: Path):
    made = dag.task(yields_behind_the_gate, mesh="east").bind(COUNT, str(tmp_path))
    run = submit(client, dag.map(dag.task(noted, mesh="east"), made, str(tmp_path)))
    eventually(lambda: assert_mapped_early(client, run))
    run.cancel("enough")
    assert run.wait(LIMIT_S) is RunState.CANCELLED


def test_a_cancelled_array_stops(client, tmp_path):
    run = submit(client, dag.map(slow, numbers(COUNT), str(tmp_path), parts=COUNT))
    eventually(lambda: _assert_any(tmp_path))
    run.cancel("enough")
    assert run.wait(LIMIT_S) is RunState.CANCELLED
    assert RunView.model_validate(client.ask(run.path)).counts == {"CANCELLED": 1}


def test_the_example_runs_from_python_and_json(client):
    from examples.etl import etl

    by_python = client.submit(etl.graph()).result(LIMIT_S)
    spec = json.loads((REPOSITORY / "examples/etl/etl.json").read_text())
    by_json = client.submit_spec(spec).result(LIMIT_S)
    assert by_python == by_json
    assert len(by_json["days"]) == 30
    assert all(page in by_json["report"] for page in PAGES)


def _assert_any(folder: Path) -> None:
    assert list(folder.glob("*.calls"))
