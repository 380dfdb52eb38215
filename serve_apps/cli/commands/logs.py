"""Command `logs`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from typing import Annotated

import typer

from dag.store.run_logs import LogLine
from mesh.core.counting import counted
from serve_apps.cli.completion import RunArgument
from serve_apps.cli.output import Text, print_json
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, open_session


def register(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    run_id: RunArgument,
    node: Annotated[
        str | None, typer.Argument(help="Only lines of this node, or of this array.", metavar="[NODE]", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only lines of this attempt.")] = None,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Only the last lines that are there now, this many; then those that come.")
    ] = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what the nodes of a run have printed, from all meshes. With --json: one line as JSON per line."""
    session = open_session(address, state_dir, as_json=as_json)
    log = session.client.log_of(session.run(run_id).id, node=node, attempt=attempt)
    there: Iterable[LogLine] = log.lines() if tail is None else deque(log.lines(), maxlen=tail)
    for line in chain(there, log.follow() if follow else ()):
        _print(session, line, shows_node=node is None)


def _print(session: CliSession, line: LogLine, *, shows_node: bool) -> None:
    if session.as_json:
        print_json(json.dumps(asdict(line), ensure_ascii=False))
        return
    lead = f"{line.node} | " if shows_node else ""
    if line.left_out:
        session.console.print(Text(f"{lead}... {counted(line.left_out, 'line')} left out ...", style="dim"), soft_wrap=True)
    session.console.print(Text.assemble((lead, "bold"), (line.text, "red" if line.stream == "stderr" else "")), soft_wrap=True)
