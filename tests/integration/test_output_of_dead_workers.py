"""Last lines of workers that died on several nodes: a runner reads those of its own node, the guards those of the others."""

from __future__ import annotations

import hashlib
import os
import queue
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray
from patience import eventually

from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.ray.stage_runner.host import RayStageHost
from mesh.stages.hosting import HostReport, Places
from mesh.stages.messages import NodeFailed, NodeOutput, StageEnded, StageMessage
from mesh.stages.spec import StageSpec, TaskSpec

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray

ZONES = ("east", "west")
SLOT = ResourceSet.of({"cpu": 1})


def print_and_die() -> None:
    os.write(1, f"died in {ray.get_runtime_context().get_node_labels()['zone']}\n".encode())
    os._exit(1)


def test_last_lines_come_from_whichever_node(two_nodes: Any, tmp_path: Path) -> None:
    reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
    host = RayStageHost(
        mesh=MeshId("dying"),
        address=two_nodes.address,
        report=reports.put,
        storage_url=tmp_path.as_uri(),
        inline_limit_bytes=1024,
        node_labels={},
        warm_runners=0,
    )
    try:
        host.read_clock()
        host.extend_deadline(1, 600_000, 600_000, 1)
        code = cloudpickle.dumps(print_and_die, protocol=5)
        function = hashlib.sha256(code).hexdigest()
        messages: list[StageMessage] = []
        output: list[NodeOutput] = []
        for zone in ZONES:
            task = TaskSpec(node=NodeId(zone), attempt=1, function=f"blob:{function}", resources=SLOT, ray_options={"max_retries": 0})
            spec = StageSpec(stage=StageId(f"r.{zone}"), run=RunId("r"), tenant=TenantPath("acme"), tasks=(task,), slot=SLOT, width=1)
            host.start(spec, 1, 7, {function: code}, {}, places=Places(labels={"zone": zone}))
        while sum(isinstance(message, StageEnded) for message in messages) < len(ZONES):
            report = reports.get(timeout=120)
            host.confirm(report.stage, report.number)
            messages += report.messages
            output += report.output
    finally:
        host.leave(1)
        host.stop_all()
        host.close()
        eventually(lambda: not any(name.startswith("mesh/dying/") for name in ray.util.list_named_actors()))
    failed = {message.node: message.failure.traceback.splitlines()[-1] for message in messages if isinstance(message, NodeFailed)}
    assert failed == {zone: f"  died in {zone}" for zone in ZONES}
    assert {(each.node, each.lines) for each in output} == {(zone, (f"died in {zone}",)) for zone in ZONES}
