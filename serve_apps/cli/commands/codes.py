"""Command `code`: what a reason or an error code means, and what to do."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from mesh.core.near_names import nearest
from serve_apps.cli.output import Text, console_for, print_json
from serve_apps.cli.session import JsonOption
from serve_apps.codes.catalogue import codes, find


def register(app: typer.Typer) -> None:
    app.command("code")(show_code)


def complete_codes(incomplete: str) -> list[str]:
    return [name for name in codes() if name.lower().startswith(incomplete.lower())]


def show_code(
    name: Annotated[
        str | None,
        typer.Argument(help="Reason or error code, in any case. Default: list all.", metavar="[CODE]", autocompletion=complete_codes),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a reason or an error code means, and what to do."""
    console = console_for()
    if name is None:
        shown = list(codes().values())
        if as_json:
            print_json(_json([asdict(code) for code in shown]))
        else:
            for code in shown:
                console.print(Text(code.name))
        return
    found = find(name)
    if found is None:
        near = nearest(name.upper(), codes()) or nearest(name.lower(), codes())
        raise typer.BadParameter(f"there is no code {name!r}{near or '; `schedulemesh code` lists all'}", param_hint="CODE")
    if as_json:
        print_json(_json(asdict(found)))
    else:
        console.print(Text.assemble((found.name, "bold"), f"  {found.kind}"))
        console.print(Text(found.meaning))
        console.print(Text.assemble(("what to do: ", "bold"), found.remedy))


def _json(shown: object) -> str:
    return json.dumps(shown)
