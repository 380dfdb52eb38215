"""Tokens that a mesh says it has seen: believed only as far as the root has signed that it told them.

A token that the ledger has not given out proves that writes were lost, and begins an epoch, in which nobody is granted
anything. So a mesh that may name any token can keep everybody from work for ever. Each answer that tells tokens has a header
with the highest of them, signed; a mesh sends the last one back, and what it names beyond that counts for nothing.
Source: ADR 0023; what is signed stands in `federation.receipts`.
"""

from dataclasses import replace
from typing import Any

from federation.leases import Acquired, Session, Told
from federation.link import Join
from federation.receipts import ReceiptKeys
from mesh.ids import MeshId


def believed(asked: Any, mesh: MeshId, proof: str, receipts: ReceiptKeys) -> Any:
    """What is asked, without tokens that the mesh may have made up: of an incarnation that no root has told it there is no session."""
    if isinstance(asked, Join):
        return replace(asked, seen=min(asked.seen, receipts.proven(mesh, proof)))
    session = getattr(asked, "session", None)
    if not isinstance(session, Session):
        return asked
    proven = receipts.proven(mesh, proof, ledger=session.ledger)
    incarnation = session.incarnation if session.incarnation <= proven else 0
    return replace(asked, session=replace(session, incarnation=incarnation, mark=min(session.mark, proven)))


def proof_of(asked: Any, answered: Any, mesh: MeshId, receipts: ReceiptKeys) -> str | None:
    """The header of an answer: that the mesh was told its tokens; None when it tells none."""
    if isinstance(answered, Session):
        return receipts.proof(answered.ledger, mesh, max(answered.incarnation, answered.epoch, answered.mark))
    told = answered.told if isinstance(answered, Acquired) else answered
    if not isinstance(told, Told):
        return None
    return receipts.proof(asked.session.ledger, mesh, max(asked.session.incarnation, told.epoch, told.mark))
