"""Meshes to plan a workflow for, read from JSON, and the mesh of each task where a file or a rule gives one.

    {"meshes": {"A": {"slots": 4, "speed": 1.0}, "B": {"slots": 2, "speed": 2.0}}, "bandwidth_Bps": 1e8, "latency_s": 0.05}

The object of the meshes may also stand alone; the links then have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any
from zlib import crc32

from dag.errors import SpecError
from dag.workflows.wfformat import Workflow, read_json
from mesh.core.near_names import nearest

#: Links between meshes, where the file gives none.
BANDWIDTH_BYTES_PER_S, LATENCY_S = 100_000_000.0, 0.05
#: Problems that an error lists.
_PROBLEMS_MAX = 20
_EXAMPLE = '{"A": {"slots": 4, "speed": 1.0}}'
_MESH_KEYS = frozenset({"slots", "speed", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMesh:
    """Mesh to plan for."""

    name: str
    slots: int
    speed: float = 1.0  #: A task of one second takes 1 / speed seconds there.
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSet:
    """Meshes, and the links between any two of them."""

    meshes: tuple[PlannedMesh, ...]  #: In the order of the file.
    bandwidth_bytes_per_s: float = BANDWIDTH_BYTES_PER_S
    latency_s: float = LATENCY_S

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the meshes, in order."""
        return tuple(mesh.name for mesh in self.meshes)

    def transfer_s(self, size_bytes: int) -> float:
        """Return how long a value takes from one mesh to another."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s


def read_meshes(body: bytes) -> MeshSet:
    """Read meshes. Raises SpecError with the places of the problems."""
    written = _parsed(body, _EXAMPLE)
    if not isinstance(written, dict):
        raise SpecError((("", f"must be an object of meshes, like {_EXAMPLE}"),))
    place = "/meshes" if "meshes" in written else ""
    listed = written.get("meshes", written)
    problems: list[tuple[str, str]] = []
    if not isinstance(listed, dict) or not listed:
        problems.append((place, f"must be an object with a mesh or more, like {_EXAMPLE}"))
        listed = {}
    meshes = [_mesh(name, described, f"{place}/{name}", problems) for name, described in listed.items()]
    links = {"bandwidth_Bps": BANDWIDTH_BYTES_PER_S, "latency_s": LATENCY_S}
    for key in links if place else ():
        given = written.get(key, links[key])
        if not (_is_positive(given) or (key == "latency_s" and given == 0 and not isinstance(given, bool))):
            problems.append((f"/{key}", f"must be a number above 0, got {given!r}"))
        else:
            links[key] = float(given)
    if problems:
        raise SpecError(tuple(problems))
    return MeshSet(meshes=tuple(meshes), bandwidth_bytes_per_s=links["bandwidth_Bps"], latency_s=links["latency_s"])


def _mesh(name: str, described: Any, place: str, problems: list[tuple[str, str]]) -> PlannedMesh:
    """Return a mesh as it is described; with problems its values are not used."""
    if not isinstance(described, dict):
        problems.append((place, f'must be an object, like {{"slots": 4}}, got {described!r}'))
        return PlannedMesh(name=name, slots=1)
    unknown = sorted(described.keys() - _MESH_KEYS)
    problems += [(f"{place}/{key}", f"unknown key{nearest(key, _MESH_KEYS)}; a mesh has slots, speed and labels") for key in unknown]
    slots: Any = described.get("slots")
    speed, labels = described.get("speed", 1.0), described.get("labels", {})
    before = len(problems)
    if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
        problems.append((f"{place}/slots", f"must be a whole number from 1, got {slots!r}"))
    if not _is_positive(speed):
        problems.append((f"{place}/speed", f"must be a number above 0, got {speed!r}"))
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        problems.append((f"{place}/labels", 'must be an object of texts, like {"zone": "eu"}'))
    if len(problems) > before:
        return PlannedMesh(name=name, slots=1)
    return PlannedMesh(name=name, slots=slots, speed=float(speed), labels=labels)


def read_assignment(body: bytes, workflow: Workflow, meshes: MeshSet) -> tuple[str, ...]:
    """Read the mesh of every task: an object from task id to mesh. Raises SpecError with the places of the problems."""
    example = '{"task_1": "A"}'
    written = _parsed(body, example)
    if not isinstance(written, dict):
        raise SpecError((("", f"must be an object from task id to mesh, like {example}"),))
    ids = {task.id for task in workflow.tasks}
    problems = [(f"/{task}", f"the workflow has no such task{nearest(task, ids)}; remove it") for task in written if task not in ids]
    for task in workflow.tasks:
        mesh = written.get(task.id)
        if task.id not in written:
            problems.append(("", f"task {task.id!r} has no mesh; add it"))
        elif mesh not in meshes.names:
            problems.append((f"/{task.id}", f"there is no mesh {mesh!r}; the meshes are {', '.join(meshes.names)}"))
        if len(problems) >= _PROBLEMS_MAX:
            break
    if problems:
        raise SpecError(tuple(problems[:_PROBLEMS_MAX]))
    return tuple(written[task.id] for task in workflow.tasks)


def by_type(workflow: Workflow, meshes: MeshSet) -> tuple[str, ...]:
    """Return a mesh for every task that only depends on its type: the sorted names of the meshes, by the CRC-32 of the type."""
    names = sorted(meshes.names)
    return tuple(names[crc32(task.type.encode()) % len(names)] for task in workflow.tasks)


def _parsed(body: bytes, example: str) -> Any:
    remedy = f"write an object like {example}"
    value, problem = read_json(body, remedy, remedy)
    if problem:
        raise SpecError((("", problem),))
    return value


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value > 0
