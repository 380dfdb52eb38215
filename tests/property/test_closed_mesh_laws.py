"""Laws of closed meshes: a coordinator sends nothing to a drained mesh, or to one on probation.

The test judges by its own record of joins and drains, without the tested code.
"""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dag.coordinator import Coordinator
from dag.run.runs import RunRecord
from dag.spec.spec import digest, parse
from dag.store.memory import MemoryRunStore
from federation.flap_detection import WATCH_GAP_MS, FlapRules
from federation.mesh_conditions import Drain
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.resources import ResourceSet

MESHES = ["east", "north", "west"]
RULES = FlapRules(probation_ms=1_500, probation_ms_max=6_000, window_ms=60_000)
POOL = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))


class Federation(RuleBasedStateMachine):
    """Meshes that come and go under a coordinator that is replaced at will, with runs that nobody executes."""

    @initialize()
    def begin(self):
        self.clock = ManualClock(1_000_000)
        self.store = MemoryStore(clock=self.clock, ttl_ms=10**9, grace_ms=0)
        self.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=1_000_000)})]))
        self.runs, self.registry = MemoryRunStore(self.store), MemoryRegistry()
        self.number = 0
        self.looked_ms = self.clock.now_ms
        self.drained, self.due_ms = set(), dict.fromkeys(MESHES, 0)
        self.wrong = []
        self.unseen = set()  #: Lost since the last look.
        for mesh in MESHES:
            self._join(mesh)
        self.really_submit, self.store.submit = self.store.submit, self._submit
        self.replace_the_coordinator()
        self.look()

    def _submit(self, mesh, spec):
        is_new = self.really_submit(mesh, spec)  # A new coordinator repeats what the last one sent; the queue drops that.
        if is_new and (mesh in self.drained or self.clock.now_ms < self.due_ms[mesh]):
            self.wrong.append((mesh, self.clock.now_ms))
        return is_new

    def _join(self, mesh):
        self.store.join(MeshRecord(mesh=mesh, labels={"zone": mesh}, pools=(POOL,), cluster="c"))

    @rule()
    def replace_the_coordinator(self):
        self.coordinator = Coordinator(
            runs=self.runs,
            queue=self.store,
            ledger=self.store,
            registry=self.registry,
            tenant_policies=MemoryTenantPolicies(),
            blobs=self.store,
            clock=self.clock,
            on_end=lambda _: None,
            delete=lambda _run, _uri: None,
            clear=lambda _run, _keep: None,
            fetch=lambda _run, _stored: b"",
            retention_ms=10**9,
            flap_rules=RULES,
        )

    @rule(after_ms=st.integers(1, 2_500))
    def time_goes_by(self, after_ms):
        self.clock.advance(after_ms)
        self.look()

    @rule()
    def look(self):
        assert self.clock.now_ms - self.looked_ms <= WATCH_GAP_MS
        self.looked_ms = self.clock.now_ms
        self.unseen.clear()
        self.coordinator.tick()
        self.coordinator.step(0)

    @rule(mesh=st.sampled_from(MESHES))
    def a_mesh_is_lost_and_comes_back(self, mesh):
        if {*self.unseen, mesh} == set(MESHES):
            return  # A loss of all at once is no flapping.
        self.unseen.add(mesh)
        self._join(mesh)  # The earlier session ends with it.
        self.due_ms[mesh] = self.clock.now_ms + RULES.probation_ms

    @rule(mesh=st.sampled_from(MESHES))
    def work_comes_for_a_mesh_that_has_just_come_back(self, mesh):
        self.a_mesh_is_lost_and_comes_back(mesh)
        self.somebody_submits({"zone": mesh})

    @rule(mesh=st.sampled_from(MESHES))
    def somebody_drains(self, mesh):
        self.registry.drain(mesh, Drain())
        self.drained.add(mesh)

    @rule(mesh=st.sampled_from(MESHES))
    def somebody_undrains(self, mesh):
        self.registry.undrain(mesh)
        self.drained.discard(mesh)

    @rule(wish=st.sampled_from([{}, {"zone": "!west"}, {"zone": "east"}, {"zone": "in(north, west)"}]))
    def somebody_submits(self, wish):
        self.number += 1
        run = f"r{self.number}"
        node = {"call": "work:do", "options": {"labels": wish}}
        spec = {"spec": "dag/1", "id": run, "tenant": "acme", "nodes": {"a": node}, "outputs": {"a": {"$ref": "a"}}}
        body = json.dumps(spec).encode()
        self.runs.create(RunRecord(run=run, tenant="acme", digest=digest(parse(body)), spec=body, created_ms=self.clock.now_ms), {})
        self.coordinator.step(0)

    @invariant()
    def nothing_was_sent_to_a_closed_mesh(self):
        assert getattr(self, "wrong", []) == []


TestFederation = Federation.TestCase
TestFederation.settings = settings(max_examples=25, stateful_step_count=30)
