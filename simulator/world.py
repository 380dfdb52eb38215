"""A whole federation in one thread and virtual time: the real coordinator, planner, children, schedulers and state machines, on
stores in memory and simulated hosts, with faults drawn from a seed.

Source: TigerBeetle's simulator. The code under test is production code; only clock, network and workers are simulated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dag.coordinator import Coordinator
from dag.run.runs import RunRecord
from dag.store.memory import MemoryRunStore
from federation.child.child_mesh import ChildMesh
from federation.planning.planner_loop import PlannerLoop, TickTimes
from federation.snapshot import MeshRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.store import MemoryStore
from federation.tenants import TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import MeshId, NodeId, RunId
from mesh.stages.hosting import HostReport
from mesh.stages.simulated_host import SimulatedHost
from mesh.stages.spec import TaskSpec

STEP_MS_MAX = 150
LEASE_TTL_MS = 3_000
GRACE_MS = 1_000
HEARTBEAT_MS = 500
TICK_MS = 1_000
LEADER_TTL_MS = 3_000
RETENTION_MS = 3_600_000


#: Wraps a store for a role: `coordinator`, or the name of a mesh. A `Killed` from a call of the wrapped store ends that process.
Tap = Callable[[str, Any], Any]


def _untapped(_role: str, store: Any) -> Any:
    return store


class Killed(BaseException):
    """Death of the process that makes the call. No code under test catches it."""


@dataclass(slots=True)
class SimulatedMesh:
    """Process of one child mesh."""

    record: MeshRecord
    child: ChildMesh | None = None  #: None: the process is dead.
    host: SimulatedHost | None = None
    cursor: str = ""
    resumes_ms: int = 0  #: Paused or dead until this time.
    is_runner_dead: bool = False  #: Its runner does nothing more; its host sees it at the next step.


@dataclass(slots=True, kw_only=True)
class Faults:
    """Fault probabilities per step."""

    kill: float = 0.0  #: A mesh with all its work.
    kill_process: float = 0.0  #: The process alone: its work runs until nobody renews its leases.
    pause: float = 0.0
    coordinator_crash: float = 0.0
    second_coordinator: float = 0.0
    ledger_restart: float = 0.0  #: An epoch begins, and the ledger recovers its leases.
    budget: int = 3  #: Most kills and pauses in one simulation.


@dataclass(frozen=True, slots=True)
class _Root:
    """Coordinator and planner of one root process; several root processes may run at once."""

    coordinator: Coordinator
    planner: PlannerLoop


@dataclass(slots=True)
class World:
    """Meshes under one root. `step` advances time by a random amount and lets every live process work.

    A step raises AssertionError when an attempt of a node starts for the second time.
    """

    seed: int
    tree: TenantTree
    records: tuple[MeshRecord, ...]
    faults: Faults = field(default_factory=Faults)
    failing: frozenset[str] = frozenset()  #: Nodes that fail at every attempt.
    tap: Tap = _untapped
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_000_000))
    ended: list[RunRecord] = field(default_factory=list)

    random_stream: random.Random = field(init=False)
    store: MemoryStore = field(init=False)
    registry: MemoryRegistry = field(init=False)
    tenant_policies: MemoryTenantPolicies = field(init=False)
    runs: MemoryRunStore = field(init=False)
    meshes: dict[MeshId, SimulatedMesh] = field(init=False)
    _roots: list[_Root] = field(init=False)
    _started: set[tuple[RunId, NodeId, int]] = field(default_factory=set)
    _roots_made: int = 0
    _times: TickTimes = field(default_factory=lambda: TickTimes(TICK_MS))

    def __post_init__(self) -> None:
        self.random_stream = random.Random(self.seed)  # noqa: S311  a simulation has to be repeatable, not secret
        self.store = MemoryStore(clock=self.clock, ttl_ms=LEASE_TTL_MS, grace_ms=GRACE_MS)
        self.store.configure(self.tree)
        self.registry = MemoryRegistry()
        self.tenant_policies = MemoryTenantPolicies()
        self.runs = MemoryRunStore(self.store)
        self.meshes = {record.mesh: SimulatedMesh(record) for record in self.records}
        self._roots = [self._new_root()]

    def _new_root(self) -> _Root:
        self._roots_made += 1
        planner = PlannerLoop(self.store, f"root-{self._roots_made}", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=self.tenant_policies)
        tapped = self.tap("coordinator", self.store)
        coordinator = Coordinator(
            runs=self.tap("coordinator", self.runs),
            queue=tapped,
            ledger=tapped,
            registry=self.registry,
            tenant_policies=self.tenant_policies,
            blobs=self.store,
            clock=self.clock,
            on_end=self.ended.append,
            delete=lambda _run, _uri: None,
            clear=lambda _run, _keep: None,
            fetch=lambda _run, _stored: b"",
            retention_ms=RETENTION_MS,
        )
        return _Root(coordinator, planner)

    def behaviour(self, task: TaskSpec) -> tuple[int, bool]:
        """Return the duration of a task in milliseconds, and whether it fails."""
        return (random.Random(f"{self.seed}/{task.node}").randint(1, 800), task.node in self.failing)  # noqa: S311  as above

    def _note_start(self, run: RunId, task: TaskSpec) -> None:
        """Check that an attempt number names only one execution, whatever is lost."""
        started = run, task.node, task.attempt
        if started in self._started:
            raise AssertionError(f"seed {self.seed}: attempt {task.attempt} of node {task.node} of run {run} starts for the second time")
        self._started.add(started)

    @property
    def starts(self) -> Counter[tuple[RunId, NodeId]]:
        """Return the number of starts of each node."""
        return Counter((run, node) for run, node, _ in self._started)

    def kill_coordinator(self) -> None:
        """Kill the root process, and start another one."""
        self._roots = [self._new_root()]

    def kill_child(self, mesh: MeshId, for_ms: int = 0) -> None:
        """Kill the process of a mesh; its workers and its runner live on. The next process starts after this time."""
        self.meshes[mesh].child = None
        self.meshes[mesh].resumes_ms = self.clock.now_ms + for_ms

    def kill_runner(self, mesh: MeshId) -> None:
        """Kill the runner of a mesh, with all that it runs and holds."""
        self.meshes[mesh].is_runner_dead = True

    def step(self) -> None:
        """Advance time a little and let every live process work."""
        self.clock.advance(self.random_stream.randint(1, STEP_MS_MAX))
        self._break_something()
        order = list(self.meshes.values())
        self.random_stream.shuffle(order)
        for mesh in order:
            if self.clock.now_ms >= mesh.resumes_ms:
                try:
                    self._work(mesh)
                except Killed:
                    self.kill_child(mesh.record.mesh)
        for root in tuple(self._roots):
            try:
                root.coordinator.step(0)
            except Killed:
                self.kill_coordinator()
        if self._roots[0].coordinator.has_contest:
            self._times.note_contest(self.clock.now_ms)
        if self.clock.now_ms >= self._times.due_ms():
            self._times.begin()
            seen = self._roots[0].coordinator.survey()
            for root in self._roots:  # Every root plans; the ledger decides which one is the leader.
                root.planner.tick(seen)
            if self._times.is_regular(self.clock.now_ms):
                self._roots[0].coordinator.tend(seen)
            self._times.end(self.clock.now_ms, self.clock.now_ms)

    def _work(self, mesh: SimulatedMesh) -> None:
        if mesh.child is None or mesh.host is None:
            self._boot(mesh)
            return
        reports: list[HostReport] = []
        mesh.host.listen(reports.append)
        if mesh.is_runner_dead:
            mesh.is_runner_dead = False
            mesh.host.kill_runner()
        mesh.host.advance()
        mesh.cursor, notifications = self.store.notifications(mesh.record.mesh, mesh.cursor, 0)
        deliveries = [partial(mesh.child.take_report, report) for report in reports]
        place = self.random_stream.randint(0, len(deliveries))  # Reports stay in order; notifications arrive anywhere between them.
        for deliver in (*deliveries[:place], partial(mesh.child.take_notifications, notifications), *deliveries[place:]):
            deliver()
        if mesh.child.due_in_ms() == 0:
            mesh.child.heartbeat()

    def _boot(self, mesh: SimulatedMesh) -> None:
        if mesh.host is None:
            in_columns = (
                list(self.meshes).index(mesh.record.mesh) % 2 == 0
            )  # Some meshes report as their runners do with short tasks, others task by task.
            mesh.host = SimulatedHost(
                lambda _report: None, self.clock, self.behaviour, mesh.record.mesh, self._note_start, in_columns=in_columns
            )
        reports: list[HostReport] = []
        mesh.host.listen(reports.append)
        if mesh.is_runner_dead:
            mesh.is_runner_dead = False
            mesh.host.kill_runner()
        mesh.host.advance()  # Runs what the watchdogs do meanwhile.
        mesh.cursor, _ = self.store.notifications(mesh.record.mesh, "", 0)
        tapped = self.tap(mesh.record.mesh, self.store)
        mesh.child = ChildMesh(
            record=mesh.record,
            ledger=tapped,
            queue=tapped,
            blobs=tapped,
            host=mesh.host,
            clock=self.clock,
            heartbeat_ms=HEARTBEAT_MS,
        )
        mesh.child.heartbeat()
        for report in reports:
            mesh.child.take_report(report)

    def _break_something(self) -> None:
        for mesh in self.meshes.values():
            if self.faults.budget > 0 and mesh.child is not None and self.random_stream.random() < self.faults.kill:
                self.faults.budget -= 1
                mesh.child, mesh.host = None, None
                mesh.resumes_ms = self.clock.now_ms + self.random_stream.randint(0, 4 * LEASE_TTL_MS)
            elif (
                self.faults.budget > 0
                and mesh.child is not None
                and self.faults.kill_process
                and self.random_stream.random() < self.faults.kill_process
            ):
                self.faults.budget -= 1
                mesh.child = None
                mesh.resumes_ms = self.clock.now_ms + self.random_stream.randint(0, LEASE_TTL_MS)
            elif self.faults.budget > 0 and self.random_stream.random() < self.faults.pause:
                self.faults.budget -= 1
                mesh.resumes_ms = self.clock.now_ms + self.random_stream.randint(0, 4 * LEASE_TTL_MS)
        if self.random_stream.random() < self.faults.coordinator_crash:
            self._roots = [self._new_root()]
        if len(self._roots) == 1 and self.random_stream.random() < self.faults.second_coordinator:
            self._roots.append(self._new_root())
        if self.faults.ledger_restart and self.random_stream.random() < self.faults.ledger_restart:
            self.store.restart()
