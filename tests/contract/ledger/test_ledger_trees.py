"""Contract of tree changes: a new tree revokes nothing and loses no charge."""

import pytest
from two_teams import A100, ACME, LAB, SHOP, ask, gpu, gpus, record, target_update, tree

from federation.errors import QuotaExceeded, TenantCycle, TreeChanged, UnknownTenant
from federation.leases import Granted, LeaseRefused
from federation.manual_mesh import ManualMesh
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import TenantPath
from mesh.core.reasons import Reason


def test_a_tenant_that_is_not_there_is_refused_by_name(west):
    assert ask(west, tenant=TenantPath("acme/lap")) == LeaseRefused(
        reason=Reason.TENANT_UNKNOWN, tenant=TenantPath("acme/lap"), flavor=A100
    )


def test_quota_cut_blocks_grants_until_use_falls(ledger, west):
    ask(west, 6)
    assert ledger.configure(tree(lab=2, shop=2)).over == (f"{ACME}|{A100}|gpu",)
    assert gpus(ledger, LAB) == 6
    assert ask(west).available == 0
    west.release(LAB, A100, gpu(3))
    assert ask(west, 9).slots == 1


def test_deficit_above_leaves_quota_kept_by_a_tenant(store):
    """The kept part stays available to grants, plans and growth; the rest has to wait."""
    store.ledger.configure(tree(lab=4, shop=4, shop_lends=1))
    west, east = ManualMesh(store.ledger, record("west")), ManualMesh(store.ledger, record("east"))
    ask(west, 4)
    store.ledger.configure(tree(lab=0, shop=4, shop_lends=1))
    assert ask(east, 2, SHOP) == Granted(slots=2)
    target_update(store.ledger, ("east", SHOP, 3))
    east.heartbeat()
    assert east.lease(SHOP, A100).held == gpu(3)
    assert ask(east, 1, SHOP).available == 0
    with pytest.raises(QuotaExceeded):
        target_update(store.ledger, ("east", SHOP, 4))
    assert (gpus(store.ledger, SHOP), gpus(store.ledger, ACME)) == (3, 4)


def test_reapplying_the_same_tree_changes_only_the_version(ledger, west):
    ask(west, 6)
    before = ledger.snapshot()
    assert ledger.configure(tree()).version == before.version + 1
    after = ledger.snapshot()
    assert (after.usage, after.tree, after.leases) == (before.usage, before.tree, before.leases)


def test_tree_replaces_only_its_predecessor(ledger):
    version = ledger.snapshot().version
    ledger.configure(tree(lab=5), expected=version)
    with pytest.raises(TreeChanged):
        ledger.configure(tree(lab=6), expected=version)
    assert ledger.snapshot().tree == tree(lab=5)


def test_a_raised_lending_limit_moves_the_charge(store):
    store.ledger.configure(tree(shop_lends=0))
    ask(ManualMesh(store.ledger, record()), 4, SHOP)
    assert gpus(store.ledger, ACME) == 0
    store.ledger.configure(tree(shop_lends=3))
    assert gpus(store.ledger, ACME) == 3


def test_a_vanished_tenant_keeps_its_row_while_it_is_charged(ledger, west):
    ask(west, 3)
    ledger.configure(TenantTree([tree().tenant(ACME), tree().tenant(SHOP)]))
    snapshot = ledger.snapshot()
    assert snapshot.usage == {(LAB, A100, "gpu"): 30_000, (ACME, A100, "gpu"): 30_000}
    assert snapshot.tree.tenant(LAB).quotas == {(A100, "gpu"): Quota(borrowing_limit=0)}
    assert ask(west).reason is Reason.TENANT_UNKNOWN
    assert ask(west, 9, SHOP).slots == 1
    west.release(LAB, A100)
    assert list(ledger.snapshot().tree.tenants) == [ACME, SHOP]


def test_vanished_tenant_with_a_target_stays_in_the_tree(ledger, west):
    ask(west, 8, SHOP)
    target_update(ledger, ("west", SHOP, 6), ("west", LAB, 2))
    ledger.configure(TenantTree([Tenant(path=ACME, parent=None), Tenant(path=SHOP, parent=ACME)]))
    seen = ledger.snapshot()
    assert LAB in [lease.tenant for lease in seen.leases]
    assert LAB in seen.tree.tenants
    assert ledger.audit() == ()


def test_a_whole_branch_may_vanish_while_it_is_charged(ledger, west):
    ask(west, 3)
    other = TenantPath("other")
    ledger.configure(TenantTree([Tenant(path=other, parent=None)]))
    ledger.configure(TenantTree([Tenant(path=other, parent=None)]))
    snapshot = ledger.snapshot()
    assert snapshot.usage == {(LAB, A100, "gpu"): 30_000, (ACME, A100, "gpu"): 30_000}
    assert list(snapshot.tree.tenants) == [ACME, LAB, other]
    west.leave()
    assert ledger.snapshot().usage == {}


@pytest.mark.every_form
def test_a_tenant_moves_under_another_parent_with_what_it_holds(ledger, west):
    ask(west, 3)
    version = ledger.snapshot().version
    with pytest.raises(TenantCycle):
        ledger.reparent(ACME, LAB, expected=version)
    with pytest.raises(UnknownTenant):
        ledger.reparent(LAB, TenantPath("nobody"), expected=version)
    with pytest.raises(TreeChanged):
        ledger.reparent(LAB, SHOP, expected=version + 1)
    ledger.reparent(LAB, SHOP, expected=version)
    assert (gpus(ledger, LAB), gpus(ledger, SHOP), gpus(ledger, ACME)) == (3, 3, 3)
    assert ledger.snapshot().tree.tenant(LAB).parent == SHOP


def test_a_move_that_leaves_a_node_over_its_limits_needs_force(ledger, west):
    ask(west, 8)
    version = ledger.snapshot().version
    with pytest.raises(QuotaExceeded):
        ledger.reparent(SHOP, None, expected=version)
    assert ledger.snapshot().version == version
    assert ledger.reparent(SHOP, None, expected=version, force=True).over == (f"{ACME}|{A100}|gpu",)


def test_tree_that_reuses_a_lost_version_is_read_anew(ledger, west, store):
    ask(west, 2)
    kept = store.keep()
    lost = ledger.configure(tree(lab=1)).version
    assert ledger.snapshot().tree == tree(lab=1)
    store.lose(kept)
    assert ledger.snapshot().tree == tree()
    assert ledger.configure(tree(lab=3)).version == lost
    assert ledger.snapshot().tree == tree(lab=3)
