"""Warnings about pools that exceed their Ray cluster."""

from federation.snapshot import PoolRecord
from mesh.core.ids import FlavorName, PoolName
from mesh.core.resources import ResourceSet
from serve_apps.child_process import unbacked_pools


def pool(name: str, **capacity: object) -> PoolRecord:
    return PoolRecord(pool=PoolName(name), flavor=FlavorName("any"), capacity=ResourceSet.of(capacity))


NODES = (ResourceSet.of({"cpu": 2, "memory": "2GiB"}), ResourceSet.of({"cpu": 2, "gpu": 1, "memory": "2GiB"}))


def test_pools_that_take_all_that_there_is_are_kept():
    assert unbacked_pools((pool("a", cpu=3, memory="4GiB"), pool("b", cpu=1, gpu=0.5)), NODES) == ()


def test_each_short_resource_is_summed_over_all_pools():
    assert unbacked_pools((pool("a", cpu=3, license=1), pool("b", cpu=2, gpu=1)), NODES) == (
        "its pools declare 5 cpu, its nodes have 4; work beyond the nodes would wait in Ray: reduce the pools' capacity, or add nodes",
        "its pools declare 1 license, its nodes have 0; work beyond the nodes would wait in Ray: reduce the pools' capacity, or add nodes",
    )


def test_cluster_without_nodes_backs_no_pool():
    (warning,) = unbacked_pools((pool("a", cpu=0.5),), ())
    assert warning.startswith("its pools declare 0.5 cpu, its nodes have 0; ")
