"""Commands `graph` and `timeline`: pictures of graphs and runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from dag.client.compiling import compile_graph
from dag.drawing.picture import GraphNode, picture_of
from dag.drawing.svg import graph_svg, timeline_svg
from dag.drawing.text import bars, mermaid, plain
from dag.drawing.timeline import timeline_of
from dag.spec.array_forms import array_key, elements_of
from dag.spec.control import CONTROL_KEYS
from dag.store.remote import Run
from mesh.core.clock import SystemClock
from mesh.stages.arguments import refs_of
from serve_apps.cli.completion import RunArgument, complete_runs
from serve_apps.cli.graph_file import load_graph
from serve_apps.cli.session import AddressOption, CliSession, StateDirOption, open_session
from serve_apps.cli.spec_file import load_spec, names_spec
from serve_apps.cli.workflow_file import load_workflow, names_workflow
from serve_apps.schemas.nodes import NodesView, NodeView
from serve_apps.schemas.runs import RunLine


class GraphFormat(str, Enum):
    """Format of a picture of a graph."""

    SVG = "svg"
    MERMAID = "mermaid"
    TEXT = "text"


class TimelineFormat(str, Enum):
    """Format of a timeline."""

    SVG = "svg"
    TEXT = "text"


OutOption = Annotated[Path | None, typer.Option("-o", "--out", help="Write to this file. Default: print.")]


def register(app: typer.Typer) -> None:
    app.command()(graph)
    app.command()(timeline)


def graph(
    target: Annotated[
        str,
        typer.Argument(
            help="Id of a run, FILE.py:NAME, a dag/1 spec FILE.json, or a WfFormat workflow.",
            metavar="RUN|FILE",
            autocompletion=complete_runs,
        ),
    ],
    form: Annotated[GraphFormat, typer.Option("--format", help="Format of the picture.")] = GraphFormat.TEXT,
    out: OutOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Draw a graph by levels; of a run with states, stages and meshes. Alike nodes of large graphs are drawn as one box."""
    nodes = _nodes_of_file(target)
    if nodes is None:
        session = open_session(address, state_dir, as_json=False)
        with session.client:
            nodes = _nodes_of_run(session, session.run(target))
    draw = {GraphFormat.SVG: graph_svg, GraphFormat.MERMAID: mermaid, GraphFormat.TEXT: plain}[form]
    _write(draw(picture_of(target, nodes)), out)


def timeline(
    run_id: RunArgument,
    form: Annotated[TimelineFormat, typer.Option("--format", help="Format of the timeline.")] = TimelineFormat.TEXT,
    out: OutOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Draw when a run's nodes ran, by mesh; for many nodes one bar per stage."""
    session = open_session(address, state_dir, as_json=False)
    with session.client:
        run = session.run(run_id)
        line = session.view(RunLine, f"{run.path}/summary")
        made = timeline_of(run_id, _nodes_of_run(session, run), line.ended_ms or SystemClock().wall_ms(), line.created_ms)
    _write(timeline_svg(made) if form is TimelineFormat.SVG else bars(made, session.console.width), out)


def _write(picture: str, out: Path | None) -> None:
    if out is None:
        typer.echo(picture, nl=False)
    else:
        out.write_text(picture, encoding="utf-8")
        typer.echo(f"wrote {out}")


def _nodes_of_file(target: str) -> list[GraphNode] | None:
    """Return the nodes of a file; None if the target names a run."""
    if names_workflow(target):
        workflow = load_workflow(Path(target))
        return [GraphNode(node=task.id, needs=tuple(workflow.tasks[need].id for need in task.needs)) for task in workflow.tasks]
    if names_spec(target):
        spec = load_spec(Path(target))
    elif ".py" in target:
        loaded = load_graph(target)
        spec = compile_graph(loaded.outputs, by_value=(loaded.module,))
    else:
        return None
    nodes = spec.get("nodes")
    described = nodes if isinstance(nodes, dict) else {}
    return [
        GraphNode(node=node, needs=_needs(one), elements=_elements(one), control=next((key for key in CONTROL_KEYS if key in one), ""))
        for node, one in described.items()
        if isinstance(one, dict)
    ]


def _elements(described: dict[str, object]) -> int:
    """Return the number of elements of a node that is an array, as far as its graph says it."""
    forms = [form for form in _forms(described) if array_key(form) is not None]
    return (elements_of(forms[0]) or 0) if forms else 0


def _forms(described: dict[str, object]) -> list[Any]:
    args, kwargs, cond = described.get("args"), described.get("kwargs"), described.get("cond")
    branches = [*cond.values()] if isinstance(cond, dict) else []
    return [*branches, *(args if isinstance(args, list) else []), *(kwargs.values() if isinstance(kwargs, dict) else [])]


def _needs(described: dict[str, object]) -> tuple[str, ...]:
    after = described.get("after")
    inputs = [need for form in _forms(described) for need in refs_of(form)]
    return tuple(dict.fromkeys(map(str, [*inputs, *(after if isinstance(after, list) else [])])))


def _nodes_of_run(session: CliSession, run: Run) -> list[GraphNode]:
    found: list[NodeView] = []
    after: str | None = ""
    while after is not None:
        page = session.view(NodesView, f"{run.path}/nodes", {"after": after, "limit": 1000})
        found += page.nodes
        after = page.next
    return [
        GraphNode(
            node=one.node,
            needs=tuple(one.needs),
            state=one.state,
            mesh=one.mesh or "",
            stage=one.stage or "",
            started_ms=one.started_ms,
            finished_ms=one.finished_ms,
            elements=(one.array.elements or 0) if one.array is not None else 0,
            control=one.control or "",
        )
        for one in found
    ]
