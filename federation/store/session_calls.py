"""What all scripts of a session are told first, and the errors that they all may answer with: see `lua/lib_caller.lua`."""

from typing import Any

from federation.errors import (
    EpochChanged,
    FederationError,
    ForeignLedger,
    FutureToken,
    HoldingsWanted,
    SessionExpired,
    SessionSuperseded,
    SessionUnknown,
    StaleBeat,
)
from federation.leases import Session
from mesh.ids import MeshId

_NAMED: dict[bytes, tuple[type[FederationError], str]] = {
    b"TREE": (ForeignLedger, "this is another ledger than the one it joined"),
    b"SKEW": (FutureToken, "it has a token from the future; is the clock of a server far ahead?"),
    b"UNKNOWN": (SessionUnknown, "it has no session; join"),
    b"FENCED": (SessionSuperseded, "it has joined again since; only its latest session may speak"),
    b"EXPIRED": (SessionExpired, "its session has run out; join again"),
    b"STALE": (StaleBeat, "a later heartbeat was taken in"),
    b"HOLDINGS": (HoldingsWanted, "the ledger learns; tell all that is held"),
}


def of_session(session: Session) -> tuple[str | int, ...]:
    """The first arguments of every verb of a session: see `lua/lib_caller.lua`."""
    return (session.ledger, session.epoch, session.mesh, session.incarnation, session.mark)


def named_error(reply: Any, mesh: MeshId) -> FederationError | None:
    """The error that a reply to a session names; None when it is an answer."""
    code = reply[0] if isinstance(reply, list) and reply else reply
    if code == b"EPOCH":
        _, _, epoch, learn_ms = reply
        return EpochChanged("the ledger began another epoch; say it again", epoch=int(epoch), learn_ms=int(learn_ms))
    kind, words = _NAMED.get(code, (None, "")) if isinstance(code, bytes) else (None, "")
    return None if kind is None else kind(f"mesh {mesh}: {words}")


def raise_named(reply: Any, mesh: MeshId) -> None:
    """Raise what `named_error` finds."""
    told = named_error(reply, mesh)
    if told is not None:
        raise told
