"""Commands `submit`, `runs`, `watch`, `result`, `cancel` and `signal`."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import httpx
import typer
from rich.console import RenderableType
from rich.live import Live

from dag.errors import UnknownRun
from dag.run.states import RUN_ENDS, RunState
from dag.spec.forms import used_params
from dag.spec.run_labels import labels_of_texts
from dag.store.remote import Run
from dag.workflows.trace_graph import TraceScale
from mesh.core.clock import SystemClock
from mesh.core.near_names import nearest
from serve_apps.cli.completion import RunArgument, TenantOption, complete_meshes, complete_tenants
from serve_apps.cli.graph_file import load_graph
from serve_apps.cli.output import Text, console_for, print_json
from serve_apps.cli.progress_render import ProgressLines
from serve_apps.cli.render import failure_summary, result_summary, run_panel, runs_table
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, checked_time, followed, open_session, read_view
from serve_apps.cli.spec_file import load_spec, named, names_spec
from serve_apps.cli.waiting_render import plan_picture
from serve_apps.cli.workflow_file import graph_of, load_workflow, names_workflow
from serve_apps.schemas.plans import PlanView
from serve_apps.schemas.results import NoResultView, ResultView
from serve_apps.schemas.runs import RunLine, RunsView, RunView, SignalView

#: Seconds between two redraws of a live display.
LOOK_S = 0.5
#: Seconds of one long poll when the output is a log or a pipe.
LOG_LOOK_S = 2.0
#: Long polls of a log or a pipe between two looks at the nodes.
LOOKS_PER_BARS = 5
#: Seconds between two polls of `runs --watch`.
RUNS_LOOK_S = 2.0

LabelOption = Annotated[list[str] | None, typer.Option("--label", help="Label NAME=VALUE of the run. Repeatable.", metavar="NAME=VALUE")]


def register(app: typer.Typer) -> None:
    app.command()(submit)
    app.command()(runs)
    app.command()(watch)
    app.command()(result)
    app.command()(cancel)
    app.command()(signal)


def submit(
    target: Annotated[
        str,
        typer.Argument(
            help="FILE.py:NAME (a node, several nodes, or a function that returns them), a dag/1 spec FILE.json, or a recorded workflow "
            "in WfFormat, FILE.json.gz: its tasks run as `replay` runs them, at the recorded times and sizes."
        ),
    ],
    tenant: TenantOption = None,
    run_id: Annotated[
        str | None, typer.Option("--id", help="Id of the run. Submitting the same graph with the same id again returns the same run.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="Parameter KEY=VALUE of the function NAME or of the spec; VALUE is JSON, or else text. Repeatable."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="User of the run. Default: the user of the key, or the key itself.")] = None,
    label: LabelOption = None,
    on_error: Annotated[str | None, typer.Option(help="Effect of a failed node on the run: fail_fast or continue.")] = None,
    wait_for_capacity: Annotated[
        bool,
        typer.Option("--wait-for-capacity", help="Accept a graph that no mesh could ever run as things are, and wait until one could."),
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Submit nothing; show what would happen to the run.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the run until it ends.")] = True,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a graph and follow its run."""
    params = params_in(param or [])
    session = open_session(address, state_dir, as_json=as_json)
    if names_workflow(target):
        file = Path(target)
        if params or on_error or user:
            raise typer.BadParameter(f"{file} is a recorded workflow, which takes only --tenant, --id, --dry-run and --wait")
        spec = graph_of(load_workflow(file), TraceScale(), run_id=run_id, tenant=tenant)
    elif names_spec(target):
        file = Path(target)
        spec = spec_in(file, tenant=tenant, user=user, run_id=run_id, params=params, on_error=on_error)
    else:
        graph = load_graph(target, params)
        file = graph.file
        way = on_error or "fail_fast"
        spec = session.client.spec_of(
            graph.outputs, id=run_id, tenant=tenant, user=user, params=graph.params, on_error=way, by_value=(graph.module,)
        )
    if label:
        spec["labels"] = {**spec.get("labels", {}), **labels_in(label)}
    if wait_for_capacity:
        spec["wait_for_capacity"] = True
    if dry:
        with named(file):
            _print_plan(session, spec)
        return
    was_there = isinstance(spec.get("id"), str) and bool(spec["id"]) and _is_there(session, spec["id"])
    with named(file):
        run = session.client.submit_spec(spec)
    if not as_json:
        named_run = (run.id, "bold")
        words = Text.assemble(named_run, " already exists with this graph") if was_there else Text.assemble("submitted ", named_run)
        session.console.print(words)
    if wait:
        _follow(session, run)
    elif as_json:
        session.print_json_view(session.view(RunLine, f"{run.path}/summary"))


def _is_there(session: CliSession, run_id: str) -> bool:
    try:
        session.client.run(run_id)
    except UnknownRun:
        return False
    return True


def runs(
    tenant: Annotated[
        str | None, typer.Option(help="Only runs of this tenant and the tenants below it.", autocompletion=complete_tenants)
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only runs of this user.")] = None,
    state: Annotated[list[RunState] | None, typer.Option(case_sensitive=False, help="Only runs in this state. Repeatable.")] = None,
    text: Annotated[str | None, typer.Option(help="Only runs with this text in their id, user, labels or detail.")] = None,
    label: LabelOption = None,
    mesh: Annotated[str | None, typer.Option(help="Only runs that have had a stage on this mesh.", autocompletion=complete_meshes)] = None,
    since: Annotated[
        str | None,
        typer.Option(callback=checked_time, help="Only runs submitted at this time or later, like 2026-01-31T09:00:00Z.", metavar="TIME"),
    ] = None,
    until: Annotated[str | None, typer.Option(callback=checked_time, help="Only runs submitted before this time.", metavar="TIME")] = None,
    cursor: Annotated[str | None, typer.Option(help="Goes on after an earlier list, which ends with its cursor.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 20,
    moving: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first."""
    session = open_session(address, state_dir, as_json=as_json)

    def look() -> RunsView:
        asked = [f"{name}={value}" for name, value in labels_in(label or []).items()]
        filters = {"tenant": tenant, "user": user, "text": text, "mesh": mesh, "since": since, "until": until, "cursor": cursor}
        states = [each.value for each in state or []]
        params: dict[str, str | int | list[str] | None] = {**filters, "state": states or None, "label": asked or None, "limit": limit}
        return session.view(RunsView, "/v1/runs", params)

    if as_json:
        session.print_json_view(look())
        return
    if not moving:
        session.console.print(runs_table(look(), _now_ms()))
        return
    with Live(console=session.console, auto_refresh=False) as live:
        for view in followed(look, lambda: time.sleep(RUNS_LOOK_S)):
            live.update(runs_table(view, _now_ms()), refresh=True)


def watch(
    run_id: RunArgument,
    once: Annotated[bool, typer.Option("--once", help="Show the run as it is now, and return. With --json: as GET /v1/runs/RUN.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a run until it ends: its stages, their meshes, why stages wait; then its result. With --json: one event per line."""
    session = open_session(address, state_dir, as_json=as_json)
    run = session.run(run_id)
    if once:
        view = session.view(RunView, run.path)
        if as_json:
            session.print_json_view(view)
        else:
            session.console.print(run_panel(view, _now_ms()))
        return
    if as_json:
        for event in run.events():
            print_json(json.dumps({name: getattr(event, name) for name in event.__dataclass_fields__}, default=str))
        return
    _follow(session, run)


def result(
    run_id: RunArgument,
    out: Annotated[Path | None, typer.Option(help="Write each output to a file in this folder: NAME.json or NAME.pickle.")] = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the outputs of a run. Pickled outputs are not unpickled."""
    session = open_session(address, state_dir, as_json=as_json)
    run = session.run(run_id)
    if out is None:
        _print_result(session, run)
        return
    view = _result_of(session, run)
    if not isinstance(view, ResultView):
        _print_result(session, run)
        return
    written = [_write(session, out, name, output.href, output.encoding) for name, output in view.outputs.items()]
    if as_json:
        session.print_json_view(view)
    else:
        session.console.print("\n".join(f"wrote {path}" for path in written))


def cancel(
    run_id: RunArgument,
    reason: Annotated[str, typer.Option(help="Shown beside the run.")] = "",
    also_cleanup: Annotated[bool, typer.Option("--also-cleanup", help="Stop the run's cleanup too.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a run and stop its running tasks. Its cleanup goes on."""
    session = open_session(address, state_dir, as_json=as_json)
    run = session.run(run_id)
    before = session.view(RunLine, f"{run.path}/summary")
    if RunState(before.state) not in RUN_ENDS:
        run.cancel(reason or "requested from a terminal", also_cleanup=also_cleanup)
    line = session.view(RunLine, f"{run.path}/summary")
    if as_json:
        session.print_json_view(line)
    elif RunState(before.state) in RUN_ENDS:
        session.console.print(f"{run_id} had already ended: {line.state}")
    else:
        session.console.print(f"{run_id}: {line.state}" if RunState(line.state) in RUN_ENDS else f"{run_id} is being stopped")


def resume_run(session: CliSession, run_id: str, reason: str, *, wait: bool) -> None:
    """Resume a run that failed or was cancelled, and follow it."""
    run = session.run(run_id)
    run.resume(reason or "resumed from a terminal")
    if not session.as_json:
        session.console.print(Text.assemble("resumed ", (run.id, "bold")))
    if wait:
        _follow(session, run)
    elif session.as_json:
        session.print_json_view(session.view(RunLine, f"{run.path}/summary"))


def signal(
    run_id: RunArgument,
    name: Annotated[str, typer.Argument(help="Name of the signal.")],
    value: Annotated[str | None, typer.Argument(help="JSON, or else text. Default: true.")] = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a signal to the nodes of a run that wait for it, now or later."""
    session = open_session(address, state_dir, as_json=as_json)
    view = SignalView.model_validate(session.run(run_id).signal(name, True if value is None else _json_or_text(value)))
    if as_json:
        session.print_json_view(view)
    else:
        words = "had it already" if view.repeated else "have it"
        session.console.print(f"signal {name} of {run_id}: {', '.join(view.nodes)} {words}")


def _follow(session: CliSession, run: Run) -> None:
    """Show the run until it ends, then its result.

    Raises:
        KeyboardInterrupt: Ctrl-C. The run continues, and the message says so.
        typer.Exit: 1 if the run failed.
    """
    try:
        if session.as_json:
            wait_for_start(session, run)
            run.wait()
        else:
            draw_until_end(session, run)
    except KeyboardInterrupt:
        described = f"{run.id} continues; `schedulemesh watch {run.id}` follows it, `schedulemesh cancel {run.id}` cancels it"
        console_for(stderr=session.as_json).print(described, soft_wrap=True)
        raise
    _print_result(session, run)


def wait_for_start(session: CliSession, run: Run) -> None:
    """Return when the run is running, or has ended; say each reason for which it waits, on stderr, once."""
    said: set[str] = set()
    for line in followed(partial(session.view, RunLine, f"{run.path}/summary", {"wait_s": LOOK_S})):
        if RunState(line.state) in (*RUN_ENDS, RunState.RUNNING, RunState.CANCELLING):
            return
        if line.reason and line.reason not in said:
            said.add(line.reason)
            console_for(stderr=True).print(f"{run.id} waits: {line.reason}: {line.detail}", soft_wrap=True)


def draw_until_end(session: CliSession, run: Run) -> None:
    """Show the run until it ends: redrawn on a terminal, one line for each change elsewhere."""
    if not session.console.is_terminal:  # A log or a pipe gets one line per change, and the whole run once at the end.
        described = ""
        shown = ProgressLines(session.console)

        def look() -> RunLine:
            return session.view(RunLine, f"{run.path}/summary", {"wait_s": LOG_LOOK_S if described else LOOK_S})

        for number, line in enumerate(followed(look), start=1):
            if RunState(line.state) in RUN_ENDS:
                break
            words = ": ".join(part for part in (line.state, line.reason, line.detail) if part)
            if words != described:
                described = words
                session.console.print(words, soft_wrap=True)
            if number % LOOKS_PER_BARS == 0:
                shown.show(session.view(RunView, run.path).groups)
        session.console.print(run_panel(session.view(RunView, run.path), _now_ms(), result_follows=True))
        return
    with Live(console=session.console, auto_refresh=False, transient=False) as live:
        pause = partial(session.view, RunLine, f"{run.path}/summary", {"wait_s": LOOK_S})  # Long poll: returns early when the run ends.
        for view in followed(partial(session.view, RunView, run.path), pause):
            live.update(run_panel(view, _now_ms(), result_follows=True), refresh=True)
            if RunState(view.state) in RUN_ENDS:
                return


def _print_result(session: CliSession, run: Run) -> None:
    """Print the result of the run.

    Raises:
        typer.Exit: 1 if the run has no result.
    """
    view = _result_of(session, run)
    if session.as_json:
        session.print_json_view(view)
    else:
        session.console.print(_picture(view))
    if not isinstance(view, ResultView):
        raise typer.Exit(1)


def _result_of(session: CliSession, run: Run) -> ResultView | NoResultView | RunLine:
    status, answer = session.client.result_answer(run.id)
    if status == httpx.codes.OK:
        return read_view(ResultView, answer)
    return read_view(NoResultView, answer) if status == httpx.codes.CONFLICT else read_view(RunLine, answer)


def _picture(view: ResultView | NoResultView | RunLine) -> RenderableType:
    if isinstance(view, ResultView):
        return result_summary(view)
    if isinstance(view, NoResultView):
        return failure_summary(view)
    return f"{view.id} has not ended: {view.state}; `schedulemesh watch {view.id}` follows it"


def _write(session: CliSession, folder: Path, name: str, href: str, encoding: Literal["json", "pickle"]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{quote(name, safe=' ')}.{encoding}"
    path.write_bytes(session.client.fetch(href))
    return path


def _print_plan(session: CliSession, spec: dict[str, Any]) -> None:
    view = read_view(PlanView, session.client.plan(spec))
    if session.as_json:
        session.print_json_view(view)
    else:
        session.console.print(plan_picture(view))


def spec_in(
    path: Path, *, tenant: str | None, user: str | None, run_id: str | None, params: dict[str, Any], on_error: str | None
) -> dict[str, Any]:
    """Return the spec in a file, overridden by the options of the command line. Raises SpecFileError."""
    spec = load_spec(path)
    given = {"tenant": tenant, "user": user, "id": run_id, "on_error": on_error}
    spec.update({name: value for name, value in given.items() if value is not None})
    declared = spec.get("params", {})
    known = sorted({*declared, *used_params(spec.get("nodes"))})
    for name in params:
        if name not in known:
            hint = nearest(name, known) or f"; its parameters: {', '.join(known) or 'none'}"
            raise typer.BadParameter(f"{path} has no parameter {name}{hint}", param_hint="--param")
    if params:
        spec["params"] = {**declared, **params}
    return spec


def labels_in(given: list[str]) -> dict[str, str]:
    """Return the labels of options `--label`. Raises typer.BadParameter."""
    try:
        return labels_of_texts(given)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--label") from None


def params_in(given: list[str]) -> dict[str, Any]:
    """Return the parameters of options `--param`. Raises typer.BadParameter."""
    params: dict[str, Any] = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"expected KEY=VALUE, got {pair!r}", param_hint="--param")
        params[key] = _json_or_text(text)
    return params


def _json_or_text(given: str) -> Any:
    try:
        return json.loads(given)
    except ValueError:
        return given


def _now_ms() -> int:
    return SystemClock().wall_ms()
