"""Which mode a process enters a strange Ray cluster with, and what it says where it may not."""

from __future__ import annotations

from pathlib import Path

from serve_apps.ray_access import auth_mode, refused_words, token_file

NOBODY = "127.0.0.1:1"


def test_what_somebody_set_comes_first() -> None:
    assert auth_mode({"RAY_AUTH_MODE": "token"}, NOBODY) == "token"


def test_a_cluster_that_does_not_answer_asks_for_no_token() -> None:
    assert auth_mode({"RAY_AUTH_TOKEN": "secret"}, NOBODY) == "disabled"


def test_a_cluster_that_lets_nobody_in_is_told_in_one_line_with_the_remedy(tmp_path: Path) -> None:
    words = refused_words("10.0.0.1:6379", {}, tmp_path, ConnectionError("Failed\n to connect"))
    assert "\n" not in words
    assert "RAY_AUTH_MODE=token" in words
    assert str(token_file(tmp_path)) in words
    assert words.endswith("Ray says: Failed to connect")
