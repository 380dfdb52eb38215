"""Reading of a WfFormat workflow from a file, and its graph for the federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dag.client.pickling import by_value, dumps
from dag.errors import SpecError
from dag.workflows.trace_graph import TraceScale, trace_spec
from dag.workflows.wfformat import Workflow, read_workflow
from mesh.errors import MeshError
from serve_apps.cli import trace_task

_SUFFIXES = (".json", ".json.gz", ".gz")


class WorkflowFileError(MeshError):
    """The file is no workflow; one line for each problem, with its place and remedy."""


def names_workflow(target: str) -> bool:
    """Return whether a file is a WfFormat workflow: compressed, or a JSON object with a `workflow` and no `nodes`."""
    path = Path(target)
    if not target.lower().endswith(_SUFFIXES) or not path.is_file():
        return target.lower().endswith(".gz")
    if target.lower().endswith(".gz"):
        return True
    try:
        written = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(written, dict) and "workflow" in written and "nodes" not in written


def load_workflow(path: Path) -> Workflow:
    """Read a workflow. Raises WorkflowFileError."""
    try:
        return read_workflow(path.read_bytes())
    except SpecError as wrong:
        lines = [f"{path}: {place}: {problem}" if place else f"{path}: {problem}" for place, problem in wrong.problems]
        raise WorkflowFileError("\n".join(lines)) from None
    except OSError as refused:
        raise WorkflowFileError(f"{path} cannot be read: {refused.strerror}; give a WfFormat file, as .json or .json.gz") from None


def graph_of(workflow: Workflow, scale: TraceScale, *, run_id: str | None, tenant: str | None) -> dict[str, Any]:
    """Return the graph of the workflow in its wire form."""
    with by_value([trace_task]):
        function = dumps(trace_task.replay_task)
    return trace_spec(workflow, scale, function, run_id=run_id, tenant=tenant)
