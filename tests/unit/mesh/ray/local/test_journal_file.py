"""Journal on disk after a crash at any byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mesh.errors import RuntimeAdapterError
from mesh.ray.local.store import journal_file
from mesh.ray.local.store.journal_file import JournalFile
from mesh.tasks.events import Ticked
from mesh.tasks.journal import JournalError


def tick(at_ms):
    return Ticked(at_ms=at_ms)


def append_all(journal, *times_ms):
    for at_ms in times_ms:
        journal.append(at_ms, [tick(at_ms)], [])


def times_in(journal):
    return [event.at_ms for batch in journal.batches() for event in batch.events]


def names_in(folder: Path):
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


def test_a_closed_journal_refuses_writes_and_frees_its_lock(tmp_path: Path):
    journal = JournalFile(tmp_path / "mesh")
    journal.close()
    with JournalFile(tmp_path / "mesh") as following:
        journal.close()
        with pytest.raises(RuntimeAdapterError, match="is closed"):
            append_all(journal, 1)
        with pytest.raises(RuntimeAdapterError, match="is closed"):
            journal.snapshot(b"{}")
        append_all(following, 2)
        assert times_in(following) == [2]
        assert following.snapshot_kept() is None
    with JournalFile(tmp_path / "mesh") as journal:
        assert times_in(journal) == [2]


def test_s14_what_was_appended_is_there_for_the_next_process(tmp_path: Path):
    with JournalFile(tmp_path / "mesh") as journal:
        append_all(journal, 1, 2, 3)
    with JournalFile(tmp_path / "mesh") as journal:
        assert journal.snapshot_kept() is None
        assert times_in(journal) == [1, 2, 3]
        append_all(journal, 4)
        assert times_in(journal) == [1, 2, 3, 4]


def test_it_is_on_its_way_to_the_disk_before_append_returns(tmp_path: Path):
    """A process that is killed right after the append leaves the line in the file."""
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1)
        assert (tmp_path / "journal-00000000.jsonl").read_bytes().endswith(b"\n")


def test_a_snapshot_stands_for_all_before_it(tmp_path: Path):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1, 2)
        journal.snapshot(b"two")
        append_all(journal, 3)
        assert names_in(tmp_path) == ["journal-00000001.jsonl", "snapshot-00000001.json"]
    with JournalFile(tmp_path) as journal:
        assert journal.snapshot_kept() == b"two"
        assert times_in(journal) == [3]
        journal.snapshot(b"three")
        assert journal.snapshot_kept() == b"three"
        assert times_in(journal) == []


def test_a_journal_that_has_grown_asks_for_a_snapshot(tmp_path: Path):
    with JournalFile(tmp_path, lines_max=3) as journal:
        append_all(journal, 1, 2)
        assert not journal.needs_snapshot()
        append_all(journal, 3)
        assert journal.needs_snapshot()
        journal.snapshot(b"")
        assert not journal.needs_snapshot()
    with JournalFile(tmp_path / "bytes", bytes_max=60) as journal:
        append_all(journal, 1)
        assert journal.needs_snapshot()


def test_lines_of_an_earlier_process_count_too(tmp_path: Path):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1, 2)
    with JournalFile(tmp_path, lines_max=3) as journal:
        append_all(journal, 3)
        assert journal.needs_snapshot()


def test_a_line_cut_at_any_byte_is_dropped(tmp_path: Path):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1, 2)
    path = tmp_path / "journal-00000000.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        with JournalFile(tmp_path) as journal:
            assert journal.was_torn == (cut != first)
            append_all(journal, 9)
            assert times_in(journal) == [1, 9]


def test_a_tail_of_zeros_is_cut_off_too(tmp_path: Path):
    """Some file systems leave zeros after a power cut."""
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1)
    with (tmp_path / "journal-00000000.jsonl").open("ab") as file:
        file.write(bytes(100))
    with JournalFile(tmp_path) as journal:
        assert journal.was_torn
        assert times_in(journal) == [1]


def test_damage_in_the_middle_is_an_error_with_file_and_line(tmp_path: Path):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1, 2, 3)
    path = tmp_path / "journal-00000000.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"at_ms":2', b'"at_ms":7'))
    with JournalFile(tmp_path) as journal, pytest.raises(JournalError, match=r"journal-00000000\.jsonl, line 2: wrong checksum"):
        list(journal.batches())


@pytest.mark.parametrize(
    ("left", "snapshot", "times_ms"),
    [
        pytest.param({"snapshot-00000001.draft": b"half"}, None, [1], id="while the snapshot was being written"),
        pytest.param({"journal-00000001.jsonl": b"", "snapshot-00000001.draft": b"one"}, None, [1], id="before it was renamed"),
        pytest.param(
            {"journal-00000001.jsonl": b"", "snapshot-00000001.json": b"one"}, b"one", [], id="before the old journal was removed"
        ),
        pytest.param({"snapshot-00000001.json": b"one"}, b"one", [], id="with a new journal that did not reach the disk"),
    ],
)
def test_a_crash_during_a_snapshot_leaves_one_state(tmp_path: Path, left: dict, snapshot: bytes | None, times_ms: list):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1)
    for name, content in left.items():
        (tmp_path / name).write_bytes(content)
    with JournalFile(tmp_path) as journal:
        assert journal.snapshot_kept() == snapshot
        assert times_in(journal) == times_ms
        append_all(journal, 2)
        assert len(names_in(tmp_path)) == (1 if snapshot is None else 2)
    with JournalFile(tmp_path) as journal:
        assert times_in(journal) == [*times_ms, 2]


def test_two_processes_never_write_one_journal(tmp_path: Path):
    with JournalFile(tmp_path), pytest.raises(RuntimeAdapterError, match="another process writes the journal"):
        JournalFile(tmp_path)
    JournalFile(tmp_path).close()


def test_an_impossible_folder_is_reported_with_the_remedy(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RuntimeAdapterError, match="check the folder's owner"):
        JournalFile(tmp_path / "file")


@pytest.mark.parametrize("there", [None, (), ("notes",)], ids=["no folder", "an empty folder", "a folder with something of others"])
def test_a_journal_that_fails_to_open_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there):
    folder = tmp_path / "mesh"
    for name in there or ():
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
    if there == ():
        folder.mkdir()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(journal_file, "_opened", full)
        with pytest.raises(RuntimeAdapterError, match=r"cannot be opened: .*No space left"):
            JournalFile(folder)
    assert (sorted(path.name for path in folder.iterdir()) if folder.exists() else None) == (None if there is None else list(there))
    JournalFile(folder).close()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch):
    """Disk that counts syncs of files, and is full after so many bytes."""

    class Disk:
        syncs = 0
        room = None

    kept, write, fsync = Disk(), os.write, os.fsync

    def counted(file: int):
        kept.syncs += 1
        fsync(file)

    def bounded(file: int, content: bytes):
        if kept.room is None:
            return write(file, content)
        if kept.room == 0:
            raise OSError(28, "No space left on device")
        written = write(file, content[: kept.room])
        kept.room -= written
        return written

    monkeypatch.setattr(os, "fsync", counted)
    monkeypatch.setattr(os, "write", bounded)
    return kept


def test_many_lines_share_one_sync(tmp_path: Path, disk):
    with JournalFile(tmp_path, fsync=True) as journal:
        lines = [journal.append(at_ms, [tick(at_ms)], []) for at_ms in range(5)]
        disk.syncs = 0
        for line in lines:
            journal.sync(line)
        assert disk.syncs == 1
        journal.sync()
        assert disk.syncs == 1


def test_without_fsync_nobody_waits_for_the_disk(tmp_path: Path, disk):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1)
        journal.sync()
    assert disk.syncs == 0


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, disk):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1)
        disk.room = 20
        with pytest.raises(RuntimeAdapterError, match="free disk space"):
            append_all(journal, 2)
        disk.room = None
        append_all(journal, 3)
        assert times_in(journal) == [1, 3]


def test_a_failed_snapshot_keeps_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(RuntimeAdapterError, match="free disk space"):
                journal.snapshot(b"one")
        append_all(journal, 2)
        assert times_in(journal) == [1, 2]
        assert names_in(tmp_path) == ["journal-00000000.jsonl"]


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:7]))
    with JournalFile(tmp_path) as journal:
        append_all(journal, 1, 2)
        assert times_in(journal) == [1, 2]


def test_an_append_costs_one_write_however_long_the_journal_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, content: written.append(len(content)) or write(file, content))
    with JournalFile(tmp_path) as journal:
        append_all(journal, *range(1_000, 2_000))
    assert len(written) == 1_000
    assert len(set(written)) == 1
