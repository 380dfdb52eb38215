"""Fairness over two real Ray clusters: a large run beside a small one, and what urgent work waits for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, eventually, submit

import dag
from dag.run.states import RunState
from dag.store.remote import Client
from serve_apps.processes.stores import Stores
from serve_apps.schemas.runs import RunView

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

OWNER, GUEST = "shared/owner", "shared/guest"
EAST, WEST = {"zone": "east"}, {"zone": "west"}
LONG = [pytest.mark.faults, pytest.mark.slow]


def wait_for_gate(folder: str, number: int) -> int:
    """Return when the gate is open; leave a file for each attempt that had to wait."""
    while not Path(folder, "gate").exists():
        Path(folder, f"{number} waits").touch()
        time.sleep(0.01)
    return number


def next_of(number: int) -> int:
    return number + 1


def total(numbers: list[int]) -> int:
    return sum(numbers)


def waiting(folder: Path) -> int:
    return len(list(folder.glob("* waits")))


@pytest.mark.parametrize("nodes", [pytest.param(1_000, id="1000 nodes"), pytest.param(10_000, id="10000 nodes", marks=LONG)])
def test_a_small_run_ends_beside_a_large_one_of_another_tenant(
    sharers: Client, tmp_path: Path, nodes: int, record_property: pytest.RecordProperty
) -> None:
    """No node of the large run ends before the gate opens, so each slot that the small run gets is one that its quota gave back."""
    large = submit(sharers, dag.bind(total, [dag.bind(wait_for_gate, str(tmp_path), number) for number in range(nodes)]), tenant=GUEST)
    eventually(lambda: _assert_waiting(tmp_path, 3))  # The guest has borrowed all quota.
    small = dag.bind(next_of, 0)
    for _ in range(4):
        small = dag.bind(next_of, small)
    beside_s = seconds_of(sharers, small)
    assert large.status is RunState.RUNNING
    assert RunView.model_validate(sharers.ask(large.path)).counts.get("SUCCEEDED", 0) == 0
    (tmp_path / "gate").touch()
    assert large.result(LIMIT_S * 4) == sum(range(nodes))
    record_property("seconds_beside", beside_s)
    record_property("seconds_alone", seconds_of(sharers, small))


def seconds_of(client: Client, outputs: dag.Node) -> float:
    """Return how long a run of the owner took."""
    began_s = time.monotonic()
    assert submit(client, outputs, tenant=OWNER).result(LIMIT_S) == 5
    return time.monotonic() - began_s


def test_a_node_that_urgent_work_needs_is_as_urgent(sharers: Client, stores: Stores, tmp_path: Path) -> None:
    """Without that, the urgent node would wait for work that is more urgent than its input and less urgent than itself."""
    fillers = [
        submit(sharers, dag.task(wait_for_gate, labels=EAST, priority=5).bind(str(tmp_path), number), tenant=OWNER) for number in (0, 1)
    ]
    eventually(lambda: _assert_waiting(tmp_path, 2))
    shared = dag.task(next_of, labels=EAST, name="shared").bind(0)
    urgent = submit(sharers, dag.task(next_of, labels=WEST, priority=9).bind(shared), tenant=OWNER)
    assert urgent.result(LIMIT_S) == 2  # The gate is shut, so a filler was preempted.
    (tmp_path / "gate").touch()
    assert [run.result(LIMIT_S) for run in fillers] == [0, 1]


def _assert_waiting(folder: Path, count: int) -> None:
    assert waiting(folder) >= count
