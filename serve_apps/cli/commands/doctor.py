"""Command `doctor`: finds likely faults of this machine and names the remedies."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column

from serve_apps.cli.diagnosis import FAIL, findings_of
from serve_apps.cli.machine_facts import facts_of
from serve_apps.cli.output import RoomyTable, console_for, print_json
from serve_apps.cli.session import JsonOption
from serve_apps.cli.state import STATE, StateOption
from serve_apps.configuration.config_file import read_config
from serve_apps.configuration.initial_config import INITIAL_FILE


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    config: Annotated[
        Path | None,
        typer.Argument(help=f"Federation file. Default: {INITIAL_FILE} in this folder, or none.", metavar="CONFIG", show_default=False),
    ] = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, the state folder, the root, and what the federation file names; name the remedy of each fault."""
    file = config or (INITIAL_FILE if INITIAL_FILE.exists() else None)
    checked = read_config(file) if file is not None else None
    findings = findings_of(facts_of(state, environment=dict(os.environ), config=checked, file=file))
    has_failed = any(finding.state == FAIL for finding in findings)
    if as_json:
        print_json(json.dumps({"ok": not has_failed, "checks": [asdict(finding) for finding in findings]}, indent=2))
    else:
        columns = ("check", "state", Column("found", overflow="fold"), Column("remedy", overflow="fold"))
        table = RoomyTable(*columns, box=None, pad_edge=False, header_style="bold")
        for finding in findings:
            table.add_row(finding.check, finding.state, finding.found, finding.remedy)
        console_for().print(table)
    if has_failed:
        raise typer.Exit(1)
