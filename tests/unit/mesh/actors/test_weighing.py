"""Detection of large arguments."""

from types import SimpleNamespace

import numpy as np
import pytest

from mesh.actors.weighing import is_large

BIG = np.zeros(200_000, dtype=np.uint8)


@pytest.mark.parametrize(
    ("value", "large"),
    [
        pytest.param(BIG, True, id="a large array"),
        pytest.param(np.zeros(10), False, id="a small array"),
        pytest.param(b"x" * 200_000, True, id="long bytes"),
        pytest.param([BIG], True, id="a list with a large array"),
        pytest.param({"layer": {"weights": BIG}}, True, id="weights two levels down"),
        pytest.param(list(range(50_000)), True, id="a long list of numbers"),
        pytest.param([1, "two", None, 3.0], False, id="a short list"),
        pytest.param({}, False, id="nothing in it"),
        pytest.param(SimpleNamespace(weights=BIG), True, id="an object that holds a large array"),
        pytest.param(object(), False, id="an object of unknown size"),
        pytest.param(True, False, id="a truth value"),
    ],
)
def test_an_argument_is_large_when_it_surely_takes_many_bytes(value, large):
    assert is_large(value) is large
