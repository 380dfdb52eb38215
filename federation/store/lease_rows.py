"""Leases, demands and sessions as rows of the ledger (written by `lua/lib_lease.lua`), and as views."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from federation.dispatch import QueuedStage
from federation.errors import UnfitName
from federation.leases import WAITED_MS_MAX, Lease, LeaseAck, LeaseUse, QuotaDemand
from federation.snapshot import DemandView, LeaseView, MeshRecord, MeshView, RunningView
from federation.tenants import SEPARATOR
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath, is_fit_name
from mesh.core.resources import AMOUNT_MAX, NOTHING, ResourceSet
from mesh.core.shapes import gang_size
from mesh.stages.hosting import slots_left

#: Separates a mesh from the incarnation of an earlier session in a holder's name.
EARLIER = "~"


def lease_of(mesh: MeshId, tenant: str, flavor: str, row: str) -> Lease:
    """Parse `token|version|priority|cut[,victim…]` followed by resource, held, target, …"""
    return _lease(mesh, [tenant, flavor, "", *row.split(SEPARATOR, 4)])


def _lease(mesh: MeshId, parts: list[str]) -> Lease:
    """Parse tenant, flavor, ms until the deadline or nothing, token, version, priority, deadline with victims, and optional amounts."""
    tenant, flavor, left, token, version, priority, cut, *amounts = parts
    _, _, victims = cut.partition(",")
    held, target = _held_and_target(amounts[0] if amounts else "")
    return Lease(
        tenant=TenantPath(tenant),
        mesh=mesh,
        flavor=FlavorName(flavor),
        held=held,
        target=target,
        token=int(token),
        version=int(version),
        priority=int(priority),
        shrink_ms=int(left) if left else None,
        victims=tuple(map(int, victims.split(","))) if victims else (),
    )


@lru_cache(maxsize=4096)
def _held_and_target(amounts: str) -> tuple[ResourceSet, ResourceSet]:
    """Parse resource, held, target, … Cached, because leases have few sizes and every response has many leases."""
    parts = amounts.split(SEPARATOR) if amounts else []
    names = parts[::3]
    held, target = (ResourceSet(dict(zip(names, map(int, parts[first::3]), strict=True))) for first in (1, 2))
    return held, target


def response_leases(mesh: MeshId, lines: str) -> tuple[Lease, ...]:
    """Parse the leases that `lua/lib_lease.lua` sends to a mesh, one per line; in the order of the ledger's fields."""
    leases = [_lease(mesh, line.split(SEPARATOR, 7)) for line in lines.splitlines()]
    leases.sort(key=lambda lease: f"{lease.tenant}{SEPARATOR}{lease.flavor}")
    return tuple(leases)


def refuse_unfit(tenant: str, flavor: str, *amounts: ResourceSet) -> None:
    """Refuse names with `|` or a line end, the separators of rows: such a name could address a field of another lease.

    Raises:
        UnfitName: The name of the tenant, the flavor or a resource is invalid or empty.
    """
    for name in (tenant, flavor):
        _refuse_unfit(name)
    for each in amounts:
        _amounts(each)


@lru_cache(maxsize=4096)
def _refuse_unfit(name: str) -> None:
    if not is_fit_name(name):
        raise UnfitName(f"invalid name {name[:100]!r} of a tenant, flavor or resource: it must not be empty, nor contain `|` or a line end")


def ask_line(demand: QuotaDemand) -> str:
    """Format for `acquire.lua`. Raises as `refuse_unfit`."""
    refuse_unfit(demand.tenant, demand.flavor)
    slots = min(demand.slots, AMOUNT_MAX)
    pays_for = demand.priority if demand.pays_for is None else demand.pays_for
    about = f"{demand.tenant}|{demand.flavor}|{slots}|{_order(demand.priority, demand.gang_size)}|{pays_for}|{demand.version}"
    return f"{about}|{_waited(demand)}|{demand.created_ms}{_shape(demand)}"


def ack_line(part: LeaseAck) -> str:
    """Format for `release.lua`. Raises as `refuse_unfit`."""
    refuse_unfit(part.tenant, part.flavor)
    return f"{part.tenant}|{part.flavor}|{part.version}{_amounts(part.amounts)}"


@lru_cache(maxsize=4096)
def _amounts(amounts: ResourceSet) -> str:
    for name in amounts:
        _refuse_unfit(name)
    return "".join(f"|{name}|{units}" for name, units in amounts.items())


def lines_of(rows: Iterable[str]) -> str:
    """Join the rows, each with its newline."""
    return "\n".join([*rows, ""])


def holder_of(name: str) -> tuple[MeshId, int | None]:
    """Return the mesh; and the incarnation if the leases belong to an earlier session."""
    mesh, _, incarnation = name.partition(EARLIER)
    return MeshId(mesh), int(incarnation) if incarnation else None


def view_of(lease: Lease, incarnation: int | None = None) -> LeaseView:
    """Return the lease for display."""
    return LeaseView(
        lease=lease.lease,
        tenant=lease.tenant,
        mesh=lease.mesh,
        flavor=lease.flavor,
        amounts=lease.held,
        token=lease.token,
        target=lease.target,
        version=lease.version,
        priority=lease.priority,
        victims=lease.victims,
        incarnation=incarnation,
    )


def lease_use_row(use: LeaseUse) -> list[object]:
    """Format for `heartbeat.lua`. Raises as `refuse_unfit`."""
    refuse_unfit(use.tenant, use.flavor)
    return [use.tenant, use.flavor, use.priority]


def demand_field(demand: QuotaDemand) -> str:
    """Return the ledger's field for the demand, unique per demand of a mesh. Raises as `refuse_unfit`."""
    refuse_unfit(demand.tenant, demand.flavor)
    return f"{demand.tenant}|{demand.flavor}|{_order(demand.priority, demand.gang_size)}{_shape(demand)}"


def _order(priority: int, gang_size: int) -> str:
    """Return the priority, for gangs followed by `:` and the number of bundles."""
    return f"{priority}:{gang_size}" if gang_size else str(priority)


def _shape(demand: QuotaDemand) -> str:
    """Return the slot, for a part of a slot followed by the whole. Raises as `refuse_unfit`."""
    return f"{_amounts(demand.slot)}|{_amounts(demand.whole)}" if demand.whole else _amounts(demand.slot)


def kind_of(head: QueuedStage) -> str:
    """Return the kind of a queued stage for `lua/lib_queue.lua`; nothing if the stage needs no resources.

    No demand can name a kind with `|` in a name, so such a kind is harmless.
    """
    amounts = "".join(f"|{name}|{units}" for name, units in head.slot.items())
    return f"{head.tenant}|{_order(head.priority, gang_size(head.gang))}{amounts}" if amounts else ""


def demand_row(demand: QuotaDemand) -> list[object]:
    """Format for `heartbeat.lua`. Raises as `refuse_unfit`."""
    return [demand_field(demand), min(demand.slots, AMOUNT_MAX), _waited(demand), min(demand.beyond, AMOUNT_MAX), demand.created_ms]


def _waited(demand: QuotaDemand) -> int:
    """Return the believed wait, ms; -1: the mesh reports none; -2: the work runs and would grow."""
    if demand.is_growth:
        return -2
    return -1 if demand.waited_ms is None else min(demand.waited_ms, WAITED_MS_MAX)


def demand_view(mesh: MeshId, field: str, row: str, now_lt: int) -> DemandView:
    """Parse `tenant|flavor|priority[:bundles]|resource|units…[||resource|units…]` and `slots|since when on the lease clock|slots beyond|ms
    of submission`.
    """
    named, _, whole = field.partition(SEPARATOR * 2)
    tenant, flavor, order, *amounts = named.split(SEPARATOR)
    priority, _, bundles = order.partition(":")
    slots, since, beyond, created_ms = map(int, row.split(SEPARATOR))
    return DemandView(
        mesh=mesh,
        tenant=TenantPath(tenant),
        flavor=FlavorName(flavor),
        slot=_packed_amounts(tuple(amounts)),
        slots=slots,
        priority=int(priority),
        whole=_packed_amounts(tuple(whole.split(SEPARATOR))) if whole else NOTHING,
        gang_size=int(bundles or 0),
        waiting_ms=max(0, now_lt - since),
        beyond=beyond,
        created_ms=created_ms,
    )


def running_view(mesh: MeshId, stage: str, row: str) -> RunningView:
    """Parse a row of `RUNNING` in `lua/lib_stage.lua`."""
    is_cancelled, token, since, created, saved, order, tenant, flavor, *amounts = row.split(SEPARATOR)
    priority, _, slots = order.partition(":")
    return RunningView(
        stage=StageId(stage),
        mesh=mesh,
        tenant=TenantPath(tenant),
        flavor=FlavorName(flavor),
        amounts=_packed_amounts(tuple(amounts)),
        priority=int(priority),
        token=int(token),
        since_ms=int(since),
        created_ms=int(created),
        is_leaving=is_cancelled == "1",
        saved_ms=int(saved) if saved else None,
        slots=int(slots or 1),
    )


@lru_cache(maxsize=4096)
def _packed_amounts(parts: tuple[str, ...]) -> ResourceSet:
    """Parse resource, units, …"""
    return ResourceSet(dict(zip(parts[::2], map(int, parts[1::2]), strict=True)))


def marked_leaving(running: Iterable[RunningView], leases: Iterable[LeaseView]) -> tuple[RunningView, ...]:
    """Return the running stages; those that a lease of a present session names as victims are leaving, or give back slots.

    A lease that has to shrink takes of its victims the slots that it lacks, in the order of its mesh: see `RunningStage` and ADR 0062.
    """
    named = {(lease.mesh, lease.tenant, lease.flavor): lease for lease in leases if lease.incarnation is None and lease.victims}
    if not named:
        return tuple(running)
    listed = tuple(running)
    of_leases: dict[tuple[MeshId, TenantPath, FlavorName], list[RunningView]] = {}
    for stage in listed:
        if (key := (stage.mesh, stage.tenant, stage.flavor)) in named:
            of_leases.setdefault(key, []).append(stage)
    marked = {stage.token: stage for key, stages in of_leases.items() for stage in _victims_in(stages, named[key])}
    return tuple(marked.get(stage.token, stage) for stage in listed)


def _victims_in(stages: Iterable[RunningView], lease: LeaseView) -> Iterable[RunningView]:
    """Yield the victims of the lease that leave, or that give slots back. A stage of one slot leaves whole."""
    excess = {name: units - lease.target[name] for name, units in lease.amounts.items() if units > lease.target[name]}
    shrinks = bool(excess)
    listed = list(stages)
    for name in excess:  # Idle quota goes first.
        excess[name] -= max(0, lease.amounts[name] - sum(stage.amounts[name] for stage in listed))
    for stage in sorted((stage for stage in listed if stage.token in lease.victims), key=lambda stage: (stage.priority, -stage.token)):
        if stage.slots == 1 or not shrinks or stage.is_leaving:
            gives = stage.slots
        else:
            slot = stage.amounts_of(1)
            gives = max((-(-units // slot[name]) for name, units in excess.items() if slot[name]), default=0)
        if gives > 0:
            left = slots_left(stage.slots, gives)
            yield replace(stage, is_leaving=True) if left == 0 else replace(stage, retiring=stage.slots - left)
            for name, units in stage.amounts_of(stage.slots - left).items():
                excess[name] = excess.get(name, 0) - units


def mesh_view(row: list[bytes | int], record: MeshRecord) -> MeshView:
    """Parse a row of `snapshot.lua` with the mesh's record."""
    _, _, incarnation, alive, age_ms, waiting, claimed = row
    return MeshView(
        record=record,
        incarnation=int(incarnation),
        alive=alive == 1,
        heartbeat_age_ms=int(age_ms),
        waiting=int(waiting),
        claimed=int(claimed),
    )
