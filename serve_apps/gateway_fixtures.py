"""A gateway on stores in memory, called within the process: for tests of the HTTP interface without a server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx
from fastapi import FastAPI

from dag.backlog import BACKLOG_LIMITS, BacklogLimits
from dag.coordinator import Coordinator
from dag.run.run_events import RunEvent
from dag.run.runs import RunChange, RunRecord, StageRecord
from dag.run.states import NodeState, RunState, StageState
from dag.schedules.controller import ScheduleController
from dag.schedules.schedule import SCHEDULE_LIMITS, ScheduleLimits
from dag.store.client_access import Access
from dag.store.memory import MemoryEventFeed, MemoryRunStore
from dag.store.memory_cache import MemoryCacheStore
from dag.store.memory_schedules import MemoryScheduleStore
from dag.store.memory_webhooks import MemoryWebhooks
from dag.store.remote import Client
from federation.api_keys import Role
from federation.configured_meshes import NO_CONFIGURED_MESHES, ConfiguredMeshes
from federation.durability import Durability
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.change_log import MemoryChangeLog
from federation.store.memory.durability import MemoryDurability
from federation.store.memory.key_ring import MemoryKeyRing
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.run_log import MemoryRunLog
from federation.store.memory.store import MemoryStore
from federation.store.memory.usage import MemoryUsage
from federation.tenants import Quota, Tenant, TenantTree
from federation.usage.keeper import UsageKeeper
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import Failure
from mesh.stages.spec import StageSpec
from serve_apps.requests.auth import issue
from serve_apps.root.gateway import Dependencies, create_app

NOW_MS = 1_700_000_000_000
ADDRESS = "http://root.test"
ACME, RESEARCH, SALES, RIVAL = (TenantPath(path) for path in ("acme", "acme/research", "acme/sales", "rival"))
STANDARD = FlavorName("standard")
EAST = MeshId("east")
ONE_CPU = ResourceSet.of({"cpu": 1})

TENANTS = (
    Tenant(path=ACME, parent=None, quotas={(STANDARD, "cpu"): Quota(nominal=40_000)}, functions=("examples.*:*",), pickled_code=True),
    Tenant(path=RESEARCH, parent=ACME, quotas={(STANDARD, "cpu"): Quota(nominal=20_000)}, functions=("examples.*:*",), pickled_code=True),
    Tenant(path=SALES, parent=ACME, functions=("examples.*:*",), pickled_code=False),
    Tenant(path=RIVAL, parent=None, functions=("*:*",), pickled_code=True),
)


class InProcess(httpx.BaseTransport):
    """httpx transport to an ASGI application, with one event loop per request; responses arrive complete."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        answer = await httpx.ASGITransport(self._app, raise_app_exceptions=False).handle_async_request(asked)
        return httpx.Response(answer.status_code, headers=answer.headers, content=b"".join([part async for part in answer.aiter_raw()]))


@dataclass(slots=True)
class GatewayWorld:
    """Stores in memory, the gateway on them, and a key for each tenant (and `*`)."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS))
    body_limit_bytes: int = 1 << 20
    storage_url: str = ""
    limits: BacklogLimits = BACKLOG_LIMITS
    schedule_limits: ScheduleLimits = SCHEDULE_LIMITS
    memory_percent: int = 0
    durable: MemoryDurability = field(default_factory=MemoryDurability)
    durability: Durability = Durability.D0
    configured_meshes: ConfiguredMeshes = NO_CONFIGURED_MESHES
    snapshot_ttl_ms: int = 0
    store: MemoryStore = field(init=False)
    registry: MemoryRegistry = field(init=False)
    tenant_policies: MemoryTenantPolicies = field(init=False)
    runs: MemoryRunStore = field(init=False)
    run_log: MemoryRunLog = field(init=False)
    cache: MemoryCacheStore = field(init=False)
    schedules: MemoryScheduleStore = field(init=False)
    webhooks: MemoryWebhooks = field(init=False, default_factory=MemoryWebhooks)
    usage: MemoryUsage = field(init=False)
    changes: MemoryChangeLog = field(init=False)
    keys: MemoryKeyRing = field(init=False)
    app: FastAPI = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock, ttl_ms=10_000, grace_ms=3_000)
        self.store.configure(TenantTree(TENANTS))
        self.registry = MemoryRegistry()
        self.tenant_policies = MemoryTenantPolicies()
        self.runs = MemoryRunStore(self.store, self.limits, lambda: self.memory_percent)
        self.run_log = MemoryRunLog(self.store)
        self.cache = MemoryCacheStore(self.store, self.runs)
        self.schedules = MemoryScheduleStore(self.schedule_limits, self.runs)
        self.usage = MemoryUsage(self.store)
        self.changes = MemoryChangeLog()
        self.keys = MemoryKeyRing()
        self.app = create_app(self.dependencies())

    def coordinator(self) -> Coordinator:
        """Return a coordinator on the same stores, which keeps all runs and leaves files alone."""
        return Coordinator(
            runs=self.runs,
            queue=self.store,
            ledger=self.store,
            registry=self.registry,
            tenant_policies=self.tenant_policies,
            blobs=self.store,
            clock=self.clock,
            on_end=lambda _: None,
            delete=lambda _run, _uri: None,
            clear=lambda _run, _keep: None,
            fetch=lambda _run, _stored: b"",
            retention_ms=10**9,
            configured_meshes=self.configured_meshes,
        )

    def controller(self) -> ScheduleController:
        """Return a controller of schedules on the same stores."""
        return ScheduleController(schedules=self.schedules, runs=self.runs, clock=self.clock)

    def keeper(self) -> UsageKeeper:
        """Return a keeper of use on the same stores."""
        return UsageKeeper(store=self.usage, clock=self.clock)

    def dependencies(self) -> Dependencies:
        """Return the gateway's dependencies."""
        return Dependencies(
            runs=self.runs,
            ledger=self.store,
            registry=self.registry,
            tenant_policies=self.tenant_policies,
            queue=self.store,
            blobs=self.store,
            run_log=self.run_log,
            cache=self.cache,
            schedules=self.schedules,
            webhooks=self.webhooks,
            usage=self.usage,
            changes=self.changes,
            feed=MemoryEventFeed(self.runs),
            keys=self.keys,
            body_limit_bytes=self.body_limit_bytes,
            storage_url=self.storage_url,
            ledger_id="ours",
            configured_meshes=self.configured_meshes,
            clock=self.clock,
            snapshot_ttl_ms=self.snapshot_ttl_ms,
            durable=self.durable,
            durability=self.durability,
        )

    def http(self, tenant: str | None = RESEARCH, user: str = "", role: Role = Role.OPERATOR) -> httpx.Client:
        """Return an HTTP client with a new key of the tenant, user and role; without a key for None."""
        key = issue(self.keys, TenantPath(tenant), NOW_MS, user, role=role) if tenant is not None else None
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        return httpx.Client(transport=InProcess(self.app), base_url=ADDRESS, headers=headers)

    def client(self, tenant: str = RESEARCH) -> Client:
        """Return the Python client with a new key of the tenant."""
        access = Access(address=ADDRESS, api_key="in the headers", tenant=tenant if tenant != "*" else None)
        return Client(access, http=self.http(tenant), patience_s=0)

    def move(self, run: str, state: RunState, *, nodes: Mapping[str, Mapping[str, Any]] | None = None, **fields: Any) -> RunRecord:
        """Write what a coordinator would: fields of the run and of nodes, with an event for each."""
        record = self.record(run)
        events = [self._event(record, "run", record.state.value, state.value)]
        record.state = state
        for name, value in fields.items():
            setattr(record, name, value)
        for node, changed in (nodes or {}).items():
            kept = record.nodes[NodeId(node)]
            before = kept.state
            for name, value in changed.items():
                setattr(kept, name, value)
            events.insert(-1, self._event(record, "node", before.value, kept.state.value, node))
        record.seq += len(events)
        numbered = tuple(replace(event, seq=record.seq - len(events) + place) for place, event in enumerate(events, start=1))
        change = RunChange(nodes=record.nodes.take_changes(), stages=tuple(record.stages.values()), events=numbered)
        if not self.runs.commit(record, change):
            raise AssertionError(f"run {run} was written concurrently")
        return record

    def record(self, run: str) -> RunRecord:
        """Return the run as it is stored."""
        return cast(RunRecord, self.runs.load(RunId(run)))

    def start(self, run: str, *nodes: str, mesh: MeshId = EAST) -> None:
        """Start a stage of these nodes on the mesh."""
        stage = StageRecord(
            stage=StageId(f"{run}.1"),
            mesh=mesh,
            level=0,
            nodes=tuple(map(NodeId, nodes)),
            state=StageState.RUNNING,
            cluster="c1",
            slots=2,
            why_here="ONLY_FEASIBLE_MESH east/general",
            sent_ms=NOW_MS,
            started_ms=NOW_MS,
        )
        placed = {"state": NodeState.RUNNING, "stage": stage.stage, "mesh": mesh, "started_ms": NOW_MS}
        self.move(run, RunState.RUNNING, nodes=dict.fromkeys(nodes, placed), stages={stage.stage: stage})

    def succeed(self, run: str, values: Mapping[str, object]) -> None:
        """End the run with these values: as JSON if possible, else pickled."""
        done = {node: {"state": NodeState.SUCCEEDED, "stored": self.keep(run, value)} for node, value in values.items()}
        self.move(run, RunState.SUCCEEDED, nodes=done, ended_ms=NOW_MS + 1_000)

    def fail(self, run: str, node: str, error: Exception, skipped: tuple[str, ...] = ()) -> None:
        """End the run with the node's failure."""
        pickled = self.keep(run, error, Encoding.PICKLE)
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        failure = Failure(
            reason=Reason.USER_ERROR,
            type_name=kind,
            message=str(error),
            traceback=f"Traceback: in {node}\n{kind}: {error}",
            pickled=pickled,
        )
        nodes: dict[str, dict[str, Any]] = {
            node: {"state": NodeState.FAILED, "failure": failure, "mesh": EAST, "reason": Reason.USER_ERROR}
        }
        nodes |= {name: {"state": NodeState.SKIPPED, "roots": (NodeId(node),), "reason": Reason.UPSTREAM_FAILED} for name in skipped}
        detail = f"{node}: {kind}: {error}"
        self.move(run, RunState.FAILED, nodes=nodes, ended_ms=NOW_MS + 1_000, reason=Reason.USER_ERROR, detail=detail)

    def keep(self, run: str, value: object, encoding: Encoding | None = None) -> StoredValue:
        """Store the value's bytes where a mesh would store small ones."""
        try:
            data = json.dumps(value).encode() if encoding is not Encoding.PICKLE else pickle.dumps(value)
            stored_as = encoding or Encoding.JSON
        except TypeError:
            data, stored_as = pickle.dumps(value), Encoding.PICKLE
        sha256 = hashlib.sha256(data).hexdigest()
        self.store.put(RunId(run), sha256, data)
        return StoredValue(sha256=sha256, size_bytes=len(data), encoding=stored_as)

    def _event(self, record: RunRecord, kind: str, before: str, after: str, node: str | None = None) -> RunEvent:
        named = NodeId(node) if node is not None else None
        return RunEvent(seq=0, at_ms=self.clock.wall_ms(), run=record.run, kind=kind, node=named, before=before, after=after)


def with_mesh(world: GatewayWorld, *tenants: str) -> None:
    """Add a mesh on which research holds three CPUs, one of them borrowed, and two stages wait."""
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 4, "memory": "1GiB"}), used=ONE_CPU)
    mesh = ManualMesh(world.store, MeshRecord(mesh=EAST, labels={"zone": "east"}, pools=(pool,), cluster="c1", tenants=tenants or ("*",)))
    mesh.acquire(RESEARCH, STANDARD, ONE_CPU, 3)
    for number in (1, 2):
        tenant = RIVAL if number == 1 else RESEARCH
        stage = StageSpec(stage=StageId(f"r.{number}"), run=RunId("r"), tenant=tenant, tasks=(), slot=ONE_CPU, width=1)
        world.store.submit(EAST, stage)
    world.store.explain(mesh.session, (StageId("r.2"),), Reason.QUOTA_EXHAUSTED, "2 cpu short")


def spec_of(*nodes: str, **fields: Any) -> dict[str, Any]:
    """Return a `dag/1` spec of a chain of nodes whose output is the last node."""
    chain: dict[str, Any] = {}
    for number, node in enumerate(nodes):
        chain[node] = {"call": "examples.hello.hello:greet", "args": [{"$ref": nodes[number - 1]}] if number else ["world"]}
    return {"spec": "dag/1", "nodes": chain, "outputs": {nodes[-1]: {"$ref": nodes[-1]}}, **fields}
