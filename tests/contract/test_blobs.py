"""What every blob store promises; run over memory and over a real Redis."""

from mesh.ids import RunId

RUN, OTHER = RunId("run-1"), RunId("run-2")


def test_bytes_come_back_as_they_were_put(store):
    store.blobs.put(RUN, "aa", b"\x80\x00 pickled \xff")
    store.blobs.put(RUN, "bb", b"")
    assert store.blobs.get(RUN, ("aa", "bb")) == {"aa": b"\x80\x00 pickled \xff", "bb": b""}


def test_what_is_not_there_is_left_out(store):
    store.blobs.put(RUN, "aa", b"1")
    assert store.blobs.get(RUN, ("aa", "bb")) == {"aa": b"1"}
    assert store.blobs.get(RUN, ()) == {}
    assert store.blobs.get(OTHER, ("aa",)) == {}


def test_putting_twice_is_harmless(store):
    store.blobs.put(RUN, "aa", b"1")
    store.blobs.put(RUN, "aa", b"1")
    assert store.blobs.get(RUN, ("aa",)) == {"aa": b"1"}


def test_keep_only_drops_all_others_of_the_run_and_nothing_of_other_runs(store):
    for run in (RUN, OTHER):
        for name in ("aa", "bb", "cc"):
            store.blobs.put(run, name, name.encode())
    store.blobs.keep_only(RUN, ("bb", "zz"))
    assert store.blobs.get(RUN, ("aa", "bb", "cc", "zz")) == {"bb": b"bb"}
    assert set(store.blobs.get(OTHER, ("aa", "bb", "cc"))) == {"aa", "bb", "cc"}
    store.blobs.keep_only(RUN, ())
    store.blobs.keep_only(RUN, ())
    assert store.blobs.get(RUN, ("bb",)) == {}
