"""Receipts: the root's signature over a lease, so that a ledger that has lost it can believe the mesh that brings it back.

Proofs: the same over a token that a mesh was told, so that a ledger that has lost it can believe that it was given out.

HMAC-SHA-256 over ledger, mesh, tenant, flavor, token, version and amounts, under a key that only roots have. A mesh
carries its receipts and cannot make any, so it can claim after a loss what it was granted, and nothing else.
Source: references of the protocol §4 (claims in learning), §7.15.
"""

import hmac
import json
import re
from dataclasses import dataclass, replace

from federation.errors import ForgedReceipt
from federation.leases import Lease
from mesh.ids import MeshId

_DOT = "."
#: Of a proof: token, version of the key, signature, ledger.
_PARTS = 4
_TOKEN, _NUMBER = re.compile(r"[0-9]{1,16}"), re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptKeys:
    """Keys by version: the highest signs, all verify, so a key can be replaced while old receipts are about."""

    keys: dict[int, bytes]

    def signed(self, ledger: str, lease: Lease) -> Lease:
        """The lease with its receipt: `<version of the key>.<signature>`."""
        return replace(lease, receipt=self._sign(_said_by(ledger, lease)))

    def check(self, ledger: str, lease: Lease) -> None:
        """Was this very lease signed here?

        Raises:
            ForgedReceipt: No, or under a key that is not in use any more.
        """
        if not self._is_signed(lease.receipt, _said_by(ledger, lease)):
            raise ForgedReceipt(f"{lease.mesh} claims {lease.held} for {lease.tenant} under a receipt that is not ours")

    def proof(self, ledger: str, mesh: MeshId, token: int) -> str:
        """That the mesh was told the token, or a higher one: `<token>.<version of the key>.<signature>.<ledger>`."""
        return f"{token}.{self._sign([ledger, mesh, token])}.{ledger}"

    def proven(self, mesh: MeshId, proof: str, *, ledger: str | None = None) -> int:
        """The token that a proof is of; 0 when it is none of ours, of another mesh, or of another ledger than is named."""
        parts = proof.split(_DOT, 3)
        if len(parts) != _PARTS or not _TOKEN.fullmatch(parts[0]) or ledger not in (None, parts[3]):
            return 0
        token = int(parts[0])
        return token if self._is_signed(f"{parts[1]}.{parts[2]}", [parts[3], mesh, token]) else 0

    def _sign(self, said: list[object]) -> str:
        number = max(self.keys)
        return f"{number}.{_signature(self.keys[number], said)}"

    def _is_signed(self, signed: str, said: list[object]) -> bool:
        number, _, signature = signed.partition(_DOT)
        key = self.keys.get(int(number)) if _NUMBER.fullmatch(number) else None
        return key is not None and hmac.compare_digest(signature.encode(), _signature(key, said).encode())


def _said_by(ledger: str, lease: Lease) -> list[object]:
    return [ledger, lease.mesh, lease.tenant, lease.flavor, lease.token, lease.version, dict(lease.held.items())]


def _signature(key: bytes, said: list[object]) -> str:
    return hmac.new(key, json.dumps(said, sort_keys=True).encode(), "sha256").hexdigest()
