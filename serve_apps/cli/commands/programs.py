"""Command `run`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dag.client.tasks import Node
from dag.errors import RunCancelled, RunFailed, SpecError
from dag.run.states import RUN_ENDS
from dag.spec.options import GANG_SIZE_MAX, RETRIES_MAX
from dag.store.programs import program
from dag.store.remote import Run
from mesh.core.counting import counted
from mesh.errors import ProgramFailed
from mesh.stages.spec import PRIORITY_MAX
from serve_apps.cli.commands.runs import LabelOption, labels_in, wait_for_start
from serve_apps.cli.completion import TenantOption, complete_meshes
from serve_apps.cli.output import Text, console_for, print_json
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, open_session

#: Exit code of a run that failed otherwise than by the exit code of its program.
FAILED = 1


def register(app: typer.Typer) -> None:
    app.command(context_settings={"allow_interspersed_args": False})(run)


def run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after `--`: -- python train.py --lr 0.1.")],
    tenant: TenantOption = None,
    cpus: Annotated[float, typer.Option(min=0, help="CPUs of each bundle.")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs of each bundle.")] = 0,
    memory: Annotated[str | None, typer.Option(help="Memory of each bundle, like 4GiB.")] = None,
    resource: Annotated[list[str] | None, typer.Option(help="Custom resource NAME=AMOUNT of each bundle. Repeatable.")] = None,
    size: Annotated[int, typer.Option(min=1, max=GANG_SIZE_MAX, help="Bundles of its placement group.")] = 1,
    strategy: Annotated[str, typer.Option(help="Where several bundles go: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.")] = "PACK",
    working_dir: Annotated[
        str | None, typer.Option(help="Folder that is sent along and in which the program runs. Default: the current folder.")
    ] = None,
    no_working_dir: Annotated[bool, typer.Option("--no-working-dir", help="Send no folder; the program runs in an empty one.")] = False,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Pattern, as in a .gitignore, of what is left out of the folder. Repeatable.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(help="Environment variable NAME=VALUE. Repeatable.")] = None,
    pip: Annotated[list[str] | None, typer.Option(help="Package, like torch==2.4. Repeatable.")] = None,
    requirements: Annotated[str | None, typer.Option(help="Requirements file with packages.")] = None,
    label: LabelOption = None,
    mesh_label: Annotated[list[str] | None, typer.Option(help="Label KEY=VALUE that the mesh must have. Repeatable.")] = None,
    mesh: Annotated[str | None, typer.Option(help="The only mesh that may run the program.", autocompletion=complete_meshes)] = None,
    priority: Annotated[int, typer.Option(min=-PRIORITY_MAX, max=PRIORITY_MAX, help="Higher goes first.")] = 0,
    retries: Annotated[int, typer.Option(min=0, max=RETRIES_MAX, help="Further attempts after another exit code than 0.")] = 0,
    name: Annotated[str | None, typer.Option(help="Name of the program in views. Default: that of the script.")] = None,
    run_id: Annotated[str | None, typer.Option("--id", help="Id of the run.")] = None,
    user: Annotated[str | None, typer.Option(help="User of the run. Default: the user of the key, or the key itself.")] = None,
    wait_for_capacity: Annotated[
        bool, typer.Option("--wait-for-capacity", help="Accept a program that no mesh could ever run as things are, and wait.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the id of the run, and do not wait.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a program under the quota of its tenant. Prints what it prints, and exits with its exit code; Ctrl-C cancels it."""
    if working_dir is not None and no_working_dir:
        raise typer.BadParameter("give either --working-dir or --no-working-dir", param_hint="--no-working-dir")
    session = open_session(address, state_dir, as_json=as_json)
    sends_here = working_dir is None and not no_working_dir
    make = partial(
        program,
        command,
        excludes=exclude or [],
        env_vars=_pairs(env, "--env", "NAME=VALUE"),
        pip=requirements if requirements is not None and not pip else pip,
        size=size,
        strategy=strategy,
        num_cpus=cpus,
        num_gpus=gpus,
        memory=memory,
        resources=_amounts(resource),
        labels=_pairs(mesh_label, "--mesh-label", "KEY=VALUE"),
        mesh=mesh,
        priority=priority,
        retries=retries,
        name=name,
    )
    node = _with_this_folder(session, make) if sends_here else make(working_dir=working_dir)
    labels = labels_in(label) if label else None
    with session.client:
        submitted = session.client.submit(node, id=run_id, tenant=tenant, user=user, labels=labels, wait_for_capacity=wait_for_capacity)
        if not detach:
            _follow(session, submitted)
        elif as_json:
            print_json(json.dumps({"id": submitted.id}))
        else:
            session.console.print(submitted.id, soft_wrap=True, highlight=False)


def _with_this_folder(session: CliSession, make: Callable[..., Node]) -> Node:
    """Return the node of a program in the current folder, and say that the folder is sent. Raises SpecError."""
    make()  # Its options are checked before the folder: an error about them has nothing to do with it.
    here = Path.cwd()
    if here in (Path.home(), Path(here.anchor)):
        remedy = "name its folder by --working-dir, or send none by --no-working-dir"
        raise SpecError((("", f"the current folder is {here}, which is more than a program: {remedy}"),))
    try:
        node = make(working_dir=".")
    except SpecError as wrong:
        remedy = "; or name another folder by --working-dir, or send none by --no-working-dir"
        raise SpecError(tuple((place, f"{problem}{remedy}") for place, problem in wrong.problems)) from None
    if not session.as_json:
        archive = node.kwargs["working_dir"]
        sent = f"{counted(archive.files, 'file')}, {len(archive.data) / 1024:.1f} KiB packed"
        words = f"the current folder is sent along ({sent}); --no-working-dir sends none"
        console_for(stderr=True).print(Text(words, style="dim"), soft_wrap=True)
    return node


def _follow(session: CliSession, run: Run) -> None:
    """Print the program's output until its end.

    Raises:
        KeyboardInterrupt: Ctrl-C. The run is cancelled.
        typer.Exit: The program ended with this exit code, or the run has no result.
    """
    notes = console_for(stderr=True)
    try:
        if not session.as_json:
            notes.print(Text.assemble("run ", (run.id, "bold")), soft_wrap=True)
        wait_for_start(session, run)
        for line in session.client.log_of(run.id).follow():
            if session.as_json:
                print_json(json.dumps({"stream": line.stream, "text": line.text}, ensure_ascii=False))
                continue
            if line.left_out:
                notes.print(Text(f"... {counted(line.left_out, 'line')} left out ...", style="dim"), soft_wrap=True)
            stream = sys.stderr if line.stream == "stderr" else sys.stdout
            stream.write(f"{line.text}\n")
            stream.flush()
        code = _exit_code(session, run)
    except KeyboardInterrupt:
        if run.status not in RUN_ENDS:
            run.cancel("Ctrl-C in a terminal")
            notes.print(f"{run.id} is cancelled", soft_wrap=True)
        raise
    if session.as_json:
        print_json(json.dumps({"id": run.id, "exit_code": code}))
    if code:
        raise typer.Exit(code)


def _exit_code(session: CliSession, run: Run) -> int:
    """Return the program's exit code; `FAILED`, with the reason on stderr, for a run that ended without one."""
    try:
        run.result()
    except RunFailed as failed:
        if isinstance(failed.__cause__, ProgramFailed):
            return failed.__cause__.exit_code
        why = str(failed)
    except RunCancelled as cancelled:
        why = str(cancelled)
    else:
        return 0
    if not session.as_json:
        console_for(stderr=True).print(Text.assemble(("error: ", "bold red"), why), soft_wrap=True)
    return FAILED


def _pairs(given: list[str] | None, option: str, form: str) -> dict[str, str]:
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r}: write {form}", param_hint=option)
        found[name] = value
    return found


def _amounts(given: list[str] | None) -> dict[str, float]:
    pairs = _pairs(given, "--resource", "NAME=AMOUNT")
    try:
        return {name: float(amount) for name, amount in pairs.items()}
    except ValueError as wrong:
        raise typer.BadParameter(f"{wrong}; write NAME=AMOUNT", param_hint="--resource") from None
