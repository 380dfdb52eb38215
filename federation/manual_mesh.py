"""For tests: a mesh that calls a ledger by hand."""

from dataclasses import replace

from federation.errors import EpochChanged
from federation.leases import (
    Granted,
    HeartbeatReport,
    Lease,
    LeaseAck,
    LeaseLedger,
    LeaseRefused,
    LeaseUse,
    LedgerResponse,
    LookAgain,
    QuotaDemand,
)
from federation.snapshot import MeshRecord
from mesh.core.ids import FlavorName, TenantPath
from mesh.core.resources import NOTHING, ResourceSet


class ManualMesh:
    """Mesh that joins at once and stores the ledger's responses; it acts only on calls of the test.

    Args:
        options: Keyword arguments of `LeaseLedger.join`.
    """

    def __init__(self, ledger: LeaseLedger, record: MeshRecord, **options: int) -> None:
        self.ledger = ledger
        self.record = record
        self.session = ledger.join(record, **options)
        self.leases: dict[tuple[TenantPath, FlavorName], Lease] = {}
        self.number = 0
        self.response = self.session.response
        self._apply(self.session.response)

    def _apply(self, response: LedgerResponse) -> LedgerResponse:
        self.response = response
        self.session = replace(self.session, mark=response.mark)
        self.leases.update({(lease.tenant, lease.flavor): lease for lease in response.leases})
        return response

    def lease(self, tenant: TenantPath, flavor: FlavorName) -> Lease:
        """Return the lease as last reported; an empty one if there was none."""
        return self.leases.get((tenant, flavor)) or Lease(tenant=tenant, mesh=self.record.mesh, flavor=flavor)

    def acquire(
        self, tenant: TenantPath, flavor: FlavorName, slot: ResourceSet, slots: int = 1, priority: int = 0
    ) -> Granted | LookAgain | LeaseRefused:
        """Ask for slots, under the version last reported."""
        version = self.lease(tenant, flavor).version
        demand = QuotaDemand(tenant=tenant, flavor=flavor, slot=slot, slots=slots, priority=priority, version=version)
        acquired = self.ledger.acquire(self.session, (demand,))
        self._apply(acquired.response)
        return acquired.answers[0]

    def release(self, tenant: TenantPath, flavor: FlavorName, held: ResourceSet = NOTHING) -> LedgerResponse:
        """Release all but `held`."""
        kept = LeaseAck(tenant=tenant, flavor=flavor, version=self.lease(tenant, flavor).version, amounts=held)
        self._forget_given_back(kept)
        return self._apply(self.ledger.release(self.session, (kept,)))

    def obey(self, tenant: TenantPath, flavor: FlavorName) -> LedgerResponse:
        """Acknowledge that the lease's target is not exceeded any more."""
        lease = self.lease(tenant, flavor)
        kept = LeaseAck(tenant=tenant, flavor=flavor, version=lease.version, amounts=lease.spendable)
        self._forget_given_back(kept)
        return self.heartbeat(acks=(kept,))

    def _forget_given_back(self, kept: LeaseAck) -> None:
        if not kept.amounts:
            self.leases.pop((kept.tenant, kept.flavor), None)

    def heartbeat(
        self,
        *,
        acks: tuple[LeaseAck, ...] = (),
        demands: tuple[QuotaDemand, ...] | None = None,
        claims: tuple[Lease, ...] | None = None,
        lease_uses: tuple[LeaseUse, ...] = (),
    ) -> LedgerResponse:
        """Send the next heartbeat."""
        self.number += 1
        heartbeat_report = HeartbeatReport(number=self.number, acks=acks, demands=demands, claims=claims, lease_uses=lease_uses)
        return self._apply(self.ledger.heartbeat(self.session, self.record, heartbeat_report))

    def claim_all(self) -> LedgerResponse:
        """Report all leases, as a mesh does after an epoch change: under the new epoch."""
        try:
            return self.heartbeat(claims=tuple(self.leases.values()))
        except EpochChanged as changed:
            self.session = replace(self.session, epoch=changed.epoch)
            return self.heartbeat(claims=tuple(self.leases.values()))

    def leave(self) -> None:
        """End the session."""
        self.ledger.leave(self.session)
