"""Plugins of a federated mesh on a cluster of two nodes: they choose the node of each slot; one that fails is replaced."""

from __future__ import annotations

import hashlib
import json
import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray

from federation.child.child_mesh import ChildMesh
from federation.dispatch import STAGE_MESSAGES
from federation.snapshot import MeshRecord, PluginRecord, PoolRecord
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import EnduringClock
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode
from mesh.plugins import Plugins
from mesh.ray.stage_runner.host import RayStageHost
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodeSucceeded, StageEnded, StageMessage
from mesh.stages.spec import StageSpec, TaskSpec
from serve_apps.child_process import plugins_of
from serve_apps.processes.settings import ChildSettings, LinkSettings

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
PLUGINS = {
    "near_full_gpu": "examples.plugins.near_full_gpu:NearFullGpu",
    "gpu_last": str(EXAMPLES / "gpu_last.wat"),
    "broken": f"{__name__}:broken",
}
EVENT_S_MAX = 120.0
ONE_CPU = ResourceSet.of({"cpu": 1})


def broken(*_: object) -> Any:
    raise OSError("the model is gone")


def zone_here() -> str:
    return str(ray.get_runtime_context().get_node_labels()["zone"])


class Federation:
    """A store, and one mesh on the cluster, whose pool has the policy; both as production makes them, in one process."""

    def __init__(self, address: str, folder: Path, policy: str) -> None:
        pool = PoolRecord(pool=PoolName("general"), flavor=FlavorName("standard"), capacity=ResourceSet.of({"cpu": 4}), policy=policy)
        record = MeshRecord(mesh=MeshId("plugged"), labels={}, pools=(pool,), cluster="c")
        settings = ChildSettings(
            store=None,
            link=LinkSettings(roots=("https://root",), key="unused"),
            ray_address=address,
            heartbeat_ms=500,
            storage_url=folder.as_uri(),
            inline_limit_bytes=1024,
            record=record,
            node_labels={},
            warm_runners=0,
            plugins={name: source for name, source in PLUGINS.items() if name in policy},
        )
        clock = EnduringClock()
        self.store = MemoryStore(clock=clock, ttl_ms=600_000, grace_ms=1_000)
        quotas = {(FlavorName("standard"), "cpu"): Quota(nominal=4 * 10_000)}
        self.store.configure(TenantTree([Tenant(path=TenantPath("acme"), parent=None, quotas=quotas)]))
        self.reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
        self.host = RayStageHost(
            mesh=record.mesh,
            address=address,
            report=self.reports.put,
            storage_url=settings.storage_url,
            inline_limit_bytes=settings.inline_limit_bytes,
            node_labels={},
            warm_runners=0,
        )
        self.child = ChildMesh(
            record=record,
            ledger=self.store,
            queue=self.store,
            blobs=self.store,
            host=self.host,
            clock=clock,
            heartbeat_ms=settings.heartbeat_ms,
            plugins=plugins_of(settings),
        )

    def zones(self, slot: ResourceSet) -> list[str]:
        """Run a stage of two tasks in two slots; return where the slots stand, and check that the tasks ran there."""
        code = cloudpickle.dumps(zone_here, protocol=5)
        function = hashlib.sha256(code).hexdigest()
        tasks = tuple(
            TaskSpec(node=NodeId(name), attempt=1, function=f"blob:{function}", resources=slot, export=True) for name in ("a", "b")
        )
        self.store.put(RunId("r"), function, code)
        self.store.submit(
            MeshId("plugged"), StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=TenantPath("acme"), tasks=tasks, slot=slot, width=2)
        )
        self.child.heartbeat()
        labels = {row["NodeID"]: row["Labels"]["zone"] for row in ray.nodes() if row["Alive"]}
        placed = [labels[node] for node in self.child.state.admission.placement.nodes_of(StageId("r.1"))]
        ran = [json.loads(self.store.get(RunId("r"), (sha256,))[sha256]) for sha256 in self._results()]
        assert set(ran) <= set(placed)
        return sorted(placed)

    def _results(self) -> list[str]:
        messages: list[StageMessage] = []
        while not any(isinstance(message, StageEnded) for message in messages):
            self.child.take_report(self.reports.get(timeout=EVENT_S_MAX))
            entries = self.store.inbox(0)
            self.store.acknowledge(tuple(entry.entry for entry in entries))
            messages += [message for entry in entries for message in decode(STAGE_MESSAGES, entry.body)]
        stored = [message.stored for message in messages if isinstance(message, NodeSucceeded)]
        return [value.sha256 for value in stored if value is not None]

    def plugins(self) -> dict[str, PluginRecord]:
        """Return the plugins as the root knows them after a heartbeat."""
        self.child.heartbeat()
        (view,) = self.store.snapshot().meshes
        return {one.plugin: one for one in view.record.plugins}

    def close(self) -> None:
        self.child.leave()
        self.host.close()


@pytest.fixture
def open_with(two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that starts the mesh with a policy."""
    monkeypatch.setitem(Plugins.__init__.__kwdefaults__, "budget_ms", 60_000.0)  # A busy machine must fence no good plugin.
    opened: list[Federation] = []

    def start(policy: str) -> Federation:
        opened.append(Federation(two_nodes.address, tmp_path, policy))
        return opened[-1]

    yield start
    for federation in opened:
        federation.close()


@pytest.mark.parametrize(
    ("policy", "zones"),
    [
        pytest.param("spread", ["east", "west"], id="a built-in policy uses both nodes"),
        pytest.param("near_full_gpu", ["west", "west"], id="the Python example keeps the GPU node free"),
        pytest.param("gpu_last", ["west", "west"], id="so does the WebAssembly example"),
        pytest.param("0.7*near_full_gpu+0.3*spread", ["west", "west"], id="so does a sum with it"),
    ],
)
def test_s13_a_plugin_chooses_the_nodes_of_a_stage(open_with: Any, policy: str, zones: list[str]) -> None:
    federation = open_with(policy)
    assert federation.zones(ONE_CPU) == zones
    assert not any(one.fenced for one in federation.plugins().values())


def test_s13_a_stage_runs_although_its_plugin_fails(open_with: Any) -> None:
    federation = open_with("broken")
    assert len(federation.zones(ONE_CPU)) == 2
    assert federation.plugins()["broken"].fenced == {"score": "raised OSError: the model is gone"}
