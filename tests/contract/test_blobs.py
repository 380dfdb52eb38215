"""Contract of blob stores, on memory, a real Redis and HTTP."""

import hashlib

import pytest

from federation.errors import BatchTooLarge
from federation.link import BLOB_BYTES_MAX
from mesh.core.ids import RunId

RUN, OTHER = RunId("run-1"), RunId("run-2")


def named(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


ODD, EMPTY, ONE, TWO, NOBODYS = b"\x80\x00 pickled \xff", b"", b"1", b"2", named(b"nobody has put it")


@pytest.mark.every_form
def test_bytes_come_back_as_they_were_put(store):
    store.blobs.put(RUN, named(ODD), ODD)
    store.blobs.put(RUN, named(EMPTY), EMPTY)
    assert store.blobs.get(RUN, (named(ODD), named(EMPTY))) == {named(ODD): ODD, named(EMPTY): EMPTY}


def test_missing_blobs_are_left_out(store):
    store.blobs.put(RUN, named(ONE), ONE)
    assert store.blobs.get(RUN, (named(ONE), NOBODYS)) == {named(ONE): ONE}
    assert store.blobs.get(RUN, ()) == {}
    assert store.blobs.get(OTHER, (named(ONE),)) == {}


def test_putting_twice_is_harmless(store):
    store.blobs.put(RUN, named(ONE), ONE)
    store.blobs.put(RUN, named(ONE), ONE)
    assert store.blobs.get(RUN, (named(ONE),)) == {named(ONE): ONE}


def test_drop_takes_one_blob_of_that_run_alone(store):
    for run in (RUN, OTHER):
        for data in (ONE, TWO):
            store.blobs.put(run, named(data), data)
    for _ in range(2):
        store.blobs.drop(RUN, named(ONE))
    assert store.blobs.get(RUN, (named(ONE), named(TWO))) == {named(TWO): TWO}
    assert set(store.blobs.get(OTHER, (named(ONE), named(TWO)))) == {named(ONE), named(TWO)}


@pytest.mark.parametrize("store", ["http"], indirect=True)
def test_more_bytes_than_a_mesh_may_store_are_refused_by_name(store):
    with pytest.raises(BatchTooLarge, match="at most"):
        store.blobs.put(RUN, NOBODYS, b"x" * (BLOB_BYTES_MAX + 1))
