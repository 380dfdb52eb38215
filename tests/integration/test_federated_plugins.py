"""Plugins of a federated mesh on a cluster of two nodes: they choose the node of each slot; one that fails is replaced.

One mesh has a pool, of a flavor of its own, for each policy, and runs a stage in each.
"""

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

from examples.plugins.near_full_gpu import NearFullGpu
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
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.ray.stage_runner.host import RayStageHost
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodesSucceeded, StageEnded
from mesh.stages.spec import StageSpec, TaskSpec
from serve_apps.child_process import plugins_of
from serve_apps.processes.settings import ChildSettings, LinkSettings

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

near_full_gpu = NearFullGpu().score  # Its score alone: both examples have `preemption_policy`, and a mesh takes one.
PLUGINS = {
    "near_full_gpu": f"{__name__}:near_full_gpu",
    "gpu_last": str(Path(__file__).parents[2] / "examples" / "plugins" / "gpu_last.wat"),
    "broken": f"{__name__}:broken",
}
#: By flavor. Small slots, so that all stages together have room on one node.
POLICIES = {"built_in": "spread", "python": "near_full_gpu", "wasm": "gpu_last", "sum": "0.7*near_full_gpu+0.3*spread", "broken": "broken"}
SLOT, CAPACITY = ResourceSet.of({"cpu": "0.2"}), ResourceSet.of({"cpu": "0.4"})
MESH, RUN, ACME = MeshId("plugged"), RunId("r"), TenantPath("acme")


def broken(*_: object) -> Any:
    raise OSError("the model is gone")


def zone_here() -> str:
    return str(ray.get_runtime_context().get_node_labels()["zone"])


def settings_of(address: str, folder: Path) -> ChildSettings:
    pools = tuple(
        PoolRecord(pool=PoolName(flavor), flavor=FlavorName(flavor), capacity=CAPACITY, policy=policy)
        for flavor, policy in POLICIES.items()
    )
    return ChildSettings(
        store=None,
        link=LinkSettings(roots=("https://root",), key="unused"),
        ray_address=address,
        heartbeat_ms=500,
        storage_url=folder.as_uri(),
        inline_limit_bytes=1024,
        record=MeshRecord(mesh=MESH, labels={}, pools=pools, cluster="c"),
        node_labels={},
        warm_runners=1,
        plugins=PLUGINS,
    )


class Federation:
    """A store, and one mesh on the cluster; both as production makes them, in one process."""

    def __init__(self, settings: ChildSettings) -> None:
        clock = EnduringClock()
        self.store = MemoryStore(clock=clock, ttl_ms=600_000, grace_ms=1_000)
        quotas = {(FlavorName(flavor), "cpu"): Quota(nominal=10_000) for flavor in POLICIES}
        self.store.configure(TenantTree([Tenant(path=ACME, parent=None, quotas=quotas)]))
        self.reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
        self.host = RayStageHost(
            mesh=MESH,
            address=settings.ray_address,
            report=self.reports.put,
            storage_url=settings.storage_url,
            inline_limit_bytes=settings.inline_limit_bytes,
            node_labels={},
            warm_runners=settings.warm_runners,
        )
        self.child = ChildMesh(
            record=settings.record,
            ledger=self.store,
            queue=self.store,
            blobs=self.store,
            host=self.host,
            clock=clock,
            heartbeat_ms=settings.heartbeat_ms,
            plugins=plugins_of(settings),
        )

    def run_all(self) -> dict[str, tuple[list[str], list[str]]]:
        """Run a stage of two tasks in two slots for each policy; return the zones of its slots, and those where its tasks ran."""
        code = cloudpickle.dumps(zone_here, protocol=5)
        function = hashlib.sha256(code).hexdigest()
        self.store.put(RUN, function, code)
        while not self.child.state.admission.placement.totals or not self.host.is_ready():
            self._work()
        for flavor in POLICIES:
            tasks = tuple(
                TaskSpec(node=NodeId(f"{flavor}-{number}"), attempt=1, function=f"blob:{function}", resources=SLOT, export=True)
                for number in (1, 2)
            )
            policy = PreemptionPolicy(flavors=(flavor,))
            stage = StageSpec(stage=StageId(flavor), run=RUN, tenant=ACME, tasks=tasks, slot=SLOT, width=2, preemption=policy)
            self.store.submit(MESH, stage)
        placed, values, ended = dict[str, list[str]](), {flavor: list[str]() for flavor in POLICIES}, set[str]()
        while ended < values.keys():
            self._work()
            placed = {flavor: placed.get(flavor) or self._zones(flavor) for flavor in POLICIES}  # An idle slot is soon given back.
            entries = self.store.inbox(0)
            self.store.acknowledge(tuple(entry.entry for entry in entries))
            for message in (message for entry in entries for message in decode(STAGE_MESSAGES, entry.body)):
                for stored in message.stored.values() if isinstance(message, NodesSucceeded) else ():
                    values[message.stage].append(json.loads(self.store.get(RUN, (stored.sha256,))[stored.sha256]))
                if isinstance(message, StageEnded):
                    ended.add(message.stage)
        return {flavor: (placed[flavor], values[flavor]) for flavor in POLICIES}

    def _work(self) -> None:
        """Take in the next report, or send the heartbeat that is due before."""
        try:
            report = self.reports.get(timeout=max(0.001, self.child.due_in_ms() / 1000))
        except queue.Empty:
            self.child.heartbeat()
        else:
            self.child.take_report(report)

    def _zones(self, stage: str) -> list[str]:
        zones = {row["NodeID"]: row["Labels"]["zone"] for row in ray.nodes() if row["Alive"]}
        return sorted(zones[node] for node in self.child.state.admission.placement.nodes_of(StageId(stage)))

    def plugins(self) -> dict[str, PluginRecord]:
        """Return the plugins as the root knows them after a heartbeat."""
        self.child.heartbeat()
        (view,) = self.store.snapshot().meshes
        return {one.plugin: one for one in view.record.plugins}


@pytest.fixture(scope="module")
def outcome(two_nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, PluginRecord]]]:
    """Return for each policy the zones of its slots and tasks, and the plugins as reported afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Plugins.__init__.__kwdefaults__, "budget_ms", 60_000.0)  # A busy machine must fence no good plugin.
        federation = Federation(settings_of(two_nodes.address, tmp_path_factory.mktemp("storage")))
    try:
        yield federation.run_all(), federation.plugins()
    finally:
        federation.child.leave()
        federation.host.close()


@pytest.mark.parametrize(
    ("flavor", "zones"),
    [
        pytest.param("built_in", ["east", "west"], id="a built-in policy uses both nodes"),
        pytest.param("python", ["west", "west"], id="the Python example keeps the GPU node free"),
        pytest.param("wasm", ["west", "west"], id="so does the WebAssembly example"),
        pytest.param("sum", ["west", "west"], id="so does a sum with a plugin"),
    ],
)
def test_s13_a_plugin_chooses_the_nodes_of_a_stage(outcome: Any, flavor: str, zones: list[str]) -> None:
    placed, ran = outcome[0][flavor]
    assert placed == zones
    assert len(ran) == 2
    assert set(ran) <= set(zones)


def test_s13_a_stage_runs_although_its_plugin_fails(outcome: Any) -> None:
    zones, plugins = outcome
    assert [len(each) for each in zones["broken"]] == [2, 2]
    assert {name: one.fenced for name, one in plugins.items()} == {
        "near_full_gpu": {},
        "gpu_last": {},
        "broken": {"score": "raised OSError: the model is gone"},
    }
