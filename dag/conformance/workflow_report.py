"""One workflow as one JSON object of metrics, or an error that names the file, the place and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TextIO, TypeVar

from dag.errors import SpecError
from dag.workflows.meshes import by_type, read_assignment, read_meshes
from dag.workflows.planning import metrics_of
from dag.workflows.wfformat import read_workflow
from mesh.conformance.fields import CaseError
from mesh.conformance.program import read_bytes
from mesh.errors import MeshError

T = TypeVar("T")


class UnreadableFile(MeshError):
    """A file cannot be read; the message names it."""


def report_workflow(file: str, meshes_file: str, assignment_file: str | None, out: TextIO, errors: TextIO) -> int:
    """Print the metrics of a workflow; return the exit code: 0, or 2 if a file cannot be read."""
    try:
        workflow = _read(file, read_workflow)
        meshes = _read(meshes_file, read_meshes)
        if assignment_file is None:
            mesh_of = by_type(workflow, meshes)
        else:
            mesh_of = _read(assignment_file, lambda body: read_assignment(body, workflow, meshes))
        try:
            metrics = metrics_of(workflow, meshes, mesh_of)
        except ValueError as wrong:
            raise UnreadableFile(f"{meshes_file}: {wrong}") from None
    except UnreadableFile as wrong:
        errors.write(f"{wrong}\n")
        return 2
    out.write(json.dumps(asdict(metrics)) + "\n")
    return 0


def _read(file: str, parse: Callable[[bytes], T]) -> T:
    """Return the parsed content of a file. Raises UnreadableFile with a line for each problem."""
    try:
        return parse(read_bytes(file))
    except SpecError as wrong:
        lines = [f"{file}: {place}: {problem}" if place else f"{file}: {problem}" for place, problem in wrong.problems]
        raise UnreadableFile("\n".join(lines)) from None
    except CaseError as wrong:
        raise UnreadableFile(f"{file}: {wrong}") from None
