"""Ray's own tables of actors and placement groups, its workers' lists of tasks, and removal of their entries without a handle.

The State API needs a dashboard, and Ray's public functions report neither creators nor owners. The control service keeps task events,
but a second late and dropped under load. The process that owns a task knows the task until it has ended, so this module asks owners.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import ray
from ray._raylet import PlacementGroupID
from ray.core.generated import common_pb2, gcs_pb2
from ray.util.placement_group import PlacementGroup, remove_placement_group

from mesh.ray.cluster.node_resources import is_of_group

#: Time limit for an answer of the control service; seconds.
ANSWER_S = 10.0
#: Generated code, without types.
_tables: Any = gcs_pb2
_NORMAL_TASK: Any = common_pb2.TaskType.NORMAL_TASK  # type: ignore[attr-defined]  # generated
_WORKER: Any = common_pb2.WorkerType.WORKER  # type: ignore[attr-defined]  # generated
#: Time limit for an answer of a worker; seconds. A frozen or unreachable worker delays the garbage collector so long.
WORKER_ANSWER_S = 2.0
#: Beginning of the resource that names a node.
_OF_NODE = "node:"
#: Conditions of a label selector: label, whether it must be among the values or must not, values.
Selector = Sequence[tuple[str, bool, Collection[str]]]
#: A task's id ends with the id of its job.
_JOB_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRow:
    """An actor that is not dead."""

    id: str
    name: str
    class_name: str
    job: str
    worker: str  #: Worker process of the actor, by Ray's id; empty while it has none.
    owner: str  #: Process that created the actor.
    group: str  #: Placement group of the actor; empty: none.
    is_detached: bool
    created_ms: int  #: Time at which the actor was up; 0 before.
    amounts: dict[str, float]  #: Resources held outside placement groups, by Ray's names.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A placement group that has not been removed."""

    id: str
    name: str
    job: str
    creator: str  #: Actor that created the group; empty: a task or a driver did.
    is_placed: bool
    created_ms: int
    amounts: dict[str, float]  #: Sum over all bundles, by Ray's names.
    nodes: tuple[str, ...] = ()  #: Node of each bundle, by Ray's ids, in the order of the bundles.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A call of a remote function that has not ended."""

    id: str
    parent: str  #: Task that started this one; Ray counts each thread of a process as a task.
    owner: str  #: Process that started this task.
    name: str = ""
    group: str = ""  #: Placement group of the task; empty: none.
    amounts: Mapping[str, float] = field(default_factory=dict)  #: Resources asked for outside placement groups, by Ray's names.

    @property
    def job(self) -> str:
        """Job of the task, by Ray's id."""
        return self.id[-_JOB_CHARS:]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTable:
    """Tasks that the workers of the cluster own."""

    rows: tuple[TaskRow, ...]
    is_whole: bool  #: Every worker that Ray believes alive has answered.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job of Ray: a driver that has connected to the cluster, perhaps long ago."""

    id: str
    metadata: Mapping[str, str]
    started_ms: int


def jobs() -> list[JobRow]:
    """Return all jobs of the cluster that its control service knows, ended ones too."""
    rows = []
    for data in _accessor().get_job_table():
        job = _tables.JobTableData.FromString(data)
        rows.append(JobRow(id=job.job_id.hex(), metadata=dict(job.config.metadata), started_ms=job.start_time))
    return rows


def actors() -> list[ActorRow]:
    """Return all actors of the cluster that are not dead."""
    rows = []
    for data in _accessor().get_actor_table(None, None):
        actor = _tables.ActorTableData.FromString(data)
        if actor.state != _tables.ActorTableData.DEAD:
            group = actor.placement_group_id.hex()
            rows.append(
                ActorRow(
                    id=actor.actor_id.hex(),
                    name=actor.name,
                    class_name=actor.class_name,
                    job=actor.job_id.hex(),
                    worker=actor.address.worker_id.hex(),
                    owner=actor.owner_address.worker_id.hex(),
                    group="" if _is_nil(group) else group,
                    is_detached=actor.is_detached,
                    created_ms=actor.start_time,
                    amounts={} if group and not _is_nil(group) else held(actor.required_resources),
                )
            )
    return rows


def groups() -> list[GroupRow]:
    """Return all placement groups of the cluster that have not been removed."""
    rows = []
    for data in _accessor().get_placement_group_table():
        group = _tables.PlacementGroupTableData.FromString(data)
        if group.state != _tables.PlacementGroupTableData.REMOVED:
            amounts: dict[str, float] = {}
            for bundle in group.bundles:
                for name, amount in bundle.unit_resources.items():
                    amounts[name] = amounts.get(name, 0.0) + amount
            creator = group.creator_actor_id.hex()
            rows.append(
                GroupRow(
                    id=group.placement_group_id.hex(),
                    name=group.name,
                    job=group.creator_job_id.hex(),
                    creator="" if _is_nil(creator) else creator,
                    is_placed=group.state == _tables.PlacementGroupTableData.CREATED,
                    created_ms=group.placement_group_creation_timestamp_ms,
                    amounts=amounts,
                    nodes=tuple(bundle.node_id.hex() for bundle in sorted(group.bundles, key=lambda one: one.bundle_id.bundle_index)),
                )
            )
    return rows


def bundles_by_node() -> dict[str, list[tuple[str, dict[str, float]]]]:
    """Return the placed bundles of all placement groups by node: the actor that created the group, and amounts by Ray's names."""
    found: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for data in _accessor().get_placement_group_table():
        group = _tables.PlacementGroupTableData.FromString(data)
        if group.state != _tables.PlacementGroupTableData.REMOVED:
            for bundle in group.bundles:
                if not _is_nil(node := bundle.node_id.hex()):
                    found.setdefault(node, []).append((group.creator_actor_id.hex(), dict(bundle.unit_resources)))
    return found


def tasks() -> TaskTable:
    """Return all tasks that workers of the cluster, actors among them, have started and that have not ended."""
    rows, is_whole = [], True
    with _each_worker(_worker_addresses()) as workers:
        answers = {
            owner: stub.GetCoreWorkerStats.future(
                messages.GetCoreWorkerStatsRequest(intended_worker_id=bytes.fromhex(owner), include_task_info=True, limit=-1),
                timeout=WORKER_ANSWER_S,
            )
            for owner, (messages, stub) in workers.items()
        }
        for owner, answer in answers.items():
            try:
                entries = answer.result().owned_task_info_entries
            except Exception:  # noqa: BLE001  gRPC is not imported here; the process ends, is frozen, or is unreachable
                is_whole = False
                continue
            rows += [_task_row(entry, owner) for entry in entries if entry.type == _NORMAL_TASK]
    return TaskTable(rows=tuple(rows), is_whole=is_whole)


def _task_row(entry: Any, owner: str) -> TaskRow:
    group = entry.placement_group_id.hex()
    is_outside = not group or _is_nil(group)
    return TaskRow(
        id=entry.task_id.hex(),
        parent=entry.parent_task_id.hex(),
        owner=owner,
        name=entry.name or entry.func_or_class_name,
        group="" if is_outside else group,
        amounts=held(entry.required_resources) if is_outside else {},
    )


def held(resources: Mapping[str, float]) -> dict[str, float]:
    """Return the amounts, by Ray's names, that are held outside placement groups. A share of a node's own resource only names the node."""
    return {name: amount for name, amount in resources.items() if amount > 0 and not is_of_group(name) and not name.startswith(_OF_NODE)}


def in_words(amounts: Mapping[str, float]) -> str:
    """Return amounts by Ray's names as text."""
    return " and ".join(f"{amount:g} {name}" for name, amount in sorted(amounts.items()))


def resources_waited_for(labels: Mapping[str, str] = MappingProxyType({})) -> frozenset[str]:
    """Return the resources, by Ray's names, for which tasks, actors or placement groups of anyone wait.

    Work that waits within its placement group does not count: it waits for its own group.

    Args:
        labels: Labels that all nodes of interest have; work that asks for others does not count.
    """
    return frozenset(name for names in demands(labels) if not any(map(is_of_group, names)) for name in names)


def demands(labels: Mapping[str, str] = MappingProxyType({})) -> list[frozenset[str]]:
    """Return the resources that each waiting task, actor or bundle of the cluster asks for, by Ray's names. Takes half a millisecond.

    Args:
        labels: As for `resources_waited_for`.
    """
    from ray.autoscaler.v2.sdk import get_cluster_resource_state  # noqa: PLC0415  long, and few processes ask

    worker: Any = ray._private.worker.global_worker  # noqa: SLF001  Ray has no public name for it
    state = get_cluster_resource_state(worker.gcs_client)
    asked = [demand.request for demand in state.pending_resource_requests if demand.count]
    asked += [request for gang in state.pending_gang_resource_requests for request in gang.requests]
    return [frozenset(request.resources_bundle) for request in asked if may_use(_selectors_of(request), labels)]


def may_use(selectors: Sequence[Selector], labels: Mapping[str, str]) -> bool:
    """Return whether work with these selectors, of which one has to fit, may run on a node with these labels and any others."""
    return not selectors or any(all((labels[key] in values) is isin for key, isin, values in one if key in labels) for one in selectors)


def _selectors_of(request: Any) -> list[Selector]:
    in_ = 1  # `LABEL_OPERATOR_IN`; the other one is NOT_IN.
    return [
        [(each.label_key, each.operator == in_, tuple(each.label_values)) for each in selector.label_constraints]
        for selector in getattr(request, "label_selectors", ())  # Older versions of Ray have none.
    ]


def cancel_children(parents: Iterable[tuple[str, str]]) -> None:
    """Kill all unfinished tasks that these tasks have started, and their descendants. Harmless when there are none.

    `ray.cancel` needs a reference, and the owner may have dropped it. An owner that is asked to cancel a task also cancels the task's
    children, even when the task itself has ended. An owner does not repeat a cancellation. Returns before the processes have ended.

    Args:
        parents: The owner's process and the task, by Ray's ids.
    """
    by_owner: dict[str, list[str]] = {}
    for owner, parent in parents:
        by_owner.setdefault(owner, []).append(parent)
    if not by_owner:
        return
    addresses = {owner: address for owner, address in _worker_addresses().items() if owner in by_owner}
    with _each_worker(addresses) as workers:
        answers = [
            stub.CancelTask.future(
                messages.CancelTaskRequest(
                    intended_task_id=bytes.fromhex(parent), force_kill=True, recursive=True, caller_worker_id=bytes.fromhex(owner)
                ),
                timeout=WORKER_ANSWER_S,
            )
            for owner, (messages, stub) in workers.items()
            for parent in by_owner[owner]
        ]
        for answer in answers:
            answer.exception()  # The next sweep asks an owner that did not answer again: its tasks are still in the table.


def _worker_addresses() -> dict[str, str]:
    """Return the addresses of all workers that Ray believes alive, by their ids.

    Drivers are left out: a driver may belong to any user, and may be stopped.
    """
    workers = [_tables.WorkerTableData.FromString(data) for data in _accessor().get_worker_table()]
    return {
        worker.worker_address.worker_id.hex(): f"{worker.worker_address.ip_address}:{worker.worker_address.port}"
        for worker in workers
        if worker.is_alive and worker.worker_type == _WORKER
    }


@contextmanager
def _each_worker(addresses: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Open a client for each process; yield the message classes and the client, by worker."""
    utils, messages, services = _grpc("core_worker")
    channels = {worker: utils.create_gcs_channel(address) for worker, address in addresses.items()}
    try:
        yield {worker: (messages, services.CoreWorkerServiceStub(channel)) for worker, channel in channels.items()}
    finally:
        for channel in channels.values():
            channel.close()


def _grpc(service: str) -> tuple[Any, Any, Any]:
    """Import gRPC late: the import takes a quarter of a second, and runners only read the tables."""
    generated = f"ray.core.generated.{service}"
    names = ("ray._private.gcs_utils", f"{generated}_pb2", f"{generated}_pb2_grpc")
    utils, messages, services = (importlib.import_module(name) for name in names)
    return utils, messages, services


def kill_actors(ids: Collection[str]) -> None:
    """Kill the actors for good, restartable ones too. Harmless when they are dead.

    `ray.kill` needs a handle, and Ray gives a handle for named actors only.

    Raises:
        grpc.RpcError: The control service does not answer in time.
    """
    if not ids:
        return
    utils, messages, services = _grpc("gcs_service")
    channel = utils.create_gcs_channel(ray.get_runtime_context().gcs_address)
    try:
        stub = services.ActorInfoGcsServiceStub(channel)
        for hex_id in ids:
            request = messages.KillActorViaGcsRequest(actor_id=bytes.fromhex(hex_id), force_kill=True, no_restart=True)
            stub.KillActorViaGcs(request, timeout=ANSWER_S)
    finally:
        channel.close()


def remove_groups(ids: Iterable[str]) -> None:
    """Remove the placement groups. Harmless when they are gone.

    Kill their actors first: a restartable actor would wait for room for ever.
    """
    for hex_id in ids:
        remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(hex_id))))


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()  # noqa: SLF001  see the module


def _is_nil(hex_id: str) -> bool:
    return not hex_id.strip("f")
