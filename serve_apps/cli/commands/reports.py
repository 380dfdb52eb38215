"""Commands `usage`, for bills, and `changes`, for audits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from federation.usage.report import UsageBy
from mesh.core.clock import ms_of
from serve_apps.cli.changes_render import change_line, changes_table
from serve_apps.cli.completion import complete_tenants
from serve_apps.cli.output import print_json
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, open_session
from serve_apps.cli.usage_render import usage_lines, usage_table
from serve_apps.schemas.history import RecordedChangesView, RecordedChangeView
from serve_apps.schemas.tenants import UsageView

#: Seconds between two looks of `--follow`.
LOOK_S = 1.0
#: Changes of one look.
PAGE = 500


def register(app: typer.Typer) -> None:
    app.command()(usage)
    app.command()(changes)


def _time(text: str | None) -> str | None:
    """Return the text if it is a time. Raises typer.BadParameter."""
    try:
        if text:
            ms_of(text)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from None
    return text


def usage(
    first: Annotated[str | None, typer.Option("--from", help="First day, in UTC, like 2026-01-31. Default: 30 days.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last day. Default: today.")] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Only this tenant and the tenants below it. Default: all that the key covers.", autocompletion=complete_tenants),
    ] = None,
    by: Annotated[list[UsageBy] | None, typer.Option(help="Column that the rows tell apart; repeatable. Default: tenant.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print only lines for a spreadsheet.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report what tenants have used, borrowed and lost by preemption, in resource hours."""
    session = open_session(address, state_dir, as_json=as_json)
    asked = {"from": first, "to": last, "tenant": tenant, "by": [column.value for column in by or ()] or None}
    view = session.view(UsageView, "/v1/usage", asked)
    if as_json:
        session.print_json_view(view)
    elif as_csv:
        typer.echo(usage_lines(view), nl=False)
    else:
        session.console.print(usage_table(view))


def changes(
    tenant: Annotated[
        str | None,
        typer.Option(
            help="Only changes about this tenant and the tenants below it. Default: all that the key covers.",
            autocompletion=complete_tenants,
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only changes by this user.")] = None,
    since: Annotated[
        str | None, typer.Option(callback=_time, help="Only changes at this time or later, like 2026-01-31T09:00:00Z.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many, the newest.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then go on with each change that comes, until Ctrl-C.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed what: runs, schedules, tenants, meshes, keys and the configuration. With --follow --json: one object per line."""
    session = open_session(address, state_dir, as_json=as_json)
    asked = {"tenant": tenant, "user": user, "since": since}
    view = session.view(RecordedChangesView, "/v1/changes", {**asked, "limit": limit})
    if not follow:
        if as_json:
            session.print_json_view(view)
        else:
            session.console.print(changes_table(view))
        return
    for change in _coming(session, view, asked):
        if as_json:
            print_json(change.model_dump_json())
        else:
            session.console.print(change_line(change), soft_wrap=True)


def _coming(session: CliSession, view: RecordedChangesView, asked: dict[str, str | None]) -> Iterator[RecordedChangeView]:
    """Yield the changes of the view, then each that comes."""
    while True:
        yield from view.changes
        if not view.changes:
            time.sleep(LOOK_S)
        view = session.view(RecordedChangesView, "/v1/changes", {**asked, "after": view.next, "limit": PAGE})
