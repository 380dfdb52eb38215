"""`version`, and `--version`, which loads nothing else."""

from __future__ import annotations

import json
from importlib.metadata import version as version_of
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(version)


def print_version(asked: bool) -> None:
    """`schedulemesh --version`. Raises typer.Exit when it was asked for."""
    if asked:
        version()
        raise typer.Exit


def version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False) -> None:
    """Print the version."""
    found = version_of("schedulemesh")
    typer.echo(json.dumps({"version": found}) if as_json else found)
