"""The Ray cluster of an example: one that is there, or one of its own that ends with the example."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import ray

from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.own_cluster import OwnCluster

STORE_BYTES = 80 * 2**20


@contextlib.contextmanager
def connected(address: str | None, *node_cpus: int) -> Iterator[Path | None]:
    """Connect to the cluster for the length of the block. Yield the folder for its mesh's state; None: the mesh's default.

    A new cluster keeps its token and the mesh's state in a temporary folder. `ray.init()` alone would write its token into the home of the
    user (`~/.ray/auth_token`).

    Args:
        address: None: start a cluster, and stop it at the end.
        node_cpus: CPUs of each node of the new cluster.
    """
    if address is not None:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
        try:
            yield None
        finally:
            ray.shutdown()
        return
    nodes = tuple(ClusterNodeSpec(cpu=cpus) for cpus in node_cpus)
    own = OwnCluster.start(ClusterSpec(nodes=nodes, object_store_bytes=STORE_BYTES))
    try:
        own.connect()
        yield own.folder / "mesh"
    finally:
        ray.shutdown()
        own.stop()
