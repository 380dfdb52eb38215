"""A store with one child mesh, and the operations that child tests share."""

from __future__ import annotations

import hashlib
import json

from federation.child.child_mesh import IDLE_HEARTBEATS, ChildMesh
from federation.child.stage_plugins import StagePlugins
from federation.dispatch import STAGE_MESSAGES, NotificationKind
from federation.errors import StoreUnavailable
from federation.leases import Session
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode
from mesh.preemption.stage_preemption import NEVER_PREEMPTS
from mesh.stages.simulated_host import SimulatedHost
from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_settings import StageSettings

CPU = ResourceSet.of({"cpu": 1})
TTL_MS, GRACE_MS, HEARTBEAT_MS = 3_000, 1_000, 700
DURATION_MS = 100


class Flaky:
    """Store whose named methods fail before or after their effect."""

    def __init__(self, store):
        self._store = store
        self.down = set()  #: Methods that raise without effect.
        self.mute = set()  #: Methods that take effect and raise.
        self.before = {}  #: Hook to run once just before the method.
        self.broken = {}  #: Error that the method raises without effect.
        self.heard = None  #: Called with the name of each called method.

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*args, **named):
            if self.heard is not None:
                self.heard(name)
            if name in self.broken:
                raise self.broken[name]
            if name in self.before:
                self.before.pop(name)()
            if name in self.down:
                raise StoreUnavailable(f"{name} was not answered")
            answer = method(*args, **named)
            if name in self.mute:
                raise StoreUnavailable(f"{name} was not answered")
            return answer

        return call


class StoreClock:
    """Clock of the store's machine, which may be set otherwise than the child's."""

    def __init__(self, clock, ahead_ms):
        self._clock, self._ahead_ms = clock, ahead_ms

    def monotonic_ms(self):
        return self._clock.now_ms

    def wall_ms(self):
        return self._clock.now_ms + self._ahead_ms


class Federation:
    """A store, one child mesh, and the root's view of both."""

    def __init__(self, *pools, quota=4, tenants=("*",), plugins=(), store_ahead_ms=0, start_delay_ms=0):
        self.clock = ManualClock(1_000_000)
        self.store = MemoryStore(clock=StoreClock(self.clock, store_ahead_ms), ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        flavors = {"standard", *(pool.flavor for pool in pools)}
        limits = {(flavor, "cpu"): Quota(nominal=quota * 10_000) for flavor in flavors}
        self.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas=limits)]))
        self.flaky = Flaky(self.store)
        self.registry = MemoryRegistry()
        self.reports = []
        self.host = SimulatedHost(self.reports.append, self.clock, lambda _task: (DURATION_MS, False))
        self.record = MeshRecord(mesh="east", labels={}, pools=pools or (pool("general", 4),), cluster="c1", tenants=tenants)
        self.cursor, _ = self.store.notifications("east", "", 0)
        self.child = ChildMesh(
            record=self.record,
            ledger=self.flaky,
            queue=self.flaky,
            blobs=self.flaky,
            host=self.host,
            clock=self.clock,
            heartbeat_ms=HEARTBEAT_MS,
            settings=self.registry,
            plugins=StagePlugins(plugins),
            start_delay_ms=start_delay_ms,
        )
        self.messages = []

    def submit(self, name, *tasks, tenant="acme", width=1, slot=CPU, priority=0, created_ms=0, preemption=NEVER_PREEMPTS, gang=None):
        """Submit a stage; each task is `name: needs`."""
        made = []
        for text in tasks or ("a:",):
            node, _, needs = text.partition(":")
            made.append(TaskSpec(node=node, attempt=1, function="call:m:f", inputs=tuple(needs.split()), resources=slot, gang=gang))
        spec = StageSpec(
            stage=name,
            run="r",
            tenant=tenant,
            tasks=tuple(made),
            slot=slot,
            width=width,
            priority=priority,
            created_ms=created_ms,
            preemption=preemption,
        )
        self.store.submit("east", spec)

    def publish(self, **settings):
        """Publish settings for the mesh, as `apply` does."""
        self.registry.publish_settings({"east": StageSettings(**settings)})
        self.store.notify("east", NotificationKind.SETTINGS)
        self.notifications()

    def heartbeat(self, times=1):
        """Run the loop: time passes, notifications and reports arrive, and due heartbeats are sent."""
        for _ in range(times):
            self.clock.advance(self.child.due_in_ms())
            self.child.heartbeat()

    def notifications(self):
        self.cursor, notifications = self.store.notifications("east", self.cursor, 0)
        self.child.take_notifications(notifications)

    def work(self, by_ms=DURATION_MS):
        """Let the host start stages, time pass, and due tasks end; the child gets the reports."""
        for pause_ms in (0, by_ms):
            self.clock.advance(pause_ms)
            self.host.advance()
            while self.reports:
                self.child.take_report(self.reports.pop(0))

    def kinds(self):
        """Return the kinds of new messages at the root, each with its stage."""
        entries = self.store.inbox(0)
        self.store.acknowledge(tuple(entry.entry for entry in entries))
        self.messages = [message for entry in entries for message in decode(STAGE_MESSAGES, entry.body)]
        return [(message.stage, message.kind) for message in self.messages]

    def held(self):
        """Return the whole CPUs charged by the ledger."""
        return sum(lease.amounts["cpu"] for lease in self.store.snapshot().leases) // 10_000

    def session(self):
        """Return the session that the ledger has of the mesh."""
        snapshot = self.store.snapshot()
        return Session(mesh="east", incarnation=self.view().incarnation, ttl_ms=TTL_MS, epoch=snapshot.epoch)

    def claims(self):
        """Return the claims that the store has of the mesh's session."""
        return [claimed.claim for claimed in self.store.claims_of(self.session())]

    def running(self):
        return set(self.host.stages)

    def view(self):
        (view,) = self.store.snapshot().meshes
        return view


def nodes(*totals):
    """Return nodes of these total resources, with nothing in use."""
    return tuple(NodeSeen(node=f"n{number}", total=total, labels={}, available=total) for number, total in enumerate(totals))


def pool(name, cpus, flavor="standard"):
    return PoolRecord(pool=name, flavor=flavor, capacity=ResourceSet.of({"cpu": cpus}))


def stored(store, value):
    data = json.dumps(value).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    store.put("r", sha256, data)
    return StoredValue(sha256=sha256, size_bytes=len(data), encoding=Encoding.JSON)


def all_is_free(federation):
    """Return whether nothing runs or is demanded, and idle leases are returned after a while."""
    is_free = not federation.running()
    federation.heartbeat(IDLE_HEARTBEATS + 1)
    return is_free and federation.held() == 0 and federation.store.snapshot().demands == federation.store.audit() == ()


def slow(federation, method, by_ms):
    """Make the method take this long and return the list of its calls."""
    calls, plain = [], getattr(federation.store, method)

    def call(*args, **named):
        calls.append(args)
        federation.clock.advance(by_ms)
        return plain(*args, **named)

    setattr(federation.store, method, call)
    return calls
