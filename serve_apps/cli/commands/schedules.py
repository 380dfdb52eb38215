"""Command `schedule`: graphs that the root submits by cron."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Group, RenderableType

from dag.errors import ApiError
from dag.schedules.schedule import Overlap
from dag.store.schedules import ScheduleHandle, request_of
from federation.config.sections.values import parse_duration
from mesh.core.clock import SystemClock, moment
from serve_apps.cli.commands.runs import LabelOption, labels_in, params_in, spec_in
from serve_apps.cli.graph_file import load_graph
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.cli.render import runs_table
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, open_session, read_view
from serve_apps.cli.spec_file import named, names_spec
from serve_apps.schemas.runs import RunsView, SubmittedView
from serve_apps.schemas.schedules import ScheduleDeletedView, ScheduleDetailView, SchedulesView, ScheduleView

NameArgument = Annotated[str, typer.Argument(help="Name of the schedule.", metavar="NAME")]
TenantOption = Annotated[str | None, typer.Option(help="Tenant of the schedule. Default: the tenant of the stack or of the key.")]

V = TypeVar("V", bound=BaseModel)

schedule_app = typer.Typer(help="Graphs that the root submits by cron.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(schedule_app, name="schedule")


@schedule_app.command("create")
def create(
    name: NameArgument,
    target: Annotated[str, typer.Argument(help="FILE.py:NAME or a dag/1 spec FILE.json, as for `submit`.")],
    cron: Annotated[str, typer.Option(help="Minute, hour, day of month, month and day of week: '0 3 * * 1-5'.")],
    timezone: Annotated[str, typer.Option(help="Time zone, like Europe/Berlin.")] = "UTC",
    overlap: Annotated[
        Overlap, typer.Option(help="While an earlier run goes on: skip the firing, queue one, replace the run, or allow both.")
    ] = Overlap.SKIP,
    starts_within: Annotated[
        str | None, typer.Option(help="Longest delay of a firing, like 1h, after which it is missed. Default: no limit.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Parameter KEY=VALUE of the graph; VALUE is JSON, or else text. Repeatable.")
    ] = None,
    label: LabelOption = None,
    user: Annotated[str | None, typer.Option(help="User of the runs. Default: the user of the key, or the key itself.")] = None,
    tenant: TenantOption = None,
    wait_for_capacity: Annotated[
        bool, typer.Option("--wait-for-capacity", help="Accept a graph that no mesh could ever run as things are.")
    ] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a schedule, or replace the rules and the graph of one."""
    session = open_session(address, state_dir, as_json=as_json)
    params, owner = params_in(param or []), tenant or session.client.access.tenant
    within_ms = _within_ms(starts_within)
    if names_spec(target):
        file = Path(target)
        graph = spec_in(file, tenant=tenant, user=user, run_id=None, params=params, on_error=None)
    else:
        found = load_graph(target, params)
        file = found.file
        graph = session.client.spec_of(found.outputs, tenant=tenant, user=user, params=found.params, by_value=(found.module,))
    body = request_of(
        graph,
        cron=cron,
        timezone=timezone,
        overlap=overlap.value,
        starts_within_ms=within_ms,
        labels=labels_in(label or []),
        wait_for_capacity=wait_for_capacity,
    )
    with named(file), _places_in_graph():
        answer = session.client.put(ScheduleHandle(name, graph.get("tenant") or owner, session.client).path(), body)
    _print(session, read_view(ScheduleView, answer), lambda view: Text.assemble("schedule ", (view.name, "bold"), _when(view)))


@schedule_app.command("ls")
def list_schedules(
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant and the tenants below it.")] = None,
    cursor: Annotated[str, typer.Option(help="`next` of an earlier list.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 100,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List schedules by tenant and name."""
    session = open_session(address, state_dir, as_json=as_json)
    _print(session, session.view(SchedulesView, "/v1/schedules", {"tenant": tenant, "cursor": cursor, "limit": limit}), schedules_table)


@schedule_app.command("show")
def show(
    name: NameArgument,
    tenant: TenantOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a schedule with its last firings and runs."""
    session = open_session(address, state_dir, as_json=as_json)
    _print(session, session.view(ScheduleDetailView, _path(session, name, tenant)), schedule_page)


@schedule_app.command("pause")
def pause(
    name: NameArgument,
    tenant: TenantOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start nothing by cron until `schedule resume`."""
    session = open_session(address, state_dir, as_json=as_json)
    view = read_view(ScheduleView, session.client.post(_path(session, name, tenant, "/pause"), {}))
    _print(session, view, lambda view: Text.assemble("schedule ", (view.name, "bold"), _when(view)))


@schedule_app.command("resume")
def resume(
    name: NameArgument,
    tenant: TenantOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start by cron again, from the next time on."""
    session = open_session(address, state_dir, as_json=as_json)
    view = read_view(ScheduleView, session.client.post(_path(session, name, tenant, "/resume"), {}))
    _print(session, view, lambda view: Text.assemble("schedule ", (view.name, "bold"), _when(view)))


@schedule_app.command("trigger")
def trigger(
    name: NameArgument,
    tenant: TenantOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a run of the schedule now, also while it is paused."""
    session = open_session(address, state_dir, as_json=as_json)
    view = read_view(SubmittedView, session.client.post_once(_path(session, name, tenant, "/trigger")))
    _print(session, view, lambda view: Text.assemble("submitted ", (view.id, "bold")))


@schedule_app.command("delete")
def delete(
    name: NameArgument,
    tenant: TenantOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a schedule. Its runs go on."""
    session = open_session(address, state_dir, as_json=as_json)
    path = _path(session, name, tenant)
    shown = session.view(ScheduleDetailView, path)
    session.client.delete(path)
    _print(session, ScheduleDeletedView(name=shown.name, tenant=shown.tenant), lambda view: Text(f"schedule {view.name} is deleted"))


def _path(session: CliSession, name: str, tenant: str | None, verb: str = "") -> str:
    return ScheduleHandle(name, tenant or session.client.access.tenant, session.client).path(verb)


def _print(session: CliSession, view: V, shown: Callable[[V], RenderableType]) -> None:
    if session.as_json:
        session.print_json_view(view)
    else:
        session.console.print(shown(view))


@contextmanager
def _places_in_graph() -> Iterator[None]:
    """Name places of problems as the file of the graph has them. Raises ApiError."""
    try:
        yield
    except ApiError as refused:
        problems = tuple((place.removeprefix("/graph"), problem) for place, problem in refused.problems)
        raise ApiError(refused.status, str(refused), problems, code=refused.code) from None


def _within_ms(text: str | None) -> int | None:
    """Return the duration of `--starts-within`. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--starts-within") from None


def _when(view: ScheduleView) -> str:
    return " is paused" if view.paused else f" fires next at {moment(view.next_ms)}" if view.next_ms else " never fires again"


def schedules_table(view: SchedulesView) -> RenderableType:
    """Render `schedulemesh schedule ls`."""
    if not view.schedules:
        return Text("there are no schedules; `schedulemesh schedule create` makes one")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "tenant", "cron", "timezone", "overlap", "next", "last"):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for each in view.schedules:
        following = "paused" if each.paused else moment(each.next_ms) if each.next_ms else "never"
        last = f"{each.firings[0].outcome.value} {moment(each.firings[0].due_ms)}" if each.firings else ""
        table.add_row(each.name, each.tenant, each.cron, each.timezone, each.overlap.value, following, last)
    parts: list[RenderableType] = [table]
    return Group(*parts, Text(f"more: --cursor '{view.next}'")) if view.next is not None else table


def schedule_page(view: ScheduleDetailView) -> RenderableType:
    """Render `schedulemesh schedule show`."""
    within = f", starts within {view.starts_within_ms / 1000:g} s" if view.starts_within_ms is not None else ""
    rules = f"{view.cron} {view.timezone}, overlap {view.overlap.value}{within}, user {view.user}"
    lines: list[Any] = [Text.assemble((view.name, "bold"), f" of {view.tenant}", _when(view)), Text(rules)]
    if view.queued_ms:
        lines.append(Text(f"the firing of {moment(view.queued_ms)} waits for the end of {', '.join(view.active)}"))
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    for title in ("due", "outcome", "run", "why"):
        table.add_column(title, overflow="fold")
    for firing in view.firings:
        why = f"{firing.reason}: {firing.detail}" if firing.reason else "triggered" if firing.triggered else ""
        table.add_row(moment(firing.due_ms), firing.outcome.value, firing.run or "", why)
    if view.firings:
        lines += [Text(""), table]
    if view.runs:
        lines += [Text(""), runs_table(RunsView(runs=view.runs), SystemClock().wall_ms())]
    return Group(*lines)
