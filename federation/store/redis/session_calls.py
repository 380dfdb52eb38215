"""Common first arguments of a session's scripts, and their common errors: see `lua/lib_caller.lua`."""

from typing import Any

from federation.errors import (
    EpochChanged,
    FederationError,
    ForeignLedger,
    FutureToken,
    HoldingsRequired,
    SessionExpired,
    SessionSuperseded,
    SessionUnknown,
    StaleHeartbeat,
)
from federation.leases import Session
from mesh.core.ids import MeshId

_NAMED: dict[bytes, tuple[type[FederationError], str]] = {
    b"TREE": (ForeignLedger, "this is another ledger than the one it joined"),
    b"SKEW": (FutureToken, "its token is from the future; check the clocks of the servers"),
    b"UNKNOWN": (SessionUnknown, "it has no session; join"),
    b"FENCED": (SessionSuperseded, "it has joined again since; only its latest session may call"),
    b"EXPIRED": (SessionExpired, "its session has expired; join again"),
    b"STALE": (StaleHeartbeat, "a later heartbeat was accepted"),
    b"HOLDINGS": (HoldingsRequired, "the ledger recovers; report all leases held"),
}


def of_session(session: Session) -> tuple[str | int, ...]:
    """Return the first arguments of every verb of a session: see `lua/lib_caller.lua`."""
    return (session.ledger, session.epoch, session.mesh, session.incarnation, session.mark)


def named_error(reply: Any, mesh: MeshId) -> FederationError | None:
    """Return the error that a reply to a session names; None if the reply is no error."""
    code = reply[0] if isinstance(reply, list) and reply else reply
    if code == b"EPOCH":
        _, _, epoch, recovery_ms = reply
        return EpochChanged("the ledger began another epoch; repeat the call", epoch=int(epoch), recovery_ms=int(recovery_ms))
    kind, words = _NAMED.get(code, (None, "")) if isinstance(code, bytes) else (None, "")
    return None if kind is None else kind(f"mesh {mesh}: {words}")


def raise_named(reply: Any, mesh: MeshId) -> None:
    """Raise the error of `named_error`, if any."""
    error = named_error(reply, mesh)
    if error is not None:
        raise error
