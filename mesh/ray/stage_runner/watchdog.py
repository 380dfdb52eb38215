"""A node's watchdog: stops what a mesh runs on the node when the mesh's leases are no longer renewed.

    python -m mesh.ray.stage_runner.watchdog FOLDER KEEPER_PID

A small process of its own, outside Ray: it shares no interpreter, no thread and no parent with the mesh, so a fault that freezes or
kills those does not reach it. It answers requests on a socket in FOLDER, a JSON line each way:

    {"ask": "read_clock"}                                                  -> {"clock_ms": 1234}
    {"ask": "extend_deadline", "incarnation": 7, "clock_ms": 1234, "stop_after_ms": 22000, "kill_after_ms": 29700}
                                                                      -> {"accepted": true, "incarnation": 7, "clock_ms": 5678}
    {"ask": "leave", "incarnation": 7}                                -> {"accepted": true, …}; the watchdog ends

Workers and their children get one SIGTERM at the stop deadline, and repeated SIGKILLs from the kill deadline on.
The first renewal of a later session kills workers that were there before its `clock_ms`. That renewal covers the leases of its own
session only, and those of the earlier session run out, whether its process was stopped in good order or has died. A renewal with
`"since": 7` is the exception: its session has taken over the leases of all sessions from 7 on, and their work continues.
A folder has one watchdog, which holds its lock; another that is started there ends at once and touches nothing.
The watchdog ends at a `leave` request, or when the process KEEPER_PID (the node's raylet) has ended. It kills the work that is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import socketserver
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from mesh.core.clock import Clock, EnduringClock
from mesh.ray.worker.watch_folder import lock_of, registered, socket_of
from mesh.stages.lease_deadline import DeadlineState, LeaseDeadline, Renewal

#: Longest sleep of the watchdog; seconds. It notices the end of its keeper, and workers that begin without a renewal, within it.
TICK_S = 0.25
#: Time for a client to send its request; seconds.
QUESTION_S = 0.5
QUESTION_BYTES_MAX = 4096


class Watchdog:
    """The watch over one folder; `serve` returns when it ends."""

    def __init__(self, folder: Path, keeper: psutil.Process, clock: Clock) -> None:
        self._folder = folder
        self._keeper = keeper
        self._clock = clock
        self._deadline = LeaseDeadline()
        self._is_over = False
        self._asked: set[int] = set()  #: Processes that got SIGTERM in the current stop.
        self._since_ms: dict[psutil.Process, int] = {}  #: Time at which a worker was first seen.

    def serve(self) -> None:
        """Answer and watch until a `leave` request, or until the keeper has ended."""
        socket_of(self._folder).unlink(missing_ok=True)
        with socketserver.UnixStreamServer(str(socket_of(self._folder)), _asking(self)) as server:
            server.timeout = TICK_S
            while not self._is_over and self._keeper_lives():
                server.handle_request()
                self._watch()
        self._signal_all(signal.SIGKILL)
        socket_of(self._folder).unlink(missing_ok=True)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer a request; the module lists the requests. Raises KeyError, TypeError, ValueError for an invalid one."""
        now_ms = self._clock.monotonic_ms()
        if question["ask"] == "read_clock":
            self._look(now_ms)
            return {"clock_ms": now_ms, "incarnation": self._deadline.incarnation}
        incarnation = int(question["incarnation"])
        if question["ask"] == "leave":
            accepted = self._is_over = incarnation >= self._deadline.incarnation
        else:
            times = {name: int(question[name]) for name in ("clock_ms", "stop_after_ms", "kill_after_ms")}
            renewal = Renewal(incarnation=incarnation, since=int(question.get("since", 0)), **times)
            before = self._deadline.incarnation
            accepted = self._deadline.accept(renewal, now_ms)
            if accepted and not renewal.covers(before):
                self._signal(signal.SIGKILL, [worker for worker, since_ms in self._since_ms.items() if since_ms <= renewal.clock_ms])
        return {"accepted": accepted, "incarnation": self._deadline.incarnation, "clock_ms": now_ms}

    def _look(self, now_ms: int) -> None:
        self._since_ms = {worker: self._since_ms.get(worker, now_ms) for worker in registered(self._folder)}

    def _watch(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._look(now_ms)
        verdict = self._deadline.verdict(now_ms)
        if verdict is DeadlineState.GO_ON:
            self._asked.clear()
        elif verdict is DeadlineState.KILL:
            self._signal_all(signal.SIGKILL)
        else:
            self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        self._signal(number, registered(self._folder))

    def _signal(self, number: signal.Signals, workers: Iterable[psutil.Process]) -> None:
        for worker in workers:
            for process in (*_below(worker), worker):
                if number is signal.SIGKILL or process.pid not in self._asked:
                    self._asked.add(process.pid)
                    with contextlib.suppress(
                        psutil.Error
                    ):  # A process that has ended, or belongs to another user, must not protect the others.
                        process.send_signal(number)

    def _keeper_lives(self) -> bool:
        try:
            return self._keeper.is_running() and self._keeper.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:  # The process exists, but may not be inspected.
            return True


def _below(worker: psutil.Process) -> list[psutil.Process]:
    """Return the worker's descendants."""
    with contextlib.suppress(psutil.Error):
        return worker.children(recursive=True)
    return []


def _asking(watchdog: Watchdog) -> type[socketserver.StreamRequestHandler]:
    class Asking(socketserver.StreamRequestHandler):
        timeout = QUESTION_S

        def handle(self) -> None:
            # An invalid or missing request gets no answer; the watch continues.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                answer = watchdog.answer(json.loads(self.rfile.readline(QUESTION_BYTES_MAX)))
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    return Asking


def main(folder: str, keeper_pid: str) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C in a terminal must not leave work unwatched.
        signal.signal(number, signal.SIG_IGN)
    try:
        keeper = psutil.Process(int(keeper_pid))
    except psutil.NoSuchProcess:
        return
    with lock_of(Path(folder)).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # Two would take each other's socket, and the one without renewals would kill everything, for ever.
            return
        Watchdog(Path(folder), keeper, EnduringClock()).serve()


if __name__ == "__main__":
    main(*sys.argv[1:3])
