"""Index of idle groups by pool, layer and shape: best fit first, oldest removed first."""

from __future__ import annotations

import pytest

from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupShape
from mesh.placement.groups import GroupRecord, GroupState, Layer
from mesh.placement.idle_index import IdleIndex


def shape(cpu):
    return GroupShape((ResourceSet.of({"cpu": cpu}),))


def idle(name, cpu=1, since_ms=0, pool="p", layer=Layer.DYNAMIC):
    return GroupRecord(group=name, pool=pool, shape=shape(cpu), layer=layer, nodes=("n",), state=GroupState.IDLE, idle_since_ms=since_ms)


@pytest.fixture
def index():
    index = IdleIndex()
    for record in (idle("old", since_ms=1), idle("new", since_ms=9), idle("wide", 4, since_ms=5), idle("wider", 8, since_ms=0)):
        index.put(record)
    index.put(idle("theirs", pool="q"))
    index.put(idle("kept", layer=Layer.RESERVED))
    return index


def test_exact_shape_comes_first_then_least_waste_then_latest(index):
    assert list(index.fitting("p", Layer.DYNAMIC, shape(1), 1.0)) == ["new", "old", "wide", "wider"]


def test_what_would_waste_too_much_or_is_too_small_is_left_out(index):
    assert list(index.fitting("p", Layer.DYNAMIC, shape(2), 0.5)) == ["wide"]
    assert list(index.fitting("p", Layer.DYNAMIC, shape(16), 1.0)) == []


def test_the_oldest_of_one_pool_or_of_all_go_first(index):
    assert index.oldest("p", Layer.DYNAMIC) == ["wider", "old", "wide", "new"]
    assert index.oldest(None, Layer.DYNAMIC) == ["theirs", "wider", "old", "wide", "new"]


def test_what_is_taken_out_is_nowhere_and_leaves_nothing_behind(index):
    for record in (idle("old", since_ms=1), idle("new", since_ms=9), idle("wide", 4), idle("wider", 8), idle("theirs", pool="q")):
        index.take_out(record)
    assert (index.groups(), index.check(), index.oldest(None, Layer.DYNAMIC)) == (["kept"], [], [])
    with pytest.raises(KeyError):
        index.take_out(idle("old"))


def test_an_index_that_contradicts_itself_says_so(index):
    index.put(idle("old", since_ms=5))
    (words,) = index.check()
    assert words.endswith("by shape and ['kept', 'new', 'old', 'theirs', 'wide', 'wider'] by name")
