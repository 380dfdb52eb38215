"""Files of a killed stack outside its state folder, and their removal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serve_apps.standalone.stack_folder import StackFolder
from serve_apps.standalone.stale_folders import note, sweep


def made(path: Path) -> Path:
    (path / "session").mkdir(parents=True)
    (path / "session" / "log").write_text("x")
    return path


def test_the_next_stack_removes_what_its_predecessor_left(tmp_path: Path):
    state, left = StackFolder(made(tmp_path / "state")), made(tmp_path / "sm-abc")
    note(state, [left])
    assert sweep(state) == (left,)
    assert not left.exists()
    assert sweep(state) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has clusters of other users")
def test_files_of_the_clusters_user_are_removed_too(tmp_path: Path):
    state, left = StackFolder(made(tmp_path / "state")), made(tmp_path / "sm-abc")
    os.chown(left / "session", 65_534, 65_534)
    note(state, [left])
    assert sweep(state) == (left,)
    assert not left.exists()


def test_nothing_else_is_removed_whatever_is_noted(tmp_path: Path):
    state, home = StackFolder(made(tmp_path / "state")), made(tmp_path / "home")
    link = tmp_path / "sm-link"
    link.symlink_to(home)
    note(state, [home, link, tmp_path / "sm-gone"])
    assert sweep(state) == ()
    assert (home / "session" / "log").exists()


def test_state_folder_without_notes_has_nothing_to_remove(tmp_path: Path):
    state = StackFolder(made(tmp_path / "state"))
    (state.path / "clusters.json").write_text('{"folders": 7}')
    assert sweep(state) == ()
