"""Owner references: records of the actors and placement groups that a node's code creates, kept by Ray's control service.

Ray's tables name the job of a placement group, and the worker process of an actor. Nodes of many runs share both, so the worker records
the stage that it works for at that moment. Kubernetes has the same owner references, and a garbage collector that follows them.

A mark of the stage and the creating task is written before the stage's code creates anything. The mark finds the tasks that this task
starts, resources that a killed process created and could not record, and resources that tasks below the node created (`dependents`).
Records are keys in Ray's internal store: like the resources that they name, they end only with the cluster.

A program (`mesh.ray.programs`) connects to Ray as a job of its own. The mark of a program is written before it starts. The metadata of
its jobs name its node, so each of these jobs counts as a mark as well, whatever the program's process does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import wraps
from typing import Any, NamedTuple

import ray
import structlog
from ray import actor, remote_function
from ray.actor import ActorClass
from ray.remote_function import RemoteFunction
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.core.ids import MeshId, NodeId, StageId
from mesh.errors import OutsideGroup
from mesh.ray.user_code.ray_tables import held, in_words, jobs

log = structlog.get_logger(__name__)

NAMESPACE = b"schedulemesh"
#: How long the control service may take to answer; seconds.
ANSWER_S = 10.0
_BETWEEN = "|"
#: Key of the metadata by which a job of Ray names its node.
_METADATA = "schedulemesh_node"
#: The node is unknown.
NO_NODE = NodeId("")


class ResourceKind(str, Enum):
    STAGE = "stage"  #: Mark: a task of the stage's code is about to create something.
    ACTOR = "actor"
    GROUP = "group"
    PROGRAM = "program"  #: Mark: a program of the node starts.


class NodeKey(NamedTuple):
    """A node whose code runs, and the mesh by its `detached_name`."""

    mesh: MeshId
    stage: StageId
    node: NodeId

    def as_metadata(self) -> dict[str, str]:
        """Return the metadata of a Ray job that runs for the node."""
        return {_METADATA: _BETWEEN.join(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """A Ray resource and the stage that it belongs to."""

    stage: StageId
    kind: ResourceKind
    id: str  #: Ray's id in hex; in a mark, the id of the task.
    worker: str  #: Ray's id of the process that wrote the record.
    job: str
    at_ms: int  #: Milliseconds since the epoch, on the worker's clock.
    node: NodeId = NO_NODE  #: Node whose code created the resource; empty: an earlier version wrote the record.

    def key(self, mesh: MeshId) -> bytes:
        parts = (self.stage, self.kind.value, self.id, self.worker, self.job, str(self.at_ms), self.node)
        return f"{prefix_of(mesh)}{_BETWEEN.join(parts)}".encode()


def prefix_of(mesh: MeshId, stage: StageId | None = None) -> str:
    """Return the key prefix of a mesh, by its `detached_name`, or of one of its stages."""
    return _BETWEEN.join(("owned", mesh, *((stage,) if stage is not None else ()), ""))


def references(mesh: MeshId) -> list[OwnerReference]:
    """Return all records of the mesh. Raises Ray's own errors when its control service is away."""
    prefix = prefix_of(mesh)
    keys = store().internal_kv_keys(prefix.encode(), NAMESPACE, timeout=ANSWER_S)
    found = []
    for key in keys:
        stage, kind, hex_id, worker, job, at_ms, *node = key.decode().removeprefix(prefix).split(_BETWEEN, 6)
        found.append(
            OwnerReference(
                stage=StageId(stage),
                kind=ResourceKind(kind),
                id=hex_id,
                worker=worker,
                job=job,
                at_ms=int(at_ms),
                node=NodeId("".join(node)),
            )
        )
    return found + _jobs_of_programs(mesh, [one for one in found if one.kind is ResourceKind.PROGRAM])


def _jobs_of_programs(mesh: MeshId, programs: Sequence[OwnerReference]) -> list[OwnerReference]:
    """Return a mark for each job of Ray that is a driver of one of these programs."""
    if not programs:
        return []
    by_name = {NodeKey(mesh, one.stage, one.node).as_metadata()[_METADATA]: one for one in programs}
    return [
        replace(by_name[job.metadata[_METADATA]], kind=ResourceKind.STAGE, id=f"driver of {job.id}", job=job.id, at_ms=job.started_ms)
        for job in jobs()
        if job.metadata.get(_METADATA) in by_name
    ]


def forget(mesh: MeshId, stage: StageId) -> None:
    store().internal_kv_del(prefix_of(mesh, stage).encode(), True, NAMESPACE, timeout=ANSWER_S)


def store() -> Any:
    """Return this process' client of Ray's internal store."""
    return ray._private.worker.global_worker.gcs_client  # type: ignore[attr-defined]  # noqa: SLF001  Ray's public one has no time limit


@dataclass(slots=True)
class _Notes:
    """Stage that this worker process works for, and the marks written for it."""

    mesh: MeshId | None = None
    stage: StageId | None = None
    node: NodeId = NO_NODE
    task: str | None = None  #: The node's task, by Ray's id.
    marked: set[str] = field(default_factory=set)  #: Tasks that have a mark; Ray gives each thread its own task id.
    sees_creation: bool = False
    is_driver: bool = False  #: This is a process of a program: all of it is the node's code.


_notes = _Notes()


def attribute_to(mesh: MeshId, stage: StageId, node: NodeId, task: str | None = None) -> None:
    """Attribute to the node of the stage all Ray resources that this task, and threads of this process, create from now on.

    A task below a node may run in this process later. Only the owner of such a task is known, which is another process.

    Args:
        task: The calling task, by Ray's id; None: it is looked up, which costs some microseconds.
    """
    if not _notes.sees_creation:
        _notes.sees_creation = True
        _see_creation()
    _notes.mesh, _notes.stage, _notes.node = mesh, stage, node
    _notes.task, _notes.marked = task or ray.get_runtime_context().get_task_id(), set()


def attribute_driver(node: NodeKey) -> None:
    """Attribute to the node all Ray resources that this process, a driver of its program, creates."""
    if not _notes.sees_creation:
        _notes.sees_creation = True
        _see_creation()
    _notes.mesh, _notes.stage, _notes.node = node
    _notes.is_driver, _notes.marked = True, set()


def note_program() -> NodeKey:
    """Record that a program of the present node starts; return the node. Raises RuntimeError if no node runs in this process."""
    if _notes.stage is None or _notes.mesh is None:
        raise RuntimeError("no node runs in this process")
    _note(ResourceKind.PROGRAM, ray.get_runtime_context().get_task_id() or "")
    return NodeKey(_notes.mesh, _notes.stage, _notes.node)


def has_created() -> bool:
    """Return whether code of the present node has created something in Ray."""
    return bool(_notes.marked)


def outside_words(kind: str, name: str, node: NodeId, amounts: Mapping[str, float]) -> str:
    """Return the message about work outside its stage's placement group: the work, its amounts by Ray's names, and the remedy.

    Args:
        node: Node whose code created the work; empty: it is unknown.
    """
    of = f"of node {node}" if node else "of a stage"
    remedy = (
        "use ray.util.get_current_placement_group(), and let the node ask for the amounts itself"
        if kind == "placement group"
        else "remove scheduling_strategy or placement_group=None, or let it ask for num_cpus=0"
    )
    return f"{kind} {name} {of} is outside its stage's placement group and asks for {in_words(amounts)}, for which no lease pays; {remedy}"


def _refuse_outside(kind: str, name: str, resources: Mapping[str, float], strategy: object = None) -> None:
    """Raise OutsideGroup if code of the node asks for resources outside any placement group.

    Tasks below a node may run in this process or in another: none of them is refused, and `OutsideLook` finds their work.
    """
    amounts = {} if isinstance(strategy, PlacementGroupSchedulingStrategy) else held(resources)
    if amounts and _is_of_node():
        raise OutsideGroup(outside_words(kind, name, _notes.node, amounts))


def _last_name(qualified: str) -> str:
    return qualified.rpartition(".")[2]


def _is_of_node() -> bool:
    """Return whether the calling code is the node's: its task, or a thread of the process. Else it is a later task below a node."""
    if _notes.is_driver:
        return True
    return ray.get_runtime_context().get_task_id() == _notes.task or threading.current_thread() is not threading.main_thread()


_refused = threading.local()  #: `error`: why the actor that this thread has just created must not stay.


def _refuse_later(descriptor: Any, resources: Mapping[str, float], strategy: object) -> None:
    """Keep the refusal of an actor for the caller: Ray calls this hook after it has created the actor."""
    try:
        _refuse_outside("actor", _last_name(descriptor.class_name), resources, strategy)
    except OutsideGroup as refused:
        _refused.error = refused


def _make_actor(create: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(create)
    def create_or_refuse(*args: Any, **kwargs: Any) -> Any:
        _refused.error = None
        handle = create(*args, **kwargs)
        refused, _refused.error = _refused.error, None
        if refused is not None:
            ray.kill(handle)
            raise refused
        return handle

    return create_or_refuse


def _make_group(create: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(create)
    def refuse(bundles: Sequence[Mapping[str, float]], *args: Any, **kwargs: Any) -> Any:
        amounts: dict[str, float] = {}
        for name, amount in (item for bundle in bundles if isinstance(bundle, dict) for item in bundle.items()):
            amounts[name] = amounts.get(name, 0.0) + amount
        _refuse_outside("placement group", kwargs.get("name", "") or "without a name", amounts)
        return create(bundles, *args, **kwargs)

    return refuse


def _see_creation() -> None:
    """Wrap the three functions of Ray through which code creates resources. Ray has no public hook for it.

    `placement_group` is replaced inside its own wrapper, since code that has imported it by name calls the wrapper.
    """
    remote_function._task_launch_hook = lambda descriptor, *asked: _refuse_outside("task", _last_name(descriptor.function_name), *asked)  # type: ignore[assignment]  # noqa: SLF001
    actor._actor_launch_hook = _refuse_later  # type: ignore[assignment]  # noqa: SLF001
    actor_class: Any = ActorClass
    actor_class._remote = _noted(_make_actor(actor_class._remote), ResourceKind.ACTOR, lambda handle: handle._actor_id.hex())  # noqa: SLF001
    function: Any = RemoteFunction
    function._remote = _noted(function._remote, ResourceKind.STAGE, None)  # noqa: SLF001
    wrapper: Any = ray.util.placement_group
    if hasattr(wrapper.__wrapped__, "is_in_gang"):
        return  # A new group is a part of the gang's own: see `gang_room`.
    cell = next(cell for cell in wrapper.__closure__ if cell.cell_contents is wrapper.__wrapped__)
    cell.cell_contents = _noted(_make_group(wrapper.__wrapped__), ResourceKind.GROUP, lambda group: group.id.hex())


def _noted(create: Callable[..., Any], kind: ResourceKind, id_of: Callable[[Any], str] | None) -> Callable[..., Any]:
    @wraps(create)
    def create_and_note(*args: Any, **kwargs: Any) -> Any:
        task = ray.get_runtime_context().get_task_id() or ""
        if not _is_of_node():
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
        node=_notes.node,
    )
    try:
        store().internal_kv_put(reference.key(_notes.mesh), b"", True, NAMESPACE, timeout=ANSWER_S)
    except Exception as away:  # noqa: BLE001  the tenant's code continues; without a record the mark of its stage finds the resource
        log.warning("the owner of a Ray resource could not be recorded", stage=_notes.stage, kind=kind.value, id=hex_id, error=str(away))
