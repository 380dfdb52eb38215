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


def test_rules_of_the_repository_above_count(tmp_path: Path):
    fill(tmp_path, ".git/config", "sub/train.py", "sub/.env", "sub/data/x", "other/y", "out/a.py")
    (tmp_path / ".gitignore").write_text(".env\ndata/\n/other/\nout/\n")
    assert names_in(tmp_path / "sub") == ["train.py"]
    assert names_in(tmp_path / "out") == ["a.py"]  # Left out as a whole, and asked for.


def test_rules_outside_a_repository_do_not_count(tmp_path: Path):
    fill(tmp_path, "sub/train.py")
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert names_in(tmp_path / "sub") == ["train.py"]


def test_no_ignore_file_brings_keys_back(tmp_path: Path):
    fill(tmp_path, "train.py", ".git/config", ".schedulemesh/client.json", "prod/lock", "prod/settings/root.json", "prod/client.json")
    (tmp_path / ".gitignore").write_text("!.*\n!prod\n")
    assert names_in(tmp_path) == [".gitignore", "train.py"]
    assert names_in(tmp_path / "prod") == []


def test_an_unreadable_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fill(tmp_path, "train.py", "private/x")
    (tmp_path / ".gitignore").write_bytes(b"\xff\n")
    with pytest.raises(SpecError, match=r"\.gitignore cannot be read: it is not UTF-8; leave it out"):
        packed(tmp_path)
    (tmp_path / ".gitignore").unlink()
    scan = os.scandir

    def refusing(folder: Path):
        if Path(folder).name == "private":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(SpecError, match="private cannot be read: Permission denied"):
        packed(tmp_path)


def test_the_walk_ends_at_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fill(tmp_path, *(f"{number}/x" for number in range(20)))
    looked_at: list[Path] = []
    monkeypatch.setattr(working_dir, "FILES_MAX", 3)
    monkeypatch.setattr(working_dir, "_rules_of", lambda folder: looked_at.append(folder) or ())
    with pytest.raises(SpecError, match="in 4 files or more; "):
        packed(tmp_path)
    assert len(looked_at) < 10


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
