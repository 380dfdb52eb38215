"""Disagreements between the stores."""

from __future__ import annotations

from serve_apps.schemas.view import View


class OrphanView(View):
    """An index entry without its record, or a record without its index entry."""

    kind: str
    stage: str
    mesh: str
    detail: str


class MismatchView(View):
    """A sum in the ledger that differs from the sum of its leases."""

    tenant: str
    flavor: str
    resource: str
    kept: int
    counted: int


class AuditView(View):
    """Disagreements between the stores. The audit repairs nothing."""

    orphans: list[OrphanView]
    mismatches: list[MismatchView]
