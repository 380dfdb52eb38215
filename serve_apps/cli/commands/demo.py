"""Output of `schedulemesh demo`: live runs of two tenants, their results, where each stage ran and why, and who held which slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live

from dag.run.states import RUN_ENDS, RunState
from dag.store.remote import Client, Run, connect
from mesh.core.clock import SystemClock
from mesh.core.counting import counted
from serve_apps.cli.graph_file import load_graph
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.cli.render import cut_text, duration, run_panel, shown_stages, tenants_table
from serve_apps.schemas.runs import RunLine, RunView, StageView
from serve_apps.schemas.tenants import TenantsView

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
#: The main run, and a small run of another tenant that competes for the same quota.
MAIN, RIVAL = ("acme/research/vision", "digits/workflow.py:graph"), ("acme/research/nlp", "hello/hello.py:graph")
LOOK_S = 0.4


def show_demo(address: str, api_key: str, console: Console, out: Path) -> None:
    """Submit both graphs, follow them until they end, and print what happened.

    Args:
        out: Folder for the picture of the report.
    Raises:
        RunFailed: The main run failed.
    """
    with connect(address, api_key) as client:
        runs = [_submit(client, *MAIN), _submit(client, *RIVAL)]
        views = _watch(client, runs, console)
        report = runs[0].result()
        _print_report(report, console, out)
        console.print(Text.assemble(("the other tenant's result", "bold"), f": {runs[1].result()}\n"))
        _print_stages(views, console)
        _print_tenants(views, [_waits(run) for run in runs], console)


def _submit(client: Client, tenant: str, target: str) -> Run:
    graph = load_graph(str(EXAMPLES / target))
    return client.submit(graph.outputs, tenant=tenant, by_value=(graph.module,))


def _watch(client: Client, runs: list[Run], console: Console) -> list[RunView]:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            views = [RunView.model_validate(client.ask(run.path)) for run in runs]
            tenants = TenantsView.model_validate(client.ask("/v1/tenants"))
            now_ms = SystemClock().wall_ms()
            parts = [part for view in views for part in (run_panel(view, now_ms), Text())]
            ended = all(RunState(view.state) in RUN_ENDS for view in views)
            live.update(Group(*parts) if ended else Group(*parts, tenants_table(tenants)), refresh=True)
            if ended:
                return views
            open_run = next(run for run, view in zip(runs, views, strict=True) if RunState(view.state) not in RUN_ENDS)
            RunLine.model_validate(
                client.ask(f"{open_run.path}/summary", {"wait_s": LOOK_S})
            )  # Long poll: returns early when the run ends.


def _print_report(report: dict[str, Any], console: Console, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "confusion-matrix.png"
    picture.write_bytes(report["picture_png"])
    sizes = ", ".join(f"{count} to {part}" for part, count in report["sizes"].items())
    console.print(Text.assemble("\n", ("result", "bold"), f": {report['best']} classifies {report['accuracy']:.1%} correctly ({sizes})"))
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    table.add_column("accuracy", justify="right")
    for row in report["table"]:
        table.add_row(row["model"], f"{row['accuracy']:.2%}", style="bold green" if row["model"] == report["best"] else "")
    console.print(table)
    console.print(f"picture: {picture}\n")


def _print_stages(views: list[RunView], console: Console) -> None:
    console.print("where each stage ran, and why", style="bold")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    for column in ("stage", "mesh", "cluster", "nodes", "slots", "waited", "ran"):
        table.add_column(column, no_wrap=True, justify="right" if column in ("nodes", "slots", "waited", "ran") else "left")
    table.add_column("why this mesh", overflow="fold")
    for view in views:
        for stage in shown_stages(view.stages):
            table.add_row(*_stage_cells(view, stage))
    console.print(table)
    console.print()


def _stage_cells(view: RunView, stage: StageView) -> tuple[str, ...]:
    name = f"{view.outputs[0]} {stage.id.rpartition('.')[2]}"
    waited = duration(stage.started_ms - stage.sent_ms) if stage.started_ms else "-"
    ran = duration(stage.ended_ms - stage.started_ms) if stage.started_ms else "-"
    why = "; ".join(part for part in (stage.why_here, cut_text(stage).plain) if part)
    return (name, stage.mesh, stage.cluster[:8], str(sum(stage.counts.values())), str(stage.slots), waited, ran, why)


def _waits(run: Run) -> list[str]:
    """Return the reasons for which stages of the run waited, each with its first detail, in order of appearance."""
    described = (
        f"{event.reason.value}: {event.detail}" for event in run.events() if event.kind == "stage" and event.reason and event.detail
    )
    return list(dict.fromkeys(described))


def _print_tenants(views: list[RunView], waits: list[list[str]], console: Console) -> None:
    console.print("what each tenant held, and why it waited", style="bold")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("tenant", no_wrap=True)
    table.add_column("held at most", no_wrap=True)
    table.add_column("waited", justify="right", no_wrap=True)
    table.add_column("for", overflow="fold")
    for view, reasons in zip(views, waits, strict=True):
        waited_ms = sum(stage.started_ms - stage.sent_ms for stage in view.stages if stage.started_ms)
        table.add_row(view.tenant, f"{counted(_most_slots(view.stages), 'slot')} of 1 cpu", duration(waited_ms), "\n".join(reasons))
    console.print(table)
    console.print(
        "A tenant may borrow quota that others leave unused. The owner reclaims its quota after the borrower has run for "
        "`min_run`. A stage grows while room and quota are free, and gives back slots that it cannot use."
    )


def _most_slots(stages: list[StageView]) -> int:
    """Return the most slots that stages of one run held at the same time."""
    moments = sorted([(stage.started_ms, stage.slots) for stage in stages] + [(stage.ended_ms, -stage.slots) for stage in stages])
    held = most = 0
    for _, change in moments:
        held += change
        most = max(most, held)
    return most
