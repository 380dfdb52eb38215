"""Cost of a node in the control plane, without client, runner and Ray: processor time of root, child and Redis, and bytes in Redis.

The parts are those of production: `RunStore`, `StageQueue` and the ledger on a real Redis, the coordinator, and a child mesh. Only
the host is a stand-in. It reports the ends of all tasks a few milliseconds of work at a time, by hand, so nothing runs.

A graph fans out from a source and is reduced again; only its last value is an output. Sides differ in the size of the graph and in
how ends are reported. The spec of a run, which its submitter has made, is not counted among the bytes.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import redis
from rich.table import Table

from dag.coordinator import Coordinator
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord
from dag.run.states import RunState
from dag.spec.spec import DagSpec, digest, kept_form, parse
from dag.store.redis_runs import RedisRunStore
from federation.child.child_mesh import ChildMesh
from federation.dispatch import Claim
from federation.leases import LeaseTerms
from federation.link import REPORT, Report
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.fixtures import running_redis
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.policies import RedisTenantPolicies
from federation.store.redis.queue import ChildStageQueue, RedisStageQueue
from federation.store.redis.registry import RedisRegistry
from federation.store.report_parts import parts_of
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import SystemClock
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.wire import encode
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodesSucceeded, NodeStarted, NodeSucceeded, StageEnded, StageMessage
from mesh.stages.simulated_host import SimulatedHost
from mesh.stages.spec import StageSpec
from serve_apps.link.calls import read_call

TURNS = 7
WARM_UPS = 2
#: Tasks of one report of a runner: a chunk of each of four workers.
PER_REPORT = 256
US_MAX, BYTES_MAX = 20.0, 60.0
COLUMNS, SINGLE = "columns", "single messages"
SIDES = ((1_000, COLUMNS), (10_000, COLUMNS), (1_000, SINGLE))
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one side. Times are microseconds of a processor, sizes bytes, both per node."""

    nodes: int
    way: str  #: How ends are reported.
    parts_us: dict[str, float]
    sizes: dict[str, float]

    @property
    def control_us(self) -> float:
        """Time of root and child together, without the submission."""
        return sum(self.parts_us[part] for part in CONTROL)

    @property
    def size_bytes(self) -> float:
        """Bytes that an ended run keeps beside its spec."""
        return sum(size for name, size in self.sizes.items() if name != SPEC)

    @property
    def is_within(self) -> bool:
        """Return whether both limits hold."""
        return self.control_us <= US_MAX and self.size_bytes <= BYTES_MAX


SUBMIT, PLAN, CLAIM, SERVER = "submit", "plan, send", "claim", "Redis"
CHILD_REPORTS, LINK, ROOT_REPORTS = "child: reports", "link", "root: reports"
LOAD, SUMMARY, EVENTS, SPEC = "load", "summary", "events", "spec"
#: Parts that count against `US_MAX`.
CONTROL = (PLAN, CLAIM, CHILD_REPORTS, LINK, ROOT_REPORTS)
PARTS = (SUBMIT, *CONTROL, SERVER, LOAD, SUMMARY, EVENTS)


def measure(turns: int = TURNS) -> list[Found]:
    """Measure all sides, one after the other, on a server of its own."""
    with running_redis() as client:
        bed = ControlBed(client, Keys("bench"))
        return [_measure(bed, nodes, way, turns) for nodes, way in SIDES]


def table(found: list[Found]) -> Table:
    """Return a table with one row per side."""
    title = "a fan of nodes that do nothing, through the control plane: µs of a processor, and bytes in Redis, per node"
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    limits = f"within {US_MAX:g} µs and {BYTES_MAX:g} bytes"
    for column in ("nodes", "ends as", *PARTS, "control", "bytes", limits):
        shown.add_column(column, justify="right")
    for side in found:
        times = (f"{side.parts_us[part]:,.1f}" for part in PARTS)
        within = "yes" if side.is_within else "NO"
        shown.add_row(f"{side.nodes:,}", side.way, *times, f"{side.control_us:,.1f}", f"{side.size_bytes:,.0f}", within)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    sides = {
        f"{side.nodes} nodes, {side.way}": {
            "us": side.parts_us,
            "bytes": side.sizes,
            "control_us": side.control_us,
            "size_bytes": side.size_bytes,
            "is_within": side.is_within,
        }
        for side in found
    }
    return {"name": "control_path", "about": "processor time and bytes of a node in the control plane", "sides": sides}


def _measure(bed: ControlBed, nodes: int, way: str, turns: int) -> Found:
    spec = fan(nodes)
    samples = [bed.run(spec, way) for _ in range(WARM_UPS + turns)][WARM_UPS:]
    parts_us = {part: statistics.median(sample[0][part] for sample in samples) * 1e6 / nodes for part in PARTS}
    sizes = {name: statistics.median(sample[1][name] for sample in samples) / nodes for name in samples[0][1]}
    return Found(nodes=nodes, way=way, parts_us=parts_us, sizes=sizes)


def fan(nodes: int) -> DagSpec:
    """Return a source, nodes that read it, and one that reads these."""
    middle = [f"work-{number}" for number in range(nodes - 2)]
    described = {
        "source": {"call": "work:source"},
        **{node: {"call": "work:one", "args": [{"$ref": "source"}]} for node in middle},
        "reduce": {"call": "work:total", "args": [{"$ref": node} for node in middle]},
    }
    spec = {"spec": "dag/1", "tenant": TENANT, "nodes": described, "outputs": {"total": {"$ref": "reduce"}}}
    return parse(json.dumps(spec).encode())


TENANT, _MESH, _FLAVOR = TenantPath("acme"), MeshId("east"), FlavorName("standard")
_CPU = ResourceSet.of({"cpu": 1})
_OF_TENANT = Tenant(path=TENANT, parent=None, quotas={(_FLAVOR, "cpu"): Quota(nominal=40_000)}, functions=("work:*",))


class _Host(SimulatedHost):
    """Host that runs nothing; the benchmark reports the ends of a stage's tasks itself."""

    def __init__(self) -> None:
        super().__init__(lambda _report: None, SystemClock(), lambda _task: (0, False))
        self.given: list[StageSpec] = []

    def start(self, spec: StageSpec, slots: int, token: int, *_given: Any, **_named: Any) -> int:  # noqa: ARG002  as the port names them
        self.given.append(spec)
        return token


@dataclass(slots=True)
class _Meter:
    """Processor time of this thread, in seconds, by part."""

    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def of(self, part: str, call: Callable[[], R]) -> R:
        begun = time.thread_time()
        answer = call()
        self.spent[part] += time.thread_time() - begun
        return answer


class ControlBed:
    """A root and a child mesh on one Redis; its tenant is `TENANT`.

    Attributes:
        host: Has the stages that were sent to the mesh and not taken from it yet, in `given`.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        clock = SystemClock()
        self.runs, self._queue = RedisRunStore(client, keys), RedisStageQueue(client, keys)
        ledger = RedisLedger(client, keys, terms=LeaseTerms(ttl_ms=600_000, grace_ms=10_000), founding=True)
        ledger.configure(TenantTree([_OF_TENANT]))
        blobs = RedisBlobs(client, keys)
        self.coordinator = Coordinator(
            runs=self.runs,
            queue=self._queue,
            ledger=ledger,
            registry=RedisRegistry(client, keys),
            tenant_policies=RedisTenantPolicies(client, keys),
            blobs=blobs,
            clock=clock,
            on_end=lambda _record: None,
            delete=lambda _run, _uri: None,
            clear=lambda _run, _keep: None,
            fetch=lambda _run, _stored: b"",
            retention_ms=0,
        )
        self.host = _Host()
        pool = PoolRecord(pool=PoolName("general"), flavor=_FLAVOR, capacity=ResourceSet.of({"cpu": 4}))
        self.child = ChildMesh(
            record=MeshRecord(mesh=_MESH, labels={}, pools=(pool,), cluster="c"),
            ledger=ledger,
            queue=ChildStageQueue(client, keys),
            blobs=blobs,
            host=self.host,
            clock=clock,
            heartbeat_ms=200_000,
        )
        self._cursor, _ = self._queue.notifications(_MESH, "", 0)
        self.child.heartbeat()
        self._number = 0

    def run(self, spec: DagSpec, way: str) -> tuple[dict[str, float], dict[str, float]]:
        """Bring one run to its end and read it; return seconds by part, and the bytes that it keeps by kind of key."""
        self._number += 1
        self.child.heartbeat()
        run, meter, served_s = RunId(f"r{self._number}"), _Meter(), self._served_s()
        meter.of(SUBMIT, lambda: self._submit(run, spec))
        meter.of(PLAN, lambda: self.coordinator.step(0))
        meter.of(CLAIM, self.notified)
        while self.host.given:
            stage = self.host.given.pop(0)
            for report in reports_of(stage, way):
                meter.of(CHILD_REPORTS, partial(self.child.take_report, report))
                meter.of(LINK, partial(self._link, stage.stage, report))
                meter.of(ROOT_REPORTS, lambda: self.coordinator.step(0))
        meter.spent[SERVER] = self._served_s() - served_s
        summary = meter.of(SUMMARY, lambda: self.runs.summary(run))
        assert summary is not None
        assert summary.state is RunState.SUCCEEDED, summary
        meter.of(LOAD, lambda: self.runs.load(run))
        meter.of(EVENTS, lambda: self._read_events(run))
        sizes = self._sizes(run)
        self.notified()
        self.runs.retire(SystemClock().wall_ms() + 1_000)
        return meter.spent, sizes

    def _submit(self, run: RunId, spec: DagSpec) -> None:
        record = RunRecord(
            run=run,
            tenant=TENANT,
            digest=digest(spec),
            spec=kept_form(spec),
            created_ms=SystemClock().wall_ms(),
            nodes=NodeTable(map(NodeId, spec.nodes)),
        )
        self.runs.create(record, {})

    def _link(self, stage: StageId, report: HostReport) -> None:
        """Do what a report over HTTP costs beyond one with a key to Redis: its encoding by the child, its checks at the root."""
        claim = Claim(stage=stage, mesh=_MESH, incarnation=1, token=1)
        for number, part in parts_of(report.number, report.messages):
            read_call(REPORT, encode(Report(claim=claim, batch=number, messages=part)), _MESH)

    def notified(self) -> None:
        """Let the mesh read its notifications, and claim what was sent."""
        self._cursor, notifications = self._queue.notifications(_MESH, self._cursor, 0)
        self.child.take_notifications(notifications)

    def _read_events(self, run: RunId) -> None:
        after = 0
        while events := self.runs.events(run, after):
            after = events[-1].seq

    def _sizes(self, run: RunId) -> dict[str, float]:
        keys = self._keys
        kinds = {"run": keys.run(run), "nodes": keys.run_nodes(run), "stages": keys.run_stages(run), "events": keys.run_events(run)}
        sizes = {kind: float(self._client.memory_usage(key, samples=0) or 0) for kind, key in kinds.items()}
        spec = float(cast(int, self._client.hstrlen(keys.run(run), "spec")))
        sizes["run"] -= spec
        return {**sizes, SPEC: spec}

    def _served_s(self) -> float:
        cpu = self._client.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def reports_of(spec: StageSpec, way: str, per_report: int = PER_REPORT) -> Iterator[HostReport]:
    """Yield the reports of a runner that ends all tasks in order."""
    now_ms = SystemClock().wall_ms()
    number = 0
    for first in range(0, len(spec.tasks), per_report):
        number += 1
        tasks = range(first, min(first + per_report, len(spec.tasks)))
        ends = _ends(spec, tasks, now_ms) if way == COLUMNS else _single_ends(spec, tasks, now_ms)
        yield HostReport(stage=spec.stage, number=number, messages=ends)
    yield HostReport(stage=spec.stage, number=number + 1, messages=(StageEnded(stage=spec.stage),))


def _ends(spec: StageSpec, tasks: range, now_ms: int) -> tuple[StageMessage, ...]:
    started = tuple(task % 40 for task in tasks)
    took = tuple(task % 3 for task in tasks)
    worker = tuple(task % 4 for task in tasks)
    workers = tuple(f"10.0.0.1:{number}" for number in range(4))
    return (
        NodesSucceeded(stage=spec.stage, tasks=tuple(tasks), since_ms=now_ms, started=started, took=took, workers=workers, worker=worker),
    )


def _single_ends(spec: StageSpec, tasks: range, now_ms: int) -> tuple[StageMessage, ...]:
    messages: list[StageMessage] = []
    for task in tasks:
        node = spec.tasks[task].node
        messages.append(NodeStarted(stage=spec.stage, node=node, attempt=1, started_ms=now_ms))
        messages.append(
            NodeSucceeded(
                stage=spec.stage, node=node, attempt=1, started_ms=now_ms, finished_ms=now_ms + task % 3, worker=f"10.0.0.1:{task % 4}"
            )
        )
    return tuple(messages)
