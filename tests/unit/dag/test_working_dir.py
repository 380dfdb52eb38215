"""Archive of a working directory: what is in it, and the bounds."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from dag.errors import SpecError
from dag.store import working_dir
from dag.store.working_dir import packed


def names_in(folder: Path, *excludes: str) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(packed(folder, excludes=excludes).data)) as files:
        return files.namelist()


def fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_what_git_and_ray_ignore_is_left_out(tmp_path: Path):
    fill(
        tmp_path, "train.py", "lib/a.py", "lib/a.pyc", "lib/__pycache__/a.pyc", ".git/config", ".venv/x", "data/large.bin", "data/keep.txt"
    )
    (tmp_path / ".gitignore").write_text("*.pyc\n/data/*\n!keep.txt\n")
    assert names_in(tmp_path) == [".gitignore", "data/keep.txt", "lib/a.py", "train.py"]
    (tmp_path / "lib" / ".rayignore").write_text("a.py\n")
    assert names_in(tmp_path, "train*") == [".gitignore", "data/keep.txt", "lib/.rayignore"]


def test_equal_files_make_equal_bytes(tmp_path: Path):
    fill(tmp_path / "a", "x.py", "y/z.py")
    fill(tmp_path / "b", "y/z.py", "x.py")
    os.utime(tmp_path / "b" / "x.py", (1, 1))
    assert packed(tmp_path / "a") == packed(tmp_path / "b")


def test_links_are_followed_once(tmp_path: Path):
    fill(tmp_path / "home", "a/x.py")
    (tmp_path / "home" / "a" / "up").symlink_to(tmp_path / "home")
    (tmp_path / "home" / "file").symlink_to(tmp_path / "home" / "a" / "x.py")
    (tmp_path / "home" / "nowhere").symlink_to(tmp_path / "gone")
    assert names_in(tmp_path / "home") == ["a/x.py", "file"]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(SpecError, match="missing is not there; name a folder"):
        packed(tmp_path / "missing")
    fill(tmp_path, "file")
    with pytest.raises(SpecError, match="file is a file; name a folder"):
        packed(tmp_path / "file")


def test_a_folder_that_is_too_large_names_its_largest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fill(tmp_path, "small.py")
    (tmp_path / "large.bin").write_bytes(os.urandom(2 * 2**20))
    monkeypatch.setattr(working_dir, "ZIP_BYTES_MAX", 2**20)
    with pytest.raises(SpecError, match=r"has 2\.0 MiB in 2 files; packed, a program has 1 MiB at most; largest: large\.bin 2\.0 MiB"):
        packed(tmp_path)
    monkeypatch.setattr(working_dir, "FILES_MAX", 1)
    with pytest.raises(SpecError, match=r"in 1 files at most.*\.rayignore"):
        packed(tmp_path)
