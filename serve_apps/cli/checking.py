"""`validate` and `version`: nothing runs, nobody is asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dag.errors import SpecError
from dag.spec import parse
from federation.errors import ConfigError
from serve_apps.cli.session import JsonOption
from serve_apps.cli.spec_file import names_spec
from serve_apps.config_file import read_config


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What there is to say about a file."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    told: str = ""  #: Where there are no problems.


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(validate)
    app.command()(version)


def validate(
    file: Annotated[Path, typer.Argument(help="A federation file (.yaml) or a dag/1 spec (.json).", metavar="FILE")],
    as_json: JsonOption = False,
) -> None:
    """Check a file, and tell everything that is wrong with it; then what is allowed and worth a look."""
    checked = _check_spec(file) if names_spec(str(file)) else _check_config(file)
    problems, warnings = checked.problems, checked.warnings
    if as_json:
        typer.echo(json.dumps({"file": str(file), "ok": not problems, "problems": problems, "warnings": warnings}, indent=2))
    else:
        out = Console(highlight=False, stderr=bool(problems))
        last = f"{file}: {len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else checked.told
        for line in (*problems, *(f"warning: {warning}" for warning in warnings), last):
            out.print(line, markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def print_version(asked: bool) -> None:
    """`schedulemesh --version`. Raises typer.Exit when it was asked for."""
    if asked:
        version()
        raise typer.Exit


def version(as_json: JsonOption = False) -> None:
    """Print the version."""
    found = version_of("schedulemesh")
    typer.echo(json.dumps({"version": found}) if as_json else found)


def _check_config(file: Path) -> _Checked:
    try:
        config = read_config(file)
    except ConfigError as wrong:
        return _Checked(problems=str(wrong).splitlines(), warnings=list(wrong.warnings))
    told = f"{file}: ok, {len(config.clusters)} clusters, {len(config.meshes)} meshes, {len(config.flavors)} flavors"
    return _Checked(warnings=list(config.warnings), told=told)


def _check_spec(file: Path) -> _Checked:
    try:
        spec = parse(file.read_bytes())
    except OSError as refused:
        return _Checked(problems=[f"{file}: cannot be read: {refused.strerror}"])
    except SpecError as wrong:
        return _Checked(problems=[f"{file}: {place}: {problem}" if place else f"{file}: {problem}" for place, problem in wrong.problems])
    return _Checked(told=f"{file}: ok, {len(spec.nodes)} nodes, {len(spec.outputs)} outputs")
