"""For tests and benchmarks: a gateway behind a real HTTP server, and ports whose child verbs pass through it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from dag.run.runs import RunStore, RunSummary
from dag.run.states import RunState
from dag.store.memory import MemoryEventFeed, MemoryRunStore
from dag.store.memory_cache import MemoryCacheStore
from dag.store.memory_schedules import MemoryScheduleStore
from dag.store.memory_webhooks import MemoryWebhooks
from federation.api_keys import KeyRing
from federation.blobs import BlobStore
from federation.dispatch import Claim, ClaimedStage, ClaimStatus, HeldClaim, Notification, QueuedStage, StageQueue
from federation.leases import Acquired, HeartbeatReport, Lease, LeaseAck, LeaseLedger, LedgerResponse, QuotaDemand, Session
from federation.receipts import ReceiptKeys
from federation.run_log import LogEntry, RunLog
from federation.snapshot import MeshRecord
from federation.store.http_link import HttpBlobs, HttpLedger, HttpLink, HttpRunLog, HttpStageQueue
from federation.store.memory.change_log import MemoryChangeLog
from federation.store.memory.durability import MemoryDurability
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.run_log import MemoryRunLog
from federation.store.memory.store import MemoryStore
from federation.store.memory.usage import MemoryUsage
from mesh.core.clock import SystemClock
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING
from mesh.core.values import StoredValue
from mesh.stages.messages import NodeOutput, StageMessage
from mesh.stages.spec import StageSpec
from serve_apps.requests.auth import issue_for_mesh
from serve_apps.requests.dependencies import Dependencies
from serve_apps.root.gateway import create_app

HOST = "127.0.0.1"
STOP_S_MAX = 10.0
#: Much longer than a client keeps a connection, so that after a pause of the machine no call meets a closing connection.
IDLE_S_MAX = 600


#: Long enough for a busy machine.
PATIENCE = 60


class Switchboard:
    """ASGI application that forwards to the application of the current test."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is None:
            raise RuntimeError("no application is plugged in")
        await self.app(scope, receive, send)


@contextmanager
def serving(app: ASGIApp, *, lifespan: Literal["on", "off"] = "off") -> Iterator[str]:
    """Serve the application on a free port within the block, and yield the address.

    Args:
        lifespan: "on": the application starts and stops with the server, and closes its connections then.
    """
    config = uvicorn.Config(
        app, host=HOST, port=0, log_level="critical", lifespan=lifespan, access_log=False, timeout_keep_alive=IDLE_S_MAX
    )
    server = _Server(config)
    thread = threading.Thread(target=server.run, name="uvicorn", daemon=True)
    thread.start()
    server.is_up.wait()
    try:
        yield f"http://{HOST}:{server.port}"
    finally:
        server.should_exit = True
        thread.join(STOP_S_MAX)


class _Server(uvicorn.Server):
    """uvicorn server that reports when and where it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self.port = 0

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.is_up.set()


class AnyRun(MemoryRunStore):
    """Run store that has every run: blob stores do not check whether a run exists."""

    def summary(self, run: RunId) -> RunSummary | None:
        state = RunState.RUNNING
        return RunSummary(run=run, tenant=TenantPath("acme"), state=state, created_ms=0, ended_ms=0, reason=None, detail="", counts={})


@dataclass(slots=True, kw_only=True)
class LinkedMeshes:
    """Meshes that reach these ports only over HTTP, each with its own key."""

    address: str
    keys: KeyRing
    links: dict[MeshId, HttpLink] = field(default_factory=dict)

    def link(self, mesh: MeshId) -> HttpLink:
        """Return the link of the mesh."""
        if mesh not in self.links:
            self.links[mesh] = HttpLink((self.address,), issue_for_mesh(self.keys, mesh, 0), patience=PATIENCE)
        return self.links[mesh]

    def close(self) -> None:
        for link in self.links.values():
            link.close()


def link_app(
    *,
    ledger: LeaseLedger,
    queue: StageQueue,
    blobs: BlobStore,
    keys: KeyRing,
    runs: RunStore | None = None,
    run_log: RunLog | None = None,
    receipts: ReceiptKeys | None = None,
) -> ASGIApp:
    """Build a gateway on these ports, with budgets that no test exhausts."""
    runs = runs or AnyRun(MemoryStore(clock=SystemClock(), ttl_ms=1_000, grace_ms=1_000))
    feed = MemoryEventFeed(MemoryRunStore(MemoryStore(clock=SystemClock(), ttl_ms=1_000, grace_ms=1_000)))
    return create_app(
        Dependencies(
            runs=runs,
            ledger=ledger,
            registry=MemoryRegistry(),
            tenant_policies=MemoryTenantPolicies(),
            durable=MemoryDurability(),
            queue=queue,
            blobs=blobs,
            cache=MemoryCacheStore(MemoryStore(clock=SystemClock(), ttl_ms=1_000, grace_ms=1_000), runs),
            schedules=MemoryScheduleStore(),
            webhooks=MemoryWebhooks(),
            changes=MemoryChangeLog(),
            usage=MemoryUsage(MemoryStore(clock=SystemClock(), ttl_ms=1_000, grace_ms=1_000)),
            run_log=run_log or MemoryRunLog(MemoryStore(clock=SystemClock(), ttl_ms=1_000, grace_ms=1_000)),
            feed=feed,
            keys=keys,
            body_limit_bytes=1_024,
            heartbeat_ms=1,
            receipts=receipts,
            clock=SystemClock(),
        )
    )


class LinkedLedger:
    """Lease ledger whose child verbs pass over HTTP; all other verbs go to the root's ledger."""

    def __init__(self, root: LeaseLedger, meshes: LinkedMeshes) -> None:
        self._root = root
        self._meshes = meshes

    def _of(self, mesh: MeshId) -> HttpLedger:
        return HttpLedger(self._meshes.link(mesh))

    def join(self, record: MeshRecord, *, adopt: int = 0, seen: int = 0) -> Session:
        return self._of(record.mesh).join(record, adopt=adopt, seen=seen)

    def heartbeat(self, session: Session, record: MeshRecord, heartbeat_report: HeartbeatReport) -> LedgerResponse:
        return self._of(session.mesh).heartbeat(session, record, heartbeat_report)

    def leave(self, session: Session) -> None:
        self._of(session.mesh).leave(session)

    def acquire(self, session: Session, demands: tuple[QuotaDemand, ...]) -> Acquired:
        return self._of(session.mesh).acquire(session, demands)

    def release(self, session: Session, parts: tuple[LeaseAck, ...]) -> LedgerResponse:
        return self._of(session.mesh).release(session, parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._root, name)


class LinkedQueue:
    """Stage queue whose child verbs pass over HTTP."""

    def __init__(self, root: StageQueue, meshes: LinkedMeshes) -> None:
        self._root = root
        self._meshes = meshes
        self._queues: dict[MeshId, HttpStageQueue] = {}
        self._holders: dict[StageId, MeshId] = {}  #: Mesh that called about the stage last; a mesh calls only about its own stages.

    def _of(self, mesh: MeshId) -> HttpStageQueue:
        return self._queues.setdefault(mesh, HttpStageQueue(self._meshes.link(mesh), mesh))

    def submit(self, mesh: MeshId, spec: Any) -> bool:
        self._holders[spec.stage] = mesh
        return self._root.submit(mesh, spec)

    def queued(self, mesh: MeshId) -> tuple[StageId, ...]:
        return self._of(mesh).queued(mesh)

    def heads_of(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[QueuedStage, ...]:
        return self._of(mesh).heads_of(mesh, stages)

    def remembered(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[StageId, ...]:
        return self._of(mesh).remembered(mesh, stages)

    def explain(self, session: Session, stages: tuple[StageId, ...], reason: Reason, detail: str) -> None:
        self._of(session.mesh).explain(session, stages, reason, detail)

    def claim(self, session: Session, stage: StageId, lease: Lease | None, slots: int = 1) -> ClaimedStage | None:
        return self._of(session.mesh).claim(session, stage, lease, slots)

    def resume(self, session: Session, claims: tuple[HeldClaim, ...]) -> tuple[ClaimStatus, ...]:
        return self._of(session.mesh).resume(session, claims)

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...], *, after: int = 0) -> int:
        return self._of(claim.mesh).report(claim, batch, messages, after=after)

    def inputs_of(self, stage: StageId) -> dict[NodeId, StoredValue | None]:
        holder = self._holders.get(stage)
        return self._root.inputs_of(stage) if holder is None else self._of(holder).inputs_of(stage)

    def claims_of(self, session: Session) -> tuple[ClaimedStage, ...]:
        return self._of(session.mesh).claims_of(session)

    def notifications(self, mesh: MeshId, cursor: str, wait_ms: int) -> tuple[str, tuple[Notification, ...]]:
        return self._of(mesh).notifications(mesh, cursor, wait_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._root, name)


class LinkedRunLog:
    """Log of runs that meshes write over HTTP; the root reads it."""

    def __init__(self, root: RunLog, meshes: LinkedMeshes) -> None:
        self._root = root
        self._meshes = meshes

    def append(self, claim: Claim, batch: int, output: tuple[NodeOutput, ...]) -> None:
        HttpRunLog(self._meshes.link(claim.mesh)).append(claim, batch, output)

    def read(self, run: RunId, after: int = 0, limit: int = 200) -> tuple[LogEntry, ...]:
        return self._root.read(run, after, limit)


class LinkedBlobs:
    """Blob store whose child verbs pass over HTTP; a mesh that has claimed a stage of each run makes the calls."""

    def __init__(self, root: BlobStore, queue: StageQueue, meshes: LinkedMeshes) -> None:
        self._root = root
        self._queue = queue
        self._link = meshes.link(MeshId("some-mesh"))
        self._over = HttpBlobs(self._link)
        self._session: Session | None = None
        self._claimed: set[RunId] = set()

    def _claim(self, run: RunId) -> None:
        mesh = MeshId("some-mesh")
        self._session = self._session or HttpLedger(self._link).join(MeshRecord(mesh=mesh, labels={}, pools=(), cluster=""))
        stage = StageSpec(stage=StageId(f"{run}.blobs"), run=run, tenant=TenantPath("acme"), tasks=(), slot=NOTHING, width=1)
        self._queue.submit(mesh, stage)
        HttpStageQueue(self._link, mesh).claim(self._session, stage.stage, None)
        self._claimed.add(run)

    def put(self, run: RunId, sha256: str, data: bytes) -> None:
        if run not in self._claimed:
            self._claim(run)
        self._over.put(run, sha256, data)

    def get(self, run: RunId, hashes: tuple[str, ...]) -> dict[str, bytes]:
        return self._over.get(run, hashes)

    def drop(self, run: RunId, sha256: str) -> None:
        self._root.drop(run, sha256)
