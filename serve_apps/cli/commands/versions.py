"""Command `version`."""

from __future__ import annotations

import json
from importlib.metadata import version as version_of
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(version)


def version(as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False) -> None:
    """Print the version."""
    found = version_of("schedulemesh")
    typer.echo(json.dumps({"version": found}) if as_json else found)
