"""Processes of meshes, noted and found again."""

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
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_was_noted_is_found_while_it_lives_and_not_after(tmp_path: Path, ended: int) -> None:
    folder = StackFolder(tmp_path)
    note(folder, {"east": os.getpid(), "west": ended})
    assert living(folder) == {"east": os.getpid()}


def test_a_number_that_another_process_has_got_is_not_told(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.write(CHILDREN_FILE, {"east": {"pid": os.getpid(), "started": "another"}, "west": {"pid": "x"}, "north": 3, "south": {}})
    assert living(folder) == {}


def test_whoever_gives_the_folder_back_leaves_no_note(tmp_path: Path) -> None:
    with StackFolder(tmp_path) as folder:
        note(folder, {"east": os.getpid()})
    assert not (tmp_path / CHILDREN_FILE).exists()
