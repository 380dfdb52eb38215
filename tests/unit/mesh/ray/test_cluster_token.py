"""Token of a cluster: fresh, readable by its owner only, and safe from a user's variables."""

from __future__ import annotations

import stat
from pathlib import Path

from mesh.ray.cluster.cluster_token import token_environment, write_token


def test_a_token_is_drawn_anew_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens" / "local"
    write_token(file)
    first = file.read_text()
    file.chmod(0o644)
    write_token(file)
    assert file.read_text() != first
    assert len(first) == 64
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    assert list(file.parent.iterdir()) == [file]


def test_what_a_user_has_set_weakens_nothing(tmp_path: Path) -> None:
    users = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "x", "RAY_AUTH_TOKEN_PATH": "/x", "RAY_ENABLE_K8S_TOKEN_AUTH": "true"}
    assert {**users, **token_environment(tmp_path)} == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "",
        "RAY_AUTH_TOKEN_PATH": str(tmp_path),
        "RAY_ENABLE_K8S_TOKEN_AUTH": "false",
    }
