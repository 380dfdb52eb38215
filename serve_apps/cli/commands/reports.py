"""Commands `usage`, for bills, and `changes`, for audits."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from federation.usage.report import UsageBy
from mesh.core.clock import ms_of
from serve_apps.cli.changes_render import change_line, changes_table
from serve_apps.cli.completion import complete_tenants
from serve_apps.cli.output import print_json
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, checked_day, checked_time, followed, open_session
from serve_apps.cli.state import running_stores
from serve_apps.cli.usage_render import usage_lines, usage_table
from serve_apps.processes.stores import Stores
from serve_apps.schemas.history import RecordedChangesView
from serve_apps.schemas.tenants import UsageView
from serve_apps.services.change_listing import list_changes
from serve_apps.services.stopping import AT_THE_TERMINAL

#: Seconds between two looks of `--follow`.
LOOK_S = 1.0
#: Changes of one look.
PAGE = 500


def register(app: typer.Typer) -> None:
    app.command()(usage)
    app.command()(changes)


def usage(
    first: Annotated[
        str | None, typer.Option("--from", callback=checked_day, help="First day, in UTC, like 2026-01-31. Default: 30 days.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", callback=checked_day, help="Last day. Default: today.")] = None,
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
        str | None, typer.Option(callback=checked_time, help="Only changes at this time or later, like 2026-01-31T09:00:00Z.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many, the newest.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then go on with each change that comes, until Ctrl-C.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed what: runs, schedules, tenants, meshes, keys and the configuration. With --follow --json: one object per line."""
    session = open_session(address, state_dir, as_json=as_json)
    look = _Changes(session, tenant=tenant, user=user, since=since, limit=limit)
    if not follow:
        view = look()
        if as_json:
            session.print_json_view(view)
        else:
            session.console.print(changes_table(view))
        return
    for view in followed(look, lambda: time.sleep(0 if look.found else LOOK_S)):
        for change in view.changes:
            if as_json:
                print_json(change.model_dump_json())
            else:
                session.console.print(change_line(change), soft_wrap=True)


class _Changes:
    """Reader of the log of changes: the newest ones, then what has come since.

    The owner of the stack's state folder sees all entries, as `audit` and `dead` show all; the key of the stack covers one tenant only.
    """

    def __init__(self, session: CliSession, *, tenant: str | None, user: str | None, since: str | None, limit: int) -> None:
        self._session = session
        self._asked = {"tenant": tenant, "user": user}
        self._since = since
        self._limit = limit
        self._after: int | None = None
        self._stores = running_stores(session.state_folder) if session.is_owner and session.state_folder is not None else None
        self.found = 0  #: Number of changes of the last look.

    def __call__(self) -> RecordedChangesView:
        view = self._of_root() if self._stores is None else self._of_stores(self._stores)
        self._after, self._limit, self.found = view.next, PAGE, len(view.changes)
        return view

    def _of_root(self) -> RecordedChangesView:
        asked = {**self._asked, "since": self._since, "after": self._after, "limit": self._limit}
        return self._session.view(RecordedChangesView, "/v1/changes", asked)

    def _of_stores(self, stores: Stores) -> RecordedChangesView:
        return list_changes(
            stores.changes,
            lambda: stores.ledger.snapshot().tree,
            AT_THE_TERMINAL,
            **self._asked,
            since_ms=ms_of(self._since) if self._since is not None else 0,
            after=self._after,
            limit=self._limit,
        )
