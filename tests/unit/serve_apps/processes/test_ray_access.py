"""Authentication mode for foreign Ray clusters, and its errors."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mesh.errors import RuntimeAdapterError
from serve_apps.processes.ray_access import auth_mode, check_answers, check_token_file, entry_environment, refused_words, token_file

NOBODY = "127.0.0.1:1"


def test_environment_setting_comes_first() -> None:
    assert auth_mode({"RAY_AUTH_MODE": "token"}, NOBODY) == "token"


def test_a_cluster_that_does_not_answer_asks_for_no_token() -> None:
    assert auth_mode({"RAY_AUTH_TOKEN": "secret"}, NOBODY) == "disabled"


def test_token_in_the_file_beats_the_environment() -> None:
    entry = entry_environment({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "secret"}, NOBODY, "/of/lab")
    assert (entry["RAY_AUTH_MODE"], entry["RAY_AUTH_TOKEN"], entry["RAY_AUTH_TOKEN_PATH"]) == ("token", "", "/of/lab")


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), (" \n", "is empty")], ids=["missing", "empty"])
def test_file_without_a_token_is_reported_with_its_key(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(
        RuntimeAdapterError, match=rf"cluster lab: the token file {file} {words}.*; set `clusters\.lab\.token_file` to the file"
    ):
        check_token_file(str(file), "clusters.lab.token_file", whose="cluster lab: ")


def test_cluster_that_refuses_access_is_reported_with_a_remedy(tmp_path: Path) -> None:
    words = refused_words("10.0.0.1:6379", {}, tmp_path, ConnectionError("Failed\n to connect"))
    assert "\n" not in words
    assert "RAY_AUTH_MODE=token" in words
    assert str(token_file(tmp_path)) in words
    assert words.endswith("Ray says: Failed to connect")


@pytest.mark.parametrize("address", [NOBODY, "no.such.host.invalid:6379", "127.0.0.1", "[::1]:1"])
def test_address_without_a_listener_is_reported_with_its_key(address: str) -> None:
    with pytest.raises(RuntimeAdapterError, match=r"cluster lab: no answer from .*; set `clusters\.lab\.address` to"):
        check_answers(address, "clusters.lab.address", whose="cluster lab: ")


def test_invalid_port_is_reported_like_a_missing_listener() -> None:
    with pytest.raises(RuntimeAdapterError, match=r"^no answer from 127\.0\.0\.1:99999 .*; set `--ray` to the address that"):
        check_answers("127.0.0.1:99999", "--ray")


def test_address_with_a_listener_is_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as client:
        check_answers(f"127.0.0.1:{client.getsockname()[1]}", "--ray")
