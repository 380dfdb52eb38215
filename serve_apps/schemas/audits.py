"""What does not agree in the stores."""

from __future__ import annotations

from serve_apps.schemas.view import View


class OrphanView(View):
    """A trace in an index, or a record, that has lost its other half."""

    kind: str
    stage: str
    mesh: str
    detail: str


class MismatchView(View):
    """A sum of the ledger that is not that of its leases."""

    tenant: str
    flavor: str
    resource: str
    kept: int
    counted: int


class AuditView(View):
    """What does not agree in the stores; nothing is repaired."""

    orphans: list[OrphanView]
    mismatches: list[MismatchView]
