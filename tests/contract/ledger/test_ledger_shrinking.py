"""Contract of plans: a lease shrinks in two steps, and the freed quota goes to the plan's recipient."""

import pytest
from two_teams import A100, ACME, LAB, SHOP, ask, gpu, gpus, record, target_update

from federation.dispatch import Notification, NotificationKind
from federation.errors import PlannerSuperseded, QuotaExceeded, SessionUnknown, TreeChanged
from federation.leases import LeaseAck
from federation.manual_mesh import ManualMesh
from mesh.core.ids import MeshId
from mesh.core.reasons import Reason


def test_lowered_lease_stays_charged_until_acknowledged(ledger, west):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 1))
    assert gpus(ledger, LAB) == 4
    assert [(lease.held, lease.target, lease.shrink_ms is not None) for lease in west.heartbeat().leases] == [(gpu(4), gpu(1), True)]
    west.obey(LAB, A100)
    assert (gpus(ledger, LAB), west.lease(LAB, A100).held) == (1, gpu(1))


def test_plan_notifies_only_meshes_that_lose_quota(ledger, west, east, store):
    ask(west, 8)
    cursors = {mesh: store.queue.notifications(MeshId(mesh), "", 0)[0] for mesh in ("west", "east")}
    target_update(ledger, ("west", LAB, 1), ("east", SHOP, 2))
    notifications = {mesh: store.queue.notifications(MeshId(mesh), cursor, 0)[1] for mesh, cursor in cursors.items()}
    assert notifications == {"west": (Notification(kind=NotificationKind.PLAN, subject=""),), "east": ()}


@pytest.mark.parametrize(
    ("seen", "planned", "now", "target"),
    [
        pytest.param(2, 3, 4, 4, id="more was granted than the plan gives"),
        pytest.param(2, 4, 3, 4, id="a part of what the plan gives was granted"),
        pytest.param(2, 4, 1, 3, id="a release is not granted again"),
        pytest.param(2, 4, 2, 4, id="no change, and it grants"),
        pytest.param(4, 1, 4, 1, id="no change, and it takes"),
        pytest.param(4, 1, 5, 2, id="it takes no more than intended"),
        pytest.param(4, 1, 2, 1, id="it takes the part still above"),
        pytest.param(4, 2, 1, 1, id="more was released than it takes"),
        pytest.param(3, 3, 4, 4, id="it changes no lease"),
    ],
)
def test_plan_moves_a_lease_by_no_more_than_intended(ledger, west, seen, planned, now, target):
    target_update(ledger, ("west", LAB, now))
    target_update(ledger, ("west", LAB, planned, seen))
    west.heartbeat()
    assert west.lease(LAB, A100).target == gpu(target)


def test_ack_of_an_older_version_is_ignored(ledger, west):
    ask(west, 1)
    before = west.lease(LAB, A100)
    ask(west, 3)
    target_update(ledger, ("west", LAB, 1))
    stale = LeaseAck(tenant=LAB, flavor=A100, version=before.version, amounts=gpu(1))
    west.heartbeat(acks=(stale,))
    assert gpus(ledger, LAB) == 4


def test_ack_that_misses_the_target_is_ignored(ledger, west):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 1))
    west.heartbeat()
    west.heartbeat(acks=(LeaseAck(tenant=LAB, flavor=A100, version=west.lease(LAB, A100).version, amounts=gpu(2)),))
    assert gpus(ledger, LAB) == 4


def test_a_lease_that_shrinks_is_granted_nothing(ledger, west):
    ask(west, 2)
    target_update(ledger, ("west", LAB, 1))
    west.heartbeat()
    assert ask(west).reason is Reason.QUOTA_EXHAUSTED


def test_disobedient_mesh_loses_the_excess_after_its_deadline(ledger, west, store):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 1))
    store.advance(store.ttl_ms)
    west.heartbeat()
    assert west.lease(LAB, A100).shrink_ms == 0
    store.advance(store.grace_ms - 60_000)
    assert ledger.sweep().leases == 0
    store.advance(60_001)
    assert ledger.sweep().leases == 1
    assert gpus(ledger, LAB) == 1


def test_plan_may_grant_running_work_more_time_to_stop(ledger, west, store):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 1), wait_ms=3 * store.ttl_ms)
    west.heartbeat()
    assert 4 * store.ttl_ms < west.lease(LAB, A100).shrink_ms <= 5 * store.ttl_ms
    assert ask(west).reason is Reason.QUOTA_EXHAUSTED, "of what is above the target nothing new is begun"
    for _ in range(9):
        store.advance(store.ttl_ms // 2)
        west.heartbeat()
    store.advance(store.grace_ms)
    west.heartbeat()
    assert ledger.sweep().leases == 0
    store.advance(store.ttl_ms)
    west.heartbeat()
    assert ledger.sweep().leases == 1
    assert gpus(ledger, LAB) == 1


@pytest.mark.parametrize("how", ["another plan", "revoked", "the same again, at once"])
def test_shrink_deadline_only_moves_earlier(ledger, west, store, how):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 2), wait_ms=3 * store.ttl_ms)
    if how == "revoked":
        ledger.revoke(mesh=MeshId("west"))
    elif how == "the same again, at once":
        target_update(ledger, ("west", LAB, 2), wait_ms=0)
    else:
        target_update(ledger, ("west", LAB, 1))
    west.heartbeat()
    assert west.lease(LAB, A100).shrink_ms <= store.ttl_ms
    target_update(ledger, ("west", LAB, 0), wait_ms=3 * store.ttl_ms)
    west.heartbeat()
    assert west.lease(LAB, A100).shrink_ms <= store.ttl_ms


@pytest.mark.parametrize("wait_ttls", [3, 0], ids=["a plan with a delay", "a plan without one"])
def test_raised_target_keeps_the_deadline_of_the_rest(ledger, west, store, wait_ttls):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 1), wait_ms=wait_ttls * store.ttl_ms)
    west.heartbeat()
    before = west.lease(LAB, A100).shrink_ms
    target_update(ledger, ("west", LAB, 3))
    west.heartbeat()
    lease = west.lease(LAB, A100)
    assert (lease.held["gpu"], lease.target["gpu"]) == (40_000, 30_000)
    assert before - store.ttl_ms // 2 <= lease.shrink_ms <= before


def test_quota_freed_by_a_plan_goes_only_to_its_recipient(ledger, west, east):
    ask(west, 8)
    target_update(ledger, ("west", LAB, 5), ("east", SHOP, 3))
    west.heartbeat()
    west.obey(LAB, A100)
    assert gpus(ledger, ACME) == 5
    other = ManualMesh(ledger, record("other"))
    assert ask(other, 9, SHOP).reason is Reason.QUOTA_EXHAUSTED
    assert [(lease.tenant, lease.held) for lease in east.heartbeat().leases] == [(SHOP, gpu(3))]
    assert gpus(ledger, ACME) == 8


@pytest.mark.every_form
def test_a_planned_lease_grows_as_room_comes(ledger, west, east):
    ask(west, 8)
    target_update(ledger, ("west", LAB, 4), ("east", SHOP, 4))
    assert [lease.held for lease in east.heartbeat().leases] == [gpu(0)]
    west.heartbeat()
    west.release(LAB, A100, gpu(6))
    assert [lease.held for lease in east.heartbeat().leases] == [gpu(2)]
    west.release(LAB, A100, gpu(4))
    assert [lease.held for lease in east.heartbeat().leases] == [gpu(4)]
    assert east.heartbeat().leases == ()


def test_lease_raised_by_plan_has_the_priority_of_its_demand(ledger, west, east):
    ask(west, 8, priority=1)
    ask(east, 2, SHOP, priority=5)
    target_update(ledger, ("west", LAB, 4), ("east", SHOP, 4))
    west.heartbeat()
    west.release(LAB, A100, gpu(4))
    east.heartbeat()
    assert {lease.tenant: lease.priority for lease in ledger.snapshot().leases} == {LAB: 1, SHOP: 5}


def test_a_plan_beyond_the_limits_changes_nothing(ledger, west, east):
    ask(west, 4)
    with pytest.raises(QuotaExceeded):
        target_update(ledger, ("west", LAB, 5), ("east", SHOP, 4))
    assert [lease.target for lease in ledger.snapshot().leases] == [gpu(4)]
    assert ask(east, 4).slots == 4


def test_only_the_elected_planner_plans_for_the_tree_in_force(ledger, west, store):
    first = ledger.elect("one", 60_000)
    assert ledger.elect("two", 60_000) is None
    assert ledger.elect("one", 60_000) == first
    version = ledger.snapshot().version
    with pytest.raises(PlannerSuperseded):
        ledger.plan_apply(first + 1, version, ())
    with pytest.raises(TreeChanged):
        ledger.plan_apply(first, version + 1, ())
    assert ledger.plan_apply(first, version, ()) + 1 == ledger.plan_apply(first, version, ())
    store.advance(60_001)
    with pytest.raises(PlannerSuperseded):
        ledger.plan_apply(first, version, ())
    assert ledger.elect("two", 60_000) > first


def test_a_plan_for_a_mesh_without_a_session_is_refused(ledger):
    with pytest.raises(SessionUnknown):
        target_update(ledger, ("nowhere", LAB, 1))


def test_revoking_aims_at_nothing_and_hard_changes_the_token(ledger, west, east):
    ask(west)
    ask(east)
    before = west.lease(LAB, A100)
    assert ledger.revoke(mesh=MeshId("west")) == 1
    west.heartbeat()
    assert (west.lease(LAB, A100).target, west.lease(LAB, A100).token) == (gpu(0), before.token)
    assert ledger.revoke(tenant=LAB, flavor=A100, hard=True) == 2
    west.heartbeat()
    assert west.lease(LAB, A100).token > before.token
    assert gpus(ledger, LAB) == 2
    west.obey(LAB, A100)
    assert gpus(ledger, LAB) == 1
    assert ledger.revoke(tenant=SHOP) == 0
