from __future__ import annotations

import os

import psutil
import pytest

from mesh.ray.cluster.process import start_mark
from serve_apps.standalone.stack_folder import AlreadyRunning, StackFolder


def mode_of(path):
    return path.stat().st_mode & 0o777


def test_folder_is_made_with_parents_for_its_owner_only(tmp_path):
    with StackFolder(tmp_path / "deep" / "state") as folder:
        folder.write("client.json", {"api_key": "secret"})
        assert mode_of(folder.path) == 0o700
        assert mode_of(folder.path / "client.json") == 0o600


def test_second_owner_is_refused_and_learns_the_first(tmp_path):
    with StackFolder(tmp_path) as folder:
        folder.write("stack.json", {"pid": 4711, "address": "http://here"})
        with pytest.raises(AlreadyRunning, match=r"process 4711, http://here.*schedulemesh down"), StackFolder(tmp_path):
            pass
        assert folder.read("stack.json")["pid"] == 4711


def test_second_owner_is_refused_during_the_first_start(tmp_path):
    with StackFolder(tmp_path), pytest.raises(AlreadyRunning, match=r"process \?, still starting"), StackFolder(tmp_path):
        pass


def test_the_refused_owner_takes_nothing_with_it(tmp_path):
    with StackFolder(tmp_path):
        for _ in range(2):
            with pytest.raises(AlreadyRunning), StackFolder(tmp_path):
                pass


def test_folder_is_free_after_its_owner_even_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), StackFolder(tmp_path):
        raise ZeroDivisionError
    with StackFolder(tmp_path) as folder:
        assert folder.owner() is None


def test_client_files_are_removed_at_the_end_and_others_stay(tmp_path):
    with StackFolder(tmp_path) as folder:
        for name in ("stack.json", "client.json", "other.json"):
            folder.write(name, {"a": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "other.json"]


def test_facts_come_back_and_the_last_ones_win(tmp_path):
    folder = StackFolder(tmp_path)
    folder.write("facts.json", {"a": [1, "ä"], "b": None})
    folder.write("facts.json", {"a": 2})
    assert folder.read("facts.json") == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["facts.json"]


def test_facts_that_cannot_be_written_leave_the_old_ones(tmp_path):
    folder = StackFolder(tmp_path)
    folder.write("facts.json", {"a": 1})
    with pytest.raises(TypeError):
        folder.write("facts.json", {"a": object()})
    assert folder.read("facts.json") == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param(b"", id="an empty file"),
        pytest.param(b'{"a": ', id="half a file"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"\xff\xfe\x00", id="bytes that are no text"),
    ],
)
def test_missing_or_invalid_facts_are_empty(tmp_path, content):
    if content is not None:
        (tmp_path / "stack.json").write_bytes(content)
    folder = StackFolder(tmp_path)
    assert folder.read("stack.json") == {}
    assert folder.owner() is None


def test_the_owner_is_the_process_that_was_noted(tmp_path):
    folder = StackFolder(tmp_path)
    folder.write("stack.json", {"pid": os.getpid(), "started": start_mark(os.getpid())})
    owner = folder.owner()
    assert owner is not None
    assert owner.pid == os.getpid()


def test_the_owner_is_known_again_when_the_wall_clock_was_set(tmp_path, monkeypatch):
    folder = StackFolder(tmp_path)
    folder.write("stack.json", {"pid": os.getpid(), "started": start_mark(os.getpid())})
    before = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: before + 3_600)
    assert folder.owner() is not None


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"pid": os.getpid(), "started": "1"}, id="another process has the id now"),
        pytest.param({"pid": 2**22 + 1, "started": "1"}, id="the process is gone"),
        pytest.param({"pid": -1, "started": "1"}, id="an id that no process has"),
        pytest.param({"pid": "me", "started": "1"}, id="no id"),
        pytest.param({"pid": None, "started": "1"}, id="null"),
        pytest.param({"pid": os.getpid()}, id="no start time is noted"),
        pytest.param({}, id="no process is noted"),
    ],
)
def test_process_that_does_not_match_the_note_is_no_owner(tmp_path, facts):
    folder = StackFolder(tmp_path)
    folder.write("stack.json", facts)
    assert folder.owner() is None
