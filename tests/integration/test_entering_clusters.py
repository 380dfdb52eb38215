"""Whether a real Ray cluster asks for a token is told by the cluster itself, whatever lies in the home folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.runtime.cluster import ClusterSpec, NodeSpec, OwnCluster
from serve_apps.processes.ray_access import asks_for_token, auth_mode

pytestmark = pytest.mark.ray

SPEC = ClusterSpec(nodes=(NodeSpec(cpu=1),), object_store_bytes=80 * 2**20)


@pytest.mark.parametrize("mode", ["disabled", "token"])
def test_a_cluster_is_entered_as_it_asks(mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    cluster = OwnCluster.start(SPEC)
    try:
        assert asks_for_token(cluster.address) is (mode == "token")
        assert auth_mode({}, cluster.address) == mode
    finally:
        cluster.stop()
