"""`schedulemesh`: the commands, and what becomes of errors: one line for the user, one exit code for the shell."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from mesh.errors import MeshError
from serve_apps.cli.commands import Commands
from serve_apps.cli.output import console_for, print_json
from serve_apps.cli.told_errors import error_json, error_line
from serve_apps.cli.versions import print_version

#: Exit codes: something is wrong; the command line is wrong (typer's own); Ctrl-C, as shells count it.
FAILED, INTERRUPTED = 1, 130

app = typer.Typer(
    cls=Commands,
    help="One federation over many Ray clusters: tenants, quotas that hold, and workflows that go where labels, quota and data say.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    """What holds before any command."""


def main(arguments: list[str] | None = None) -> None:
    """The console entry point; ends the process with an exit code."""
    sys.exit(run_command(sys.argv[1:] if arguments is None else arguments))


def run_command(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    try:
        app(args=arguments, prog_name="schedulemesh")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except MeshError as error:
        if "--json" in arguments:
            print_json(error_json(error))
        console_for(stderr=True).print(error_line(str(error)), soft_wrap=True)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Whoever read has gone; nobody is to be told at exit either.
        return FAILED
    return 0
