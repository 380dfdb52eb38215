"""Notes of mesh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serve_apps.standalone.child_pids import living, note
from serve_apps.standalone.stack_folder import CHILDREN_FILE, StackFolder


@pytest.fixture
def ended() -> int:
    """Return the id of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_noted_process_is_found_only_while_it_lives(tmp_path: Path, ended: int) -> None:
    folder = StackFolder(tmp_path)
    note(folder, {"east": os.getpid(), "west": ended})
    assert living(folder) == {"east": os.getpid()}


def test_reused_process_id_is_not_listed(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.write(CHILDREN_FILE, {"east": {"pid": os.getpid(), "started": "another"}, "west": {"pid": "x"}, "north": 3, "south": {}})
    assert living(folder) == {}


def test_released_folder_has_no_note(tmp_path: Path) -> None:
    with StackFolder(tmp_path) as folder:
        note(folder, {"east": os.getpid()})
    assert not (tmp_path / CHILDREN_FILE).exists()
