"""The lease ledger in one process: the same decisions as the Redis scripts, in Python.

The quota arithmetic is in `TenantTree` here and in Lua there, and a test runs both side by side. `rows` defines the rows, `ledger_state`
has the clock and the checks of sessions, `sessions` has tenants and sessions. This module has leases, planning and reads, in the order of
the port.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from federation.auditing import Mismatch, mismatches
from federation.errors import LedgerRecovering, PlannerSuperseded, QuotaExceeded, SessionUnknown, TreeChanged
from federation.leases import (
    CONTESTED_MS,
    ROWS_MAX,
    Acquired,
    Granted,
    LeaseAck,
    LeaseEvent,
    LeaseRefused,
    LedgerResponse,
    LookAgain,
    QuotaDemand,
    Session,
    Swept,
    TargetUpdate,
)
from federation.snapshot import FederationSnapshot, LeaseView
from federation.store.lease_rows import EARLIER, demand_field, holder_of, refuse_unfit, view_of
from federation.store.memory.demands import stage_kind
from federation.store.memory.rows import LeaseKey, Row, bounded
from federation.store.memory.sessions import MemorySessions
from mesh.core.counting import counted
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.errors import AmountError

_FORGET_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Grant:
    """Result of one demand."""

    answer: Granted | LookAgain | LeaseRefused
    lacks: bool = False  #: Less is free than it asks for, so other meshes have to return quota.
    is_contested: bool = False  #: More is free than was granted, and the planner decides who gets it.


class MemoryLedger(MemorySessions):
    """`LeaseLedger` in one process, without the effects on the stage queue; thread-safe."""

    # ---- leases

    def acquire(self, session: Session, demands: tuple[QuotaDemand, ...]) -> Acquired:
        for demand in bounded(demands, ROWS_MAX):
            if demand.slots < 1:
                raise AmountError(f"{counted(demand.slots, 'slot was', 'slots were')} asked for; ask for at least 1")
            refuse_unfit(demand.tenant, demand.flavor, demand.slot, demand.whole)
        with self._changed:
            self._admit(session)
            self._session_row(session, live=True)
            borrowers = self._borrowers(session.mesh, demands)
            grants = [self._grant(session.mesh, demand, borrowers) for demand in demands]
            waiting = [(demand, grant) for demand, grant in zip(demands, grants, strict=True) if not demand.is_growth]
            self._settle(session.mesh, waiting)
            if any(grant.is_contested for _, grant in waiting) and self._lt - self._notified_of_contest >= CONTESTED_MS:
                self._notified_of_contest = self._lt
                self._notify_of_contest()
            return Acquired(answers=tuple(grant.answer for grant in grants), response=self._response(session))

    def _borrowers(self, mesh: MeshId, demands: tuple[QuotaDemand, ...]) -> set[LeaseKey]:
        """Return the tenants that would borrow in this call, with the flavors."""
        known = [demand for demand in demands if demand.tenant in self._configured.tenants and not demand.is_growth]
        rows = {(demand.tenant, demand.flavor): self._row_of(mesh, (demand.tenant, demand.flavor)) for demand in known}
        return {
            (demand.tenant, demand.flavor)
            for demand in known
            for resource, units in demand.slot.items()
            if demand.slots * units > self._owned(rows[demand.tenant, demand.flavor], resource)
        }

    def _owned(self, row: Row, resource: str) -> int:
        """Return the units that the lease could grow by without borrowing: what a plan has promised, and what is left of the own quota."""
        key = row.tenant, row.flavor, resource
        own = self._tree.own_quota(row.tenant, (row.flavor, resource))
        used = max(self._usage.get(key, 0), self._targeted.get(key, 0))
        return max(0, row.target.get(resource, 0) - row.held.get(resource, 0)) + max(0, own - used)

    def _grant(self, mesh: MeshId, demand: QuotaDemand, borrowers: set[LeaseKey]) -> _Grant:
        if self._recovery_left():
            return _Grant(LeaseRefused(reason=Reason.LEDGER_RECOVERING, tenant=demand.tenant, flavor=demand.flavor))
        if demand.tenant not in self._configured.tenants:
            return _Grant(LeaseRefused(reason=Reason.TENANT_UNKNOWN, tenant=demand.tenant, flavor=demand.flavor))
        row = self._row_of(mesh, (demand.tenant, demand.flavor))
        if row.version != demand.version:
            return _Grant(LookAgain())
        free = {resource: self._free_for(row, resource) for resource in demand.slot}
        slots = most = _slots_in(free, demand)
        if slots == 0:
            return _Grant(self._refusal(demand, free), lacks=True)
        owned = {resource: min(units, self._owned(row, resource)) for resource, units in free.items()}
        if _slots_in(owned, demand) < slots and self._is_contested(demand, borrowers):
            slots = _slots_in(owned, demand)
            if slots == 0:
                return _Grant(_contested(demand, owned), lacks=most < demand.slots, is_contested=True)
        for resource, units in demand.slot.items():
            held = row.held.get(resource, 0) + slots * units
            self._set(row, resource, held, max(held, row.target.get(resource, 0)))
        row.priority = demand.priority if demand.pays_for is None else demand.pays_for
        self._keep(mesh, row, "grant")
        return _Grant(Granted(slots=slots), lacks=most < demand.slots, is_contested=slots < most)

    def _is_contested(self, demand: QuotaDemand, borrowers: set[LeaseKey]) -> bool:
        """Return whether another tenant wants quota of the flavor. Tenants of other trees count as well: see lua/acquire.lua."""
        asks = any(flavor == demand.flavor and tenant != demand.tenant for tenant, flavor in borrowers)
        return asks or self._demands.others_want(demand.flavor, demand.tenant)

    def _free_for(self, row: Row, resource: str) -> int:
        """Return the units that could be added: capacity is free, and no plan has reserved it for others."""
        held, target = row.held.get(resource, 0), row.target.get(resource, 0)
        if held > target:
            return 0
        unplanned = max(0, target - held) + max(0, self._room(self._targeted, row, resource))
        return min(max(0, self._room(self._usage, row, resource)), unplanned)

    def _refusal(self, demand: QuotaDemand, free: dict[str, int]) -> LeaseRefused:
        """Return the refusal. It names the first resource that could never fit, else the first that is short now."""
        short = [resource for resource in sorted(demand.slot) if free[resource] < demand.slot[resource]]
        never = [resource for resource in short if self._tree.potential(demand.tenant, (demand.flavor, resource)) < demand.slot[resource]]
        resource = (never or short)[0]
        too_small = Reason.QUOTA_TOO_SMALL if demand.flavor in self._tree.open_flavors(demand.tenant) else Reason.FLAVOR_CLOSED
        return LeaseRefused(
            reason=too_small if never else Reason.QUOTA_EXHAUSTED,
            tenant=demand.tenant,
            flavor=demand.flavor,
            resource=resource,
            wanted=demand.slot[resource],
            available=free[resource],
        )

    def _settle(self, mesh: MeshId, grants: Iterable[tuple[QuotaDemand, _Grant]]) -> None:
        """Record remaining demands. If a demand is new and not all of its quota is free, ask other meshes for idle leases."""
        is_change = False
        for demand, grant in grants:
            answer = grant.answer
            granted = answer.slots if isinstance(answer, Granted) else 0
            if granted or (isinstance(answer, LeaseRefused) and answer.reason in (Reason.QUOTA_EXHAUSTED, Reason.QUOTA_CONTESTED)):
                known = self._demands.slots_of(mesh, demand)
                is_new = self._demands.settle(mesh, demand, granted, demand.slots - granted, self._lt)
                is_change = is_change or (is_new and grant.lacks)
                if self._demands.slots_of(mesh, demand) > known and (queued := self._queued_slots(mesh, stage_kind(demand))):
                    self._demands.bound(mesh, stage_kind(demand), queued, demand_field(demand))  # For a slot or a part, not both.
        if is_change:
            for other in self._session_rows:
                if other != mesh and any(row.version for row in self._rows.get(other, {}).values()):
                    self._ask_for_idle(other)

    def release(self, session: Session, parts: tuple[LeaseAck, ...]) -> LedgerResponse:
        for part in bounded(parts, ROWS_MAX):
            refuse_unfit(part.tenant, part.flavor, part.amounts)
        with self._changed:
            self._admit(session)
            self._session_row(session)
            freed = False
            for part in parts:
                row = self._row_of(session.mesh, (part.tenant, part.flavor))
                if row.version == part.version and row.version:
                    for resource, before in tuple(row.held.items()):
                        held = min(before, part.amounts[resource])
                        self._set(row, resource, held, min(held, row.target[resource]))
                    if not row.shrinks:
                        row.end_shrinking()
                    self._keep(session.mesh, row, "release")
                    freed = True
            if freed:
                self._wake_waiting({part.flavor for part in parts})
            return self._response(session)

    def sweep(self, limit: int = 200) -> Swept:
        with self._changed:
            self._tick()
            if self._recovery_left():
                return Swept(recovery_ms=self._recovery_left())
            leases, more, flavors = 0, False, set[FlavorName]()
            meshes: list[MeshId] = []
            stages: list[StageId] = []
            for holder in sorted(name for name, due in self._due.items() if due < self._lt):
                if leases >= limit:
                    more = True
                    break
                session_row = self._session_rows.get(MeshId(holder))
                if session_row is not None and session_row.expires == 0:
                    self._forget(session_row)
                    continue
                flavors |= self._flavors_of(holder)
                leases += self._free_all(holder, "expire")
                del self._due[holder]
                if session_row is not None:
                    self._due[holder] = self._lt + _FORGET_MS
                    stages.extend(self._lose_stages(session_row))
                    session_row.expires = 0
                    self._demands.drop(MeshId(holder))
                    meshes.append(MeshId(holder))
            for holder, row in self._overdue_cuts():
                if leases >= limit:
                    more = True
                    break
                self._cut_down(holder, row, "cut")
                flavors.add(row.flavor)
                leases += 1
            if leases:
                self._wake_waiting(flavors)
            return Swept(meshes=tuple(meshes), leases=leases, stages=tuple(stages), is_more_due=more)

    def _overdue_cuts(self) -> list[tuple[str, Row]]:
        rows = [(holder, row) for holder, held in self._rows.items() if EARLIER not in holder for row in held.values()]
        return [(holder, row) for holder, row in rows if row.cut and row.shrinks and row.cut + self._terms.grace_ms < self._lt]

    # ---- planning

    def elect(self, name: str, ttl_ms: int) -> int | None:
        with self._changed:
            self._tick()
            held = self._planner if self._planner is not None and self._planner[2] > self._lt else None
            if held is not None and held[0] != name:
                return None
            self._planner = (name, held[1] if held is not None else self._next_token(), self._lt + ttl_ms)
            return self._planner[1]

    def plan_apply(self, planner: int, version: int, target_updates: tuple[TargetUpdate, ...]) -> int:
        bounded(target_updates, ROWS_MAX)
        with self._changed:
            self._tick()
            if self._planner is None or self._planner[1] != planner or self._planner[2] <= self._lt:
                raise PlannerSuperseded(f"planner {planner} is not the planner any more")
            if version != self._version:
                raise TreeChanged(f"version {self._version} of the tenant tree is in force, not {version}; plan again")
            if self._recovery_left():
                raise LedgerRecovering(f"the ledger recovers for another {self._recovery_left()} ms; plan then")
            target_updates = tuple([target_update.from_now(self._target_at(target_update)) for target_update in target_updates])
            self._check_plan(target_updates)
            growing = {target_update.mesh for target_update in target_updates if self._can_grow(target_update)}
            shrinking = {target_update.mesh for target_update in target_updates if self._set_target(target_update)}
            for mesh in sorted(shrinking):
                self._notify_of_plan(mesh)
            for mesh in sorted(growing):
                self._wake(mesh)
            self._plans += 1
            return self._plans

    def _check_plan(self, target_updates: tuple[TargetUpdate, ...]) -> None:
        """Check that all targets stay within the limits, if all reductions come before all increases."""
        sums = dict(self._targeted)
        raised: list[tuple[TargetUpdate, str, int]] = []
        for target_update in target_updates:
            session_row = self._session_rows.get(target_update.mesh)
            if session_row is None or session_row.expires == 0:
                raise SessionUnknown(f"mesh {target_update.mesh} has no session")
            before = self._target_at(target_update)
            for resource in sorted({*target_update.target, *before}):
                by = target_update.target[resource] - before.get(resource, 0)
                if by > 0:
                    raised.append((target_update, resource, by))
                elif by < 0:
                    self._tree.charge(sums, target_update.tenant, (target_update.flavor, resource), by)
        for target_update, resource, by in raised:
            key = (target_update.flavor, resource)
            if target_update.tenant not in self._tree.tenants or self._tree.available(sums, target_update.tenant, key) < by:
                raise QuotaExceeded(f"the targets exceed a limit at {target_update.tenant}/{target_update.flavor}/{resource}")
            self._tree.charge(sums, target_update.tenant, key, by)

    def _target_at(self, target_update: TargetUpdate) -> Mapping[str, int]:
        """Return the lease's present target."""
        row = self._rows.get(target_update.mesh, {}).get((target_update.tenant, target_update.flavor))
        return row.target if row is not None else {}

    def _can_grow(self, target_update: TargetUpdate) -> bool:
        """Return whether the plan raises the lease and part of it can be granted at once."""
        row = self._row_of(target_update.mesh, (target_update.tenant, target_update.flavor))
        raised = [resource for resource, units in target_update.target.items() if units > row.target.get(resource, 0)]
        return any(self._room(self._usage, row, resource) > 0 for resource in raised)

    def _set_target(self, target_update: TargetUpdate) -> bool:
        """Set the target of a lease, and name victims; return whether its mesh must stop some of its work."""
        row = self._row_of(target_update.mesh, (target_update.tenant, target_update.flavor))
        before = {resource: units for resource, units in row.target.items() if units}
        expires = self._session_rows[target_update.mesh].expires
        is_hurried = target_update.wait_ms == 0 and row.cut > expires
        is_moved = before != dict(target_update.target.items())
        is_named = row.version > 0 and row.with_victims(target_update.victims) != row.victims
        if not is_moved and not is_hurried and not is_named:
            return False
        is_new = not row.cut
        is_lowered = any(target_update.target[resource] < units for resource, units in before.items())
        for resource in sorted({*row.target, *target_update.target}):
            self._set(row, resource, row.held.get(resource, 0), target_update.target[resource])
        latest = self._lt + 2 * self._terms.ttl_ms + target_update.wait_ms if target_update.wait_ms else expires
        # A lease that gets part of its target back keeps its former deadline for the rest.
        row.shrink_by(latest if is_lowered or is_hurried or not row.cut else row.cut)
        if row.grows:
            self._growing.add(target_update.mesh)
        row.victims = () if is_moved and is_new else row.victims
        row.victims = row.with_victims(target_update.victims)
        self._keep(target_update.mesh, row, "plan")
        return row.shrinks or bool(row.victims)

    def revoke(
        self, *, mesh: MeshId | None = None, tenant: TenantPath | None = None, flavor: FlavorName | None = None, hard: bool = False
    ) -> int:
        with self._changed:
            self._tick()
            revoked = 0
            for session_row in [session_row for session_row in self._session_rows.values() if mesh in (None, session_row.record.mesh)]:
                holder = session_row.record.mesh
                self._prune(holder)
                for row in list(self._rows.get(holder, {}).values()):
                    if tenant in (None, row.tenant) and flavor in (None, row.flavor):
                        for resource, held in tuple(row.held.items()):
                            self._set(row, resource, held, 0)
                        row.shrink_by(session_row.expires)
                        self._keep(holder, row, "revoke hard" if hard else "revoke")
                        row.token = row.version if hard else row.token
                        revoked += 1
            return revoked

    # ---- reads

    def audit(self) -> tuple[Mismatch, ...]:
        with self._changed:
            return mismatches(self.snapshot())

    @abstractmethod
    def snapshot(self) -> FederationSnapshot: ...

    def history(
        self, mesh: MeshId | None = None, tenants: Collection[TenantPath] | None = None, limit: int = 100
    ) -> tuple[LeaseEvent, ...]:
        with self._changed:
            about = [
                lease_event
                for lease_event, of in self._log
                if lease_event.lease is None or (mesh in (None, of) and (tenants is None or lease_event.lease.tenant in tenants))
            ]
            return tuple(about[-limit:])

    def _lease_views(self) -> Iterator[LeaseView]:
        for holder, rows in self._rows.items():
            mesh, incarnation = holder_of(holder)
            yield from (view_of(self._lease(mesh, row), incarnation) for row in rows.values() if row.version)


def _slots_in(free: Mapping[str, int], demand: QuotaDemand) -> int:
    """Return how many of the wanted slots fit."""
    return min([demand.slots, *(free[resource] // units for resource, units in demand.slot.items())])


def _contested(demand: QuotaDemand, owned: Mapping[str, int]) -> LeaseRefused:
    """Return the refusal; it names the first resource of which the tenant would have to borrow."""
    resource = next(resource for resource in sorted(demand.slot) if owned[resource] < demand.slot[resource])
    return LeaseRefused(
        reason=Reason.QUOTA_CONTESTED,
        tenant=demand.tenant,
        flavor=demand.flavor,
        resource=resource,
        wanted=demand.slot[resource],
        available=owned[resource],
    )
