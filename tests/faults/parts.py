"""Parts that run in the bed's processes: production child meshes with another host, and roots that sweep and plan.

Work is a real process per slot, started by the mesh's process and registered with a node's real watchdog. A node is a
folder with a watchdog; its keeper (the raylet in production) is an idle process. A folder of the mesh holds the state that
runners keep in production and that outlives the mesh's process: stage notes, processes, and successful ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import structlog
from faults.namespace import enter

from federation.child.child_mesh import ChildMesh
from federation.errors import StoreUnavailable
from federation.leases import LeaseTerms, TargetUpdate
from federation.planning.planner_loop import PlannerLoop
from federation.quota.policies import OnQuotaReduction, QueueSettings, Rules, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.client import connect
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from mesh.core.clock import EnduringClock
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode, encode
from mesh.ray.cluster.process import start_mark
from mesh.ray.stage_runner import watchdog as production_watchdog
from mesh.ray.worker.exporting import ValueUnwritable, export, import_value
from mesh.ray.worker.watch_folder import enlist, socket_of
from mesh.stages.hosting import ANYWHERE, Delivered, FoundStages, GroupLayers, HeldStage, HostReport, Places
from mesh.stages.lease_deadline import Renewal
from mesh.stages.messages import Failure, NodeFailed, NodeSucceeded, StageEnded, StageLost, StageMessage
from mesh.stages.spec import StageSpec
from serve_apps.child_process import _read_notifications, _work

log = structlog.get_logger(__name__)

#: Thirty seconds and the protocol's other times, ten times faster.
TERMS = LeaseTerms(ttl_ms=3_000, grace_ms=1_000, max_step_ms=500)
HEARTBEAT_MS, TICK_S, ANSWER_MS = 300, 0.1, 500
LEADER_TTL_MS = 1_000
#: No minimum run time; a quota cut preempts at once.
ORDERS = TenantPolicies(rules=Rules(min_run_ms=0), settings={"lab": QueueSettings(on_quota_reduction=OnQuotaReduction.EVICT)})
FLAVOR = FlavorName("standard")
UID = "bed"
KILL_AFTER_S = 0.7
LOOK_S = 0.02
ANSWER_S = 5.0
#: Time to live for rows without expiry: no process of the bed waits so long on a busy machine.
STEADY_TTL_MS = 60_000
#: Time to live for rows whose fault lasts a part of it: short enough to await, with enough left on a busy machine.
PARTED_TTL_MS = 12_000

#: Return value of a stage of kind `value`.
VALUE_BYTES = b'"' + b"x" * 50_000 + b'"'
VALUE = StoredValue(sha256=hashlib.sha256(VALUE_BYTES).hexdigest(), size_bytes=len(VALUE_BYTES), encoding=Encoding.JSON)

#: Work of a slot after its registration (a line on its input), by its task's function name.
# No process of its own: the oracle would count the moment before its new name.
_WORK = {
    "hold": """trap ': >"$4.$$"; exit 0' USR1; read _ && read _ <>"$0" """,  # Until the test ends it.
    "deaf": """trap 'exit 0' USR1; trap '' TERM; read _ && read _ <>"$0" """,
    "quick": "read _",
    "value": """trap ': >"$4.$$"; exit 0' USR1; read _ && read _ <>"$0" """,  # The same with a value that goes through the store.
    "poison": "read _ && kill -SEGV $$",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOrder:
    """Start arguments of a child mesh."""

    mesh: str
    url: str
    slots: int
    nodes: list[str]  #: Folders.
    fifo: str  #: Empty; its name says whose work a process is.
    kept: str  #: Folder of state that outlives the mesh's process.
    ttl_ms: int = TERMS.ttl_ms  #: Time to live of its session.
    namespace: str = ""  #: Its network namespace; empty: the common one.


def ledger_of(url: str, *, uid: str | None = UID, ttl_ms: int = TERMS.ttl_ms, answer_ms: int = ANSWER_MS) -> RedisLedger:
    """Return the bed's ledger; its timeouts are as short as the faults of the rows."""
    return RedisLedger(connect(url, timeout_ms=answer_ms), Keys(), terms=replace(TERMS, ttl_ms=ttl_ms), uid=uid, founding=False)


def record_of(mesh: str, slots: int) -> MeshRecord:
    """Return the record of a mesh with one pool."""
    pool = PoolRecord(pool=PoolName("all"), flavor=FLAVOR, capacity=ResourceSet.of({"cpu": slots}))
    return MeshRecord(mesh=MeshId(mesh), labels={}, pools=(pool,), cluster=mesh)


def idle() -> None:
    """Idle, as the keeper of a node."""
    while True:
        signal.pause()


def watchdog(folder: str, keeper_pid: int) -> None:
    """Run the production watchdog."""
    production_watchdog.main(folder, str(keeper_pid))


def child(order: dict[str, Any]) -> None:
    """Run a child mesh as `serve_apps.child_process` does."""
    arguments = ChildOrder(**order)
    if arguments.namespace:
        enter(arguments.namespace)
    client = connect(arguments.url, timeout_ms=ANSWER_MS)
    stages = RedisStageQueue(client, Keys())
    work: queue.SimpleQueue[Any] = queue.SimpleQueue()
    host = ProcessHost(arguments, work.put)
    mesh = ChildMesh(
        record=record_of(arguments.mesh, arguments.slots),
        ledger=ledger_of(arguments.url, ttl_ms=arguments.ttl_ms),
        queue=stages,
        blobs=RedisBlobs(client, Keys()),
        host=host,
        clock=EnduringClock(),
        heartbeat_ms=HEARTBEAT_MS,
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: (stop.set(), work.put(())))
    threading.Thread(target=_read_notifications, args=(stages, MeshId(arguments.mesh), work.put, stop), daemon=True).start()
    try:
        while not stop.is_set():
            _work(mesh, work)
    finally:
        mesh.leave()


def root(url: str, name: str, ttl_ms: int = TERMS.ttl_ms) -> None:
    """Sweep, and plan while elected; survives every answer of the server."""
    ledger, tenant_policies = ledger_of(url, ttl_ms=ttl_ms), MemoryTenantPolicies()
    tenant_policies.publish(ORDERS)
    planner = PlannerLoop(ledger, name, leader_ttl_ms=LEADER_TTL_MS, tenant_policies=tenant_policies)
    while True:
        try:
            ledger.sweep()
            planner.tick()
        except StoreUnavailable as gone:
            log.warning("no answer", error=str(gone))
        time.sleep(TICK_S)


def planner(url: str, name: str, said: str, target_updates: list[list[Any]]) -> None:
    """Get elected, announce it, and on SIGUSR1 apply a plan made before; write the outcome down."""
    woken = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: woken.set())
    ledger = ledger_of(url)
    token = ledger.elect(name, LEADER_TTL_MS)
    version = ledger.snapshot().version
    pending = Path(f"{said}.pending")
    pending.write_text(f"elected {token}")
    pending.rename(said)
    while not woken.wait(0.05):
        pass
    plan = tuple(
        TargetUpdate(mesh=MeshId(row[0]), tenant=row[1], flavor=FLAVOR, target=ResourceSet.of({"cpu": row[2]})) for row in target_updates
    )
    try:
        Path(said).write_text(f"applied {ledger.plan_apply(token or 0, version, plan)}")
    except Exception as refused:  # noqa: BLE001  whatever it is, it is what the test looks at
        Path(said).write_text(type(refused).__name__)


def writer(folder: str, bytes_max: int, said: str, is_limited: bool) -> None:
    """Write a value that is too large for the disk or (`is_limited`) for a file of this process, then one that fits.

    It writes the outcomes down and lives until it is ended, so that its starter finds it.
    """
    node, url = NodeId("n"), Path(folder).as_uri()
    if is_limited:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
    outcomes = []
    for size_bytes in (bytes_max * 2, bytes_max // 2):
        try:
            stored, _ = export("x" * size_bytes, run=RunId("r"), node=node, storage_url=url, inline_limit_bytes=10)
            outcomes.append("stored" if len(import_value(stored, None)) == size_bytes else "altered")
        except ValueUnwritable as refused:
            outcomes.append(refused.reason.value)
    pending = Path(f"{said}.pending")
    pending.write_text(" ".join(outcomes))
    pending.rename(said)
    idle()


@dataclass(frozen=True, slots=True)
class _Slot:
    """Process, by its id and start time; a child of this process or of a dead one."""

    pid: int
    since: str  #: Its `start_mark`.
    child: subprocess.Popen[bytes] | None = None

    def code(self, ended_well: Path) -> int | None:
        """Return the exit code; None while it runs. Another parent's child succeeded only if it said so, and was killed otherwise."""
        if self.child is not None:
            return self.child.poll()
        with contextlib.suppress(psutil.NoSuchProcess):
            if start_mark(self.pid) == self.since and psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE:
                return None
        return 0 if ended_well.exists() else -signal.SIGKILL

    def signal(self, number: signal.Signals, ended_well: Path) -> None:
        """Send the signal; harmless once it has ended."""
        if self.code(ended_well) is None:
            os.kill(self.pid, number)


@dataclass(slots=True)
class _Stage:
    spec: StageSpec
    token: int
    note: bytes = b""
    slots: list[_Slot] = field(default_factory=list)
    is_cancelled: bool = False
    is_dropped: bool = False  # All processes were stopped, so no report follows.


class ProcessHost:
    """`StageHost` with one process per slot of a stage; sends reports to `report` from threads."""

    def __init__(self, order: ChildOrder, report: Callable[[HostReport], None]) -> None:
        self._order = order
        self._report = report
        self._nodes = [Path(node) for node in order.nodes]
        self._kept = Path(order.kept)
        self._kept.mkdir(exist_ok=True)
        self._line = (0, 0)
        self._stages: dict[StageId, _Stage] = {}
        self._clocks: dict[Path, int] = {}
        self._next_node = 0
        self._guard = threading.Lock()

    def start(
        self,
        spec: StageSpec,
        slots: int,
        token: int,
        blobs: dict[str, bytes],  # noqa: ARG002  the port's; work of the bed reads nothing
        inputs: dict[NodeId, Delivered],  # noqa: ARG002  as above
        note: bytes = b"",
        places: Places = ANYWHERE,  # noqa: ARG002  as above
    ) -> int:
        stage = _Stage(spec=spec, token=token, note=note)
        with self._guard:
            self._stages[spec.stage] = stage
        for _ in range(slots):
            stage.slots.append(self._begin(spec))
        self._keep(stage)
        threading.Thread(target=self._await_end, args=(stage,), daemon=True).start()
        return token

    def shrink(self, stage: StageId, slots: int, *, at_once: bool = False) -> None:
        """Keep all slots: they are busy until the stage ends."""

    def grow(self, stage: StageId, slots: int, note: bytes, places: Places = ANYWHERE) -> None:  # noqa: ARG002  as above
        """Replace the note: the work of the bed has one process per slot from the start."""
        with self._guard:
            found = self._stages.get(stage)
        if found is not None:
            found.note = note
            self._keep(found)

    def _begin(self, spec: StageSpec) -> _Slot:
        what = spec.tasks[0].function.rpartition(":")[2]
        node = self._nodes[self._next_node % len(self._nodes)]
        self._next_node += 1
        ended_well = str(self._kept / spec.stage)
        argv = ["/bin/sh", "-c", _WORK[what], self._order.fifo, spec.tenant, self._order.mesh, spec.stage, ended_well]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
        assert process.stdin is not None
        since = ""
        with contextlib.suppress(psutil.NoSuchProcess, BrokenPipeError):
            since = start_mark(process.pid)
            enlist(node, process.pid)
            process.stdin.write(b"\n")
            process.stdin.flush()
        return _Slot(process.pid, since, process)

    def _keep(self, stage: _Stage) -> None:
        slots = [(slot.pid, slot.since) for slot in stage.slots]
        known = {"spec": encode(stage.spec).decode(), "token": stage.token, "note": stage.note.decode(), "slots": slots}
        pending = self._kept / f".{stage.spec.stage}"
        pending.write_text(json.dumps({**known, "is_cancelled": stage.is_cancelled}))
        pending.rename(self._kept / f"{stage.spec.stage}.json")

    def _ended_well(self, stage: _Stage, slot: _Slot) -> Path:
        return self._kept / f"{stage.spec.stage}.{slot.pid}"

    def _await_end(self, stage: _Stage) -> None:
        while True:
            codes = [slot.code(self._ended_well(stage, slot)) for slot in stage.slots]
            if None not in codes:
                break
            time.sleep(LOOK_S)
        with self._guard:
            if stage.is_dropped:
                return
            self._stages.pop(stage.spec.stage, None)
        has_value = stage.spec.tasks[0].function.endswith(":value")
        blobs = {VALUE.sha256: VALUE_BYTES} if has_value else {}
        messages = tuple(_last_messages(stage, [code or 0 for code in codes], MeshId(self._order.mesh)))
        self._report(HostReport(stage=stage.spec.stage, number=1, messages=messages, blobs=blobs))

    def confirm(self, stage: StageId, number: int) -> None:
        """Do nothing: all reports are sent at the end."""
        if number:
            self._drop(stage)

    def _drop(self, stage: StageId) -> None:
        for file in (self._kept / f"{stage}.json", *self._kept.glob(f"{stage}.*")):
            file.unlink(missing_ok=True)

    def find(self) -> FoundStages | None:
        line = self._kept / "line"
        if not line.exists():
            return None
        incarnation, since = map(int, line.read_text().split())
        for file in self._kept.glob("*.json"):
            known = json.loads(file.read_text())
            spec: StageSpec = decode(StageSpec, known["spec"])
            slots = [_Slot(pid, started) for pid, started in known["slots"]]
            self._stages[spec.stage] = _Stage(spec, known["token"], known["note"].encode(), slots, is_cancelled=known["is_cancelled"])
        found = (
            HeldStage(stage=name, note=stage.note, holder=stage.token, is_cancelled=stage.is_cancelled)
            for name, stage in self._stages.items()
        )
        return FoundStages(incarnation=incarnation, since=since, stages=tuple(found))

    def go_on(self, stages: frozenset[StageId]) -> None:
        for name, stage in tuple(self._stages.items()):
            threading.Thread(target=self._await_end, args=(stage,), daemon=True).start()
            if name not in stages:
                self.cancel(name)

    def deliver(self, stage: StageId, node: NodeId, value: Delivered) -> None:
        """Do nothing: work of the bed needs no inputs."""

    def cancel(self, stage: StageId) -> None:
        with self._guard:
            found = self._stages.get(stage)
        if found is not None:
            found.is_cancelled = True
            self._keep(found)
            self._signal(found, signal.SIGTERM)
            timer = threading.Timer(KILL_AFTER_S, self._signal, (found, signal.SIGKILL))
            timer.daemon = True
            timer.start()

    def forget(self, run: RunId) -> None:
        """Do nothing: no values are kept."""

    def held(self) -> dict[RunId, StageId]:
        return {}

    def keep_groups(self, layers: GroupLayers) -> None:
        """Keep no groups: stages of these processes have none."""

    def is_ready(self) -> bool:
        """Return True: the host needs only this machine."""
        return True

    def stop_all(self) -> None:
        with self._guard:
            stages = list(self._stages.values())
            self._stages.clear()
            for stage in stages:
                stage.is_dropped = True
        (self._kept / "line").unlink(missing_ok=True)
        for stage in stages:
            self._signal(stage, signal.SIGKILL)
            self._drop(stage.spec.stage)

    def _signal(self, stage: _Stage, number: signal.Signals) -> None:
        for slot in stage.slots:
            slot.signal(number, self._ended_well(stage, slot))

    def nodes(self) -> tuple[NodeSeen, ...]:
        return ()

    def read_clock(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(OSError):
                self._clocks[node] = int(ask_watchdog(node, ask="read_clock")["clock_ms"])

    def extend_deadline(self, incarnation: int, stop_after_ms: int, kill_after_ms: int, since: int) -> None:
        if (incarnation, since) != self._line:
            self._line = incarnation, since
            (self._kept / "line").write_text(f"{incarnation} {since}")
        for node, clock_ms in self._clocks.items():
            times = {"clock_ms": clock_ms, "stop_after_ms": stop_after_ms, "kill_after_ms": kill_after_ms}
            renewal = Renewal(incarnation=incarnation, since=since, **times)
            with contextlib.suppress(OSError):
                ask_watchdog(node, ask="extend_deadline", **asdict(renewal))

    def leave(self, incarnation: int) -> None:
        for node in self._nodes:
            with contextlib.suppress(OSError):
                ask_watchdog(node, ask="leave", incarnation=incarnation)


def ask_watchdog(node: Path, **question: Any) -> dict[str, Any]:
    """Return the watchdog's answer.

    Raises:
        OSError: No answer.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_S)
        client.connect(str(socket_of(node)))
        client.sendall(json.dumps(question).encode() + b"\n")
        said = client.makefile("rb").readline()
    if not said:
        raise ConnectionResetError("the watchdog did not answer")
    answer: dict[str, Any] = json.loads(said)
    return answer


def _last_messages(stage: _Stage, codes: list[int], mesh: MeshId) -> list[StageMessage]:
    """Return the outcome; a worker killed by others loses the stage, as with Ray's runners."""
    spec = stage.spec
    task = spec.tasks[0]
    if not stage.is_cancelled and any(code == -signal.SIGKILL for code in codes):
        return [StageLost(stage=spec.stage, mesh=mesh, incarnation=stage.token, reason=Reason.WORKER_LOST)]
    times = {"started_ms": 0, "finished_ms": 0}
    if stage.is_cancelled or any(codes):
        reason = Reason.CANCELLED_BY_USER if stage.is_cancelled else Reason.WORKER_LOST
        failure = Failure(reason=reason, type_name="faults.Ended", message=str(codes))
        return [
            NodeFailed(stage=spec.stage, node=task.node, attempt=task.attempt, failure=failure, **times),
            StageEnded(stage=spec.stage),
        ]
    worker, stored = f"{os.uname().nodename}:{os.getpid()}", VALUE if task.function.endswith(":value") else None
    return [
        NodeSucceeded(stage=spec.stage, node=task.node, attempt=task.attempt, worker=worker, stored=stored, **times),
        StageEnded(stage=spec.stage),
    ]
