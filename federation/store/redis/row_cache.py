"""Cache of a Redis ledger's rows with their parsed values, so unchanged rows are not parsed again.

A snapshot of a thousand leases reads a thousand rows, of which hardly any has changed a second later. Thread-safe: each read replaces the
cache as a whole, and an update lost to another thread costs only work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

from federation.snapshot import LeaseView, MeshRecord, MeshView, RunningView
from federation.store.lease_rows import holder_of, lease_of, mesh_view, running_view, view_of
from federation.store.redis.scripts import pairs
from federation.store.tree_rows import charged_of
from federation.tenants import SEPARATOR
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.wire import decode

Charged = dict[tuple[TenantPath, FlavorName, str], int]
View = TypeVar("View", LeaseView, RunningView)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedRows(Generic[View]):
    """Rows of one hash."""

    flat: list[bytes]  #: Raw fields and rows.
    rows: dict[bytes, tuple[bytes, View]]  #: By field.
    views: tuple[View, ...]  #: By token.


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
        self._holders: dict[bytes, _ParsedRows[LeaseView]] = {}
        self._running: dict[bytes, _ParsedRows[RunningView]] = {}  #: By mesh.
        self._charged = _ChargedRows(flat=[], nodes={}, held={}, targeted={})
        self._records: dict[bytes, MeshRecord] = {}

    def leases(self, holders: list[Any]) -> tuple[LeaseView, ...]:
        """Return the leases of all holders, in the order of their grants."""
        before = self._holders
        now = {name: _parsed(flat, before.get(name), _lease_parser(name)) for name, flat in holders}
        self._holders = now
        return tuple(sorted((view for of_holder in now.values() for view in of_holder.views), key=attrgetter("token")))

    def running(self, meshes: list[Any]) -> tuple[RunningView, ...]:
        """Return the running stages by mesh, in the order of the claims; leaving ones only if cancelled."""
        before = self._running
        now = {name: _parsed(flat, before.get(name), _running_parser(name)) for name, flat in meshes}
        self._running = now
        return tuple(view for name in sorted(now) for view in now[name].views)

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


def _parsed(flat: list[bytes], known: _ParsedRows[View] | None, parse: Callable[[bytes, bytes], View]) -> _ParsedRows[View]:
    """Return the rows of a hash; only rows that are not known are parsed."""
    if known is not None and known.flat == flat:
        return known
    before = known.rows if known is not None else {}
    rows: dict[bytes, tuple[bytes, View]] = {}
    for field, row in pairs(flat).items():
        kept = before.get(field)
        rows[field] = kept if kept is not None and kept[0] == row else (row, parse(field, row))
    return _ParsedRows(flat=flat, rows=rows, views=tuple(sorted((view for _, view in rows.values()), key=attrgetter("token"))))


def _lease_parser(holder: bytes) -> Callable[[bytes, bytes], LeaseView]:
    mesh, incarnation = holder_of(holder.decode())

    def parse(field: bytes, row: bytes) -> LeaseView:
        tenant, _, flavor = field.decode().rpartition(SEPARATOR)
        return view_of(lease_of(mesh, tenant, flavor, row.decode()), incarnation)

    return parse


def _running_parser(name: bytes) -> Callable[[bytes, bytes], RunningView]:
    mesh = MeshId(name.decode())
    return lambda stage, row: running_view(mesh, stage.decode(), row.decode())
