"""Tenants and sessions of the ledger in memory: changes of the tree; joins, heartbeats and leaves of meshes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from federation.errors import HoldingsRequired, LedgerRecovering, QuotaExceeded, StaleHeartbeat, TreeChanged
from federation.leases import ROWS_MAX, ROWS_SENT_MAX, Configured, HeartbeatReport, Lease, LeaseAck, LeaseUse, LedgerResponse, Session
from federation.reparenting import moved
from federation.snapshot import MeshRecord
from federation.store.lease_rows import EARLIER, refuse_unfit
from federation.store.memory.ledger_state import MemoryLedgerState
from federation.store.memory.rows import Row, SessionRow, bounded, by_field
from federation.tenants import Tenant, TenantTree
from mesh.core.ids import MeshId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


class MemorySessions(MemoryLedgerState):
    """Verbs of the tenant tree and of sessions."""

    # ---- tenants

    def configure(self, tree: TenantTree, *, expected: int | None = None) -> Configured:
        with self._changed:
            self._tick()
            return self._replace_tree(tree, expected, is_strict=False)

    def reparent(self, tenant: TenantPath, parent: TenantPath | None, *, expected: int, force: bool = False) -> Configured:
        with self._changed:
            self._tick()
            return self._replace_tree(moved(self._configured, tenant, parent), expected, is_strict=not force)

    def _replace_tree(self, tree: TenantTree, expected: int | None, *, is_strict: bool) -> Configured:
        if expected is not None and expected != self._version:
            raise TreeChanged(f"version {self._version} of the tenant tree is in force, not {expected}; read it again")
        vanished: dict[TenantPath, TenantPath | None] = {}
        for row in self._all_rows():
            path: TenantPath | None = row.tenant
            while path is not None and path not in tree.tenants and path not in vanished:
                vanished[path] = self._tree.tenant(path).parent
                path = vanished[path]
        charged = TenantTree([*tree.tenants.values(), *(Tenant(path=path, parent=parent) for path, parent in vanished.items())])
        usage, targeted = charged.recompute(self._charges("held")), charged.recompute(self._charges("target"))
        over = charged.over(usage)
        newly = set(over) - set(self._tree.over(self._usage))
        if is_strict and newly:
            raise QuotaExceeded(f"these nodes would be above their limits: {', '.join(sorted(newly))}")
        self._configured, self._vanished, self._tree, self._usage, self._targeted = tree, vanished, charged, usage, targeted
        self._version += 1
        self._wake_all()
        return Configured(version=self._version, over=over)

    def _all_rows(self) -> Iterator[Row]:
        return (row for rows in self._rows.values() for row in rows.values() if row.version)

    def _charges(self, which: str) -> Iterable[Lease]:
        for row in self._all_rows():
            amounts = ResourceSet(row.held if which == "held" else row.target)
            yield Lease(tenant=row.tenant, mesh=MeshId(""), flavor=row.flavor, held=amounts)

    # ---- sessions

    def join(self, record: MeshRecord, *, adopt: int = 0, seen: int = 0) -> Session:
        with self._changed:
            self._tick()
            self._hear(seen)
            mesh, freed, flavors = record.mesh, 0, self._flavors_of(record.mesh)
            before = self._session_rows.get(mesh)
            if adopt:
                self._check_successor(mesh, adopt)
            elif before is not None and before.expires > 0:
                freed = self._end(before)
            self._demands.drop(mesh)
            session_row = SessionRow(record=record, incarnation=self._next_token(), ttl_ms=self._terms.ttl_ms, successor_of=adopt)
            self._session_rows[mesh] = session_row
            if adopt:
                self._hand_over_stages(session_row)
            self._renew(session_row)
            if freed:
                self._wake_waiting(flavors)
            session = Session(
                mesh=mesh, incarnation=session_row.incarnation, ttl_ms=session_row.ttl_ms, epoch=self._epoch, ledger=self._uid
            )
            response = self._response(session)
            return replace(session, mark=response.mark, response=response)

    def _check_successor(self, mesh: MeshId, adopt: int) -> None:
        """Check that a new session may recover the work of the named one. See lua/join.lua."""
        if self._recovery_left():
            raise LedgerRecovering(f"the ledger recovers for another {self._recovery_left()} ms; no session can be recovered until then")
        before = self._session_rows.get(mesh)
        is_repeat = before is not None and before.heartbeat_number == 0 and before.successor_of == adopt
        named = before.incarnation if is_repeat and before is not None else adopt
        self._session_row(Session(mesh=mesh, incarnation=named, ttl_ms=0), live=True)

    def _end(self, before: SessionRow) -> int:
        """Lose the session's stages and let its leases expire; return how many leases lost planned growth."""
        mesh = before.record.mesh
        self._lose_stages(before)
        self._prune(mesh)
        if self._rows.get(mesh):
            holder = f"{mesh}{EARLIER}{before.incarnation}"
            self._rows[holder] = self._rows.pop(mesh)
            self._due[holder] = before.expires + self._terms.grace_ms
            growing = [row for _, row in sorted(self._rows[holder].items(), key=by_field) if row.grows]
            for row in growing:
                for resource, target in tuple(row.target.items()):
                    self._set(row, resource, row.held.get(resource, 0), min(row.held.get(resource, 0), target))
                self._keep(holder, row, "unplan")
            return len(growing)
        return 0

    def _renew(self, session_row: SessionRow) -> None:
        session_row.heartbeat = self._lt
        session_row.expires = self._lt + session_row.ttl_ms
        self._due[session_row.record.mesh] = session_row.expires + self._terms.grace_ms

    def heartbeat(self, session: Session, record: MeshRecord, heartbeat_report: HeartbeatReport) -> LedgerResponse:
        _check_heartbeat(heartbeat_report)
        with self._changed:
            self._admit(session)
            is_known = session.mesh in self._session_rows  # By the ledger's record, not by the mesh's word.
            if not is_known and session.incarnation and self._recovery_left() and heartbeat_report.claims is not None:
                self._session_rows[session.mesh] = SessionRow(
                    record=record, incarnation=session.incarnation, ttl_ms=self._terms.ttl_ms, expires=max(1, self._lt)
                )
            session_row = self._session_row(session)
            if heartbeat_report.number < session_row.heartbeat_number:
                raise StaleHeartbeat(f"mesh {session.mesh}: a later heartbeat was accepted")
            if heartbeat_report.number == session_row.heartbeat_number:
                return self._response(session)
            if self._recovery_left():
                if heartbeat_report.claims is None:
                    raise HoldingsRequired(f"mesh {session.mesh}: the ledger recovers; report all leases held")
                seen = max(self._mark_before_loss(session.mesh), session.incarnation if is_known else 0)
                self._reconcile(session.mesh, heartbeat_report.claims, seen)
            freed = [self._obey(session.mesh, ack) for ack in heartbeat_report.acks]
            for use in heartbeat_report.lease_uses:
                self._note_lease_use(session.mesh, use)
            if heartbeat_report.demands is not None:
                self._demands.replace(session.mesh, heartbeat_report.demands, self._lt)
            if session.mesh in self._growing and not self._recovery_left():
                self._grow(session.mesh)
            session_row.heartbeat_number, session_row.record = heartbeat_report.number, record
            self._renew(session_row)
            if any(freed):
                self._wake_waiting({ack.flavor for ack in heartbeat_report.acks})
            return self._response(session)

    def _reconcile(self, mesh: MeshId, claims: tuple[Lease, ...], seen: int) -> None:
        for claim in claims:
            self._restore(mesh, claim, seen)
        named = {(claim.tenant, claim.flavor) for claim in claims}
        for key, row in sorted(self._rows.get(mesh, {}).items(), key=by_field):
            if key not in named and row.version:
                for resource in row.held:
                    self._set(row, resource, 0, 0)
                self._keep(mesh, row, "not held")

    def _restore(self, mesh: MeshId, claim: Lease, seen: int) -> None:
        row = self._row_of(mesh, (claim.tenant, claim.flavor))
        if not row.version and claim.version <= seen:
            return  # The ledger itself has seen the return of this lease: an old receipt.
        if claim.tenant not in self._tree.tenants:
            self._vanished[claim.tenant] = None
            self._tree = TenantTree([*self._tree.tenants.values(), Tenant(path=claim.tenant, parent=None)])
        if row.version < claim.version:
            for resource in {*row.held, *claim.held}:
                self._set(row, resource, claim.held[resource], claim.held[resource])
            row.token, row.priority, row.cut, row.victims = claim.token, claim.priority, 0, ()
            self._keep(mesh, row, "restore")  # A new version, so the lease is reported: the mesh may know it with another target.

    def _obey(self, mesh: MeshId, ack: LeaseAck) -> bool:
        row = self._row_of(mesh, (ack.tenant, ack.flavor))
        obeyed = row.version == ack.version and row.shrinks
        obeyed = obeyed and all(ack.amounts[resource] <= target for resource, target in row.target.items())
        if obeyed:
            self._cut_down(mesh, row, "shrink")
        return obeyed

    def _note_lease_use(self, mesh: MeshId, use: LeaseUse) -> None:
        row = self._rows.get(mesh, {}).get((use.tenant, use.flavor))
        if row is not None and row.version:
            row.priority = use.priority  # No new version: the mesh knows the priority.

    def _grow(self, mesh: MeshId) -> None:
        for row in [row for _, row in sorted(self._rows.get(mesh, {}).items(), key=by_field) if row.grows]:
            more: dict[str, int] = {}
            for resource, target in tuple(row.target.items()):
                held = row.held.get(resource, 0)
                by = min(target - held, max(0, self._room(self._usage, row, resource)))
                if by > 0:
                    self._set(row, resource, held + by, target)
                    more[resource] = by
            if more:
                met = self._demands.meet(mesh, (row.tenant, row.flavor), more)
                row.priority = row.priority if met is None else max(row.priority, met)
                self._keep(mesh, row, "grow")
        if not any(row.grows for row in self._rows.get(mesh, {}).values()):
            self._growing.discard(mesh)

    def leave(self, session: Session) -> None:
        with self._changed:
            self._tick()
            session_row = self._session_rows.get(session.mesh)
            if session_row is None or session_row.incarnation != session.incarnation:
                return
            self._lose_stages(session_row, Reason.MESH_LEFT)
            flavors = self._flavors_of(session.mesh)
            freed = self._free_all(session.mesh, "leave")
            self._demands.drop(session.mesh)
            self._forget(session_row)
            if freed:
                self._wake_waiting(flavors)

    def _forget(self, session_row: SessionRow) -> None:
        """Forget the mesh except for its mark, so receipts of the session count as old."""
        mesh = session_row.record.mesh
        self._marks[mesh] = max(self._marks.get(mesh, 0), session_row.incarnation)
        self._before_loss.pop(mesh, None)
        self._growing.discard(mesh)
        self._due.pop(mesh, None)
        self._drop_notifications(mesh)
        del self._session_rows[mesh]


def _check_heartbeat(heartbeat_report: HeartbeatReport) -> None:
    bounded(heartbeat_report.acks, ROWS_MAX)
    for demand in bounded(heartbeat_report.demands or (), ROWS_SENT_MAX):
        refuse_unfit(demand.tenant, demand.flavor, demand.slot, demand.whole)
    for use in bounded(heartbeat_report.lease_uses, ROWS_SENT_MAX):
        refuse_unfit(use.tenant, use.flavor)
    for claim in bounded(heartbeat_report.claims or (), ROWS_SENT_MAX):
        refuse_unfit(claim.tenant, claim.flavor, claim.held)
