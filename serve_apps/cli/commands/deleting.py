"""Command `delete`: removes runs that have ended."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from serve_apps.cli.completion import complete_runs
from serve_apps.cli.output import print_json
from serve_apps.cli.session import AddressOption, JsonOption, StateDirOption, open_session


def register(app: typer.Typer) -> None:
    app.command()(delete)


def delete(
    run_ids: Annotated[list[str], typer.Argument(help="Ids of the runs.", metavar="RUN…", autocompletion=complete_runs)],
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove runs that have ended, with their outputs, events and logs."""
    session = open_session(address, state_dir, as_json=as_json)
    for run_id in run_ids:
        session.run(run_id).delete()
        if not as_json:
            session.console.print(f"{run_id} is removed")
    if as_json:
        print_json(json.dumps({"removed": run_ids}, indent=2))
