"""Command `replay`: a recorded workflow run for real, with every task and file accounted for at the end."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from dag.errors import ResultTimeout
from dag.run.states import RUN_ENDS, RunState
from dag.store.remote import Run
from dag.store.result_decoding import decode_output
from dag.workflows.trace_graph import Account, TraceScale, expected_account
from dag.workflows.wfformat import Workflow
from mesh.core.counting import counted
from serve_apps.cli.commands.runs import draw_until_end
from serve_apps.cli.completion import TenantOption
from serve_apps.cli.output import console_for, print_json
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, open_session
from serve_apps.cli.workflow_file import graph_of, load_workflow
from serve_apps.schemas.runs import RunView

#: Longest wait for the end of a cancelled run, in seconds.
CANCEL_S = 60.0


def register(app: typer.Typer) -> None:
    app.command()(replay)


def replay(
    file: Annotated[Path, typer.Argument(help="Workflow in WfFormat 1.5, as .json or .json.gz.", metavar="FILE.json.gz")],
    time_scale: Annotated[float, typer.Option(min=0.0, help="Factor on the recorded run times.")] = 1.0,
    bytes_scale: Annotated[float, typer.Option(min=0.0, help="Factor on the recorded sizes of files.")] = 1.0,
    burn: Annotated[bool, typer.Option("--burn/--sleep", help="Tasks compute for their run time, instead of sleeping.")] = False,
    num_cpus: Annotated[float, typer.Option(min=0.0, help="CPUs that each task asks for.")] = 1.0,
    tenant: TenantOption = None,
    run_id: Annotated[str | None, typer.Option("--id", help="Id of the run.")] = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a recorded workflow on the meshes: its tasks sleep, read and write at scale. Exit code 1 if a task or a file is missing."""
    workflow = load_workflow(file)
    scale = TraceScale(time=time_scale, bytes=bytes_scale, burn=burn, num_cpus=num_cpus)
    session = open_session(address, state_dir, as_json=as_json)
    with session.client:
        _replay(session, workflow, scale, graph_of(workflow, scale, run_id=run_id, tenant=tenant))


def _replay(session: CliSession, workflow: Workflow, scale: TraceScale, spec: dict[str, Any]) -> None:
    """Run the graph of a workflow and compare what ran with the workflow. Raises typer.Exit if they differ."""
    run = session.client.submit_spec(spec)
    console = console_for(stderr=session.as_json)
    console.print(f"submitted {run.id}: {counted(len(workflow.tasks), 'task')} of {workflow.name}", soft_wrap=True)
    try:
        if session.as_json:
            run.wait()
        else:
            draw_until_end(session, run)
    except KeyboardInterrupt:
        run.cancel("interrupted at the terminal that replays it")
        console.print(f"{run.id} is being cancelled", soft_wrap=True)
        with contextlib.suppress(ResultTimeout):
            run.wait(CANCEL_S)
        raise
    wanted = expected_account(workflow, scale)
    report = _report(session, run, wanted)
    if session.as_json:
        print_json(json.dumps(report, indent=2))
    else:
        _print(session, report)
    if report["mismatches"]:
        raise typer.Exit(1)


def _report(session: CliSession, run: Run, wanted: Account) -> dict[str, Any]:
    """Return what was expected of the run, what came out, and every difference in words."""
    view = session.view(RunView, run.path)
    expected: dict[str, int] = asdict(wanted)
    got: dict[str, int] = dict.fromkeys(expected, 0)
    mismatches: list[str] = []
    if RunState(view.state) is RunState.SUCCEEDED:
        status, answer = session.client.result_answer(run.id)
        if status == httpx.codes.OK:
            (output,) = answer["outputs"].values()
            got = {**got, **decode_output(output, session.client.fetch)}
        mismatches = [f"{name}: {got[name]} instead of {expected[name]}" for name in expected if got[name] != expected[name]]
    else:
        mismatches = [f"the run ended as {view.state}: {view.detail or view.reason or 'see its failures'}"]
        mismatches += [f"node {failure.node}: {failure.message}" for failure in view.failures]
    return {
        "run": run.id,
        "state": view.state,
        "has_ended": RunState(view.state) in RUN_ENDS,
        "took_ms": max(0, view.ended_ms - view.created_ms),
        "meshes": {share.mesh: sum(share.counts.values()) for share in view.meshes},
        "expected": expected,
        "got": got,
        "mismatches": mismatches,
    }


def _print(session: CliSession, report: dict[str, Any]) -> None:
    got = report["got"]
    parts = (("read from other tasks", "files_read", "bytes_read"), ("written", "files_written", "bytes_written"))
    for words, files, size in (*parts, ("made as inputs", "files_made", "bytes_made")):
        session.console.print(f"{counted(got[files], 'file')} of {counted(got[size], 'byte')} {words}", soft_wrap=True)
    session.console.print(f"{counted(got['tasks'], 'task')} ran", soft_wrap=True)
    for mismatch in report["mismatches"]:
        session.console.print(f"mismatch: {mismatch}", style="red", soft_wrap=True)
    if not report["mismatches"]:
        session.console.print("every task and every file is accounted for", style="green")
