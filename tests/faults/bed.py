"""Small federations of real processes: a Redis, roots, child meshes with nodes, and an oracle that watches real use."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import psutil
from faults.namespace import Namespace
from faults.nursery import Nursery
from faults.oracle import CPU, Oracle, Work, work_of
from faults.parts import FLAVOR, HEARTBEAT_MS, STEADY_TTL_MS, TERMS, ChildOrder, ask_watchdog, ledger_of
from faults.proxy import Proxy
from faults.server import PATIENT_MS, Server
from patience import eventually

from federation.dispatch import STAGE_MESSAGES
from federation.snapshot import MeshView
from federation.store.redis.client import connect
from federation.store.redis.keys import Keys
from federation.store.redis.queue import RedisStageQueue
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode
from mesh.ray.worker.watch_folder import socket_of, workers_of
from mesh.stages.messages import StageMessage
from mesh.stages.spec import StageSpec, TaskSpec

LAB, RUN = TenantPath("lab"), RunId("r")
SLOT = ResourceSet.of({"cpu": 1})
PATIENCE_S = 60.0
#: Maximum of keys that a bed may leave: unbounded growth would exceed it (I8).
KEYS_MAX = 400


def tree_of(**nominal: int) -> TenantTree:
    """Return tenants with this many CPUs each; `a__b` is `b` below `a`."""
    paths = {TenantPath(name.replace("__", "/")): slots for name, slots in nominal.items()}
    return TenantTree(
        Tenant(
            path=path,
            parent=TenantPath(path.rpartition("/")[0]) if "/" in path else None,
            quotas={(FLAVOR, "cpu"): Quota(nominal=slots * CPU)},
        )
        for path, slots in paths.items()
    )


class Node:
    """Watchdog and its keeper."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self.folder = folder
        workers_of(folder).mkdir(parents=True)
        self._nursery = nursery
        self.keeper = nursery.start("idle", folder / "keeper.log")
        self.watchdog = self.watch()

    def watch(self) -> psutil.Process:
        """Start a watchdog and wait until it answers."""
        self.watchdog = self._nursery.start("watchdog", self.folder / "watchdog.log", str(self.folder), self.keeper.pid)
        eventually(socket_of(self.folder).exists, PATIENCE_S)
        return self.watchdog

    def watches(self, incarnation: int) -> bool:
        """Return whether the watchdog knows that this session lives."""
        with contextlib.suppress(OSError):
            return bool(ask_watchdog(self.folder, ask="read_clock")["incarnation"] == incarnation > 0)
        return False


class Mesh:
    """Child mesh of the bed, connected to Redis by a proxy or through a network namespace."""

    def __init__(self, bed: Bed, name: str, nodes: int, slots: int, login: str, namespace: Namespace | None) -> None:
        self.name = name
        self.namespace = namespace
        self.proxy = Proxy(bed.server.port)
        self.folder = bed.folder / name
        self.nodes = [Node(bed.nursery, self.folder / str(number)) for number in range(nodes)]
        self._bed = bed
        self._slots = slots
        self._login = f"{login}@" if login else ""
        self.agent = self.begin()

    def begin(self) -> psutil.Process:
        """Start or restart the mesh's own process."""
        order = ChildOrder(
            mesh=self.name,
            url=f"redis://{self._login}{self._client()}/0",
            slots=self._slots,
            nodes=[str(node.folder) for node in self.nodes],
            fifo=self._bed.fifo,
            kept=str(self.folder / "kept"),
            ttl_ms=self._bed.ttl_ms,
            namespace=self.namespace.name if self.namespace is not None else "",
        )
        self.agent = self._bed.nursery.start("child", self.folder / "agent.log", asdict(order))
        return self.agent

    def _client(self) -> str:
        if self.namespace is not None:
            return f"{self.namespace.address}:{self._bed.server.port}"
        return f"127.0.0.1:{self.proxy.port}"

    def work(self) -> list[Work]:
        """Return the running work of the mesh."""
        return [work for work in work_of(self._bed.fifo) if work.mesh == self.name]

    def cut_off(self, is_off: bool = True) -> None:
        """Drop all traffic in both directions; connections stay open."""
        if self.namespace is not None:
            self.namespace.cut(is_off)
            return
        self.proxy.weather.drop_requests = self.proxy.weather.drop_replies = is_off
        if not is_off:
            self.proxy.cut()  # Dropped bytes would be missing in the middle of a stream.

    def said(self) -> str:
        """Return its log."""
        return (self.folder / "agent.log").read_text()

    def processes(self) -> list[psutil.Process]:
        """Return agent, watchdogs and keepers."""
        return [self.agent, *(process for node in self.nodes for process in (node.watchdog, node.keeper))]

    def close(self) -> None:
        """End all processes of the mesh."""
        for process in self.processes():
            kill(process)
        self.proxy.close()
        if self.namespace is not None:
            self.namespace.close()


class Bed:
    """All processes of one row; `close` judges it.

    Args:
        quota: Nominal slots of each tenant.
        limits: The oracle's limits of real use; None: the nominal slots.
        ttl_ms: Time to live of sessions; long enough that none expires unless the row is about expiry.
    """

    def __init__(
        self,
        folder: Path,
        nursery: Nursery,
        *,
        quota: dict[str, int],
        limits: dict[str, int] | None = None,
        server: Server | None = None,
        ttl_ms: int = STEADY_TTL_MS,
    ) -> None:
        self.folder = folder
        self.nursery = nursery
        self.fifo = str(folder / "work")
        os.mkfifo(self.fifo)
        self.server = server or Server(folder / "redis")
        self.ttl_ms = ttl_ms
        self.ledger = ledger_of(self.server.url, ttl_ms=ttl_ms, answer_ms=PATIENT_MS)  #: Stack of the test, around every proxy.
        self.queue = RedisStageQueue(connect(self.server.url, timeout_ms=PATIENT_MS), Keys())
        self.meshes: dict[str, Mesh] = {}
        self.others: list[psutil.Process] = []
        self.quota(**quota)
        self._is_recovered()
        self.oracle = Oracle(self.fifo, self.server.url, limits or quota)
        self.roots = [self.root("root")]
        self._names = itertools.count()
        self._submitted: list[str] = []
        self.may_be_over = False  #: See `Oracle.verdict`.

    def quota(self, **nominal: int) -> None:
        """Put a tree in force."""
        self.ledger.configure(tree_of(**nominal))

    def _is_recovered(self) -> None:
        """Skip recovery of a ledger that was founded a moment ago and so has no leases."""
        self.server.client.hset(Keys().meta, "recovery_ends", "0")

    def root(self, name: str) -> psutil.Process:
        """Start another root."""
        process = self.nursery.start("root", self.folder / f"{name}.log", self.server.url, name, self.ttl_ms)
        self.others.append(process)
        return process

    def mesh(self, name: str, *, nodes: int = 1, slots: int = 4, login: str = "", namespace: Namespace | None = None) -> Mesh:
        """Start a mesh and wait for its session.

        A busy machine may delay the first session until it has expired, so only a renewed session that the watchdogs know counts.

        Args:
            login: User and password for Redis.
            namespace: Network namespace, closed with the mesh.
        """
        mesh = self.meshes[name] = Mesh(self, name, nodes, slots, login, namespace)
        eventually(lambda: self.view(name) is not None and self.heartbeats(name) > 0, PATIENCE_S)
        eventually(lambda: all(node.watches(self.incarnation(name)) for node in mesh.nodes), PATIENCE_S)
        return mesh

    # ---- work

    def submit(self, mesh: str, count: int = 1, *, what: str = "hold", tenant: str = LAB, width: int = 1, priority: int = 0) -> list[str]:
        """Queue stages and return their names."""
        names = [f"{mesh}-{what}-{next(self._names)}" for _ in range(count)]
        self._submitted += names
        for name in names:
            self.queue.submit(MeshId(mesh), spec_of(name, what=what, tenant=tenant, width=width, priority=priority))
        return names

    def runs(self, mesh: str) -> int:
        """Return the slots of the mesh in use."""
        return len(self.meshes[mesh].work())

    def is_running(self, mesh: str, slots: int) -> None:
        """Wait until exactly this many slots of the mesh are in use."""
        eventually(lambda: self.runs(mesh) == slots, PATIENCE_S)

    def finish(self, stages: Iterable[str]) -> None:
        """Let the work of these stages succeed."""
        names = set(stages)
        for work in work_of(self.fifo):
            if work.stage in names:
                eventually(lambda pid=work.pid: catches(pid, signal.SIGUSR1), PATIENCE_S)
                os.kill(work.pid, signal.SIGUSR1)

    # ---- observation

    def stages(self, mesh: str) -> list[str]:
        """Return the mesh's running stages in order of submission."""
        running = {work.stage for work in self.meshes[mesh].work()}
        return [name for name in self._submitted if name in running]

    def silence_ms(self, mesh: str) -> int:
        """Return the time since its last counted heartbeat, on the ledger's clock."""
        return {view.record.mesh: view.heartbeat_age_ms for view in self.ledger.snapshot().meshes}[MeshId(mesh)]

    def lt(self) -> int:
        """Return the lease clock in ms, after a call that has advanced it."""
        self.ledger.snapshot()
        return int(self.server.client.hget(Keys().meta, "lt") or 0)

    def heartbeats(self, mesh: str) -> int:
        """Return the number of its session's counted heartbeats."""
        row = self.server.client.hget(Keys().sessions, mesh) or b"0|0|0|0|0"
        return int(row.split(b"|")[3])

    def is_taken_back(self, mesh: str) -> None:
        """Check I5: a sweep frees everything of the mesh once the lease clock is TTL + G past its last heartbeat."""
        eventually(lambda: self._is_overdue(mesh), PATIENCE_S)
        self.ledger.sweep()
        assert self.held(mesh) == 0

    def _is_overdue(self, mesh: str) -> bool:
        """Return whether its session is gone or overdue."""
        row = self.server.client.hget(Keys().sessions, mesh)
        return row is None or self.lt() > int(row.split(b"|")[2]) + self.ttl_ms + TERMS.grace_ms

    def plans(self) -> int:
        """Return the calls that have set targets."""
        return int(self.server.client.hget(Keys().plan, "number") or 0)

    def is_fresh(self, mesh: str) -> bool:
        """Return whether its session lives and was renewed a moment ago."""
        return self.view(mesh) is not None and self.silence_ms(mesh) < HEARTBEAT_MS * 2

    def view(self, mesh: str) -> MeshView | None:
        """Return the ledger's view of the mesh; None without a live session."""
        views = {view.record.mesh: view for view in self.ledger.snapshot().meshes}
        found = views.get(MeshId(mesh))
        return found if found is not None and found.alive else None

    def incarnation(self, mesh: str) -> int:
        """Return the incarnation of the live session; 0 without one."""
        view = self.view(mesh)
        return view.incarnation if view is not None else 0

    def held(self, mesh: str | None = None) -> int:
        """Return the slots held by leases."""
        leases = self.ledger.snapshot().leases
        return sum(lease.amounts["cpu"] for lease in leases if mesh is None or lease.mesh == mesh) // CPU

    def messages(self) -> list[StageMessage]:
        """Return all messages about stages; no message is acknowledged here."""
        return [message for entry in self.queue.inbox(0, 10_000) for message in decode(STAGE_MESSAGES, entry.body)]

    def reported_for(self, stage: str) -> list[str]:
        """Return the kinds of messages about a stage."""
        return [message.kind for message in self.messages() if message.stage == stage]

    def fate_of(self, stage: str) -> list[str]:
        """Return the same without waiting messages: on a busy machine any stage may wait for an answer."""
        return [kind for kind in self.reported_for(stage) if kind != "stage_waiting"]

    # ---- the end

    def close(self) -> None:
        """Judge the row, then end everything.

        Raises:
            AssertionError: A promise was broken.
        """
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(self._end)
                self.oracle.stop()
                self.oracle.verdict(may_be_over=self.may_be_over)
                self._judge()
        finally:
            left = work_of(self.fifo)
            for work in left:
                with contextlib.suppress(ProcessLookupError):  # It ended in between.
                    os.kill(work.pid, signal.SIGKILL)

    def _judge(self) -> None:
        """Check I2, I4 and I8."""
        assert self.ledger.audit() == ()
        succeeded = Counter(message.stage for message in self.messages() if message.kind == "node_succeeded")
        assert not {stage for stage, times in succeeded.items() if times > 1}, "a stage has had its effect twice"
        ended = Counter(message.stage for message in self.messages() if message.kind in {"stage_ended", "stage_lost"})
        assert not {stage for stage, times in ended.items() if times > 1}, "a stage has ended twice"
        assert self.server.client.dbsize() < KEYS_MAX

    def _end(self) -> None:
        for mesh in self.meshes.values():
            mesh.close()
        for process in self.others:
            kill(process)
        self.server.close()


def spec_of(name: str, *, what: str = "hold", tenant: str = LAB, width: int = 1, priority: int = 0) -> StageSpec:
    """Return a stage of one task with this many slots."""
    task = TaskSpec(node=NodeId("n"), attempt=1, function=f"call:faults:{what}", resources=SLOT)
    return StageSpec(stage=StageId(name), run=RUN, tenant=TenantPath(tenant), tasks=(task,), slot=SLOT, width=width, priority=priority)


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether the process has announced its handler for this signal; an earlier signal would kill it."""
    (mask,) = (line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def kill(process: psutil.Process) -> None:
    """Send SIGKILL and wait for the end; harmless if already gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(PATIENCE_S)
