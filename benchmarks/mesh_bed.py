"""Test bed without a federation: a Ray cluster with one node for a mesh and one for plain Ray, and the mesh."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from benchmarks.bed import ROOT, let_sigterm_interrupt
from benchmarks.work import Replier
from mesh import ScheduleMesh
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.own_cluster import OwnCluster

CPUS = 4  #: Logical CPUs per node: the measured work waits for processes and messages, and computes nothing.
QUIET_S = 0.3
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class MeshBed:
    """Handle of the test bed."""

    mesh: ScheduleMesh
    plain_node: str  #: Ray's id of plain Ray's node.
    cpus: int = CPUS  #: CPUs per side.

    def plain_actor(self, group: PlacementGroup | None = None) -> Any:
        """Start a plain actor of one CPU on plain Ray's node, without waiting for it."""
        plain = ray.remote(num_cpus=1)(Replier)
        if group is not None:
            return plain.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote()
        return plain.options(label_selector={"side": "plain"}).remote()

    def plain_group(self) -> PlacementGroup:
        """Create a plain placement group of one CPU on the same node, without waiting for it."""
        return placement_group([{"CPU": 1}], bundle_label_selector=[{"side": "plain"}])

    def plain_cpus_free(self) -> float:
        """Return the free CPUs of plain Ray's node, as Ray's control process knows them."""
        return float(available_resources_per_node().get(self.plain_node, {}).get("CPU", 0.0))

    def is_waiting(self, pool: str, *, agents: int) -> bool:
        """Return whether the pool has so many warm agents without a task."""
        return sum(agent.is_warm for agent in self.mesh.list_agents() if agent.pool == pool) == agents


@contextmanager
def open_mesh_bed() -> Iterator[MeshBed]:
    """Open a bed; however the block ends, all processes are stopped."""
    nodes = tuple(ClusterNodeSpec(cpu=CPUS, labels={"side": side}) for side in ("mesh", "plain"))
    with ExitStack() as opened:
        cluster = OwnCluster.start(ClusterSpec(nodes=nodes, object_store_bytes=80 * 2**20), python_path=(str(ROOT),))
        opened.callback(cluster.stop)
        cluster.connect(namespace="benchmarks")
        opened.callback(ray.shutdown)
        let_sigterm_interrupt()
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="schedulemesh-bench-")))
        mesh = ScheduleMesh.start("bench", state_dir=folder / "mesh", node_labels={"side": "mesh"})
        opened.callback(mesh.stop)
        yield MeshBed(mesh, _plain_node())


def _plain_node() -> str:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray gives it no types
    return next(str(node["NodeID"]) for node in nodes if node["Labels"].get("side") == "plain")


def remove_group(group: PlacementGroup) -> None:
    """Remove a plain group."""
    remove_placement_group(group)


def await_that(holds: Callable[[], bool], rest_s: float = QUIET_S) -> None:
    """Wait until the condition holds, and a little longer until ended processes are quiet; not part of a measurement.

    Raises:
        TimeoutError: The condition did not hold within a minute.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the bed does not become idle: another program may use the machine")
        time.sleep(0.02)
    time.sleep(rest_s)
