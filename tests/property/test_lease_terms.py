"""Safety of leases under leaps of the server's clock: no quota is granted before its holder has stopped, for any terms of a file."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.child.deadlines import Deadlines
from federation.leases import Granted, LeaseTerms
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.resources import ResourceSet

CPU, ACME, STANDARD = ResourceSet.of({"cpu": 1}), TenantPath("acme"), FlavorName("standard")
TREE = TenantTree([Tenant(path=ACME, parent=None, quotas={(STANDARD, "cpu"): Quota(nominal=CPU["cpu"])})])


def record(mesh: str) -> MeshRecord:
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=CPU)
    return MeshRecord(mesh=MeshId(mesh), labels={}, pools=(pool,), cluster="c")


@settings(max_examples=60)
@given(
    ttl_ms=st.integers(200, 60_000),
    grace_ms=st.integers(300, 20_000),
    leap_ms=st.integers(0, 7_200_000),
    leap_at=st.integers(0, 100),
    steps=st.integers(40, 80),
)
def test_a_grant_after_a_clock_leap_is_not_in_use_elsewhere(ttl_ms: int, grace_ms: int, leap_ms: int, leap_at: int, steps: int) -> None:
    terms = LeaseTerms.of(ttl_ms, grace_ms)
    clock = ManualClock()
    store = MemoryStore(clock=clock, ttl_ms=ttl_ms, grace_ms=grace_ms, max_step_ms=terms.max_step_ms)
    store.configure(TREE)
    silent = ManualMesh(store, record("silent"))
    assert isinstance(silent.acquire(ACME, STANDARD, CPU), Granted)
    silent.heartbeat()
    over_ms, step_ms = Deadlines.of(ttl_ms).over_ms, max(1, min(terms.max_step_ms, ttl_ms // steps))
    true_ms, leapt = 0, False
    while true_ms + step_ms < over_ms:  # The whole time in which the silent mesh may use what it holds.
        true_ms += step_ms
        clock.advance(step_ms)
        if not leapt and true_ms * 100 >= over_ms * leap_at:
            clock.advance(leap_ms)
            leapt = True
        store.sweep()
        assert store.snapshot().usage, f"given away after {true_ms} of {over_ms} ms"
