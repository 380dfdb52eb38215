"""Command `init`: writes the federation file that `up` starts without one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mesh.errors import MeshError
from serve_apps.cli.output import console_for
from serve_apps.configuration.initial_config import INITIAL_FILE, initial_text_here


def register(app: typer.Typer) -> None:
    app.command()(init)


def init(
    file: Annotated[Path, typer.Argument(help="File to write; `-` prints it.", metavar="FILE")] = INITIAL_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a commented federation file for this machine: what `up` starts without a file."""
    if str(file) == "-":
        typer.echo(initial_text_here(), nl=False)
        return
    try:
        with file.open("w" if force else "x", encoding="utf-8") as written:
            written.write(initial_text_here())
    except FileExistsError:
        raise MeshError(f"{file} exists already; give another name, or replace the file with --force") from None
    except OSError as refused:
        raise MeshError(f"{file} cannot be written: {refused.strerror}; give a file in a folder that you can write") from None
    console_for().print(f"written: {file}\nnext: schedulemesh up{'' if file == INITIAL_FILE else f' {file}'}")
