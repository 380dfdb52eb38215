"""Entry point of `schedulemesh`: turns each error into one line for the user and one exit code for the shell."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import RenderableType

from mesh.errors import MeshError
from serve_apps.cli.command_loading import Commands
from serve_apps.cli.output import INTERRUPTED, Text, console_for, print_json

#: Exit code of an error; that of a wrong command line is typer's own.
FAILED = 1

app = typer.Typer(
    cls=Commands,
    help="One federation over many Ray clusters: tenants, enforced quotas, and workflows routed by labels, quota and data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def error_line(message: str) -> RenderableType:
    """Format an error as one line."""
    return Text.assemble(("error: ", "bold red"), message)


def error_json(error: MeshError) -> str:
    """Format an error as JSON: `code` is the root's code or the error's type, `problems` are the root's problems."""
    code = getattr(error, "code", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
    problems = [{"place": place, "problem": problem} for place, problem in getattr(error, "problems", ())]
    return json.dumps({"error": {"code": code, "message": str(error), "problems": problems}}, indent=2, ensure_ascii=False)


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
