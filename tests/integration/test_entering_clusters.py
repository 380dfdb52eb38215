"""Whether a real Ray cluster asks for a token is told by the cluster itself, whatever lies in the home folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mesh.runtime import cluster as clusters
from mesh.runtime.cluster import ClusterSpec, NodeSpec, OwnCluster
from mesh.runtime.cluster_token import MODE_VARIABLE
from serve_apps.processes.ray_access import asks_for_token, entry_environment, open_words

pytestmark = pytest.mark.ray

SPEC = ClusterSpec(nodes=(NodeSpec(cpu=1),), object_store_bytes=80 * 2**20)


@pytest.fixture
def open_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnCluster]:
    """One like those that people start without a token; those of `up` are none."""
    monkeypatch.setattr(clusters, "token_environment", lambda _file: {MODE_VARIABLE: "disabled"})
    cluster = OwnCluster.start(SPEC)
    yield cluster
    cluster.stop()


def test_a_cluster_without_a_token_is_entered_and_warned_of(open_cluster: OwnCluster) -> None:
    assert not asks_for_token(open_cluster.address)
    assert entry_environment({}, open_cluster.address, None) == {MODE_VARIABLE: "disabled"}
    assert "asks for no token" in " ".join(open_words(open_cluster.address))


def test_a_cluster_with_a_token_is_entered_with_it(ray_cluster: OwnCluster) -> None:
    assert entry_environment({}, ray_cluster.address, None) == {MODE_VARIABLE: "token"}
    assert open_words(ray_cluster.address) == ()
