"""Jobs of a leader and workers as nodes, over two real Ray clusters."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from federation_bed import LIMIT_S, TENANT, all_gone, eventually, pids_in

import dag
from dag.errors import RunCancelled, RunFailed
from dag.store.remote import Client, Run
from examples.jobs import graph

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

EAST, WEST = {"zone": "east"}, {"zone": "west"}
JOB = {
    "leader": {"resources": {"cpu": 1}},
    "workerSets": [{"name": "actors", "counts": 2, "resources": {"cpu": 0.5}}],
    "minWorkersNum": 2,
    "restartLimit": 1,
}


def cluster() -> str:
    return str(ray.get_runtime_context().gcs_address)


class Member:
    """Writes who it is to a file of its own, once for each process."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        role, rank = os.environ["SCHEDULEMESH_ROLE"], os.environ["SCHEDULEMESH_RANK"]
        self.file = self.folder / f"{role} {rank} {os.getpid()}"
        self.file.write_text(os.environ.get("SCHEDULEMESH_LEADER_ADDRESS", ""))

    def is_first(self) -> bool:
        return len(list(self.folder.glob(f"{self.file.name.rpartition(' ')[0]} *"))) == 1


class Leader(Member):
    """Waits for a number of processes of workers; returns what they have written, and where it ran."""

    address = "tcp://leader"

    def __init__(self, folder: str, processes: int, east: str = "") -> None:
        super().__init__(folder)
        self.processes, self.east = processes, east

    def run(self) -> tuple[list[str], str, str]:
        while len(found := [path for path in self.folder.glob("actors *") if path.read_text()]) < self.processes:
            time.sleep(0.02)
        return sorted(path.read_text() for path in found), cluster(), self.east


class Stays(Member):
    """A worker without `run`."""


class Says(Member):
    """A worker that prints, and fails the first time that its rank runs."""

    def run(self) -> None:
        if self.is_first():
            print(f"hello from {self.file.name.split()[1]}")  # noqa: T201  the log of the run is what is tested
            raise ConnectionError("again")


class DiesOnce(Member):
    """A worker that is killed the first time that its rank runs."""

    def run(self) -> None:
        if self.is_first():
            os.kill(os.getpid(), signal.SIGKILL)


class Dies(Member):
    """A leader that is always killed."""

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Fails(Member):
    """A leader with an error of its own."""

    def run(self) -> None:
        raise ValueError(f"no, {len(list(self.folder.iterdir()))}")


def submitted(client: Client, outputs: Any, **given: Any) -> Run:
    return client.submit(outputs, by_value=(sys.modules[__name__],), **given)


def test_a_job_returns_its_leaders_value(client: Client, tmp_path: Path) -> None:
    east = dag.task(cluster, labels=EAST).bind()
    folder = str(tmp_path)
    node = dag.job(JOB, leader=Leader, workers={"actors": Stays}, args={"leader": (folder, 2, east), "actors": (folder,)}, labels=WEST)
    after = dag.bind(len, node)
    found = submitted(client, {"job": node, "east": east, "after": after}).result(LIMIT_S)
    written, west, passed = found["job"]
    assert (written, passed, found["after"]) == (["tcp://leader"] * 2, found["east"], 3)
    assert west != found["east"]
    assert sorted(path.name.rpartition(" ")[0] for path in tmp_path.iterdir()) == ["actors 1", "actors 2", "leader 0"]
    eventually(lambda: all_gone(tmp_path))


def test_output_of_members_is_in_the_log(client: Client, tmp_path: Path) -> None:
    folder = str(tmp_path)
    node = dag.job(JOB, leader=Leader, workers={"actors": Says}, args={"leader": (folder, 4), "actors": (folder,)}, name="says")
    run = submitted(client, node)
    run.result(LIMIT_S)
    assert sorted(map(str, run.logs("says"))) == ["actors-0: hello from 1", "actors-1: hello from 2"]


def test_a_killed_worker_starts_again_in_its_place(client: Client, tmp_path: Path) -> None:
    folder = str(tmp_path)
    node = dag.job(JOB, leader=Leader, workers={"actors": DiesOnce}, args={"leader": (folder, 4), "actors": (folder,)})
    assert submitted(client, node).result(LIMIT_S)[0] == ["tcp://leader"] * 4
    assert len(list(tmp_path.glob("leader *"))) == 1


def test_a_leader_that_fails_too_often_fails_its_job(client: Client, tmp_path: Path) -> None:
    folder = str(tmp_path)
    node = dag.job(JOB, leader=Fails, workers={"actors": Stays}, args={"leader": (folder,), "actors": (folder,)})
    with pytest.raises(RunFailed, match=r"RESTART_LIMIT: leader failed 2 times, restart_limit is 1; last error: builtins.ValueError: no"):
        submitted(client, node).result(LIMIT_S)
    assert len(list(tmp_path.glob("leader *"))) == 2
    eventually(lambda: all_gone(tmp_path))


def test_a_leader_that_is_killed_too_often_is_a_lost_worker(client: Client, tmp_path: Path) -> None:
    folder = str(tmp_path)
    node = dag.job({**JOB, "restartLimit": 0}, leader=Dies, workers={"actors": Stays},
                   args={"leader": (folder,), "actors": (folder,)}, never_on=["WORKER_LOST"])  # fmt: skip
    run = submitted(client, node)
    with pytest.raises(RunFailed):
        run.result(LIMIT_S)
    assert [failure["reason"] for failure in client.ask(run.path)["failures"]] == ["WORKER_LOST"]


def test_a_cancel_ends_all_members(client: Client, tmp_path: Path) -> None:
    folder = str(tmp_path)
    run = submitted(client, dag.job(JOB, leader=Leader, workers={"actors": Stays}, args={"leader": (folder, 9), "actors": (folder,)}))
    eventually(lambda: has_members(tmp_path))
    run.cancel("enough")
    with pytest.raises(RunCancelled):
        run.result(LIMIT_S)
    eventually(lambda: all_gone(tmp_path))


def has_members(folder: Path) -> None:
    assert len(pids_in(folder)) == 3


def test_the_example_finds_the_best_machine(client: Client) -> None:
    spec = dag.to_spec(graph.graph(), id="bandit", tenant=TENANT)
    for run in (client.submit(graph.graph()), client.submit(dag.from_spec(spec)), client.submit_spec(spec)):
        assert run.result(LIMIT_S)["summary"].startswith("machine 6 wins ")
