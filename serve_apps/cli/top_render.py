"""`schedulemesh top` as a rich renderable: who has what, and what waits, at one time. Pure; a frame fits 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType

from mesh.core.clock import clock_time
from mesh.core.counting import counted
from serve_apps.cli.mesh_render import meshes_table
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.cli.render import tenants_table
from serve_apps.cli.waiting_render import leases_table
from serve_apps.schemas.leases import LeasesView
from serve_apps.schemas.meshes import MeshesView
from serve_apps.schemas.queues import QueueView
from serve_apps.schemas.tenants import TenantsView
from serve_apps.schemas.view import View


class TopView(View):
    """The answers of the root that make one frame."""

    tenants: TenantsView
    leases: LeasesView
    queue: QueueView
    meshes: MeshesView


def top_frame(view: TopView, rows: int | None = None, *, is_away: bool = False) -> RenderableType:
    """Render one frame.

    Args:
        rows: Most tenants, leases, kinds of waiting work and meshes that are shown; None shows all. A line counts the others.
        is_away: The root does not answer, and the view is an earlier one.
    """
    tenants, leases, waiting, meshes = view.tenants.tenants, view.leases.leases, _waiting(view.queue), view.meshes.meshes
    by_use = sorted(leases, key=lambda lease: (lease.tenant, lease.mesh, lease.flavor))
    alive = sum(mesh.alive for mesh in meshes)
    head = ", ".join(
        (
            f"{alive} of {counted(len(meshes), 'mesh')} alive",
            f"{counted(sum(mesh.running for mesh in meshes), 'stage')} running",
            f"{len(view.queue.waiting) + len(view.queue.kept_back)} waiting",
            counted(len(leases), "lease"),
        )
    )
    shown_tenants = view.tenants.model_copy(update={"tenants": tenants[:rows]})
    shown_leases = view.leases.model_copy(update={"leases": by_use[:rows]})
    shown_meshes = view.meshes.model_copy(update={"meshes": meshes[:rows]})
    return Group(
        Text.assemble((clock_time(view.tenants.at_ms), "bold"), f"  {head}", ("  reconnecting" if is_away else "", "yellow")),
        *_section("tenants", tenants_table(shown_tenants, _waiting_by_tenant(view)), tenants, rows, "tenants"),
        *_section("leases", leases_table(shown_leases), leases, rows, "leases"),
        *_section("queues", _queues_table(waiting[:rows]), waiting, rows, "queue"),
        *(
            Text(f"{mesh}: {counted(count, 'more stage')} behind the first 1 000 of its queue, of all tenants", style="yellow")
            for mesh, count in view.queue.cut_short.items()
        ),
        *_section("meshes", meshes_table(shown_meshes), meshes, rows, "meshes"),
    )


def _section(title: str, table: RenderableType, entries: Sequence[object], rows: int | None, command: str) -> list[RenderableType]:
    """Return a titled table, and a line that counts the entries which it leaves out."""
    hidden = len(entries) - len(entries[:rows])
    more = [Text(f"{hidden} more: `schedulemesh {command}`", style="dim")] if hidden else []
    return [Text(), Text(title, style="bold underline"), table, *more]


def _waiting_by_tenant(view: TopView) -> Counter[str]:
    """Count stages in queues and runs that were sent to no mesh, for each tenant with the tenants below it."""
    counts: Counter[str] = Counter()
    for owner in [one.tenant for one in view.queue.waiting] + [one.tenant for one in view.queue.kept_back]:
        names = owner.split("/")
        counts.update("/".join(names[:depth]) for depth in range(1, len(names) + 1))
    return counts


def _waiting(view: QueueView) -> list[tuple[tuple[str, str, str], int]]:
    """Count what waits by mesh, tenant and reason, the most first; the mesh of a run that was sent to none is empty."""
    queued = Counter((one.mesh, one.tenant, one.reason) for one in view.waiting)
    queued.update(("", one.tenant, one.reason) for one in view.kept_back)
    return sorted(queued.items(), key=lambda entry: (-entry[1], entry[0]))


def _queues_table(waiting: Sequence[tuple[tuple[str, str, str], int]]) -> RenderableType:
    if not waiting:
        return Text("nothing waits", style="green")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("mesh", overflow="ellipsis", no_wrap=True, max_width=14)
    table.add_column("tenant", overflow="fold", max_width=26)
    table.add_column("waiting", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold", max_width=26)
    for (mesh, tenant, reason), count in waiting:
        what = "stage" if mesh else "run"
        table.add_row(Text(mesh or "none"), Text(tenant), counted(count, what), Text(reason, style="yellow"))
    return table
