"""Audit of a ledger's sums, a few tenants per round."""

from __future__ import annotations

from dataclasses import replace

from federation.auditing import LedgerAudit, Mismatch, mismatches
from federation.snapshot import FederationSnapshot, LeaseView
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import ResourceSet

STD = FlavorName("std")
ACME, LAB, OPS = TenantPath("acme"), TenantPath("acme/lab"), TenantPath("acme/ops")
KEPT = Quota(nominal=10, lending_limit=4)
TREE = TenantTree(
    [
        Tenant(path=ACME, parent=None),
        Tenant(path=LAB, parent=ACME, quotas={(STD, "cpu"): KEPT}),
        Tenant(path=OPS, parent=ACME, quotas={(STD, "cpu"): Quota(nominal=10)}),
    ]
)


def lease(tenant, units):
    return LeaseView(lease=tenant, tenant=tenant, mesh=MeshId("east"), flavor=STD, amounts=ResourceSet({"cpu": units}), token=1)


SOUND = FederationSnapshot(
    at_ms=0, tree=TREE, leases=(lease(LAB, 8), lease(OPS, 3)), usage={(LAB, STD, "cpu"): 8, (OPS, STD, "cpu"): 3, (ACME, STD, "cpu"): 5}
)


def tampered(**units):
    """Return the snapshot with other sums; 0 removes one."""
    usage = {key: units.get(key[0].rpartition("/")[2], kept) for key, kept in SOUND.usage.items()}
    return replace(SOUND, usage={key: kept for key, kept in usage.items() if kept})


def wrong(tenant, kept, counted):
    return Mismatch(tenant=tenant, flavor=STD, resource="cpu", kept=kept, counted=counted)


def test_correct_sums_are_not_reported():
    audit = LedgerAudit(at_once=1)
    assert mismatches(SOUND) == ()
    assert [audit.look(SOUND) for _ in range(7)] == [()] * 7


def test_wrong_sum_is_reported_once_it_is_due():
    audit = LedgerAudit(at_once=1)
    broken = tampered(acme=6)
    assert [audit.look(broken) for _ in range(6)] == [(wrong(ACME, 6, 5),), (), (), (), (), ()]


def test_a_sum_that_is_missing_altogether_is_wrong():
    assert LedgerAudit().look(tampered(ops=0, acme=2)) == (wrong(OPS, 0, 3),)


def test_changed_or_new_wrong_sum_is_reported_again():
    audit = LedgerAudit()
    found = [audit.look(snapshot) for snapshot in (tampered(acme=6), tampered(acme=7), SOUND, tampered(acme=7))]
    assert found == [(wrong(ACME, 6, 5),), (wrong(ACME, 7, 5),), (), (wrong(ACME, 7, 5),)]


def test_tenants_that_came_since_have_their_turn():
    audit = LedgerAudit(at_once=2)
    audit.look(SOUND)
    web = TenantPath("web")
    grown = TenantTree([*TREE.tenants.values(), Tenant(path=web, parent=None)])
    broken = replace(SOUND, tree=grown, usage={**SOUND.usage, (web, STD, "cpu"): 2})
    assert wrong(web, 2, 0) in [found for _ in range(3) for found in audit.look(broken)]


def test_lease_of_an_unknown_tenant_stops_no_audit():
    stray = replace(SOUND, leases=(*SOUND.leases, lease(TenantPath("gone"), 1)), usage={**SOUND.usage, (TenantPath("gone"), STD, "cpu"): 1})
    assert LedgerAudit().look(stray) == ()
