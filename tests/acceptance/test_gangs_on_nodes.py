"""Gangs over several nodes of a real Ray cluster: where their bundles are, and what the loss of a node ends."""

from __future__ import annotations

import hashlib
import json
import queue
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
import ray
from mesh_scene import joined, kill_session, node_named
from patience import eventually

from mesh.core.ids import MeshId, NodeId, NodeName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.stage_runner.host import RayStageHost
from mesh.stages.hosting import HostReport, Places
from mesh.stages.messages import NodeFailed, NodeStarted, NodeSucceeded, StageEnded, StageMessage
from mesh.stages.spec import StageSpec, TaskSpec

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray

GANG = Gang(size=2, bundle=ResourceSet.of({"cpu": 1}), strategy="STRICT_SPREAD")


def look_around(file: str) -> None:
    """Leave the node of each bundle of this task's group."""
    group = ray.util.get_current_placement_group()
    assert group is not None
    nodes = ray.util.placement_group_table(group)["bundles_to_node_id"]
    Path(file).write_text(json.dumps([nodes[key] for key in sorted(nodes)]))


def stay(file: str) -> None:
    """Leave the node of this task, and never end."""
    Path(file).write_text(ray.get_runtime_context().get_node_id())
    while True:
        time.sleep(0.01)


class Started:
    """A host with one stage of one gang, and its messages."""

    def __init__(self, host: RayStageHost, reports: queue.SimpleQueue[HostReport]) -> None:
        self._host, self._reports = host, reports

    def start(self, function: object, file: Path, *nodes: str) -> None:
        code = cloudpickle.dumps(function, protocol=5)
        sha256 = hashlib.sha256(code).hexdigest()
        task = TaskSpec(node=NodeId("gang"), attempt=1, function=f"blob:{sha256}", args=(str(file),), resources=GANG.slot, gang=GANG)
        spec = StageSpec(
            stage=StageId(f"{file.name}.1"), run=RunId(file.name), tenant=TenantPath("acme"), tasks=(task,), slot=GANG.slot, width=1
        )
        self._host.start(spec, 1, 7, {sha256: code}, {}, places=Places(nodes=tuple(map(NodeName, nodes))))

    def until(self, kind: type[StageMessage]) -> list[StageMessage]:
        """Return the messages up to the first of this kind."""
        messages: list[StageMessage] = []
        while not any(isinstance(message, kind) for message in messages):
            report = self._reports.get(timeout=120)
            self._host.confirm(report.stage, report.number)
            messages += report.messages
        return messages


@pytest.fixture
def started(three_nodes: OwnCluster, tmp_path: Path) -> Iterator[Started]:
    reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
    host = RayStageHost(
        mesh=MeshId("gangs"),
        address=three_nodes.address,
        report=reports.put,
        storage_url=tmp_path.as_uri(),
        inline_limit_bytes=1024,
        node_labels={},
        warm_runners=0,
    )
    host.extend_deadline(1, 600_000, 600_000, 1)
    yield Started(host, reports)
    host.leave(1)
    host.stop_all()
    host.close()
    eventually(lambda: not any(name.startswith("mesh/gangs/") for name in ray.util.list_named_actors()))


def test_the_bundles_of_a_gang_are_on_the_nodes_chosen(started: Started, tmp_path: Path) -> None:
    chosen = sorted((node_named(zone="east"), node_named(zone="west")))
    started.start(look_around, tmp_path / "nodes", *chosen)
    assert any(isinstance(message, NodeSucceeded) for message in started.until(StageEnded))
    assert json.loads((tmp_path / "nodes").read_text()) == chosen


@pytest.mark.faults
@pytest.mark.slow
def test_a_gang_that_loses_a_node_is_lost_whole(three_nodes: OwnCluster, started: Started, tmp_path: Path) -> None:
    def node(zone: str) -> ClusterNodeSpec:
        return ClusterNodeSpec(cpu=1, labels={"zone": zone})

    with joined(three_nodes, node("first")) as first, joined(three_nodes, node("second")) as second:
        sessions = {eventually(lambda: node_named(zone="first")): first, eventually(lambda: node_named(zone="second")): second}
        started.start(stay, tmp_path / "lost", *sessions)
        started.until(NodeStarted)
        (other,) = sessions.keys() - {(tmp_path / "lost").read_text()}
        kill_session(sessions[other])  # The task itself could go on.
        failed = [message for message in started.until(StageEnded) if isinstance(message, NodeFailed)]
        assert [message.failure.reason for message in failed] == [Reason.WORKER_LOST]
