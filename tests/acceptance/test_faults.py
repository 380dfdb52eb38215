"""Real process deaths and suspensions during runs: nothing is lost or silently repeated."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, coordinator_of, eventually, submit, wait_for

import dag
from dag.errors import RunFailed
from dag.run.retrying import RETRY_RULES
from dag.run.states import RunState
from dag.store.remote import Client, Run
from mesh.core.reasons import Reason
from serve_apps.processes.stores import Stores
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

WEST = {"zone": "west"}


def slow_at_first(folder: str) -> int:
    """Hang in the first attempt and return in the next; log each attempt."""
    lines = Path(folder, "attempts")
    with lines.open("a") as file:
        file.write(f"{os.getpid()}\n")
    attempt = len(lines.read_text().splitlines())
    while attempt == 1:
        time.sleep(0.01)
    return attempt


def wait_for_gate(folder: str) -> int:
    """Wait for the gate and return the number of the attempt."""
    lines = Path(folder, "attempts")
    with lines.open("a") as file:
        file.write(f"{os.getpid()}\n")
    attempt = len(lines.read_text().splitlines())
    while not Path(folder, "gate").exists():
        time.sleep(0.01)
    return attempt


def dies(folder: str) -> None:
    """End the process; log each attempt."""
    with Path(folder, "attempts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    os._exit(1)


def begin(number: int) -> int:
    return number


def add(*numbers: int) -> int:
    return sum(numbers)


def attempts(folder: Path) -> int:
    path = folder / "attempts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def assert_attempts(folder: Path, count: int) -> None:
    assert attempts(folder) == count


def meshes_of(run: Run, node: str) -> list[str | None]:
    """Return the meshes of the node's attempts."""
    return [event.mesh for event in run.events() if event.node == node and event.after == "ASSIGNED"]


@pytest.mark.faults
@pytest.mark.slow
def test_killed_child_mesh_comes_back_too_late(stack: Stack, client: Client, tmp_path: Path) -> None:
    value = dag.task(begin, labels=WEST).bind(1)
    run = submit(client, dag.task(add).bind(value, dag.task(slow_at_first, labels=WEST, name="slow").bind(str(tmp_path))))
    eventually(lambda: assert_attempts(tmp_path, 1))
    stack.restarts.put_off("mesh west", math.inf)
    os.kill(stack.children["west"].pid, signal.SIGKILL)
    wait_for(run, lambda event: event.kind == "stage" and event.after == "LOST")  # The first to return continues the work.
    stack.restarts.put_off("mesh west", time.monotonic())
    assert run.result(LIMIT_S) == 3
    lost = [event for event in run.events() if event.kind == "stage" and event.after == "LOST"]
    assert [event.reason.value for event in lost if event.reason is not None] == ["LEASE_EXPIRED"]
    assert meshes_of(run, "slow") == ["west", "west"]


@pytest.mark.faults
@pytest.mark.slow
def test_late_result_of_a_suspended_mesh_is_refused(stack: Stack, client: Client, tmp_path: Path) -> None:
    run = submit(client, dag.task(wait_for_gate, name="gated").bind(str(tmp_path)))
    eventually(lambda: assert_attempts(tmp_path, 1))
    first = meshes_of_first_attempt(run)
    asleep = stack.children[first].pid
    os.kill(asleep, signal.SIGSTOP)
    try:
        eventually(lambda: assert_attempts(tmp_path, 2))  # Its lease expired, and another mesh began.
        (tmp_path / "gate").touch()  # Both attempts end now; the first one's mesh is suspended.
        assert run.result(LIMIT_S) == 2
    finally:
        os.kill(asleep, signal.SIGCONT)
    ends = [event for event in run.events() if event.node == "gated" and event.after == "SUCCEEDED"]
    assert [(event.attempt, event.mesh == first) for event in ends] == [(2, False)]


def meshes_of_first_attempt(run: Run) -> str:
    event = wait_for(run, lambda event: event.kind == "stage" and event.after == "RUNNING")
    assert event.mesh is not None
    return event.mesh


@pytest.mark.faults
@pytest.mark.slow
def test_a_whole_cluster_is_killed_in_the_middle_of_a_stage(stack: Stack, client: Client, tmp_path: Path) -> None:
    run = submit(client, dag.task(add).bind(dag.task(slow_at_first, labels=WEST, name="slow").bind(str(tmp_path)), 10))
    eventually(lambda: assert_attempts(tmp_path, 1))
    before = wait_for(run, lambda event: event.kind == "stage" and event.after == "RUNNING").cluster
    stack.clusters["second"].kill()
    assert run.result(LIMIT_S) == 12
    clusters = [event.cluster for event in run.events() if event.kind == "stage" and event.after == "RUNNING" and event.mesh == "west"]
    assert clusters[0] == before
    assert clusters[-1] not in ("", before)


def test_worker_death_costs_exactly_one_attempt(client: Client, tmp_path: Path) -> None:
    run = submit(client, dag.task(slow_at_first, name="slow", max_retries=0).bind(str(tmp_path)))
    eventually(lambda: assert_attempts(tmp_path, 1))
    os.kill(int((tmp_path / "attempts").read_text().split()[0]), signal.SIGKILL)
    assert run.result(LIMIT_S) == 2
    assert [event.attempt for event in run.events() if event.node == "slow" and event.after == "SUCCEEDED"] == [2]


@pytest.mark.parametrize("isolation", [None, "task"], ids=["in a slot's worker", "as a Ray task of its own"])
def test_a_task_that_kills_its_workers_is_blamed(client: Client, tmp_path: Path, isolation: str | None) -> None:
    options = {} if isolation is None else {"isolation": isolation}
    run = submit(
        client,
        {"dies": dag.task(dies, name="dies", **options).bind(str(tmp_path)), "lives": dag.task(begin, name="lives").bind(1)},
        on_error="continue",
    )
    with pytest.raises(RunFailed, match=f"{RETRY_RULES.kills_max} workers died under it"):
        run.result(LIMIT_S)
    assert attempts(tmp_path) == RETRY_RULES.kills_max
    events = [event for event in run.events() if event.node == "dies"]
    lost = [event for event in events if event.after == "WAITING" and event.reason is Reason.WORKER_LOST]
    assert len(lost) == RETRY_RULES.kills_max - 1
    assert [event.reason for event in events if event.after == "FAILED"] == [Reason.POISON_TASK]
    assert [event.attempt for event in run.events() if event.node == "lives" and event.after == "SUCCEEDED"] == [1]


def test_next_coordinator_continues_after_a_kill(stack: Stack, client: Client, tmp_path: Path) -> None:
    run = submit(client, dag.task(add).bind(dag.task(wait_for_gate, labels=WEST).bind(str(tmp_path)), 5))
    eventually(lambda: assert_attempts(tmp_path, 1))
    coordinator_of(stack).kill()
    (tmp_path / "gate").touch()
    assert run.result(LIMIT_S) == 6
    assert attempts(tmp_path) == 1


def test_the_same_id_submitted_by_many_at_once_is_one_run(client: Client, stores: Stores) -> None:
    from concurrent.futures import ThreadPoolExecutor

    node = dag.bind(begin, 7)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: client.submit(node, id="once", by_value=(__import__("sys").modules[__name__],)), range(8)))
    assert {run.result(LIMIT_S) for run in runs} == {7}
    assert len([line for line in stores.runs.list("acme", 1000) if line.run == "once"]) == 1  # type: ignore[arg-type]


def test_redis_is_killed_in_the_middle_of_a_run_and_comes_back(stack: Stack, client: Client, tmp_path: Path) -> None:
    run = submit(client, dag.task(add).bind(dag.task(wait_for_gate, labels=WEST).bind(str(tmp_path)), 5))
    eventually(lambda: assert_attempts(tmp_path, 1))
    os.kill(stack.stores().client.info("server")["process_id"], signal.SIGKILL)
    (tmp_path / "gate").touch()
    assert eventually(lambda: result_of(run)) == 6
    assert run.status is RunState.SUCCEEDED


def result_of(run: Run) -> int:
    try:
        return int(run.result(LIMIT_S))
    except dag.errors.ApiError as away:
        raise AssertionError(str(away)) from away
