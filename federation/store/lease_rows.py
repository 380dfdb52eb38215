"""Leases, wants and sessions as rows of the ledger, as `lua/lib_lease.lua` writes them; and as people look at them."""

from collections.abc import Iterable
from functools import lru_cache

from federation.errors import UnfitName
from federation.leases import WAITED_MS_MAX, Kept, Lease, Pays, Want
from federation.snapshot import LeaseView, MeshRecord, MeshView, WantView
from federation.tenants import SEPARATOR
from mesh.ids import FlavorName, MeshId, TenantPath, is_fit_name
from mesh.resources import AMOUNT_MAX, ResourceSet

#: Stands in a holder's name between a mesh and the incarnation of an earlier session of it.
EARLIER = "~"


def lease_of(mesh: MeshId, tenant: str, flavor: str, row: str) -> Lease:
    """From `token|version|priority|cut` and then resource, held, target, …"""
    return _lease(mesh, [tenant, flavor, "", *row.split(SEPARATOR, 4)])


def _lease(mesh: MeshId, parts: list[str]) -> Lease:
    """From tenant, flavor, ms until the cut or nothing, token, version, priority, cut, and the amounts, if there are any."""
    tenant, flavor, left, token, version, priority, _, *amounts = parts
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
    )


@lru_cache(maxsize=4096)
def _held_and_target(amounts: str) -> tuple[ResourceSet, ResourceSet]:
    """From resource, held, target, …; kept, since leases are of few sizes and every answer tells many of them."""
    parts = amounts.split(SEPARATOR) if amounts else []
    names = parts[::3]
    held, target = (ResourceSet(dict(zip(names, map(int, parts[first::3]), strict=True))) for first in (1, 2))
    return held, target


def told_leases(mesh: MeshId, lines: str) -> tuple[Lease, ...]:
    """From what `lua/lib_lease.lua` tells a mesh, a line for each lease; in the order of the ledger's fields."""
    leases = [_lease(mesh, line.split(SEPARATOR, 7)) for line in lines.splitlines()]
    leases.sort(key=lambda lease: f"{lease.tenant}{SEPARATOR}{lease.flavor}")
    return tuple(leases)


def refuse_unfit(tenant: str, flavor: str, *amounts: ResourceSet) -> None:
    """What is set apart by `|` and by lines may not hold them: a name with a bar would be other fields, of another's lease.

    Raises:
        UnfitName: The tenant, the flavor or a resource has such a name, or none.
    """
    for name in (tenant, flavor):
        _refuse_unfit(name)
    for each in amounts:
        _amounts(each)


@lru_cache(maxsize=4096)
def _refuse_unfit(name: str) -> None:
    if not is_fit_name(name):
        raise UnfitName(f"{name[:100]!r} is no name of a tenant, flavor or resource: it must not be empty, nor hold `|` or an end of line")


def ask_line(want: Want) -> str:
    """As `acquire.lua` reads it. Raises as `refuse_unfit`."""
    refuse_unfit(want.tenant, want.flavor)
    slots = min(want.slots, AMOUNT_MAX)
    pays_for = want.priority if want.pays_for is None else want.pays_for
    return f"{want.tenant}|{want.flavor}|{slots}|{want.priority}|{pays_for}|{want.version}|{_waited(want)}{_amounts(want.slot)}"


def kept_line(part: Kept) -> str:
    """As `release.lua` reads it. Raises as `refuse_unfit`."""
    refuse_unfit(part.tenant, part.flavor)
    return f"{part.tenant}|{part.flavor}|{part.version}{_amounts(part.amounts)}"


@lru_cache(maxsize=4096)
def _amounts(amounts: ResourceSet) -> str:
    for name in amounts:
        _refuse_unfit(name)
    return "".join(f"|{name}|{units}" for name, units in amounts.items())


def lines_of(rows: Iterable[str]) -> str:
    """Each with its newline."""
    return "\n".join([*rows, ""])


def holder_of(name: str) -> tuple[MeshId, int | None]:
    """The mesh, and the incarnation when its leases are those of an earlier session."""
    mesh, _, incarnation = name.partition(EARLIER)
    return MeshId(mesh), int(incarnation) if incarnation else None


def view_of(lease: Lease, incarnation: int | None = None) -> LeaseView:
    """The lease for people."""
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
        incarnation=incarnation,
    )


def pays_row(pays: Pays) -> list[object]:
    """As `heartbeat.lua` reads it. Raises as `refuse_unfit`."""
    refuse_unfit(pays.tenant, pays.flavor)
    return [pays.tenant, pays.flavor, pays.priority]


def want_field(want: Want) -> str:
    """Under which the ledger keeps it: what one want has to itself. Raises as `refuse_unfit`."""
    refuse_unfit(want.tenant, want.flavor)
    return f"{want.tenant}|{want.flavor}|{want.priority}{_amounts(want.slot)}"


def want_row(want: Want) -> list[object]:
    """As `heartbeat.lua` reads it. Raises as `refuse_unfit`."""
    return [want_field(want), min(want.slots, AMOUNT_MAX), _waited(want), min(want.beyond, AMOUNT_MAX)]


def _waited(want: Want) -> int:
    """For how long the mesh is believed that it waits, ms; -1: it does not say."""
    return -1 if want.waited_ms is None else min(want.waited_ms, WAITED_MS_MAX)


def want_view(mesh: MeshId, field: str, row: str, now_lt: int) -> WantView:
    """From `tenant|flavor|priority|resource|units…` and `slots|since when on the lease clock|slots beyond`."""
    tenant, flavor, priority, *amounts = field.split(SEPARATOR)
    slots, since, beyond = map(int, row.split(SEPARATOR))
    return WantView(
        mesh=mesh,
        tenant=TenantPath(tenant),
        flavor=FlavorName(flavor),
        slot=ResourceSet(dict(zip(amounts[::2], map(int, amounts[1::2]), strict=True))),
        slots=slots,
        priority=int(priority),
        waiting_ms=max(0, now_lt - since),
        beyond=beyond,
    )


def mesh_view(row: list[bytes | int], record: MeshRecord) -> MeshView:
    """From `snapshot.lua`, and the record that is packed in it."""
    _, _, incarnation, alive, age_ms, waiting, claimed = row
    return MeshView(
        record=record,
        incarnation=int(incarnation),
        alive=alive == 1,
        heartbeat_age_ms=int(age_ms),
        waiting=int(waiting),
        claimed=int(claimed),
    )
