"""Receipts: the root's signature over a lease, so that a ledger that has lost it can believe the mesh that brings it back.

HMAC-SHA-256 over ledger, mesh, tenant, flavor, token, version and amounts, under a key that only roots have. A mesh
carries its receipts and cannot make any, so it can claim after a loss what it was granted, and nothing else.
Source: references of the protocol §4 (claims in learning), §7.15.
"""

import hmac
import json
from dataclasses import dataclass, replace

from federation.errors import ForgedReceipt
from federation.leases import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptKeys:
    """Keys by version: the highest signs, all verify, so a key can be replaced while old receipts are about."""

    keys: dict[int, bytes]

    def signed(self, ledger: str, lease: Lease) -> Lease:
        """The lease with its receipt: `<version of the key>.<signature>`."""
        number = max(self.keys)
        return replace(lease, receipt=f"{number}.{_signature(self.keys[number], ledger, lease)}")

    def check(self, ledger: str, lease: Lease) -> None:
        """Was this very lease signed here?

        Raises:
            ForgedReceipt: No, or under a key that is not in use any more.
        """
        number, _, signature = lease.receipt.partition(".")
        key = self.keys.get(int(number)) if number.isdecimal() else None
        if key is None or not hmac.compare_digest(signature.encode(), _signature(key, ledger, lease).encode()):
            raise ForgedReceipt(f"{lease.mesh} claims {lease.held} for {lease.tenant} under a receipt that is not ours")


def _signature(key: bytes, ledger: str, lease: Lease) -> str:
    said = [ledger, lease.mesh, lease.tenant, lease.flavor, lease.token, lease.version, dict(lease.held.items())]
    return hmac.new(key, json.dumps(said, sort_keys=True).encode(), "sha256").hexdigest()
