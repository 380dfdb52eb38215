"""Export of values to storage, and their deletion."""

from __future__ import annotations

import hashlib
import math
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mesh.core.reasons import Reason
from mesh.core.values import Encoding
from mesh.ray.worker.exporting import (
    JSON_DEPTH_MAX,
    ValueUnreadable,
    ValueUnwritable,
    belongs,
    clear_folder,
    copied,
    export,
    import_value,
    remove,
    remove_within,
)


class Text(str):
    """String type that JSON would not preserve."""

    __slots__ = ()


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def circle():
    value = []
    value.append(value)
    return value


def exported(value, folder, limit=64 * 1024, run="r", node="n"):
    return export(value, run=run, node=node, storage_url=folder.as_uri(), inline_limit_bytes=limit)


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("limit", [pytest.param(64 * 1024, id="inline"), pytest.param(0, id="in a file")])
@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        pytest.param({"a": [1, -2.5, None, True, "ä€😀", {}, []]}, Encoding.JSON, id="JSON of every kind"),
        pytest.param(1e308, Encoding.JSON, id="a large float"),
        pytest.param(2**63 - 1, Encoding.JSON, id="the largest whole number that JSON readers agree on"),
        pytest.param(2**63, Encoding.PICKLE, id="a larger one"),
        pytest.param(True, Encoding.JSON, id="True, which is no 1"),
        pytest.param((1, 2), Encoding.PICKLE, id="a tuple, which JSON would make a list"),
        pytest.param({1: "x"}, Encoding.PICKLE, id="keys that are no strings"),
        pytest.param(math.inf, Encoding.PICKLE, id="infinity"),
        pytest.param("\ud800", Encoding.PICKLE, id="half a character"),
        pytest.param(Text("x"), Encoding.PICKLE, id="a subclass of str"),
        pytest.param(b"bytes", Encoding.PICKLE, id="bytes"),
        pytest.param(nested(JSON_DEPTH_MAX + 5), Encoding.PICKLE, id="too deep for JSON"),
        pytest.param(list(range(60_000)), Encoding.PICKLE, id="too long to look at element by element"),
    ],
)
def test_a_value_comes_back_as_it_was(tmp_path, value, encoding, limit):
    stored, data = exported(value, tmp_path, limit)
    back = import_value(stored, data)
    assert stored.encoding is encoding
    assert type(back) is type(value)
    assert back == value


def test_a_circle_is_pickled():
    stored, data = exported(circle(), Path("/nowhere"))
    back = import_value(stored, data)
    assert back[0] is back


@pytest.mark.parametrize("order", [pytest.param("C", id="row by row"), pytest.param("F", id="column by column")])
def test_arrays_come_back_from_a_file_in_either_order(tmp_path, order):
    array = np.asarray(np.arange(200_000, dtype=np.float64).reshape(400, 500), order=order)
    stored, data = exported(array, tmp_path)
    assert data is None
    assert np.array_equal(import_value(stored, None), array)


def test_the_limit_is_the_border_between_carried_and_written(tmp_path):
    size = exported("x", tmp_path)[0].size_bytes
    assert exported("x", tmp_path, limit=size)[0].uri is None
    assert files(tmp_path) == []
    assert exported("x", tmp_path, limit=size - 1)[0].uri is not None


def test_the_file_is_named_by_run_node_and_hash(tmp_path):
    stored, _ = exported("x" * 100, tmp_path, limit=0, run="nightly", node="train")
    (file,) = files(tmp_path)
    assert file.relative_to(tmp_path).as_posix() == f"nightly/train-{stored.sha256[:16]}"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == stored.sha256


def test_the_same_value_written_twice_is_one_file(tmp_path):
    assert exported([1], tmp_path, limit=0) == exported([1], tmp_path, limit=0)
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("name", ["../../escape", "..", "a/b", "a:b[3]*?%20", "ä" * 200, ".hidden", "~root"])
def test_no_name_of_run_or_node_leads_out_of_the_storage(tmp_path, name):
    storage = tmp_path / "storage"
    stored, _ = exported([1], storage, limit=0, run=name, node=name)
    (file,) = files(tmp_path)
    assert file.parent.parent == storage
    assert import_value(stored, None) == [1]


def test_different_long_names_are_different_files(tmp_path):
    for last in "ab":
        exported([1], tmp_path, limit=0, node="n" * 199 + last)
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    ("make", "named"),
    [pytest.param(threading.Lock, "lock", id="a lock"), pytest.param(lambda: (n for n in ()), "generator", id="a generator")],
)
def test_what_cannot_be_pickled_is_named_and_leaves_nothing(tmp_path, make, named):
    with pytest.raises(ValueUnwritable, match=f"value of n .*{named}") as raised:
        exported(["x" * 100_000, b"x" * 100_000, make()], tmp_path, limit=10)
    assert raised.value.reason is Reason.RESULT_UNSERIALIZABLE
    assert files(tmp_path) == []


def test_a_failing_storage_is_a_lost_value_not_a_bad_result(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ValueUnwritable, match="cannot be written") as raised:
        exported([1], tmp_path / "file", limit=0)
    assert raised.value.reason is Reason.VALUE_LOST


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(Path.unlink, id="gone"),
        pytest.param(lambda file: file.write_bytes(file.read_bytes()[:-1]), id="cut short"),
        pytest.param(lambda file: file.write_bytes(file.read_bytes() + b" "), id="longer"),
        pytest.param(lambda file: file.write_bytes(file.read_bytes()[::-1]), id="altered"),
    ],
)
def test_a_harmed_file_is_noticed(tmp_path, harm):
    stored, _ = exported(list(range(100)), tmp_path, limit=0)
    harm(files(tmp_path)[0])
    with pytest.raises(ValueUnreadable) as raised:
        import_value(stored, None)
    assert raised.value.reason is Reason.VALUE_LOST


@pytest.mark.parametrize(
    "data", [pytest.param(b"[2]", id="altered"), pytest.param(b"[1", id="cut short"), pytest.param(None, id="missing")]
)
def test_harmed_bytes_of_the_control_store_are_noticed(tmp_path, data):
    stored, _ = exported([1], tmp_path)
    with pytest.raises(ValueUnreadable) as raised:
        import_value(stored, data)
    assert raised.value.reason is Reason.VALUE_LOST


def test_a_missing_class_is_missing_code_not_a_lost_value(tmp_path):
    data = b"cno_such_module\nThing\n."
    stored = replace(exported((), tmp_path)[0], sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    with pytest.raises(ValueUnreadable, match="no_such_module") as raised:
        import_value(stored, data)
    assert raised.value.reason is Reason.CODE_UNAVAILABLE


def test_removing_is_harmless_when_nothing_is_there(tmp_path):
    stored, _ = exported([1], tmp_path, limit=0)
    remove(stored.uri)
    remove(stored.uri)
    assert files(tmp_path) == []


def test_an_unreadable_object_tells_its_reason_after_pickling(tmp_path):
    import_error = ValueUnreadable(Reason.VALUE_LOST, "gone")
    copy = import_value(*exported(import_error, tmp_path))
    assert (copy.reason, str(copy)) == (Reason.VALUE_LOST, "gone")


def test_only_files_of_the_run_that_are_to_be_kept_stay(tmp_path):
    storage = tmp_path.as_uri()
    big = "x" * 100
    kept, _ = export(big, run="r", node="kept", storage_url=storage, inline_limit_bytes=1)
    export(big, run="r", node="dropped", storage_url=storage, inline_limit_bytes=1)
    other, _ = export(big, run="other", node="n", storage_url=storage, inline_limit_bytes=1)
    (tmp_path / "r" / "left-by-a-dead-worker.part").touch()
    clear_folder(storage, "r", frozenset({kept.uri}))
    assert [file.as_uri() for file in tmp_path.rglob("*") if file.is_file()] == sorted([other.uri, kept.uri])
    clear_folder(storage, "r", frozenset())
    clear_folder(storage, "r", frozenset())  # Idempotent.
    assert not (tmp_path / "r").exists()


def test_a_file_outside_of_the_run_is_never_deleted(tmp_path):
    outside = tmp_path / "outside"
    outside.touch()
    storage = (tmp_path / "storage").as_uri()
    others, own = (export("x" * 100, run=run, node="n", storage_url=storage, inline_limit_bytes=1)[0].uri for run in ("other", "r"))
    for uri in (outside.as_uri(), f"{storage}/../outside", f"{storage}/r/../../outside", others):
        with pytest.raises(PermissionError):
            remove_within(storage, "r", uri)
    remove_within(storage, "r", own)
    assert outside.exists()
    assert [file.as_uri() for file in (tmp_path / "storage").rglob("*") if file.is_file()] == [others]
    assert not belongs(outside.as_uri(), "r", storage)
    assert belongs(f"{storage}/r/value", "r", storage)


def test_a_copy_outlives_the_file_that_it_was_made_of(tmp_path):
    storage, big = tmp_path.as_uri(), "x" * 100
    own, _ = export(big, run="r", node="n", storage_url=storage, inline_limit_bytes=1)
    copy = copied(own, source="r", target="cache:acme/lab", name="k", storage_url=storage)
    remove(own.uri)
    assert import_value(copy, None) == big
    assert belongs(copy.uri, "cache:acme/lab", storage)
    assert copied(copy, source="cache:acme/lab", target="r", name="n", storage_url=storage) == own
    assert len(files(tmp_path)) == 2


def test_only_whole_files_of_the_source_are_copied(tmp_path):
    storage = tmp_path.as_uri()
    own, _ = export("x" * 100, run="r", node="n", storage_url=storage, inline_limit_bytes=1)
    with pytest.raises(OSError, match="is not a file of other"):
        copied(own, source="other", target="t", name="k", storage_url=storage)
    with pytest.raises(OSError, match="bytes instead of 3"):
        copied(replace(own, size_bytes=3), source="r", target="t", name="k", storage_url=storage)
    remove(own.uri)
    with pytest.raises(OSError, match="No such file"):
        copied(own, source="r", target="t", name="k", storage_url=storage)
