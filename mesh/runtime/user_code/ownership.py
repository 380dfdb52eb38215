"""Owner references: a record of each actor and placement group that a node's code creates, kept by Ray's control service.

Ray's tables name the job of a placement group, and the worker process of an actor. Both are shared by nodes of many runs: so the worker
notes for which stage it works at that moment. Kubernetes calls this an owner reference, and has a garbage collector follow it.

A mark of the stage, with the task that creates, is written before its code creates anything. With it are found: the tasks that this
task starts, what a killed process created and could not note, and what tasks below the node created (`dependents`). Records are keys
in Ray's internal store: they end with the cluster alone, as what they name does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Any

import ray
import structlog
from ray.actor import ActorClass
from ray.remote_function import RemoteFunction

from mesh.ids import MeshId, StageId

log = structlog.get_logger(__name__)

NAMESPACE = b"schedulemesh"
#: How long the control service may take to answer; seconds.
ANSWER_S = 10.0
_BETWEEN = "|"


class ResourceKind(str, Enum):
    """What a record is about."""

    STAGE = "stage"  #: A task of its code is about to create something.
    ACTOR = "actor"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """Something in Ray, and the stage that it belongs to."""

    stage: StageId
    kind: ResourceKind
    id: str  #: Ray's, in hex; in a mark of the task.
    worker: str  #: Ray's id of the process that noted it.
    job: str
    at_ms: int  #: Milliseconds since the epoch, on the worker's clock.

    def key(self, mesh: MeshId) -> bytes:
        """As it is stored."""
        parts = (self.stage, self.kind.value, self.id, self.worker, self.job, str(self.at_ms))
        return f"{prefix_of(mesh)}{_BETWEEN.join(parts)}".encode()


def prefix_of(mesh: MeshId, stage: StageId | None = None) -> str:
    """Of the keys of a mesh, by its `detached_name`, or of one of its stages."""
    return _BETWEEN.join(("owned", mesh, *((stage,) if stage is not None else ()), ""))


def references(mesh: MeshId) -> list[OwnerReference]:
    """All that is noted for the mesh. Raises whatever Ray has to say when its control service is away."""
    prefix = prefix_of(mesh)
    keys = store().internal_kv_keys(prefix.encode(), NAMESPACE, timeout=ANSWER_S)
    found = []
    for key in keys:
        stage, kind, hex_id, worker, job, at_ms = key.decode().removeprefix(prefix).split(_BETWEEN)
        found.append(OwnerReference(stage=StageId(stage), kind=ResourceKind(kind), id=hex_id, worker=worker, job=job, at_ms=int(at_ms)))
    return found


def forget(mesh: MeshId, stage: StageId) -> None:
    """Remove the records of a stage."""
    store().internal_kv_del(prefix_of(mesh, stage).encode(), True, NAMESPACE, timeout=ANSWER_S)


def store() -> Any:
    """The client of Ray's internal store in this process."""
    return ray._private.worker.global_worker.gcs_client  # type: ignore[attr-defined]  # noqa: SLF001  Ray's public one has no time limit


@dataclass(slots=True)
class _Notes:
    """What this worker process works for, and has noted for it."""

    mesh: MeshId | None = None
    stage: StageId | None = None
    task: str | None = None  #: The node's, by Ray's id.
    marked: set[str] = field(default_factory=set)  #: Tasks that have a mark; Ray gives each thread an id of its own.
    sees_creation: bool = False


_notes = _Notes()


def attribute_to(mesh: MeshId, stage: StageId) -> None:
    """What this task creates in Ray belongs to the stage, and what threads of this process create from now on.

    A task below a node may come to run in this process later: of it only its owner is known, which is another process.
    """
    if not _notes.sees_creation:
        _notes.sees_creation = True
        _see_creation()
    _notes.mesh, _notes.stage, _notes.task, _notes.marked = mesh, stage, ray.get_runtime_context().get_task_id(), set()


def _see_creation() -> None:
    """Wrap the three functions of Ray through which code creates something. Ray has no hook for it that is open to others.

    `placement_group` is replaced inside of its own wrapper: code that has imported it by name calls the wrapper.
    """
    actor_class: Any = ActorClass
    actor_class._remote = _noted(actor_class._remote, ResourceKind.ACTOR, lambda handle: handle._actor_id.hex())  # noqa: SLF001
    function: Any = RemoteFunction
    function._remote = _noted(function._remote, ResourceKind.STAGE, None)  # noqa: SLF001
    wrapper: Any = ray.util.placement_group
    cell = next(cell for cell in wrapper.__closure__ if cell.cell_contents is wrapper.__wrapped__)
    cell.cell_contents = _noted(wrapper.__wrapped__, ResourceKind.GROUP, lambda group: group.id.hex())


def _noted(create: Callable[..., Any], kind: ResourceKind, id_of: Callable[[Any], str] | None) -> Callable[..., Any]:
    @wraps(create)
    def create_and_note(*args: Any, **kwargs: Any) -> Any:
        task = ray.get_runtime_context().get_task_id() or ""
        if task != _notes.task and threading.current_thread() is threading.main_thread():
            return create(*args, **kwargs)
        if task not in _notes.marked:
            _note(ResourceKind.STAGE, task)
            _notes.marked.add(task)
        created = create(*args, **kwargs)
        if id_of is not None:
            _note(kind, id_of(created))
        return created

    return create_and_note


def _note(kind: ResourceKind, hex_id: str) -> None:
    if _notes.stage is None or _notes.mesh is None:
        return
    here = ray.get_runtime_context()
    reference = OwnerReference(
        stage=_notes.stage,
        kind=kind,
        id=hex_id,
        worker=here.get_worker_id(),
        job=here.get_job_id(),
        at_ms=time.time_ns() // 1_000_000,
    )
    try:
        store().internal_kv_put(reference.key(_notes.mesh), b"", True, NAMESPACE, timeout=ANSWER_S)
    except Exception as away:  # noqa: BLE001  the tenant's code goes on; without a record the mark of its stage finds it
        log.warning("what a node has created could not be noted", stage=_notes.stage, kind=kind.value, id=hex_id, error=str(away))
