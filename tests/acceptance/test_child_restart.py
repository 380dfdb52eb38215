"""Restarts of a mesh's killed process on a real Ray cluster: work continues, or nothing stays behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from federation_bed import LIMIT_S, REPOSITORY, TENANT, eventually, patient_stores, submit, wait_for
from ray.util.placement_group import placement_group_table

import dag
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.config.loading import load_config
from mesh.core.reasons import PASSING, Reason
from mesh.stages.reserved_groups import GroupCounts
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

pytestmark = pytest.mark.ray

#: Longer than a process takes to start on a busy machine, and short enough to await its expiry. Work is asked to
#: stop after three quarters of it.
CONFIG = f"""
federation: {{name: restarts, lease_ttl: 60s, heartbeat: 500ms, lease_grace: 3s}}
root: {{cluster: only, port: 18100}}
routing: {{probation: 500ms, probation_max: 2s}}
import_paths: ["{REPOSITORY}"]
clusters: {{only: {{shared: true, nodes: [{{cpu: 3}}], object_store: 120MiB}}}}
flavors: {{standard: {{}}}}
meshes:
  east:
    cluster: only
    pools: {{general: {{flavor: standard, capacity: {{cpu: 3, memory: 1GiB}}, groups: {{reserved: [{{cpu: 1}}]}}}}}}
tenants:
  acme:
    quotas: {{standard: {{cpu: {{nominal: 3}}, memory: {{nominal: 1GiB}}}}}}
    pickled_code: true
    tenants: {{research: {{tenants: {{vision: {{}}}}}}}}
"""


def own_group(folder: str) -> str | None:
    """Leave the id of the task's placement group, and return it when the gate is open."""
    group = ray.util.get_current_placement_group()
    Path(folder, "group").touch()
    while not Path(folder, "gate").exists():
        time.sleep(0.01)
    return None if group is None else group.id.hex()


def wait_for_gate(folder: str, gate: str) -> int:
    """Log each attempt; return when the gate is open."""
    with Path(folder, f"{gate}-attempts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(folder, gate).exists():
        time.sleep(0.01)
    return os.getpid()


def attempts(folder: Path, gate: str) -> list[int]:
    lines = folder / f"{gate}-attempts"
    return [int(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def log_and_return(folder: str, name: str, size: int, *_: object) -> bytes:
    """Log the execution; return so many bytes."""
    with Path(folder, f"{name}-attempts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return b"x" * size


def gather(folder: str, gate: str, *values: bytes) -> int:
    wait_for_gate(folder, gate)
    return sum(map(len, values))


class Watched:
    """Stack watched as `schedulemesh up` does, with a switch to suspend the watch."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.folder = StackFolder(folder)
        self.folder.__enter__()
        self.stack = Stack(load_config(CONFIG, source="tests/acceptance/test_child_restart.py"), self.folder, say=self.said.append)
        self.stack.start()
        self.looks = threading.Event()
        self.looks.set()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher")
        self._watcher.start()
        self.ledger = patient_stores(self.stack).ledger

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            if self.looks.is_set():
                self.stack.watch()

    def close(self) -> None:
        self._over.set()
        self._watcher.join()
        self.stack.stop()
        self.folder.__exit__(None, None, None)

    @property
    def agent(self) -> int:
        return self.stack.children["east"].pid

    def incarnation(self) -> int:
        views = self.ledger.snapshot().meshes
        assert [view.alive for view in views] == [True]
        return views[0].incarnation

    def log(self) -> str:
        return self.stack.children["east"].log.read_text()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    watched = Watched(tmp_path_factory.mktemp("state"))
    yield watched
    watched.close()


@pytest.fixture(scope="module")
def client(watched: Watched) -> Iterator[Client]:
    with Client(Access(address=watched.stack.address, api_key=watched.stack.api_key, tenant=TENANT)) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_left(watched: Watched) -> Iterator[None]:
    """Check after every test: no lease, no queued or claimed stage."""
    yield
    eventually(lambda: _assert_is_free(watched))


def _assert_is_free(watched: Watched) -> None:
    snapshot = watched.ledger.snapshot()
    assert (snapshot.leases, [(view.waiting, view.claimed) for view in snapshot.meshes]) == ((), [(0, 0)])


@pytest.fixture(scope="module")
def on_the_cluster(watched: Watched) -> Iterator[None]:
    """Connect this process to the cluster as an observing driver."""
    watched.stack.clusters["only"].connect(namespace="schedulemesh")
    yield
    ray.shutdown()


def actors() -> list[str]:
    return sorted(name.split("/")[2] for name in ray.util.list_named_actors() if name.startswith("mesh/"))


def pids(role: str) -> list[int]:
    names = [name for name in ray.util.list_named_actors() if name.startswith("mesh/") and f"/{role}/" in name]
    return ray.get([ray.get_actor(name).__ray_call__.remote(lambda _: os.getpid()) for name in names], timeout=LIMIT_S)


def groups() -> list[Any]:
    return [row for row in placement_group_table().values() if row["state"] != "REMOVED"]


def counts(watched: Watched) -> GroupCounts:
    ((pool,),) = (view.record.pools for view in watched.ledger.snapshot().meshes)
    return pool.group_counts


def kill_and_await_the_next(watched: Watched) -> None:
    before, pid = watched.incarnation(), watched.agent
    os.kill(pid, signal.SIGKILL)

    def goes_on() -> None:
        assert watched.agent != pid
        assert watched.incarnation() > before

    eventually(goes_on)


def test_s7_urgent_run_takes_the_ready_group_over_restarts(watched: Watched, client: Client, tmp_path: Path, on_the_cluster: None) -> None:
    eventually(lambda: _assert(len(groups()) == 1))  # Before other tests: their stages leave idle groups behind.
    (ready,) = (group["placement_group_id"] for group in groups())
    run = submit(client, dag.task(own_group, name="urgent", num_cpus=1, priority=9).bind(str(tmp_path)))
    eventually(lambda: _assert((tmp_path / "group").exists()))
    assert counts(watched) == GroupCounts(reserved=1, in_use=1)
    kill_and_await_the_next(watched)
    (tmp_path / "gate").touch()
    assert run.result(LIMIT_S) == ready
    eventually(lambda: _assert(counts(watched) == GroupCounts(reserved=1, idle=1)))
    again = submit(client, dag.task(own_group, name="again", num_cpus=1, priority=8).bind(str(tmp_path)))
    assert again.result(LIMIT_S) == ready
    big = submit(client, dag.task(own_group, name="big", num_cpus=3).bind(str(tmp_path)), wait_for_capacity=True)
    assert wait_for(big, lambda event: event.reason is Reason.CAPACITY_RESERVED)
    big.cancel()
    assert ready in {group["placement_group_id"] for group in groups()}


def test_killed_agent_restarts_and_its_task_executes_once(watched: Watched, client: Client, tmp_path: Path) -> None:
    recovered = watched.log().count("goes_on=True")
    run = submit(client, {name: dag.task(wait_for_gate, name=name).bind(str(tmp_path), name) for name in ("one", "two")})
    eventually(lambda: _assert(len(attempts(tmp_path, "one")) == len(attempts(tmp_path, "two")) == 1))
    kill_and_await_the_next(watched)
    (tmp_path / "one").touch()
    wait_for(run, lambda event: (event.node, event.after) == ("one", "SUCCEEDED"))
    later = submit(client, dag.task(wait_for_gate).bind(str(tmp_path), "later"))
    eventually(lambda: _assert(len(attempts(tmp_path, "later")) == 1))  # In the slot that the recovered stage has given back.
    kill_and_await_the_next(watched)
    for gate in ("two", "later"):
        (tmp_path / gate).touch()
    assert later.result(LIMIT_S) == attempts(tmp_path, "later")[0]
    assert [run.result(LIMIT_S)[name] for name in ("one", "two")] == attempts(tmp_path, "one") + attempts(tmp_path, "two")
    assert len(attempts(tmp_path, "one")) == len(attempts(tmp_path, "two")) == 1
    events = list(run.events())
    assert [(event.node, event.attempt) for event in events if event.kind == "node" and event.after == "SUCCEEDED"] == [
        ("one", 1),
        ("two", 1),
    ]
    assert not [event for event in events if event.after == "LOST"]
    assert watched.log().count("goes_on=True") == recovered + 2
    assert "mesh east has died; restarting now" in watched.said


def test_a_new_stage_runs_where_the_predecessor_left_a_runner(
    watched: Watched, client: Client, tmp_path: Path, on_the_cluster: None
) -> None:
    (tmp_path / "before").touch()
    submit(client, dag.task(wait_for_gate).bind(str(tmp_path), "before")).result(LIMIT_S)
    there = actors()
    kill_and_await_the_next(watched)
    (tmp_path / "after").touch()
    submit(client, dag.task(wait_for_gate).bind(str(tmp_path), "after")).result(LIMIT_S)
    assert actors() == there


def test_work_runs_again_after_its_group_keeper_is_killed(watched: Watched, client: Client, tmp_path: Path, on_the_cluster: None) -> None:
    run = submit(client, dag.task(wait_for_gate, name="kept").bind(str(tmp_path), "kept"))
    for attempt in (1, 2):
        eventually(lambda attempt=attempt: _assert(len(attempts(tmp_path, "kept")) == attempt))
        os.kill(*pids("keeper"), signal.SIGKILL)
    eventually(lambda: _assert(len(attempts(tmp_path, "kept")) == 3))
    (tmp_path / "kept").touch()
    assert run.result(LIMIT_S) == attempts(tmp_path, "kept")[2]
    assert {event.reason for event in run.events() if event.node == "kept" and event.reason} - PASSING == {Reason.WORKER_LOST}


def test_a_killed_runner_costs_no_small_finished_value(watched: Watched, client: Client, tmp_path: Path, on_the_cluster: None) -> None:
    def logged(name: str, size: int, *needs: object) -> object:
        return dag.task(log_and_return, name=name).bind(str(tmp_path), name, size, *needs)

    fan = [logged(f"fan{place}", 10) for place in range(3)]
    last = dag.task(gather, name="end").bind(str(tmp_path), "end", logged("chain", 1, logged("first", 1), *fan), logged("large", 200_000))
    run = submit(client, last)
    eventually(lambda: _assert(len(attempts(tmp_path, "end")) == 1))
    for pid in pids("runner"):  # The bound one and the warm one.
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: _assert(len(attempts(tmp_path, "end")) == 2))
    (tmp_path / "end").touch()
    assert run.result(LIMIT_S) == 200_001
    counts = {name: len(attempts(tmp_path, name)) for name in ("first", "chain", "fan0", "fan1", "fan2", "large")}
    assert counts == {"first": 1, "chain": 1, "fan0": 1, "fan1": 1, "fan2": 1, "large": 2}


@pytest.mark.faults
@pytest.mark.slow
def test_nothing_stays_reserved_when_no_agent_comes_back(watched: Watched, client: Client, tmp_path: Path, on_the_cluster: None) -> None:
    run = submit(client, dag.task(wait_for_gate, name="late").bind(str(tmp_path), "late"))
    eventually(lambda: _assert(len(attempts(tmp_path, "late")) == 1))
    assert "keeper" in actors()
    assert groups() != []
    watched.looks.clear()
    os.kill(watched.agent, signal.SIGKILL)
    eventually(lambda: _assert((actors(), groups(), ray.available_resources().get("CPU")) == ([], [], 3.0)))
    watched.looks.set()
    (tmp_path / "late").touch()
    assert run.result(LIMIT_S) == attempts(tmp_path, "late")[1]
    assert len(attempts(tmp_path, "late")) == 2


def test_terminated_agent_leaves_nothing(watched: Watched, on_the_cluster: None) -> None:
    assert actors() != []
    watched.looks.clear()
    os.kill(watched.agent, signal.SIGTERM)
    eventually(lambda: _assert((actors(), groups()) == ([], [])))
    eventually(lambda: _assert(watched.ledger.snapshot().meshes == ()))
    watched.looks.set()
    eventually(watched.incarnation)


def _assert(what: bool) -> None:
    assert what
