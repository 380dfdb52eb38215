"""Watchdog of a node: a real process that watches real processes, and guards real raylets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import patience
import psutil
import pytest
import ray

from mesh.core.ids import MeshId
from mesh.ray.cluster.process import start_mark
from mesh.ray.stage_runner import node_guards
from mesh.ray.stage_runner.node_guards import NodeGuards, SingleProcess
from mesh.ray.worker.watch_folder import enlist, register, socket_of, watch_folder, workers_of

LIMIT_S = 90.0
eventually = partial(patience.eventually, patience_s=LIMIT_S)
MESH = MeshId("watched")
LONG_MS = 600_000
#: Shorter than a test waits for the end of unrenewed work.
STOP_MS = 3_000


def is_gone(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


class Bed:
    """Watchdog with a keeper and workers that are processes of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mine: list[subprocess.Popen[bytes]] = []
        workers_of(folder).mkdir()
        self.keeper = self.run("import time; time.sleep(600)")
        self.watch()

    def watch(self) -> None:
        socket_of(self.folder).unlink(missing_ok=True)
        self.watchdog = self.spawn(sys.executable, "-m", "mesh.ray.stage_runner.watchdog", str(self.folder), str(self.keeper.pid))
        eventually(lambda: self.try_to_ask(b'{"ask": "read_clock"}\n') or is_gone(self.watchdog))  # Its socket is there before it listens.

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, start_new_session=True)
        self.mine.append(process)
        return process

    def run(self, code: str) -> subprocess.Popen[bytes]:
        return self.spawn(sys.executable, "-c", code)

    def worker(self, code: str = "import time; time.sleep(600)") -> subprocess.Popen[bytes]:
        process = self.run(code)
        enlist(self.folder, process.pid)
        return process

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send the request until it is answered: a watchdog closes slow connections soon."""
        answer: dict[str, Any] = eventually(lambda: self.try_to_ask(json.dumps(question).encode() + b"\n"))
        return answer

    def try_to_ask(self, line: bytes) -> dict[str, Any]:
        with contextlib.suppress(OSError):
            return self.send(line)
        return {}

    def send(self, line: bytes) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LIMIT_S)
            client.connect(str(socket_of(self.folder)))
            client.sendall(line)
            said = client.makefile("rb").readline()
        answer: dict[str, Any] = json.loads(said) if said else {}
        return answer

    def read_clock(self) -> int:
        return int(self.ask(ask="read_clock")["clock_ms"])

    def extend_deadline(
        self, incarnation: int = 1, stop_after_ms: int = LONG_MS, kill_after_ms: int = LONG_MS, clock_ms: int | None = None
    ) -> bool:
        clock_ms = self.read_clock() if clock_ms is None else clock_ms
        answer = self.ask(
            ask="extend_deadline", incarnation=incarnation, clock_ms=clock_ms, stop_after_ms=stop_after_ms, kill_after_ms=kill_after_ms
        )
        return bool(answer["accepted"])

    def end(self) -> None:
        for process in self.mine:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(tmp_path)
    yield bed
    bed.end()


def test_a_worker_without_renewed_leases_is_killed(bed: Bed) -> None:
    assert bed.extend_deadline()
    ready = bed.folder / "ready"
    begin = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    clock_ms = bed.read_clock()
    deaf = bed.worker(f"{begin}; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)")
    eventually(ready.exists)
    assert deaf.poll() is None
    assert bed.extend_deadline(incarnation=2, stop_after_ms=0, kill_after_ms=1, clock_ms=clock_ms)
    assert deaf.wait(LIMIT_S) == -signal.SIGKILL


def test_a_worker_is_asked_first_and_its_children_with_it(bed: Bed) -> None:
    assert bed.extend_deadline()
    file = bed.folder / "answer"
    polite = f"""
import pathlib, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def leave(*_):
    pathlib.Path({str(file)!r}).write_text(str(child.wait()))
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
pathlib.Path({str(bed.folder / "ready")!r}).touch()
while True:  # `signal.pause()` would not hear what came a moment before.
    time.sleep(0.1)
"""
    clock_ms = bed.read_clock()
    worker = bed.worker(polite)
    eventually((bed.folder / "ready").exists)
    assert bed.extend_deadline(incarnation=2, stop_after_ms=0, kill_after_ms=LONG_MS, clock_ms=clock_ms)
    assert worker.wait(LIMIT_S) == 0
    assert file.read_text() == str(-signal.SIGTERM)


def test_a_later_sessions_first_renewal_ends_earlier_work(bed: Bed) -> None:
    assert bed.extend_deadline(incarnation=1)
    earlier = bed.worker()
    clock_ms = bed.read_clock()
    later = bed.worker()  # Started after the renewal: the new session's own.
    assert bed.extend_deadline(incarnation=1, clock_ms=clock_ms)
    assert earlier.poll() is None
    assert bed.extend_deadline(incarnation=2, clock_ms=clock_ms)
    assert earlier.wait(LIMIT_S) == -signal.SIGKILL
    assert bed.extend_deadline(incarnation=2, clock_ms=clock_ms)
    assert later.poll() is None


def test_a_later_session_keeps_the_work_that_it_recovered(bed: Bed) -> None:
    assert bed.extend_deadline(incarnation=3)
    earlier = bed.worker()
    clock_ms = bed.read_clock()
    times = {"stop_after_ms": LONG_MS, "kill_after_ms": LONG_MS}
    assert bed.ask(ask="extend_deadline", incarnation=7, since=3, clock_ms=clock_ms, **times)["accepted"]
    assert bed.ask(ask="extend_deadline", incarnation=8, since=3, clock_ms=clock_ms, **times)["accepted"]
    assert earlier.poll() is None
    assert bed.ask(ask="extend_deadline", incarnation=9, since=9, clock_ms=clock_ms, **times)["accepted"]
    assert earlier.wait(LIMIT_S) == -signal.SIGKILL


def test_a_process_that_reuses_a_workers_pid_is_left_alone(bed: Bed) -> None:
    stranger = bed.run("import time; time.sleep(600)")
    (workers_of(bed.folder) / str(stranger.pid)).write_text(start_mark(bed.keeper.pid))
    ours = bed.worker()
    assert ours.wait(LIMIT_S) == -signal.SIGKILL  # Nothing was renewed.
    assert stranger.poll() is None
    eventually(lambda: not list(workers_of(bed.folder).iterdir()))


def test_the_watchdog_kills_the_rest_and_ends_with_its_keeper(bed: Bed) -> None:
    assert bed.extend_deadline()
    worker = bed.worker()
    bed.keeper.kill()
    assert bed.watchdog.wait(LIMIT_S) == 0
    assert worker.wait(LIMIT_S) == -signal.SIGKILL
    assert not socket_of(bed.folder).exists()


def test_the_watchdog_ends_on_its_own_sessions_word_only(bed: Bed) -> None:
    assert bed.extend_deadline(incarnation=5)
    assert not bed.ask(ask="leave", incarnation=4)["accepted"]
    assert bed.watchdog.poll() is None
    assert bed.ask(ask="leave", incarnation=5)["accepted"]
    assert bed.watchdog.wait(LIMIT_S) == 0


def test_a_second_watchdog_of_a_folder_ends_without_effect(bed: Bed) -> None:
    assert bed.extend_deadline()
    worker = bed.worker()
    second = bed.spawn(sys.executable, "-m", "mesh.ray.stage_runner.watchdog", str(bed.folder), str(bed.keeper.pid))
    assert second.wait(LIMIT_S) == 0
    assert bed.extend_deadline()
    assert (bed.watchdog.poll(), worker.poll()) == (None, None)


def test_when_a_watchdog_was_killed_another_one_takes_its_place(bed: Bed) -> None:
    bed.watchdog.kill()
    bed.watchdog.wait()
    bed.watch()
    assert bed.extend_deadline()
    assert bed.watchdog.poll() is None


@pytest.mark.parametrize(
    "rubbish", [b"\n", b"{}\n", b"[1]\n", b'{"ask": "extend_deadline"}\n', b"\xff\xfe\n", b"9" * 10_000 + b"\n"], ids=range(6)
)
def test_rubbish_gets_no_answer_and_the_watch_goes_on(bed: Bed, rubbish: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        assert bed.send(rubbish) == {}
    assert bed.extend_deadline()


def test_one_who_connects_and_says_nothing_holds_up_nobody(bed: Bed) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(socket_of(bed.folder)))
        assert bed.extend_deadline(stop_after_ms=0, kill_after_ms=0)


def watchdogs_of(folder: Path) -> list[psutil.Process]:
    """Return the watchdogs of a folder; one that finds it taken ends by itself."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # It ended meanwhile, or is a zombie.
            command = process.cmdline()
            if "mesh.ray.stage_runner.watchdog" in command and str(folder) in command:
                found.append(process)
    return found


def the_watchdog_of(folder: Path) -> psutil.Process:
    """Wait until there is one watchdog, and return it."""
    found: list[psutil.Process] = eventually(lambda: watchdogs if len(watchdogs := watchdogs_of(folder)) == 1 else None)
    return found[0]


@ray.remote(num_cpus=1, max_retries=0)
def work(mesh: MeshId) -> int:
    register(mesh)
    signal.pause()
    return os.getpid()


@ray.remote(num_cpus=0)
class Agent:
    """Actor that holds the guards as the process of a mesh would; tests kill and freeze it."""

    def __init__(self) -> None:
        self.guards = NodeGuards(MESH, {})

    def pid(self) -> int:
        return os.getpid()

    def extend_deadline(self, incarnation: int, after_ms: int, since: int = 0) -> bool:
        """Return whether the node's watchdog accepted it within the guards' limit."""
        self.guards.read_clock()
        self.guards.extend_deadline(incarnation, after_ms, after_ms, since)
        return not self.guards.unguarded()

    def lose_guards(self) -> None:
        for guard in self.guards.actors.values():
            ray.kill(guard)

    def leave(self, incarnation: int) -> None:
        node_guards.ANSWER_S = LIMIT_S  # In this process only: wait for late answers.
        self.guards.leave(incarnation)


@pytest.mark.ray
def test_a_frozen_agents_work_ends_and_a_killed_one_recovers(ray_driver: Any) -> None:
    folder = watch_folder(MESH)
    agent = Agent.remote()
    eventually(lambda: ray.get(agent.extend_deadline.remote(1, LONG_MS)))
    watchdog = the_watchdog_of(folder)
    ray.kill(agent)

    second = Agent.remote()  # The same watchdog, another session.
    eventually(lambda: ray.get(second.extend_deadline.remote(2, LONG_MS)))
    assert the_watchdog_of(folder) == watchdog
    running = work.remote(MESH)
    eventually(lambda: any(file.name.isdigit() for file in workers_of(folder).glob("*")))
    pid = ray.get(second.pid.remote())
    eventually(lambda: ray.get(second.extend_deadline.remote(3, STOP_MS, since=2)))  # The last renewal before it freezes.
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ray.exceptions.WorkerCrashedError):
            ray.get(running, timeout=LIMIT_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    ray.get(second.leave.remote(3))
    eventually(lambda: not watchdogs_of(folder))


@pytest.mark.ray
def test_a_killed_watchdog_and_a_dead_guard_are_replaced(ray_driver: Any) -> None:
    folder = watch_folder(MESH)
    agent = Agent.remote()
    eventually(lambda: ray.get(agent.extend_deadline.remote(1, LONG_MS)))
    first = the_watchdog_of(folder)
    first.suspend()  # From here on it accepts nothing; a dead one might be replaced before the renewal.
    try:
        assert not ray.get(agent.extend_deadline.remote(1, LONG_MS))
    finally:
        first.kill()
    eventually(lambda: first not in watchdogs_of(folder))
    eventually(lambda: ray.get(agent.extend_deadline.remote(1, LONG_MS)))
    second = the_watchdog_of(folder)
    ray.get(agent.lose_guards.remote())
    eventually(lambda: ray.get(agent.extend_deadline.remote(1, LONG_MS)))
    assert the_watchdog_of(folder) == second
    ray.get(agent.leave.remote(1))
    eventually(lambda: not watchdogs_of(folder))


def test_a_second_process_starts_only_after_the_first(tmp_path: Path) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    os.mkfifo(gate)
    process = SingleProcess(("/bin/sh", "-c", f"echo $$ >> {started}; read line < {gate}"))
    for _ in range(3):
        process.ensure()
    (first,) = eventually(lambda: started.exists() and started.read_text().split())
    gate.write_text("end\n")
    eventually(lambda: not psutil.pid_exists(int(first)))
    process.ensure()
    assert eventually(lambda: started.read_text().split()[1:]) != [first]
    gate.write_text("end\n")
