"""Command `usage`."""

from __future__ import annotations

from typing import Annotated

import typer

from federation.usage.report import UsageBy
from serve_apps.cli.completion import complete_tenants
from serve_apps.cli.session import AddressOption, JsonOption, StateDirOption, open_session
from serve_apps.cli.usage_render import usage_lines, usage_table
from serve_apps.schemas.tenants import UsageView


def register(app: typer.Typer) -> None:
    app.command()(usage)


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
