"""Cache of a Redis ledger's rows with their parsed values, so unchanged rows are not parsed again.

A snapshot of a thousand leases reads a thousand rows, of which hardly any has changed a second later. Thread-safe: each read replaces the
cache as a whole, and an update lost to another thread costs only work.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from federation.snapshot import LeaseView, MeshRecord, MeshView
from federation.store.lease_rows import holder_of, lease_of, mesh_view, view_of
from federation.store.redis.scripts import pairs
from federation.store.tree_rows import charged_of
from federation.tenants import SEPARATOR
from mesh.core.ids import FlavorName, TenantPath
from mesh.core.wire import decode

Charged = dict[tuple[TenantPath, FlavorName, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChargedRows:
    """All charged use."""

    flat: list[bytes]  #: Raw rows.
    nodes: dict[bytes, tuple[bytes, Charged, Charged]]  #: Per node its row, and the row's part of `held` and of `targeted`.
    held: Charged
    targeted: Charged


class RowCache:
    """Cache of the rows of one ledger."""

    def __init__(self) -> None:
        self._holders: dict[bytes, tuple[list[bytes], dict[bytes, tuple[bytes, LeaseView]]]] = {}  #: Raw and parsed rows by holder.
        self._charged = _ChargedRows(flat=[], nodes={}, held={}, targeted={})
        self._records: dict[bytes, MeshRecord] = {}

    def leases(self, holders: list[Any]) -> tuple[LeaseView, ...]:
        """Return the leases of all holders, in the order of their grants."""
        before = self._holders
        now = {name: _views(name, flat, before.get(name)) for name, flat in holders}
        self._holders = now
        views = (view for _, of_holder in now.values() for _, view in of_holder.values())
        return tuple(sorted(views, key=attrgetter("token")))

    def charged(self, flat: list[bytes]) -> tuple[Charged, Charged]:
        """Return the charged use of each node, and nodes without use that have a target."""
        known = self._charged
        if known.flat != flat:
            known = _charged(flat, known.nodes)
            self._charged = known
        return dict(known.held), known.targeted

    def meshes(self, rows: list[list[Any]]) -> tuple[MeshView, ...]:
        """Return the meshes by id."""
        before = self._records
        now = {row[1]: before.get(row[1]) or decode(MeshRecord, row[1]) for row in rows}
        self._records = now
        return tuple(sorted((mesh_view(row, now[row[1]]) for row in rows), key=attrgetter("record.mesh")))


def _charged(flat: list[bytes], before: dict[bytes, tuple[bytes, Charged, Charged]]) -> _ChargedRows:
    now: dict[bytes, tuple[bytes, Charged, Charged]] = {}
    held: Charged = {}
    targeted: Charged = {}
    for name, row in pairs(flat).items():
        known = before.get(name)
        if known is None or known[0] != row:
            charged = charged_of(name, row)
            known = row, {key: units for key, units in charged.items() if units}, {key: 0 for key, units in charged.items() if not units}
        now[name] = known
        held.update(known[1])
        targeted.update(known[2])
    return _ChargedRows(flat=flat, nodes=now, held=held, targeted=targeted)


def _views(
    holder: bytes, flat: list[bytes], known: tuple[list[bytes], dict[bytes, tuple[bytes, LeaseView]]] | None
) -> tuple[list[bytes], dict[bytes, tuple[bytes, LeaseView]]]:
    """Return the leases of a holder, by the names of their rows."""
    if known is not None and known[0] == flat:
        return known
    before = known[1] if known is not None else {}
    mesh, incarnation = holder_of(holder.decode())
    views: dict[bytes, tuple[bytes, LeaseView]] = {}
    for field, row in pairs(flat).items():
        kept = before.get(field)
        if kept is None or kept[0] != row:
            tenant, _, flavor = field.decode().rpartition(SEPARATOR)
            kept = row, view_of(lease_of(mesh, tenant, flavor, row.decode()), incarnation)
        views[field] = kept
    return flat, views
