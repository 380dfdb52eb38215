"""A lease as people look at it."""

from federation.leases import Lease
from federation.snapshot import LeaseView


def view_of(lease: Lease) -> LeaseView:
    """The lease, its slots multiplied out."""
    return LeaseView(lease=lease.lease, tenant=lease.tenant, mesh=lease.mesh, flavor=lease.flavor, amounts=lease.amounts, token=lease.token)
