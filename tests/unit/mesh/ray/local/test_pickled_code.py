"""Classes and arguments as bytes that the supervisor passes on unread."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from mesh.ray.local.pickled_code import pickled_arguments, pickled_class, read_arguments
from mesh.ray.user_code.bounded_pickle import pickled_within

unpickled = pickle.loads


def test_a_local_class_crosses_as_bytes():
    class Local:
        answer = 42

    assert unpickled(pickled_class(Local)).answer == 42


def test_only_a_class_can_be_hosted():
    with pytest.raises(TypeError, match="hosts a class, not a function"):
        pickled_class(lambda: None)


def test_arguments_come_back():
    arguments = pickled_arguments(1, [2], cls=int, pickled="x")
    assert arguments.refs == ()
    assert read_arguments(arguments, timeout_s=1) == ((1, [2]), {"cls": int, "pickled": "x"})


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"a": [1, "b"]}, id="plain values"),
        pytest.param(np.arange(100.0).reshape(10, 10), id="an array"),
        pytest.param(np.asfortranarray(np.arange(100.0).reshape(10, 10)), id="an array in Fortran's order"),
        pytest.param(np.arange(100)[::3], id="a view with steps"),
        pytest.param(bytearray(b"abc"), id="a bytearray"),
    ],
)
def test_within_its_bound_a_value_comes_back(value):
    pickled = pickled_within(value, 10_000, what="it")
    assert len(pickled) <= 10_000
    np.testing.assert_equal(unpickled(pickled), value)


def test_the_bound_is_exact():
    size = len(pickled_within(b"x" * 500, 10_000, what="it"))
    assert pickled_within(b"x" * 500, size, what="it") is not None
    assert pickled_within(b"x" * 500, size - 1, what="it") is None


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(TypeError, match=r"a checkpoint \(generator\) cannot be pickled"):
        pickled_within((n for n in ()), 10, what="a checkpoint")
