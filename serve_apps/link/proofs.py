"""Verification of tokens that a mesh says it has seen: only tokens that the root has signed count.

A token that the ledger has not issued proves that writes were lost, and begins an epoch in which nothing is granted. A mesh that
could name any token could therefore stop all work. Each response with tokens has a header with the highest of them,
signed. The mesh sends the last header back, and higher tokens in its call do not count.
Source: ADR 0023; `federation.receipts` defines what is signed.
"""

from dataclasses import replace
from typing import Any

from federation.leases import Acquired, LedgerResponse, Session
from federation.link import Join
from federation.receipts import ReceiptKeys
from mesh.core.ids import MeshId


def believed(asked: Any, mesh: MeshId, proof: str, receipts: ReceiptKeys) -> Any:
    """Return the call without tokens that the mesh may have invented: a session whose incarnation no root has signed does not exist."""
    if isinstance(asked, Join):
        return replace(asked, seen=min(asked.seen, receipts.proven(mesh, proof)))
    session = getattr(asked, "session", None)
    if not isinstance(session, Session):
        return asked
    proven = receipts.proven(mesh, proof, ledger=session.ledger)
    incarnation = session.incarnation if session.incarnation <= proven else 0
    return replace(asked, session=replace(session, incarnation=incarnation, mark=min(session.mark, proven)))


def proof_of(asked: Any, answered: Any, mesh: MeshId, receipts: ReceiptKeys) -> str | None:
    """Return the signed header for the tokens in a response; None if it has no tokens."""
    if isinstance(answered, Session):
        return receipts.proof(answered.ledger, mesh, max(answered.incarnation, answered.epoch, answered.mark))
    response = answered.response if isinstance(answered, Acquired) else answered
    if not isinstance(response, LedgerResponse):
        return None
    return receipts.proof(asked.session.ledger, mesh, max(asked.session.incarnation, response.epoch, response.mark))
