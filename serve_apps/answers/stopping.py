"""Holding, draining and releasing tenants: checked against what is known and who asks, then written beside the tree."""

from __future__ import annotations

from collections.abc import Iterable

from dag.spec_checks import similar_to
from federation.leases import LeaseLedger
from federation.quota.policies import Stop
from federation.tenant_orders import OrdersInForce, TenantOrders, TenantStop
from mesh.ids import TenantPath
from serve_apps.requests.access import EVERYBODY, reaches
from serve_apps.requests.auth import Principal
from serve_apps.requests.errors import OutOfReach

#: Whoever runs the stack of a state folder.
AT_THE_TERMINAL = Principal(key="terminal", tenant=EVERYBODY)


def stop_tenant(
    ledger: LeaseLedger, orders: TenantOrders, tenant: TenantPath, stop: Stop, *, reason: str, principal: Principal
) -> OrdersInForce:
    """Let nothing new of the tenant, and of all below it, start; what holds then. Again: the later word counts.

    Raises:
        OutOfReach: The key does not reach the tenant; or there is none; or somebody who reaches further has stopped it.
        StoreUnavailable: The store does not answer; safe to repeat.
    """
    snapshot = ledger.snapshot()
    check_reach(principal, tenant, snapshot.tree.tenants)
    before = orders.in_force()
    _check_authority(before, tenant, principal)
    if not reason and tenant in before.stops:
        reason = before.stops[tenant].reason  # Who says nothing new takes nothing back.
    stopped = TenantStop(stop=stop, reason=reason, by=principal.key, authority=principal.tenant, since_ms=snapshot.at_ms)
    orders.stop(tenant, stopped)
    return orders.in_force()


def release_tenant(ledger: LeaseLedger, orders: TenantOrders, tenant: TenantPath, *, principal: Principal) -> tuple[OrdersInForce, bool]:
    """Let the tenant's work start again; what holds then, and whether the tenant was stopped. Raises as `stop_tenant`."""
    before = orders.in_force()
    check_reach(principal, tenant, (*before.stops, *ledger.snapshot().tree.tenants))
    _check_authority(before, tenant, principal)
    return (orders.in_force(), True) if orders.release(tenant) else (before, False)


def check_reach(principal: Principal, tenant: TenantPath, known: Iterable[TenantPath]) -> None:
    """Unknown and forbidden are told alike, so nobody learns which tenants there are; what is near is named where the key reaches it.

    Args:
        known: The tenants that there are.
    Raises:
        OutOfReach: One of the two.
    """
    within = {path for path in known if reaches(principal, path)}
    if tenant not in within:
        raise OutOfReach(f"there is no tenant {tenant} within the reach of this API key{similar_to(tenant, sorted(within))}")


def _check_authority(orders: OrdersInForce, tenant: TenantPath, principal: Principal) -> None:
    stopped = orders.stops.get(tenant)
    if stopped is not None and not reaches(principal, TenantPath(stopped.authority)):
        who = "an operator" if stopped.authority == EVERYBODY else f"somebody of {stopped.authority}"
        raise OutOfReach(f"{who} has stopped {tenant}; only a key that reaches as far may change that")
