"""Faults of parts that `up` starts, on real Ray: a child process, a worker node, the root. Each recovers by itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import ray
from faults.running_federation import TENANT, Federation
from faults.table import Row
from patience import eventually

import dag
from dag.store.remote import Run
from federation.child.deadlines import Deadlines
from federation.child.heartbeat_jitter import interval_ms
from mesh.core.ids import MeshId

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 240.0
#: Times of the issue: short enough that a restart of a few seconds is a large part of it.
BRIEF_MS, BRIEF_HEARTBEAT_MS = 10_000, 1_000
RESTARTS = 4
WIDTH = 10
EAST, WEST = {"zone": "east"}, {"zone": "west"}


def config(ttl: str) -> str:
    """A head, where the root is and `west` works, and a worker node for `east`."""
    pools = "pools: {general: {flavor: standard, capacity: {cpu: 2}}}"
    return f"""
federation: {{name: recovery, lease_ttl: {ttl}, heartbeat: {BRIEF_HEARTBEAT_MS}ms, lease_grace: 3s}}
root: {{cluster: only, port: 18800}}
routing: {{probation: 500ms, probation_max: 2s}}
import_paths: ["{REPOSITORY}"]
clusters:
  only:
    shared: true
    object_store: 120MiB
    nodes: [{{cpu: 2, labels: {{zone: west}}}}, {{cpu: 2, labels: {{zone: east}}, resources: {{lamp: 1}}}}]
flavors: {{standard: {{}}}}
meshes:
  east: {{cluster: only, node_labels: {{zone: east}}, labels: {{zone: east}}, {pools}}}
  west: {{cluster: only, node_labels: {{zone: west}}, labels: {{zone: west}}, {pools}}}
tenants:
  {TENANT}: {{quotas: {{standard: {{cpu: {{nominal: 4}}}}}}, pickled_code: true}}
"""


def note(folder: str, name: str) -> str:
    """Log each execution; return when the named gate is open."""
    with Path(folder, f"{name}.starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(folder, "gate").exists():
        time.sleep(0.02)
    return name


def after(folder: str, name: str, _before: str, seconds: float) -> str:
    with Path(folder, f"{name}.starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return name


def starts(folder: Path, name: str) -> int:
    lines = folder / f"{name}.starts"
    return len(lines.read_text().splitlines()) if lines.exists() else 0


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    federation = Federation(tmp_path_factory.mktemp("brief"), config(f"{BRIEF_MS}ms"))
    yield federation
    federation.close()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Settings under which no session expires, however busy the machine is."""
    federation = Federation(tmp_path_factory.mktemp("patient"), config("60s"))
    yield federation
    federation.close()


@dataclass
class Polls:
    """Answers to a client that polls a run."""

    federation: Federation
    run: Run
    seen: dict[str, int] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Polls:  # noqa: PYI034  `Self` needs Python 3.11
        self._thread = threading.Thread(target=self._poll, name="polls")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def _poll(self) -> None:
        access = self.federation.client.access
        headers = {"Authorization": f"Bearer {access.api_key}"}
        while not self._over.wait(0.03):
            try:
                answer = httpx.get(f"{access.address}{self.run.path}", headers=headers, timeout=60)
            except httpx.TransportError as gone:
                self._note(type(gone).__name__)
                continue
            self._note(str(answer.status_code))
            if answer.status_code != 200 and not (answer.status_code == 503 and answer.headers.get("Retry-After")):
                self.odd.append(f"{answer.status_code} {answer.text[:200]}")

    def _note(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1


def submit(federation: Federation, outputs: Any) -> Run:
    return federation.client.submit(outputs, by_value=(sys.modules[__name__],))


def attempts(run: Run) -> dict[str, int]:
    """Return the successful attempt of each succeeded node."""
    return {event.node: event.attempt for event in run.events() if event.kind == "node" and event.after == "SUCCEEDED" and event.node}


def raylet_of(session: int) -> psutil.Process:
    (found,) = [process for process in processes_of(session) if process.name() == "raylet"]
    return found


def processes_of(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def wait_until(check: Callable[[], Any]) -> None:
    eventually(check, LIMIT_S)


def test_fault_01_child_back_in_time_resumes_on_a_short_lease(brief: Federation, tmp_path: Path, row: Row) -> None:
    """The machine decides whether it is back in time; that it then resumes and repeats no attempt is ours."""
    longest_ms = max(interval_ms(MeshId("east"), number, heartbeat_ms=BRIEF_HEARTBEAT_MS, ttl_ms=BRIEF_MS) for number in range(100))
    bound_s = (Deadlines.of(BRIEF_MS).stop_ms - longest_ms) / 1000
    went_on = in_time = 0
    for turn in range(RESTARTS):
        folder = tmp_path / str(turn)
        folder.mkdir()
        first = dag.task(note, labels=EAST, name="first").bind(str(folder), "first")
        others = {
            f"n{number}": dag.task(after, labels=EAST, name=f"n{number}").bind(str(folder), f"n{number}", first, 0.1 + number / 20)
            for number in range(WIDTH)
        }
        run = submit(brief, others)
        wait_until(lambda folder=folder: starts(folder, "first") == 1)  # type: ignore[misc]
        before = len(brief.joins("east"))
        (folder / "gate").touch()
        wait_until(lambda folder=folder: any(starts(folder, f"n{number}") for number in range(WIDTH)))  # type: ignore[misc]
        killed_s = time.time()
        os.kill(brief.pid("east"), signal.SIGKILL)
        run.result(LIMIT_S)
        wait_until(lambda before=before: len(brief.joins("east")) > before)  # type: ignore[misc]
        joined_s, goes_on = brief.joins("east")[before]
        in_time += joined_s - killed_s < bound_s
        went_on += goes_on
        assert goes_on or joined_s - killed_s >= bound_s, f"it joined {joined_s - killed_s:.1f} s after its death, and did not go on"
        numbers = attempts(run)
        twice = {name: (starts(folder, name), number) for name, number in numbers.items() if starts(folder, name) > number}
        assert not twice, "executions and the number of the last attempt"
        brief.stack.restarts.note_start("mesh east", time.monotonic() - 10_000)  # As if it had lived for long.
    assert in_time, f"none of {RESTARTS} was back within {bound_s:.1f} s: nothing is shown of going on"
    row.held(f"{in_time} of {RESTARTS} were back within {bound_s:.1f} s, {went_on} went on; no attempt was executed twice")


def test_fault_48_the_raylet_of_a_worker_node_is_killed(patient: Federation, tmp_path: Path, row: Row) -> None:
    stack = patient.stack
    cluster = stack.clusters["only"]
    west = submit(patient, dag.task(note, labels=WEST, name="west").bind(str(tmp_path), "west"))
    east = submit(patient, dag.task(note, labels=EAST, name="east").bind(str(tmp_path), "east"))
    wait_until(lambda: (starts(tmp_path, "west"), starts(tmp_path, "east")) == (1, 1))
    assert stack.root is not None
    head, dead = cluster.pids
    others = (head, stack.root.pid, patient.pid("west"), patient.pid("east"))
    with Polls(patient, west) as polls:
        raylet_of(dead).kill()
        wait_until(lambda: any("worker node 1 is up again" in words for words in patient.said))
        assert processes_of(dead) == []
        wait_until(lambda: starts(tmp_path, "east") == 2)
        (tmp_path / "gate").touch()
        assert [run.result(LIMIT_S) for run in (west, east)] == ["west", "east"]
    assert (polls.odd, set(polls.seen)) == ([], {"200"})
    assert stack.root is not None
    assert (cluster.pids[0], stack.root.pid, patient.pid("west"), patient.pid("east")) == others
    assert attempts(west) == {"west": 1}
    assert attempts(east)["east"] >= 2
    cluster.connect()
    try:
        alive = [node for node in ray.nodes() if node["Alive"] and node["Labels"].get("zone") == "east"]
        assert [(node["Resources"]["CPU"], node["Resources"]["lamp"]) for node in alive] == [(2.0, 1.0)]
    finally:
        ray.shutdown()
    row.held(f"the node is back with its labels, its work ran again, {polls.seen['200']} of {polls.seen['200']} polls were answered 200")


def test_fault_49_root_is_killed_during_submissions(patient: Federation, tmp_path: Path, row: Row) -> None:
    stack = patient.stack
    run = submit(patient, dag.task(note, labels=WEST, name="slow").bind(str(tmp_path), "slow"))
    wait_until(lambda: starts(tmp_path, "slow") == 1)
    assert stack.root is not None
    before = stack.root.pid
    with Polls(patient, run) as polls:
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: stack.root is not None and stack.root.pid != before)
        assert stack.root is not None
        stack.root.wait_ready(LIMIT_S)
        (tmp_path / "gate").touch()
        assert run.result(LIMIT_S) == "slow"
    assert polls.odd == []
    row.held(f"its process alone: {polls.seen}")


def test_fault_49_cluster_of_the_root_is_killed(patient: Federation, tmp_path: Path, row: Row) -> None:
    stack = patient.stack
    run = submit(patient, dag.task(note, labels=WEST, name="slow").bind(str(tmp_path), "slow"))
    wait_until(lambda: starts(tmp_path, "slow") == 1)
    old = stack.clusters["only"]
    with Polls(patient, run) as polls:
        raylet_of(old.pids[0]).kill()
        wait_until(lambda: stack.clusters["only"] is not old)
        (tmp_path / "gate").touch()
        assert run.result(LIMIT_S) == "slow"
        wait_until(lambda: polls.seen.get("200", 0) > 0)
    assert polls.odd == []
    row.held(f"cluster, Serve and root: {polls.seen}; result() waited")
