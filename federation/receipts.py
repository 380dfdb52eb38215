"""Receipts: the root's signature over a lease. A ledger that has lost the lease can verify a mesh's claim to it.

Proofs: the root's signature over a token of a mesh. A ledger that has lost the token can verify that it was issued.

The signature is HMAC-SHA-256 over ledger, mesh, tenant, flavor, token, version and amounts. Only roots have the key. A mesh carries its
receipts and cannot make any, so after a loss it can claim what it was granted, and nothing else. Source: ADR 0019.
"""

import hmac
import json
import re
from dataclasses import dataclass, replace

from federation.errors import ForgedReceipt
from federation.leases import Lease
from mesh.core.ids import MeshId

_DOT = "."
#: Parts of a proof: token, version of the key, signature, ledger.
_PARTS = 4
_TOKEN, _NUMBER = re.compile(r"[0-9]{1,16}"), re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptKeys:
    """Keys by version. The highest signs and all verify, so a key can be replaced while old receipts are in use."""

    keys: dict[int, bytes]

    def signed(self, ledger: str, lease: Lease) -> Lease:
        """Return the lease with its receipt: `<version of the key>.<signature>`."""
        return replace(lease, receipt=self._sign(_content_of(ledger, lease)))

    def check(self, ledger: str, lease: Lease) -> None:
        """Verify the lease's receipt.

        Raises:
            ForgedReceipt: No key in use has signed this lease.
        """
        if not self._is_signed(lease.receipt, _content_of(ledger, lease)):
            raise ForgedReceipt(f"{lease.mesh} claims {lease.held} for {lease.tenant} under a receipt that this root has not signed")

    def proof(self, ledger: str, mesh: MeshId, token: int) -> str:
        """Return a proof that the mesh got this token or a higher one: `<token>.<version of the key>.<signature>.<ledger>`."""
        return f"{token}.{self._sign([ledger, mesh, token])}.{ledger}"

    def proven(self, mesh: MeshId, proof: str, *, ledger: str | None = None) -> int:
        """Return the token of a valid proof; 0 if the signature is invalid or names another mesh or another ledger."""
        parts = proof.split(_DOT, 3)
        if len(parts) != _PARTS or not _TOKEN.fullmatch(parts[0]) or ledger not in (None, parts[3]):
            return 0
        token = int(parts[0])
        return token if self._is_signed(f"{parts[1]}.{parts[2]}", [parts[3], mesh, token]) else 0

    def _sign(self, content: list[object]) -> str:
        number = max(self.keys)
        return f"{number}.{_signature(self.keys[number], content)}"

    def _is_signed(self, signed: str, content: list[object]) -> bool:
        number, _, signature = signed.partition(_DOT)
        key = self.keys.get(int(number)) if _NUMBER.fullmatch(number) else None
        return key is not None and hmac.compare_digest(signature.encode(), _signature(key, content).encode())


def _content_of(ledger: str, lease: Lease) -> list[object]:
    return [ledger, lease.mesh, lease.tenant, lease.flavor, lease.token, lease.version, dict(lease.held.items())]


def _signature(key: bytes, content: list[object]) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), "sha256").hexdigest()
