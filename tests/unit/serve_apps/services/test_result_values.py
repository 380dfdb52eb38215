"""Verified bytes of results."""

import hashlib
from pathlib import Path

import pytest

from federation.store.memory.store import MemoryStore
from mesh.core.clock import ManualClock
from mesh.core.ids import RunId
from mesh.core.values import Encoding, StoredValue
from serve_apps.requests.errors import CorruptValue, ValueNotThere
from serve_apps.services import result_values
from serve_apps.services.result_values import open_value, read_small

RUN = RunId("night")


@pytest.fixture
def blobs() -> MemoryStore:
    return MemoryStore(clock=ManualClock(), ttl_ms=1_000, grace_ms=1_000)


def stored(data: bytes, file: Path | None = None) -> StoredValue:
    uri = file.as_uri() if file is not None else None
    return StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.PICKLE, uri=uri)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64], ids=lambda size: f"{size} bytes in chunks of 8")
def test_a_file_comes_out_as_it_was_written(blobs, tmp_path, monkeypatch, size):
    monkeypatch.setattr(result_values, "CHUNK_BYTES", 8)
    data, file = bytes(range(size)), tmp_path / "value"
    file.write_bytes(data)
    assert b"".join(open_value(blobs, RUN, stored(data, file))) == data


def test_a_file_that_was_changed_breaks_before_its_last_byte(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr(result_values, "CHUNK_BYTES", 8)
    file = tmp_path / "value"
    file.write_bytes(b"x" * 20)
    chunks = open_value(blobs, RUN, stored(b"y" * 20, file))
    came: list[bytes] = []
    with pytest.raises(CorruptValue):
        came.extend(iter(chunks))
    assert sum(map(len, came)) < 20


def test_missing_file_is_reported_before_the_first_byte(blobs, tmp_path):
    with pytest.raises(ValueNotThere):
        open_value(blobs, RUN, stored(b"x", tmp_path / "gone"))


def test_small_values_are_read_once_each_and_files_are_left_out(blobs, tmp_path):
    blobs.put(RUN, stored(b"one").sha256, b"one")
    found = read_small(blobs, RUN, [stored(b"one"), stored(b"one"), stored(b"gone"), stored(b"far", tmp_path / "far")])
    assert found == {stored(b"one").sha256: b"one"}
    with pytest.raises(ValueNotThere):
        open_value(blobs, RUN, stored(b"gone"))


def test_small_values_that_were_changed_are_refused(blobs):
    blobs.put(RUN, stored(b"one").sha256, b"two")
    with pytest.raises(CorruptValue):
        read_small(blobs, RUN, [stored(b"one")])
