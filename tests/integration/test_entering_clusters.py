"""Detection of token authentication by the cluster itself, whatever the home folder holds."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from federation.config.loading import load_config
from mesh.ray.cluster import own_cluster as clusters
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.cluster_token import MODE_VARIABLE, token_environment
from mesh.ray.cluster.own_cluster import OwnCluster
from serve_apps.processes.ray_access import asks_for_token, cluster_versions, entry_environment, open_words
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

pytestmark = pytest.mark.ray

CONFIG = """
federation: {{name: attached}}
root: {{cluster: lab}}
clusters: {{lab: {{shared: true, address: "{address}"}}}}
flavors: {{standard: {{}}}}
meshes: {{east: {{cluster: lab, pools: {{all: {{flavor: standard, capacity: {{cpu: 1}}}}}}}}}}
tenants: {{lab: {{}}}}
"""
SPEC = ClusterSpec(nodes=(ClusterNodeSpec(cpu=1),), object_store_bytes=80 * 2**20)


@pytest.fixture
def open_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnCluster]:
    """Start a cluster without a token, unlike those of `up`."""
    monkeypatch.setattr(clusters, "token_environment", lambda _file: {MODE_VARIABLE: "disabled"})
    cluster = OwnCluster.start(SPEC)
    yield cluster
    cluster.stop()


def test_a_cluster_without_a_token_is_entered_and_warned_of(open_cluster: OwnCluster, tmp_path: Path) -> None:
    assert not asks_for_token(open_cluster.address)
    assert entry_environment({}, open_cluster.address, None) == {MODE_VARIABLE: "disabled"}
    said: list[str] = []
    with StackFolder(tmp_path) as folder:
        Stack(load_config(CONFIG.format(address=open_cluster.address), source="lab.yaml"), folder, say=said.append).start_clusters()
    assert said == [f"cluster lab: {words}" for words in open_words(open_cluster.address)]
    assert "asks for no token" in said[0]


def test_a_cluster_with_a_token_is_entered_with_it(ray_cluster: OwnCluster) -> None:
    assert entry_environment({}, ray_cluster.address, None) == {MODE_VARIABLE: "token"}
    assert open_words(ray_cluster.address) == ()


def test_versions_of_a_cluster_are_known_before_it_is_entered(ray_cluster: OwnCluster) -> None:
    found = cluster_versions(ray_cluster.address, token_environment(ray_cluster.token_file))
    assert found == (ray.__version__, platform.python_version())
