"""Guards of a mesh's nodes: an actor per node that passes lease renewals on to the node's watchdog.

The actor is only the way to the node. The watch itself runs in the watchdog's own process, which continues when the actor, its driver
or both have died. A new actor finds the existing watchdog, or starts one.

The actor is detached, so the next process of the mesh finds it by its name. A new worker process would take a second or more of the
time in which that process must renew the leases. The actor ends by itself after a minute without a call.
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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import ray
import structlog
from ray._private.state import available_resources_per_node
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from mesh.core.ids import MeshId, NodeId, NodeName, StageId
from mesh.core.seen_nodes import NodeSeen
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.node_resources import own_resources
from mesh.ray.stage_runner.actor_calls import ActorCalls
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.node_output import take_unread
from mesh.ray.worker import page
from mesh.ray.worker.watch_folder import pages_of, socket_of, watch_folder
from mesh.stages.lease_deadline import Renewal
from mesh.stages.messages import NodeOutput

log = structlog.get_logger(__name__)

#: Time limits for the answer of a watchdog, and for the start of a new one; seconds.
ANSWER_S, START_S = 1.0, 15.0
#: Wait for the nodes' clock readings; seconds. For a slower node the last reading counts.
STAMPS_S = 0.1
#: Wait for what dead workers have left; seconds.
UNREAD_S = 0.5
#: Lifetime of a guard without a call; seconds. Longer than a live process of a mesh is ever silent.
LONELY_S = 60.0
_RAYLET = "raylet"


Nodes = list[dict[str, Any]]

SILENT = "Ray does not list its nodes; the last known nodes are used"
REMEDY = "check that the head of the Ray cluster runs and is not overloaded; work continues, and the request is repeated"


def _of_ray() -> Nodes:
    """Return the nodes as Ray lists them, each with what is available there, and with the bundles of placement groups."""
    nodes: Nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray gives it no types
    available: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]  # the same
    bundles = ray_tables.bundles_by_node()
    for node in nodes:
        node["Available"] = available.get(node["NodeID"], node["Resources"])
        node["Bundles"] = bundles.get(node["NodeID"], ())
    return nodes


class NodeCache:
    """Latest answer of Ray about its nodes. A thread asks, since the calls have no time limit and may block for minutes.

    Args:
        ask: Replaces Ray in tests.
    """

    def __init__(self, ask: Callable[[], Nodes] = _of_ray) -> None:
        self._ask = ask
        self._asked: Future[Nodes] | None = None
        self._nodes: Nodes | None = None

    def look(self, wait_s: float) -> Nodes | None:
        """Return the nodes; the last known nodes when Ray does not answer within `wait_s` seconds. None: Ray has never answered."""
        if self._asked is None:
            self._asked = Future()
            threading.Thread(target=self._answer, args=(self._asked,), name="nodes", daemon=True).start()
        try:
            self._nodes, self._asked = self._asked.result(wait_s), None
        except NotYet:
            log.warning(SILENT, remedy=REMEDY)
        except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
            self._asked = None
            log.warning(SILENT, error=str(away), remedy=REMEDY)
        return self._nodes

    def _answer(self, asked: Future[Nodes]) -> None:
        try:
            asked.set_result(self._ask())
        except BaseException as away:  # noqa: BLE001  the waiting thread gets it
            asked.set_exception(away)


class SingleProcess:
    """Process in a session of its own that outlives this one, and is started again only when it has ended.

    It may take long to answer on a busy machine. One more with each call would make all of them slower.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._last: psutil.Process | None = None

    def ensure(self) -> None:
        """Start the process unless it lives."""
        if self._last is not None and self._lives(self._last):
            return
        # Ray kills the children of a worker that ends. A grandchild whose parent has ended at once is not among them.
        script = ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 & echo $!', "sh", *self._command]
        started = subprocess.run(script, start_new_session=True, check=True, capture_output=True, text=True)
        with contextlib.suppress(psutil.NoSuchProcess):
            self._last = psutil.Process(int(started.stdout))

    def _lives(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False


class NodeGuard:
    """Actor on the node that it guards."""

    def __init__(self, mesh: MeshId) -> None:
        self._folder = watch_folder(mesh)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._called_s = time.monotonic()
        self._watchdog = SingleProcess((sys.executable, "-m", "mesh.ray.stage_runner.watchdog", str(self._folder), str(_raylet_pid())))
        threading.Thread(target=self._end_when_lonely, name="lonely", daemon=True).start()
        with contextlib.suppress(OSError):  # A slow watchdog is asked again with the next renewal.
            self.read_clock()

    def read_clock(self) -> int:
        """Return the watchdog's time, for a renewal that is about to be requested. Start a watchdog where there is none.

        Raises OSError when the watchdog does not answer, or none can be started.
        """
        self._called_s = time.monotonic()
        try:
            return self._read_clock()
        except (FileNotFoundError, ConnectionRefusedError):  # No watchdog was started, or it has ended.
            return self._start()

    def _read_clock(self) -> int:
        return int(self._ask({"ask": "read_clock"})["clock_ms"])

    def _start(self) -> int:
        """Start a watchdog and wait for its answer. Repeat: a new watchdog ends at once while an earlier one has not quite ended."""
        given_up_s = time.monotonic() + START_S
        while True:
            self._watchdog.ensure()
            try:
                return self._await(min(START_S / 3, given_up_s - time.monotonic()))
            except OSError:
                if time.monotonic() >= given_up_s:
                    raise

    def _await(self, patience_s: float) -> int:
        """Return the first answer. Raises OSError when there is none."""
        return Retrying(retry=retry_if_exception_type(OSError), stop=stop_after_delay(patience_s), wait=wait_fixed(0.05), reraise=True)(
            self._read_clock
        )

    def _end_when_lonely(self) -> None:
        """End this process after `LONELY_S` without a call: the process of the mesh has died, and none follows."""
        while (left_s := self._called_s + LONELY_S - time.monotonic()) > 0:
            time.sleep(left_s)
        os._exit(0)  # An actor can exit only within a call, and there is none.

    def extend_deadline(self, renewal: Renewal) -> bool:
        """Pass the renewal on; return whether the watchdog accepted it. Raises OSError when the watchdog does not answer."""
        return bool(self._ask({"ask": "extend_deadline", **asdict(renewal)})["accepted"])

    def culprit(self, name: str) -> tuple[int, int] | None:
        """Return the chunk and the task that a dead worker of this node ran last; `name`: that of its page."""
        return page.culprit(pages_of(self._folder) / Path(name).name)

    def ask_to_stop(self, name: str, chunk: int) -> bool:
        """Ask a worker of this node to stop a chunk; return whether its page is there."""
        return page.ask_to_stop(pages_of(self._folder) / Path(name).name, chunk)

    def leave(self, incarnation: int) -> bool:
        """End the session in good order: the watchdog kills what is left and ends. Raises OSError when the watchdog does not answer."""
        return bool(self._ask({"ask": "leave", "incarnation": incarnation})["accepted"])

    def take_unread(self, stage: StageId, node: NodeId, attempt: int) -> list[NodeOutput]:
        """Return output of a node whose worker has died, as `mesh.ray.user_code.node_output.take_unread`."""
        return take_unread(self._folder, stage, node, attempt)

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ANSWER_S)
            line.connect(str(socket_of(self._folder)))
            with line.makefile("rwb") as file:
                file.write(json.dumps(question).encode() + b"\n")
                file.flush()
                reply = file.readline()
        if not reply:
            raise ConnectionResetError("the watchdog did not answer")
        answer: dict[str, Any] = json.loads(reply)
        return answer


def _raylet_pid() -> int:
    """Return the pid of the node's raylet: the parent of every worker.

    Raises:
        RuntimeAdapterError: This process is not a child of a raylet.
    """
    for process in psutil.Process(os.getpid()).parents():
        if _RAYLET in process.name():
            return process.pid
    raise RuntimeAdapterError("a guard must run in a Ray worker; no raylet is among the parents of this process")


_Guard: Any = ray.remote(num_cpus=0, max_restarts=0)(NodeGuard)


class NodeGuards:
    """All guards of one mesh, for the process that holds its leases. Not safe to use from several threads.

    Args:
        mesh: Its `detached_name`, by which workers register with the watchdogs.
        node_labels: Labels of the nodes that the mesh may use; empty: all of the cluster.
        nodes: The nodes of the cluster; default: as Ray lists them.
        new_guard: Returns the guard of a node, by Ray's id; default: the detached actor there, or a new one.
        calls: Waits for the guards' answers; default: with Ray.
    """

    def __init__(
        self,
        mesh: MeshId,
        node_labels: dict[str, str],
        *,
        nodes: NodeCache | None = None,
        new_guard: Callable[[str], Any] | None = None,
        calls: ActorCalls | None = None,
    ) -> None:
        self._mesh = mesh
        self._node_labels = node_labels
        self._known = nodes or NodeCache()
        self._new_guard = new_guard or self._guard_of
        self._calls = calls or ActorCalls()
        self._there: frozenset[str] = frozenset()  #: Nodes to be guarded, by Ray's ids.
        self.actors: dict[str, Any] = {}  #: Guards by node.
        self._clocks: dict[str, int] = {}  #: The last clock reading of each node.
        self._asked: dict[str, Any] = {}  #: Clock requests without an answer.
        self._reported: dict[str, Any] = {}  #: Renewals on their way, and their answers.
        self._was_answered = False  #: By any node, ever.
        self._guarded: set[str] = set()  #: Nodes whose watchdog has accepted a renewal.
        self._listed: Nodes = []  #: The nodes of the mesh, as Ray listed them.
        self._seen: dict[str, tuple[dict[str, Any], str, NodeSeen]] = {}  #: Last conversion of each row, with the keeper it was for.

    def read_clock(self) -> None:
        """Read the clocks of the nodes: call this right before the ledger is asked for a renewal.

        Waits at most `STAMPS_S`, but `START_S` until any node has answered: a new watchdog kills what runs before its first renewal. The
        next call replaces a guard that has died.
        """
        wait_s = STAMPS_S if self._was_answered else START_S
        self._look(wait_s)
        for node, guard in self.actors.items():
            self._asked.setdefault(node, guard.read_clock.remote())
        ready = self._calls.answered(self._asked.values(), wait_s)
        for node in [node for node, question in self._asked.items() if question in ready]:
            self._take_clock(node, self._asked.pop(node))

    def _take_clock(self, node: str, question: Any) -> None:
        try:
            self._clocks[node] = self._calls.result(question)
            self._was_answered = True
        except OSError as silent:  # The guard is alive; it starts a watchdog where there is none.
            log.warning("a watchdog does not answer", mesh=self._mesh, node=node, error=str(silent))
        except RayError as dead:
            log.warning("a guard has died; it is replaced", mesh=self._mesh, node=node, error=str(dead))
            guard = self.actors[node]
            self._drop(node)
            with contextlib.suppress(RayError, RuntimeError):  # The guard is dead, or ends with this driver.
                self._calls.kill(guard)

    def extend_deadline(self, incarnation: int, stop_after_ms: int, kill_after_ms: int, since: int = 0) -> None:
        """Send the ledger's renewal to every node with a clock reading, without waiting. `since`: see `Renewal`."""
        for node, clock_ms in self._clocks.items():
            renewal = Renewal(
                incarnation=incarnation, clock_ms=clock_ms, stop_after_ms=stop_after_ms, kill_after_ms=kill_after_ms, since=since
            )
            self._reported[node] = self.actors[node].extend_deadline.remote(renewal)

    def unguarded(self, wait_s: float = STAMPS_S) -> frozenset[str]:
        """Return nodes whose watchdog has not accepted the last renewal, or was sent none yet. Wait at most `wait_s` seconds."""
        ready = self._calls.answered(self._reported.values(), wait_s)
        answered = {node for node, answer in self._reported.items() if answer in ready}
        accepted = {node for node in answered if self._is_yes(self._reported[node])}
        self._guarded = (self._guarded - answered) | accepted
        return self._there - accepted

    def nodes(self, keeper: str) -> tuple[NodeSeen, ...]:
        """Return the nodes of the mesh as last listed. The groups of `keeper`, by its actor id, count as available."""
        before, self._seen = self._seen, {}
        for row in self._listed:
            node = row["NodeID"]
            kept = before.get(node)
            is_same = kept is not None and kept[:2] == (row, keeper)  # The conversion of a thousand nodes takes noticeable time.
            self._seen[node] = kept if kept is not None and is_same else (row, keeper, _seen(row, keeper))
        return tuple(seen for _, _, seen in self._seen.values())

    def can_work(self) -> bool:
        """Return whether work may begin on any node. Before its first renewal a watchdog kills new work."""
        return not self._there or bool(self._there & self._guarded)

    def unread_output(self, lost: Sequence[tuple[StageId, NodeId, int]]) -> list[NodeOutput]:
        """Return the output that dead workers have left unread, from whichever nodes. Wait at most `UNREAD_S`. Any thread may call.

        Args:
            lost: The tasks of these workers: stage, node and attempt.
        """
        calls = [guard.take_unread.remote(*task) for task in lost for guard in tuple(self.actors.values())]
        found: list[NodeOutput] = []
        for call in self._calls.answered(calls, UNREAD_S):
            with contextlib.suppress(RayError, RuntimeError):  # The guard has died, or this driver has left the cluster.
                found += self._calls.result(call)
        return found

    def leave(self, incarnation: int) -> None:
        """End all watchdogs, which kill the work that is left; wait for their answers."""
        answers = [guard.leave.remote(incarnation) for guard in self.actors.values()]
        self._calls.answered(answers, ANSWER_S * 2)
        for guard in self.actors.values():
            self._calls.kill(guard)
        for node in tuple(self.actors):
            self._drop(node)
        self._there = frozenset()

    def _look(self, wait_s: float) -> None:
        """Guard nodes that have joined, and forget nodes that have gone."""
        nodes = self._known.look(wait_s)
        if nodes is None:
            return
        listed = [node for node in nodes if node["Alive"] and self._node_labels.items() <= node["Labels"].items()]
        self._listed = listed
        self._there = frozenset(node["NodeID"] for node in listed)
        for node in self._there - self.actors.keys():
            self.actors[node] = self._new_guard(node)
        for node in self.actors.keys() - self._there:
            log.warning("a guarded node is gone", mesh=self._mesh, node=node)
            self._drop(node)

    def _guard_of(self, node: str) -> Any:
        """Return the guard that an earlier process of the mesh left there, or a new one."""
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        name = guard_name(self._mesh, node)
        return _Guard.options(name=name, get_if_exists=True, lifetime="detached", scheduling_strategy=there).remote(self._mesh)

    def _drop(self, node: str) -> None:
        for kept in (self.actors, self._clocks, self._asked, self._reported):
            kept.pop(node, None)
        self._guarded.discard(node)

    def _is_yes(self, answer: Any) -> bool:
        try:
            return bool(self._calls.result(answer))
        except (RayError, OSError):
            return False


def _seen(row: dict[str, Any], keeper: str) -> NodeSeen:
    available = own_resources(row.get("Available", row["Resources"]))
    for creator, bundle in row.get("Bundles", ()):
        if creator == keeper:
            available += own_resources(bundle)
    return NodeSeen(node=NodeName(row["NodeID"]), total=own_resources(row["Resources"]), labels=dict(row["Labels"]), available=available)


def guard_name(mesh: MeshId, node: str) -> str:
    """Return the guard's name in the namespace of the mesh's processes; `node` by Ray's id."""
    return f"guard/{mesh}/{node}"
