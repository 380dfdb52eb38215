"""Laws of a federation whose store loses recent writes: the real coordinator, gateway and child meshes, driven by hand."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.coordinator import Coordinator
from dag.run.runs import RunRecord
from dag.run.states import RUN_ENDS, RunState
from dag.spec.spec import digest, parse
from dag.store.memory import MemoryRunStore
from federation.child.child_mesh import ChildMesh
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.resources import ResourceSet
from mesh.stages.messages import NodeStarted
from mesh.stages.simulated_host import SimulatedHost
from serve_apps.requests.accepted_runs import AcceptedRuns

TTL_MS, GRACE_MS, HEARTBEAT_MS, WORK_MS = 3_000, 1_000, 700, 400
#: Longer than any run of a case, recovery included.
TURNS_MAX = 200


class World:
    """A root, its meshes, and the submitted runs."""

    def __init__(self, *meshes):
        self.clock = ManualClock(1_000_000_000)
        self.store = MemoryStore(clock=self.clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        self.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=80_000)})]))
        self.runs = MemoryRunStore(self.store)
        self.accepted = AcceptedRuns(self.runs, epoch=self.store.epoch, clock=self.clock)
        self.coordinator = Coordinator(
            runs=self.runs,
            queue=self.store,
            ledger=self.store,
            registry=MemoryRegistry(),
            tenant_policies=MemoryTenantPolicies(),
            blobs=self.store,
            clock=self.clock,
            on_end=lambda _record: None,
            delete=lambda _run, _uri: None,
            clear=lambda _run, _keep: None,
            fetch=lambda _run, _stored: b"",
            retention_ms=10**9,
        )
        self.did = Counter()  #: Number of starts of each node.
        self.meshes = [self.mesh(name) for name in meshes]
        self.submitted = []

    def mesh(self, name):
        reports = []
        host = SimulatedHost(reports.append, self.clock, lambda _task: (WORK_MS, False))
        pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 4}))
        child = ChildMesh(
            record=MeshRecord(mesh=name, labels={"zone": name}, pools=(pool,), cluster=name),
            ledger=self.store,
            queue=self.store,
            blobs=self.store,
            host=host,
            clock=self.clock,
            heartbeat_ms=HEARTBEAT_MS,
        )
        child.heartbeat()
        return [name, child, host, reports, self.store.notifications(name, "", 0)[0]]

    def submit(self, zones):
        """Submit a chain, each node in its zone."""
        run = f"r{len(self.submitted)}"
        nodes = {}
        for number, zone in enumerate(zones):
            before = [{"$ref": f"{run}-{number - 1}"}] if number else []
            nodes[f"{run}-{number}"] = {"call": "work:do", "args": before, "options": {"labels": {"zone": zone}}}
        last = list(nodes)[-1]
        body = json.dumps({"spec": "dag/1", "id": run, "tenant": "acme", "nodes": nodes, "outputs": {"end": {"$ref": last}}}).encode()
        record = RunRecord(run=run, tenant="acme", digest=digest(parse(body)), spec=body, created_ms=self.clock.wall_ms())
        assert self.accepted.create(record, {}, epoch=self.store.epoch())
        self.submitted.append(run)

    def turn(self, by_ms=100):
        """Let every part of the world take one step."""
        self.clock.advance(by_ms)
        self.accepted.look()
        self.coordinator.tick()
        while self.coordinator.step(0):
            pass
        for mesh in self.meshes:
            _, child, host, reports, _ = mesh
            if child.due_in_ms() == 0:
                child.heartbeat()
            mesh[4], notifications = self.store.notifications(mesh[0], mesh[4], 0)
            child.take_notifications(notifications)
            host.advance()
            while reports:
                self.did.update(message.node for message in reports[0].messages if isinstance(message, NodeStarted))
                child.take_report(reports.pop(0))

    def keep(self):
        return self.store.copied(), self.runs.copied()

    def lose(self, kept):
        self.clock.advance(1)
        self.store.lose_writes(kept[0])
        self.runs.lose_writes(kept[1])

    def states(self):
        records = {run: self.runs.load(run) for run in self.submitted}
        return {run: record.state if record is not None else None for run, record in records.items()}

    def settle(self):
        for _ in range(TURNS_MAX):
            if all(state in RUN_ENDS for state in self.states().values()):
                return
            self.turn()


def live(world, chains, turns, lost):
    """Submit runs one by one; for each pair in `lost`, drop the writes between these two turns."""
    kept = {}
    for turn in range(turns):
        if turn < len(chains):
            world.submit(chains[turn])
        for first, last in lost:
            if turn == first:
                kept[first, last] = world.keep()
        world.turn()
        for first, last in lost:
            if turn == last:
                world.lose(kept[first, last])
    world.settle()


spans = st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda span: (span[0], span[0] + span[1]))


@pytest.mark.parametrize("first", range(6))
def test_a_run_that_loses_writes_between_two_moments_runs_once(first):
    for last in range(first, 12):
        world = World("east")
        live(world, [["east"]], 15, [(first, last)])
        assert (world.states(), world.did) == ({"r0": RunState.SUCCEEDED}, {"r0-0": 1})


@settings(max_examples=25, deadline=None)
@given(chains=st.lists(st.lists(st.just("east"), min_size=1, max_size=3), min_size=1, max_size=3), span=spans)
def test_if_only_the_store_forgets_nothing_is_lost_or_run_twice(chains, span):
    world = World("east")
    live(world, chains, 20, [span])
    assert set(world.states().values()) == {RunState.SUCCEEDED}
    assert set(world.did.values()) == {1}
    assert world.store.audit() == ()
    assert world.store.orphans() == ()


@settings(max_examples=25, deadline=None)
@given(
    chains=st.lists(st.lists(st.sampled_from(["east", "west"]), min_size=1, max_size=4), min_size=1, max_size=3),
    lost=st.lists(spans, min_size=1, max_size=3, unique=True),
)
def test_lost_writes_never_keep_a_run_from_ending_well(chains, lost):
    world = World("east", "west")
    live(world, chains, 25, lost)
    assert set(world.states().values()) == {RunState.SUCCEEDED}
    assert world.store.audit() == ()
    assert world.store.orphans() == ()
