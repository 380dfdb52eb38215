"""The guards of a mesh's nodes: an actor per node that keeps its watchdog informed.

The actor is only the way to the node; the watch is in the watchdog's own process, which goes on when the actor, its driver or
both have died. A new actor finds the watchdog that is there and starts one where there is none.

The actor is detached, so the next process of the mesh finds it by its name: starting a worker process for another one takes a second
or more of the time in which that process has to prove the leases again. It ends by itself after a minute in which nobody calls it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

import psutil
import ray
import structlog
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from mesh.errors import RuntimeAdapterError
from mesh.ids import MeshId
from mesh.lease_deadline import Renewal
from mesh.runtime.node_cache import NodeCache
from mesh.runtime.watch_folder import socket_of, watch_folder

log = structlog.get_logger(__name__)

#: How long a watchdog may take to answer, and a new one to be there.
ANSWER_S, START_S = 1.0, 15.0
#: How long the nodes' stamps are waited for; a node that is slower counts from its last one.
STAMPS_S = 0.1
#: How long a guard lives that nobody calls: longer than any process of a mesh that lives is silent.
LONELY_S = 60.0
_RAYLET = "raylet"


class NodeGuard:
    """Lives on the node that it guards."""

    def __init__(self, mesh: MeshId) -> None:
        self._folder = watch_folder(mesh)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._called_s = time.monotonic()
        threading.Thread(target=self._end_when_lonely, name="lonely", daemon=True).start()
        with contextlib.suppress(OSError):  # One that is slow today is asked again with the next proof.
            self.read_clock()

    def read_clock(self) -> int:
        """The watchdog's time, for a proof that is about to be asked for; where there is no watchdog, one is started.

        Raises OSError when it does not answer, or none can be started.
        """
        self._called_s = time.monotonic()
        try:
            return self._read_clock()
        except (FileNotFoundError, ConnectionRefusedError):  # None has been started, or it has ended or was killed.
            return self._start()

    def _read_clock(self) -> int:
        return int(self._ask({"ask": "read_clock"})["clock_ms"])

    def _start(self) -> int:
        """Start one and wait for its answer; again and again, since it ends at once while an earlier one is still about to end."""
        watchdog = [sys.executable, "-m", "mesh.runtime.watchdog", str(self._folder), str(_raylet_pid())]
        given_up_s = time.monotonic() + START_S
        while True:
            # Ray kills the children of a worker that ends; a grandchild whose parent has ended at once is nobody's child.
            subprocess.run(["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *watchdog], start_new_session=True, check=True)
            try:
                return self._await(min(START_S / 3, given_up_s - time.monotonic()))
            except OSError:
                if time.monotonic() >= given_up_s:
                    raise

    def _await(self, patience_s: float) -> int:
        """The first answer. Raises OSError when there is none."""
        return Retrying(retry=retry_if_exception_type(OSError), stop=stop_after_delay(patience_s), wait=wait_fixed(0.05), reraise=True)(
            self._read_clock
        )

    def _end_when_lonely(self) -> None:
        """The process of the mesh has died, and none comes back."""
        while (left_s := self._called_s + LONELY_S - time.monotonic()) > 0:
            time.sleep(left_s)
        os._exit(0)  # An actor may end itself only in a call, and nobody calls.

    def extend_deadline(self, renewal: Renewal) -> bool:
        """Pass the proof on; was it accepted? Raises OSError when nobody answers."""
        return bool(self._ask({"ask": "extend_deadline", **asdict(renewal)})["accepted"])

    def leave(self, incarnation: int) -> bool:
        """The session ends in good order: the watchdog kills what is left and ends. Raises OSError when nobody answers."""
        return bool(self._ask({"ask": "leave", "incarnation": incarnation})["accepted"])

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ANSWER_S)
            line.connect(str(socket_of(self._folder)))
            with line.makefile("rwb") as file:
                file.write(json.dumps(question).encode() + b"\n")
                file.flush()
                said = file.readline()
        if not said:
            raise ConnectionResetError("the watchdog did not answer")
        answer: dict[str, Any] = json.loads(said)
        return answer


def _raylet_pid() -> int:
    """The node's raylet: the parent of every worker.

    Raises:
        RuntimeAdapterError: This process is no child of a raylet.
    """
    for process in psutil.Process(os.getpid()).parents():
        if _RAYLET in process.name():
            return process.pid
    raise RuntimeAdapterError("a guard has to run in a Ray worker; no raylet is among the parents of this process")


_Guard: Any = ray.remote(num_cpus=0, max_restarts=0)(NodeGuard)


class NodeGuards:
    """All guards of one mesh, for the process that holds its leases. Not safe to use from several threads.

    Args:
        mesh: Its `detached_name`, as whoever registers with the watchdogs is told it.
        node_labels: Labels of the nodes that the mesh may use; empty: all of the cluster.
    """

    def __init__(self, mesh: MeshId, node_labels: dict[str, str]) -> None:
        self._mesh = mesh
        self._node_labels = node_labels
        self._known = NodeCache()
        self._there: frozenset[str] = frozenset()  #: Nodes to be guarded, by Ray's ids.
        self._guards: dict[str, Any] = {}  #: Actors by node.
        self._clocks: dict[str, int] = {}  #: The last that each node has given.
        self._asked: dict[str, Any] = {}  #: Questions for a stamp that are not answered.
        self._reported: dict[str, Any] = {}  #: Proofs that are on their way, and their answers.
        self._was_answered = False  #: By any node, ever.
        self._guarded: set[str] = set()  #: Nodes whose watchdog has taken a proof.

    def read_clock(self) -> None:
        """Have the nodes look at their clocks: call this right before the ledger is asked.

        Waits `STAMPS_S` at most; as long as no node has ever answered `START_S`, since a watchdog that has just begun kills what
        runs before its first proof. A guard that has died is made anew by the next call.
        """
        wait_s = STAMPS_S if self._was_answered else START_S
        self._look(wait_s)
        for node, guard in self._guards.items():
            self._asked.setdefault(node, guard.read_clock.remote())
        ready, _ = ray.wait(list(self._asked.values()), num_returns=len(self._asked), timeout=wait_s) if self._asked else ([], [])
        for node in [node for node, question in self._asked.items() if question in ready]:
            self._take_clock(node, self._asked.pop(node))

    def _take_clock(self, node: str, question: Any) -> None:
        try:
            self._clocks[node] = ray.get(question)
            self._was_answered = True
        except OSError as silent:  # The guard said so; it starts another where there is none.
            log.warning("a watchdog does not answer", mesh=self._mesh, node=node, error=str(silent))
        except RayError as dead:
            log.warning("a guard has died; another one takes its place", mesh=self._mesh, node=node, error=str(dead))
            guard = self._guards[node]
            self._drop(node)
            with contextlib.suppress(RayError, RuntimeError):  # It is dead, or goes with this driver.
                ray.kill(guard)

    def extend_deadline(self, incarnation: int, stop_after_ms: int, kill_after_ms: int, since: int = 0) -> None:
        """The ledger has renewed the session: tell every node whose stamp was taken before. Does not wait. `since`: see `Renewal`."""
        for node, clock_ms in self._clocks.items():
            renewal = Renewal(
                incarnation=incarnation, clock_ms=clock_ms, stop_after_ms=stop_after_ms, kill_after_ms=kill_after_ms, since=since
            )
            self._reported[node] = self._guards[node].extend_deadline.remote(renewal)

    def unguarded(self, wait_s: float = STAMPS_S) -> frozenset[str]:
        """Nodes whose watchdog has not accepted the last proof that it was sent, or was sent none yet. Waits so long at most."""
        ready, _ = ray.wait(list(self._reported.values()), num_returns=len(self._reported), timeout=wait_s) if self._reported else ([], [])
        answered = {node for node, answer in self._reported.items() if answer in ready}
        accepted = {node for node in answered if _is_yes(self._reported[node])}
        self._guarded = (self._guarded - answered) | accepted
        return self._there - accepted

    def can_work(self) -> bool:
        """Is there a node where work may begin? Where no proof was taken yet, the watchdog kills what begins."""
        return not self._there or bool(self._there & self._guarded)

    def leave(self, incarnation: int) -> None:
        """End all watchdogs, and what is left of the work with them; waits for their answers."""
        answers = [guard.leave.remote(incarnation) for guard in self._guards.values()]
        ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S * 2) if answers else None
        for guard in self._guards.values():
            ray.kill(guard)
        for node in tuple(self._guards):
            self._drop(node)
        self._there = frozenset()

    def _look(self, wait_s: float) -> None:
        """Guard nodes that have come, forget those that have gone."""
        nodes = self._known.look(wait_s)
        if nodes is None:
            return
        self._there = frozenset(node["NodeID"] for node in nodes if node["Alive"] and self._node_labels.items() <= node["Labels"].items())
        for node in self._there - self._guards.keys():
            self._guards[node] = self._guard_of(node)
        for node in self._guards.keys() - self._there:
            log.warning("a guarded node is gone", mesh=self._mesh, node=node)
            self._drop(node)

    def _guard_of(self, node: str) -> Any:
        """The one that an earlier process of the mesh has left there, or a new one."""
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        name = guard_name(self._mesh, node)
        return _Guard.options(name=name, get_if_exists=True, lifetime="detached", scheduling_strategy=there).remote(self._mesh)

    def _drop(self, node: str) -> None:
        for kept in (self._guards, self._clocks, self._asked, self._reported):
            kept.pop(node, None)
        self._guarded.discard(node)


def guard_name(mesh: MeshId, node: str) -> str:
    """In the namespace of the mesh's processes; `node` by Ray's id."""
    return f"guard/{mesh}/{node}"


def _is_yes(answer: Any) -> bool:
    try:
        return bool(ray.get(answer))
    except (RayError, OSError):
        return False
