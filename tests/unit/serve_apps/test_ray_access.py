"""Which mode a process enters a strange Ray cluster with, and what it says where it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_apps.ray_access import auth_mode, refused_words, token_file


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        pytest.param({}, "disabled", id="nothing is known of a token"),
        pytest.param({"RAY_AUTH_TOKEN": "secret"}, "token", id="a token is in the environment"),
        pytest.param({"RAY_AUTH_TOKEN_PATH": "/run/token"}, "token", id="a token's file is named"),
        pytest.param({"RAY_AUTH_TOKEN": "secret", "RAY_AUTH_MODE": "disabled"}, "disabled", id="what somebody set comes first"),
    ],
)
def test_the_mode_is_by_token_where_there_is_one(environment: dict[str, str], mode: str, tmp_path: Path) -> None:
    assert auth_mode(environment, tmp_path) == mode


def test_a_token_in_the_home_folder_counts(tmp_path: Path) -> None:
    token_file(tmp_path).parent.mkdir()
    token_file(tmp_path).write_text("secret")
    assert auth_mode({}, tmp_path) == "token"


def test_a_cluster_that_lets_nobody_in_is_told_in_one_line_with_the_remedy(tmp_path: Path) -> None:
    words = refused_words("10.0.0.1:6379", {}, tmp_path, ConnectionError("Failed\n to connect"))
    assert "\n" not in words
    assert "RAY_AUTH_MODE=token" in words
    assert str(token_file(tmp_path)) in words
    assert words.endswith("Ray says: Failed to connect")
