"""Values of finished nodes that outlive their runner."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mesh.core.ids import NodeId, RunId
from mesh.core.values import Encoding, StoredValue
from mesh.ray.stage_runner.kept_values import KeptValues
from mesh.ray.user_code.bounded_pickle import pickled_if_small

RUN = RunId("r")
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def stored(data: bytes, uri: str | None = None) -> StoredValue:
    return StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.PICKLE, uri=uri)


def test_small_stored_and_filed_values_are_inherited() -> None:
    values, small, filed = KeptValues(), stored(b"small"), stored(b"filed", "file:///v")
    values.keep([(RUN, A, b"pickle"), (RUN, B, small), (RUN, C, filed)], {small.sha256: b"small"})
    expected = {A: (stored(b"pickle"), b"pickle"), B: (small, b"small"), C: (filed, None)}
    assert values.inheritance() == {RUN: expected}


def test_a_value_beyond_the_limit_is_known_to_be_gone() -> None:
    values = KeptValues(bytes_max=5)
    values.keep([(RUN, A, b"12345"), (RUN, B, b"6"), (RUN, C, None)], {})
    assert values.inheritance() == {RUN: {A: (stored(b"12345"), b"12345"), B: None, C: None}}


def test_room_comes_free_with_a_run_or_a_newer_value() -> None:
    values = KeptValues(bytes_max=5)
    values.keep([(RUN, A, b"12345"), (RUN, A, b"1")], {})
    values.keep([(RunId("s"), A, b"2345")], {})
    values.forget(RunId("s"))
    values.keep([(RUN, B, b"2345")], {})
    assert values.inheritance() == {RUN: {A: (stored(b"1"), b"1"), B: (stored(b"2345"), b"2345")}}


def test_a_value_that_was_lost_later_is_not_inherited() -> None:
    values = KeptValues()
    values.keep([(RUN, A, b"old"), (RUN, B, b"2")], {})
    values.keep([(RUN, A, None)], {})
    assert values.inheritance() == {RUN: {A: None, B: (stored(b"2"), b"2")}}


def test_values_are_whole_when_no_run_is_half_known() -> None:
    assert KeptValues().is_whole
    values = KeptValues(half_known=[RUN])
    assert not values.is_whole
    values.forget(RUN)
    assert values.is_whole


class Unwilling:
    def __reduce__(self) -> str:
        raise ValueError("no")


class Copied:
    """Array that copies itself when it is pickled."""

    nbytes = 2_000

    def __reduce__(self) -> str:
        raise AssertionError("it was pickled")


@pytest.mark.parametrize("value", [None, True, 1.5, "text", b"bytes", 2**100, (1, [2, {"a": {3}}]), np.arange(3)], ids=str)
def test_a_small_value_is_pickled(value: object) -> None:
    data = pickled_if_small(value, 1_000)
    assert data is not None
    np.testing.assert_equal(__import__("pickle").loads(data), value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 1_001, id="long text"),
        pytest.param([b"x" * 1_001], id="long bytes"),
        pytest.param(np.zeros(1_000), id="an array"),
        pytest.param({"a": Copied()}, id="an array that would copy itself"),
        pytest.param(Unwilling(), id="a value that cannot be pickled"),
    ],
)
def test_a_large_or_unwilling_value_is_not(value: object) -> None:
    assert pickled_if_small(value, 1_000) is None
