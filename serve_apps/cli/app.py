"""Entry point of `schedulemesh`: turns each error into one line for the user and one exit code for the shell."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from mesh.errors import MeshError
from serve_apps.cli.command_loading import Commands
from serve_apps.cli.error_output import error_json, error_line
from serve_apps.cli.output import console_for, print_json

#: Exit codes: an error; a wrong command line (typer's own); Ctrl-C, by shell convention.
FAILED, INTERRUPTED = 1, 130

app = typer.Typer(
    cls=Commands,
    help="One federation over many Ray clusters: tenants, enforced quotas, and workflows routed by labels, quota and data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(version("schedulemesh"))
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


def main(arguments: list[str] | None = None) -> None:
    """Run the console entry point; exits the process with the command's exit code."""
    sys.exit(run_command(sys.argv[1:] if arguments is None else arguments))


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # The reader closed the pipe; the flush at exit must not fail too.
        return FAILED
    return 0
