"""Holding, draining and releasing of tenants: checks the tenant and the caller, then writes beside the tree."""

from __future__ import annotations

from collections.abc import Iterable

from dag.store.rows import reach_of
from federation.api_keys import EVERYBODY
from federation.change_log import TERMINAL
from federation.leases import LeaseLedger
from federation.quota.policies import Stop
from federation.quota.tenant_policies import PoliciesInForce, TenantPolicyStore, TenantStop
from federation.tenants import TenantTree, no_such_tenant
from mesh.core.ids import TenantPath
from serve_apps.requests.access import reaches
from serve_apps.requests.auth import Principal
from serve_apps.requests.errors import OutOfReach

#: The owner of a state folder's stack.
AT_THE_TERMINAL = Principal(key=TERMINAL, tenant=EVERYBODY)


def stop_tenant(
    ledger: LeaseLedger, tenant_policies: TenantPolicyStore, tenant: TenantPath, stop: Stop, *, reason: str, principal: Principal
) -> PoliciesInForce:
    """Stop new work of the tenant and the tenants below it; return the stops in force. A repeated stop replaces the earlier one.

    Raises:
        OutOfReach: The key does not cover the tenant, or there is none, or a caller with a wider key has stopped it.
        StoreUnavailable: The store does not answer; safe to repeat.
    """
    snapshot = ledger.snapshot()
    check_reach(principal, tenant, snapshot.tree.tenants)
    before = tenant_policies.in_force()
    _check_authority(before, tenant, principal)
    if not reason and tenant in before.stops:
        reason = before.stops[tenant].reason  # An empty reason keeps the earlier reason.
    stopped = TenantStop(stop=stop, reason=reason, by=principal.key, authority=principal.tenant, since_ms=snapshot.at_ms)
    tenant_policies.stop(tenant, stopped)
    return tenant_policies.in_force()


def resume_tenant(
    ledger: LeaseLedger, tenant_policies: TenantPolicyStore, tenant: TenantPath, *, principal: Principal
) -> tuple[PoliciesInForce, bool]:
    """Release the tenant; return the stops in force and whether the tenant was stopped. Raises as `stop_tenant`."""
    before = tenant_policies.in_force()
    check_reach(principal, tenant, (*before.stops, *ledger.snapshot().tree.tenants))
    _check_authority(before, tenant, principal)
    return (tenant_policies.in_force(), True) if tenant_policies.release(tenant) else (before, False)


def check_reach(principal: Principal, tenant: TenantPath, known: Iterable[TenantPath]) -> None:
    """Check that the key covers the tenant.

    Unknown and forbidden tenants give the same error, so that no caller learns which tenants exist; similar names are suggested only
    within reach.

    Args:
        known: The tenants that exist.
    Raises:
        OutOfReach: The tenant is unknown or forbidden.
    """
    within = {path for path in known if reaches(principal, path)}
    if tenant not in within:
        covered = "" if principal.tenant == EVERYBODY else " that this API key covers"
        raise OutOfReach(no_such_tenant(tenant, within, covered))


def check_covered(principal: Principal, tenant: TenantPath) -> None:
    """Check that the key covers the tenant, whether it exists or not. Raises OutOfReach with the words of `check_reach`."""
    if not reaches(principal, tenant):
        check_reach(principal, tenant, (principal.tenant,))


def paths_in(tree: TenantTree) -> set[TenantPath]:
    """Return the tenants, and the path prefixes, that lists may be limited to."""
    return {TenantPath(path) for tenant in tree.tenants for path in reach_of(tenant)}


def _check_authority(tenant_policies: PoliciesInForce, tenant: TenantPath, principal: Principal) -> None:
    stopped = tenant_policies.stops.get(tenant)
    if stopped is not None and not reaches(principal, TenantPath(stopped.authority)):
        who = "an operator" if stopped.authority == EVERYBODY else f"a key of {stopped.authority}"
        raise OutOfReach(f"{who} has stopped {tenant}; changing that needs a key that covers as much")
