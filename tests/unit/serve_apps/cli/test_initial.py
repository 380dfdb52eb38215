"""`init`, and the federation that `up` starts without a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.config.loading import load_config
from serve_apps.cli.app import run_command
from serve_apps.cli.state import startable
from serve_apps.configuration.config_file import read_config
from serve_apps.configuration.initial_config import INITIAL_FILE, initial_config, initial_text


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_what_up_starts_without_a_file():
    without = startable(None)
    assert run_command(["init"]) == 0
    assert read_config(INITIAL_FILE) == without == initial_config()


def test_up_without_a_file_takes_the_one_here():
    assert run_command(["init"]) == 0
    INITIAL_FILE.write_text(INITIAL_FILE.read_text().replace("name: default", "name: mine"))
    assert startable(None).federation.name == "mine"


def test_validate_accepts_the_file(capsys):
    assert run_command(["init", "other.yaml"]) == 0
    assert "next: schedulemesh up other.yaml" in capsys.readouterr().out
    assert run_command(["validate", "other.yaml"]) == 0


def test_init_replaces_no_file_unless_forced(capsys):
    INITIAL_FILE.write_text("mine")
    assert run_command(["init"]) == 1
    assert "replace the file with --force" in " ".join(capsys.readouterr().err.split())
    assert INITIAL_FILE.read_text() == "mine"
    assert run_command(["init", "--force"]) == 0
    assert read_config(INITIAL_FILE) == initial_config()


def test_init_prints_the_file_for_a_dash(empty_folder, capsys):
    assert run_command(["init", "-"]) == 0
    printed = capsys.readouterr().out
    assert not list(empty_folder.iterdir())
    assert run_command(["init"]) == 0
    assert INITIAL_FILE.read_text() == printed


def test_init_into_a_missing_folder_is_refused(capsys):
    assert run_command(["init", "missing/x.yaml"]) == 1
    assert "missing/x.yaml cannot be written" in capsys.readouterr().err
    assert not Path("missing").exists()


@given(cores=st.integers(0, 1024), memory_bytes=st.integers(0, 1 << 44))
def test_file_is_valid_for_every_machine(cores, memory_bytes):
    config = load_config(initial_text(cores=cores, memory_bytes=memory_bytes), source="x.yaml")
    assert [warning.place for warning in config.warnings] == ["clusters.local.shared"]
