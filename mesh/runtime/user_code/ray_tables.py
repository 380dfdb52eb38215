"""Ray's own tables of actors and placement groups, and how to end what stands there without a handle of it.

The State API needs a dashboard, and Ray's public functions tell neither creators nor owners.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import ray
from ray._raylet import PlacementGroupID
from ray.core.generated import gcs_pb2
from ray.util.placement_group import PlacementGroup, remove_placement_group

#: How long the control service may take to answer; seconds.
ANSWER_S = 10.0
#: Generated code, without types.
_tables: Any = gcs_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRow:
    """An actor that is not dead."""

    id: str
    name: str
    class_name: str
    job: str
    worker: str  #: Its process, by Ray's id; empty while it has none.
    owner: str  #: The process that has created it.
    group: str  #: The placement group that it is in; empty: none.
    is_detached: bool
    created_ms: int  #: When it was up; 0 before.
    amounts: dict[str, float]  #: Outside of placement groups, by Ray's names.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A placement group that is not removed."""

    id: str
    name: str
    job: str
    creator: str  #: The actor that has created it; empty: a task or a driver.
    is_placed: bool
    created_ms: int
    amounts: dict[str, float]  #: Of all its bundles, by Ray's names.


def actors() -> list[ActorRow]:
    """All in the cluster that are not dead."""
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
                    amounts={} if group and not _is_nil(group) else dict(actor.required_resources),
                )
            )
    return rows


def groups() -> list[GroupRow]:
    """All in the cluster that are not removed."""
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
                )
            )
    return rows


def kill_actors(ids: Collection[str]) -> None:
    """Kill them for good, restartable ones too; harmless when they are dead.

    `ray.kill` needs a handle, and Ray gives one for named actors only.

    Raises:
        grpc.RpcError: The control service does not answer in time.
    """
    if not ids:
        return
    # gRPC takes a quarter of a second to import, and runners, which only read the tables, start without it.
    utils, requests, services = (
        importlib.import_module(name)
        for name in ("ray._private.gcs_utils", "ray.core.generated.gcs_service_pb2", "ray.core.generated.gcs_service_pb2_grpc")
    )
    channel = utils.GcsChannel(gcs_address=ray.get_runtime_context().gcs_address)
    channel.connect()
    try:
        stub = services.ActorInfoGcsServiceStub(channel.channel())
        for hex_id in ids:
            request = requests.KillActorViaGcsRequest(actor_id=bytes.fromhex(hex_id), force_kill=True, no_restart=True)
            stub.KillActorViaGcs(request, timeout=ANSWER_S)
    finally:
        channel.channel().close()


def remove_groups(ids: Iterable[str]) -> None:
    """Remove them; harmless when they are gone. Kill their actors before: one that may restart would wait for room for ever."""
    for hex_id in ids:
        remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(hex_id))))


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()  # noqa: SLF001  see the module


def _is_nil(hex_id: str) -> bool:
    return not hex_id.strip("f")
