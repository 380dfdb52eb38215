"""Secrets of a root in Ray Serve: read at each replica, from the environment or from files."""

from __future__ import annotations

import json
import stat

import pytest

from serve_apps.configuration.root_arguments import (
    RECEIPT_FILE,
    RECEIPT_VARIABLE,
    REDIS_FILE,
    REDIS_VARIABLE,
    RootArguments,
    SecretMissing,
    write_secrets,
)

URL, KEYS = "redis://user:hunter2@host:6379/0", {1: "ab" * 32, 2: "cd" * 32}
VARIABLES = {REDIS_VARIABLE: URL, RECEIPT_VARIABLE: json.dumps(KEYS)}


def arguments(secrets_dir: str | None = None) -> RootArguments:
    return RootArguments(federation_file={}, secrets_dir=secrets_dir)


def test_written_secrets_are_for_replicas_and_no_other_user(tmp_path):
    write_secrets(tmp_path / "secrets", redis_url=URL, receipt_keys=KEYS)
    found = arguments(str(tmp_path / "secrets")).secrets({})
    assert (found.redis_url, found.receipt_keys) == (URL, KEYS)
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "secrets").iterdir()} == {0o600}


def test_environment_has_the_secrets_without_a_folder():
    found = arguments().secrets(VARIABLES)
    assert (found.redis_url, found.receipt_keys) == (URL, KEYS)
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("name", [REDIS_VARIABLE, RECEIPT_VARIABLE])
@pytest.mark.parametrize("left", [None, " "])
def test_missing_variable_is_named(name, left):
    found = {key: text for key, text in {**VARIABLES, name: left}.items() if text is not None}
    with pytest.raises(SecretMissing, match=f"{name}.*prepare"):
        arguments().secrets(found)


@pytest.mark.parametrize("name", [REDIS_FILE, RECEIPT_FILE])
def test_missing_file_is_named(tmp_path, name):
    write_secrets(tmp_path, redis_url=URL, receipt_keys=KEYS)
    (tmp_path / name).unlink()
    with pytest.raises(SecretMissing, match=name):
        arguments(str(tmp_path)).secrets(VARIABLES)


@pytest.mark.parametrize("text", ["abcd", "{}", "[1]", '{"one": "ab"}', '{"1": ""}'])
def test_receipt_keys_of_another_form_are_refused(text):
    with pytest.raises(SecretMissing, match="receipt keys"):
        arguments().secrets({**VARIABLES, RECEIPT_VARIABLE: text})
