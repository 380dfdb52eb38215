"""Laws of the planner loop: after any quota cuts and membership changes, the ledger accepts every target of a sole planner."""

from __future__ import annotations

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.leases import LeaseRefused
from federation.manual_mesh import ManualMesh
from federation.planning.planner_loop import PlannerLoop
from federation.quota.policies import Rules, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

RED = FlavorName("red")
LONG_MS = 10**9  #: No session and no leadership ends by itself.
PARENTS = {"a": None, "a/b": "a", "a/b/c": "a/b", "a/b/d": "a/b", "a/e": "a", "f": None, "f/g": "f"}
TENANTS = [TenantPath(path) for path in PARENTS]
MESHES = ["east", "west"]
ROUNDS = 4  #: Until the borrowers have released what owners reclaim, and the owners have it.

limits = st.none() | st.integers(0, 4)
slots = st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(1, 2), min_size=1).map(ResourceSet)


@st.composite
def trees(draw: st.DrawFn) -> TenantTree:
    """Return a tree of the seven tenants with any limits, one of them perhaps missing."""
    out = draw(st.sampled_from([None, "a/b/c", "a/e", "f/g"]))
    tenants = []
    for path in (path for path in PARENTS if path != out):
        parent = PARENTS[path]
        bound = st.none() if parent is None else limits
        quota = st.builds(Quota, nominal=st.integers(0, 6), borrowing_limit=bound, lending_limit=bound)
        quotas = {(RED, name): draw(quota) for name in ("cpu", "gpu")}
        tenants.append(Tenant(path=TenantPath(path), parent=parent and TenantPath(parent), quotas=quotas))
    return TenantTree(tenants)


meshes, tenants = st.sampled_from(MESHES), st.sampled_from(TENANTS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), meshes, tenants, slots, st.integers(1, 6), st.integers(0, 2)),
        st.tuples(st.just("give"), meshes, tenants),
        st.tuples(st.just("obey"), meshes, tenants),
        st.tuples(st.just("join"), meshes),
        st.tuples(st.just("cut"), trees()),
        st.tuples(st.just("plan")),
    ),
    min_size=4,
    max_size=25,
)


def record(name: str, units: int) -> MeshRecord:
    pool = PoolRecord(pool=PoolName("p"), flavor=RED, capacity=ResourceSet({"cpu": units, "gpu": units}))
    return MeshRecord(mesh=MeshId(name), labels={}, pools=(pool,), cluster="c")


class World:
    """A ledger, two meshes, and a planner."""

    def __init__(self, tree: TenantTree, room: int) -> None:
        self.store = MemoryStore(clock=ManualClock(LONG_MS), ttl_ms=LONG_MS, grace_ms=LONG_MS)
        self.store.configure(tree)
        tenant_policies = MemoryTenantPolicies()
        tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0)))
        self.planner_loop = PlannerLoop(self.store, "planner", leader_ttl_ms=LONG_MS, tenant_policies=tenant_policies)
        self.hands = {name: ManualMesh(self.store, record(name, room)) for name in MESHES}

    def step(self, verb: str, *about) -> None:
        if verb == "plan":
            self.plan()
        elif verb == "cut":
            self.store.configure(*about)
        elif verb == "join":
            self.hands[about[0]] = ManualMesh(self.store, self.hands[about[0]].record)
        elif verb == "ask":
            mesh, tenant, slot, count, priority = about
            self.hands[mesh].acquire(tenant, RED, slot, count, priority)
        elif verb == "give":
            self.hands[about[0]].release(about[1], RED)
        else:
            self.hands[about[0]].obey(about[1], RED)

    def plan(self) -> None:
        answer = self.planner_loop.tick()
        if answer is not None:
            set_now = {
                (lease.mesh, lease.tenant): dict(lease.target.items()) for lease in self.store.snapshot().leases if not lease.incarnation
            }
            planned = {(target.mesh, target.tenant): dict(target.amounts) for target in (*answer.lowered, *answer.raised)}
            assert planned == {key: set_now.get(key, {}) for key in planned}


@given(tree=trees(), room=st.integers(1, 12), done=steps)
@settings(max_examples=examples(150))
def test_after_a_plan_no_quota_is_contested(tree: TenantTree, room: int, done: list[tuple]):
    """Contested quota goes to those who wait for it, as far as it is free and their meshes have room; nobody blocks anybody."""
    world = World(tree, room)
    for step in done:
        world.step(*step)
    for _ in range(ROUNDS):
        world.plan()
        for hand in world.hands.values():
            hand.heartbeat()
            for tenant in TENANTS:
                hand.obey(tenant, RED)
    seen = world.store.snapshot()
    for demand in seen.demands:
        if all(units <= room for units in demand.slot.values()) and demand.tenant in seen.tree.tenants:
            answer = world.hands[demand.mesh].acquire(demand.tenant, RED, demand.slot, 1, demand.priority)
            assert not isinstance(answer, LeaseRefused) or answer.reason is not Reason.QUOTA_CONTESTED


@given(tree=trees(), room=st.integers(1, 12), done=steps)
@settings(max_examples=examples(150))
def test_the_ledger_takes_every_target_of_a_plan(tree: TenantTree, room: int, done: list[tuple]):
    world = World(tree, room)
    for step in done:
        world.step(*step)
    world.plan()
