"""Entries of the log of changes for commands that change the federation of a state folder without its root."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from federation.api_keys import EVERYBODY
from federation.change_log import TERMINAL, Change, Outcome
from federation.errors import StoreUnavailable
from mesh.core.clock import SystemClock
from mesh.core.ids import TenantPath
from mesh.errors import MeshError
from serve_apps.cli.output import console_for
from serve_apps.processes.stores import Stores
from serve_apps.requests.errors import INTERNAL, meaning_of


@contextmanager
def recorded(
    stores: Stores, operation: str, target: str = "", *, tenant: TenantPath = EVERYBODY, details: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Record the change that the block makes, with its outcome. The block may add details; none of them may be a secret.

    Args:
        operation: The words of the command, without arguments.
        tenant: Tenant that the change is about; `*`: all.
    """
    shown = {name: text for name, text in (details or {}).items() if text}
    outcome, code = Outcome.FAILED, INTERNAL.code
    try:
        yield shown
        outcome, code = Outcome.ALLOWED, ""
    except MeshError as refused:
        code = meaning_of(refused).code
        outcome = Outcome.FAILED if isinstance(refused, StoreUnavailable) else Outcome.REFUSED
        raise
    finally:
        change = Change(
            at_ms=SystemClock().wall_ms(),
            operation=f"schedulemesh {operation}",
            tenant=tenant,
            target=target,
            details=shown,
            key=TERMINAL,
            user=_user(),
            source=socket.gethostname(),
            outcome=outcome,
            code=code,
        )
        try:
            stores.changes.append(change)
        except StoreUnavailable as gone:  # The change is made: its result has to be shown.
            console_for(stderr=True).print(f"warning: the change could not be recorded: {gone}", style="yellow", soft_wrap=True)


def known_tenant(stores: Stores, tenant: str) -> TenantPath:
    """Return the tenant if it exists, else `*`: a mistyped name gets no log of its own. Raises StoreUnavailable."""
    return TenantPath(tenant) if tenant in stores.ledger.snapshot().tree.tenants else EVERYBODY


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # The process has a user without a name.
        return ""
