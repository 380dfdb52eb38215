"""Line and column of the parts of a JSON text."""

import json

import pytest

from dag.spec.json_places import nearest, places_of

TEXT = """{
  "a": [1, {"b/c": null}, []],
  "d~\\"e": {"f": "{,[", "g": -1.5e3}
}
"""


def test_every_key_and_item_has_the_place_where_it_begins():
    assert places_of(TEXT) == {
        "": (1, 1),
        "/a": (2, 3),
        "/a/0": (2, 9),
        "/a/1": (2, 12),
        "/a/1/b~1c": (2, 13),
        "/a/2": (2, 27),
        '/d~0"e': (3, 3),
        '/d~0"e/f': (3, 13),
        '/d~0"e/g': (3, 25),
    }


def test_of_a_key_that_is_there_twice_the_first_counts():
    assert places_of('{"a": 1,\n"a": 2}') == {"": (1, 1), "/a": (1, 2)}


@pytest.mark.parametrize(
    ("place", "line"), [("/a/1/b~1c", 2), ("/a/1/none/below", 2), ("/nowhere", 1), ("", 1)], ids=["it", "below", "missing", "all"]
)
def test_what_is_missing_is_where_it_should_be(place, line):
    assert nearest(places_of(TEXT), place)[0] == line


@pytest.mark.parametrize(
    ("value", "places"),
    [
        pytest.param("text", [""], id="text"),
        pytest.param([[], [[1]]], ["", "/0", "/1", "/1/0", "/1/0/0"], id="lists in lists"),
        pytest.param({"": {"": 0}}, ["", "/", "//"], id="keys without a letter"),
    ],
)
def test_values_of_every_kind_are_found(value, places):
    assert list(places_of(json.dumps(value, indent=1))) == places
