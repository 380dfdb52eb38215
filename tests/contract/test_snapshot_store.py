"""Contract of the store of saved states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mesh.core.ids import TaskId
from mesh.core.saved_state import Checkpoint, SnapshotLevel, StateSnapshot
from mesh.errors import RuntimeAdapterError
from mesh.ray.local.store.snapshot_store import FileSnapshots

A, B, C = TaskId("a"), TaskId("b/../b"), TaskId("c" * 400)
RETENTION_MS = 1_000


def kept(task: TaskId = A, *, attempt: int = 1, at_ms: int = 10, size: int = 0, **parts) -> StateSnapshot:
    """Return a snapshot, with a checkpoint of `size` bytes if any."""
    if size:
        parts["checkpoint"] = Checkpoint(number=1, at_ms=at_ms, size_bytes=size, progress=0.5)
        parts["checkpoint_bytes"] = bytes(range(256))[:1] * size
    return StateSnapshot(task=task, attempt=attempt, at_ms=at_ms, level=SnapshotLevel.DEFAULT, **parts)


@pytest.fixture
def open_store(tmp_path: Path) -> Callable[..., FileSnapshots]:
    return lambda bytes_max=1_000: FileSnapshots(tmp_path / "snapshots", bytes_max=bytes_max, retention_ms=RETENTION_MS)


@pytest.fixture
def store(open_store) -> FileSnapshots:
    return open_store()


@pytest.mark.parametrize("task", [pytest.param(A, id="short"), pytest.param(B, id="with slashes"), pytest.param(C, id="long")])
def test_a_snapshot_comes_back_as_it_was_put(store, task):
    snapshot = kept(task, size=7, progress=0.25, arguments=b"\x80\n\x00", saved_bytes=b"", why="näher")
    assert store.put(snapshot).level is SnapshotLevel.DEFAULT
    assert store.get(task) == snapshot
    assert store.size_bytes == snapshot.size_bytes == 10


def test_last_snapshot_of_a_task_is_kept(store):
    store.put(kept(size=5))
    store.put(kept(at_ms=11, size=6))
    store.put(kept(attempt=2, at_ms=3, size=7))
    assert store.get(A).attempt == 2
    assert store.size_bytes == 7
    assert store.tasks() == (A,)


@pytest.mark.parametrize(
    "late",
    [pytest.param(kept(attempt=1, at_ms=99, size=3), id="of an older attempt"), pytest.param(kept(attempt=2, at_ms=9), id="made earlier")],
)
def test_late_snapshot_changes_nothing(store, late):
    last = kept(attempt=2, at_ms=10, size=5)
    store.put(last)
    assert "newer" in store.put(late).why
    assert store.get(A) == last


def test_putting_the_same_twice_is_harmless(store):
    store.put(kept(size=5))
    assert store.put(kept(size=5)).why == ""
    assert store.size_bytes == 5


def test_unknown_snapshot_is_none(store):
    assert store.get(A) is None
    store.end(A, 5)
    store.drop(A)
    assert store.tasks() == ()
    assert store.sweep(10_000) == ()


def test_beyond_the_bytes_the_oldest_go_first(store):
    for index in range(4):
        assert store.put(kept(TaskId(str(index)), size=250)).dropped == ()
    assert store.put(kept(TaskId("4"), size=400)).dropped == ("0", "1")
    assert store.tasks() == ("2", "3", "4")
    assert store.size_bytes == 900


def test_beyond_the_bytes_ended_tasks_go_before_all_others(store):
    for index in range(4):
        store.put(kept(TaskId(str(index)), size=250))
    store.end(TaskId("2"), 5)
    assert store.put(kept(TaskId("4"), size=10)).dropped == ("2",)


def test_a_newer_snapshot_of_a_task_needs_only_its_own_room(store):
    store.put(kept(A, size=600))
    store.put(kept(B, size=400))
    assert store.put(kept(A, at_ms=11, size=600)).dropped == ()
    assert set(store.tasks()) == {A, B}


def test_s17_oversized_snapshot_is_kept_without_its_bytes(store):
    taken = store.put(kept(size=1_001, progress=0.75))
    assert taken.level is SnapshotLevel.METADATA
    assert "1,001 bytes" in taken.why
    back = store.get(A)
    assert (back.progress, back.checkpoint_bytes, back.checkpoint) == (0.75, None, None)
    assert taken.why in back.why


def test_s17_snapshot_lasts_until_task_end_plus_retention(store):
    store.put(kept(A, size=5))
    store.put(kept(B, size=5))
    assert store.sweep(10**12) == ()
    store.end(A, 5_000)
    store.end(A, 99_000)  # A repeated end changes nothing.
    assert store.sweep(5_000 + RETENTION_MS - 1) == ()
    assert store.get(A) is not None
    assert store.sweep(5_000 + RETENTION_MS) == (A,)
    assert store.get(A) is None
    assert store.tasks() == (B,)


def test_resumed_task_is_kept_again(store):
    store.put(kept(A, size=5))
    store.end(A, 5_000)
    store.put(kept(A, attempt=2, size=5))
    assert store.sweep(10**12) == ()


def test_dropped_snapshot_is_gone(store):
    store.put(kept(size=5))
    store.drop(A)
    store.drop(A)
    assert store.get(A) is None
    assert store.size_bytes == 0


# -- restarts ---------------------------------------------------------------------------------------------------------


def test_files_are_found_again_in_their_order_with_their_ends(tmp_path):
    first = FileSnapshots(tmp_path, bytes_max=1_000, retention_ms=RETENTION_MS)
    for task, at_ms in ((C, 10), (B, 5), (A, 7), (C, 11)):
        first.put(kept(task, at_ms=at_ms, size=100))
    first.end(B, 5_000)
    second = FileSnapshots(tmp_path, bytes_max=1_000, retention_ms=RETENTION_MS)
    assert second.tasks() == first.tasks() == (B, A, C)
    assert second.size_bytes == 300
    assert second.get(C) == kept(C, at_ms=11, size=100)
    assert second.put(kept(TaskId("d"), size=850)).dropped == (B, A)
    assert second.tasks() == (C, "d")


def test_a_crash_while_a_file_is_written_leaves_the_one_before(tmp_path):
    FileSnapshots(tmp_path).put(kept(size=5))
    (tmp_path / "a.new").write_bytes(b'{"task": "a", "att')
    again = FileSnapshots(tmp_path)
    assert again.get(A) == kept(size=5)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda whole: whole[:-1], id="cut short"),
        pytest.param(lambda whole: whole[:-1] + b"\xff", id="a byte changed"),
        pytest.param(lambda whole: b"{}" + whole, id="another header"),
        pytest.param(lambda _whole: b"", id="empty"),
    ],
)
def test_a_damaged_file_counts_as_none(tmp_path, damage):
    store = FileSnapshots(tmp_path)
    store.put(kept(size=5))
    (tmp_path / "a").write_bytes(damage((tmp_path / "a").read_bytes()))
    assert store.get(A) is None
    assert store.tasks() == ()
    assert FileSnapshots(tmp_path).get(A) is None


def test_unusable_folder_is_an_error_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeAdapterError, match="check the free disk space"):
        FileSnapshots(tmp_path / "file" / "snapshots")
