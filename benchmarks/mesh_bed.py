"""A bed without a federation: a Ray cluster of its own with a node for a mesh and one for plain Ray, and the mesh itself."""

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
from mesh.runtime.cluster.cluster_spec import ClusterSpec, NodeSpec
from mesh.runtime.cluster.own_cluster import OwnCluster

CPUS = 4  #: Of each node, logical ones: what is measured waits for processes and messages, and computes nothing.
QUIET_S = 0.3
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class MeshBed:
    """What is measured on."""

    mesh: ScheduleMesh
    plain_node: str  #: Ray's id of the node of plain Ray.
    cpus: int = CPUS  #: Of each side.

    def plain_actor(self, group: PlacementGroup | None = None) -> Any:
        """A plain actor of one CPU, on its own node. Does not wait for it."""
        plain = ray.remote(num_cpus=1)(Replier)
        if group is not None:
            return plain.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote()
        return plain.options(label_selector={"side": "plain"}).remote()

    def plain_group(self) -> PlacementGroup:
        """A plain placement group of one CPU, on the same node. Does not wait for it."""
        return placement_group([{"CPU": 1}], bundle_label_selector=[{"side": "plain"}])

    def plain_cpus_free(self) -> float:
        """Of the node of plain Ray, as Ray's control process has heard it."""
        return float(available_resources_per_node().get(self.plain_node, {}).get("CPU", 0.0))

    def is_waiting(self, pool: str, *, agents: int) -> bool:
        """Has the pool so many warm agents without a task?"""
        return sum(agent.is_warm for agent in self.mesh.list_agents() if agent.pool == pool) == agents


@contextmanager
def open_mesh_bed() -> Iterator[MeshBed]:
    """A bed; whatever ends the block, nothing is left running."""
    nodes = tuple(NodeSpec(cpu=CPUS, labels={"side": side}) for side in ("mesh", "plain"))
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
    """Give a plain group back."""
    remove_placement_group(group)


def await_that(holds: Callable[[], bool], rest_s: float = QUIET_S) -> None:
    """Until then, and so much longer that what was ended is quiet; outside of what is measured.

    Raises:
        TimeoutError: It does not come about within a minute.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the bed does not come to rest: another program may take the machine")
        time.sleep(0.02)
    time.sleep(rest_s)
