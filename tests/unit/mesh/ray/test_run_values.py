"""Values that a runner holds, and those that it has lost."""

from __future__ import annotations

import pytest

from mesh.core.ids import NodeId, RunId
from mesh.core.values import Encoding, StoredValue
from mesh.ray.stage_runner.run_values import RunValues
from mesh.stages.arrays import Span

RUN, OTHER, NODE = RunId("r"), RunId("s"), NodeId("a")


@pytest.fixture
def values() -> RunValues:
    values = RunValues()
    values.hold(RUN, {NODE: "a value"})
    return values


def test_a_value_is_held_for_its_own_run(values: RunValues):
    assert (dict(values.of(RUN)), dict(values.of(OTHER))) == ({NODE: "a value"}, {})


def test_what_was_lost_is_known_until_it_is_held_again(values: RunValues):
    values.lose(RUN, NODE)
    assert (dict(values.of(RUN)), values.has_lost(RUN, NODE), values.has_lost(OTHER, NODE)) == ({}, True, False)
    values.hold(RUN, {NODE: "computed again"})
    assert (values.of(RUN)[NODE], values.has_lost(RUN, NODE)) == ("computed again", False)


def test_an_inherited_value_waits_until_it_is_held(values: RunValues):
    stored = StoredValue(sha256="0", size_bytes=1, encoding=Encoding.PICKLE)
    values.inherit(RUN, {NodeId("b"): (stored, b"x"), NodeId("c"): None})
    assert (values.inherited(RUN, NodeId("b")), values.inherited(RUN, NodeId("c"))) == ((stored, b"x"), None)
    assert (values.has_lost(RUN, NodeId("b")), values.has_lost(RUN, NodeId("c"))) == (False, True)
    values.hold(RUN, {NodeId("b"): "imported"})
    assert values.inherited(RUN, NodeId("b")) is None


def test_of_a_run_that_is_over_nothing_is_kept(values: RunValues):
    values.lose(RUN, NODE)
    values.hold(RUN, {NodeId("b"): 1})
    values.inherit(RUN, {NodeId("c"): (StoredValue(sha256="0", size_bytes=1, encoding=Encoding.PICKLE), b"x")})
    values.forget(RUN)
    values.forget(RUN)
    assert values.inherited(RUN, NodeId("c")) is None
    assert (dict(values.of(RUN)), values.has_lost(RUN, NODE)) == ({}, False)


def test_what_was_read_of_a_list_is_known_while_its_run_lives(values: RunValues):
    span = Span(NodeId("p@0"), 0, 1)
    values.note_read(RUN, [(NODE, span, b"digest")])
    assert (values.read_of(RUN, NODE), values.read_of(OTHER, NODE)) == (((span, b"digest"),), ())
    values.forget(RUN)
    assert values.read_of(RUN, NODE) == ()
