"""Counts in words. A lint in `test_architecture.py` proves that all counts use them."""

import pytest

from mesh.core.counting import counted, times


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((1, "slot"), "1 slot"),
        ((0, "slot"), "0 slots"),
        ((2, "mesh"), "2 meshes"),
        ((1, "worker is", "workers are"), "1 worker is"),
        ((3, "worker is", "workers are"), "3 workers are"),
        ((12_345, "byte"), "12,345 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_count_has_its_word_in_the_number_that_goes_with_it(words, text):
    assert counted(*words) == text


def test_a_count_of_one_is_singular():
    assert [times(count) for count in (1, 2)] == ["once", "2 times"]
