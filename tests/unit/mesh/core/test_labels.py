"""Label selectors and their errors."""

from __future__ import annotations

import pytest

from mesh.core.labels import LabelWish, check_selector, matches, mismatch, parse_wish
from mesh.errors import SelectorError


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        pytest.param({}, {}, id="nothing is asked"),
        pytest.param({}, {"zone": "east"}, id="labels that nobody asks for"),
        pytest.param({"zone": "east"}, {"zone": "east", "gpu": "a100"}, id="the very value"),
        pytest.param({"zone": "!east"}, {"zone": "west"}, id="another value than the shunned one"),
        pytest.param({"zone": "!east"}, {}, id="the shunned label is absent"),
        pytest.param({"spot": "!"}, {"zone": "east"}, id="a label that must be absent is"),
        pytest.param({"zone": "!east"}, {"zone": ""}, id="an empty value is another value"),
        pytest.param({"zone": ""}, {"zone": ""}, id="an empty value is asked and there"),
        pytest.param({"mood": "!!"}, {"mood": "calm"}, id="a shunned exclamation mark"),
        pytest.param({"zone": "in(east,west)"}, {"zone": "west"}, id="one of a list"),
        pytest.param({"zone": "in(east, west)"}, {"zone": "west"}, id="one of a list with blanks"),
        pytest.param({"zone": "!in(east,west)"}, {"zone": "north"}, id="none of a shunned list"),
        pytest.param({"zone": "!in(east,west)"}, {}, id="absent, where a list is shunned"),
        pytest.param({"zone": "inland"}, {"zone": "inland"}, id="a value that only begins like a list"),
    ],
)
def test_demands_are_met(wanted, labels):
    assert mismatch(wanted, labels) is None
    assert matches(wanted, labels)


@pytest.mark.parametrize(
    ("wanted", "labels", "words"),
    [
        pytest.param({"gpu": "a100"}, {}, "gpu=a100 is required, the mesh has no gpu", id="the label is absent"),
        pytest.param({"gpu": "a100"}, {"gpu": "t4"}, "gpu=a100 is required, the mesh has gpu=t4", id="another value"),
        pytest.param({"gpu": ""}, {"gpu": "t4"}, "gpu= is required, the mesh has gpu=t4", id="an empty value is asked"),
        pytest.param({"gpu": "A100"}, {"gpu": "a100"}, "gpu=A100 is required, the mesh has gpu=a100", id="case counts"),
        pytest.param({"zone": "!east"}, {"zone": "east"}, "zone=east is excluded", id="the shunned value"),
        pytest.param({"spot": "!"}, {"spot": "no"}, "spot=no is excluded", id="a label that must be absent is there"),
        pytest.param({"spot": "!"}, {"spot": ""}, "spot= is excluded", id="a label that must be absent is there with an empty value"),
        pytest.param({"mood": "!!"}, {"mood": "!"}, "mood=! is excluded", id="a value that is an exclamation mark"),
        pytest.param({"b": "1", "a": "1"}, {}, "a=1 is required, the mesh has no a", id="the first demand by name"),
        pytest.param({"z": "in(a,b)"}, {"z": "c"}, "z in(a,b) is required, the mesh has z=c", id="none of a list"),
        pytest.param({"z": "in(a,b)"}, {}, "z in(a,b) is required, the mesh has no z", id="absent, where a list is asked"),
        pytest.param({"z": "!in(a,b)"}, {"z": "b"}, "z=b is excluded", id="one of a shunned list"),
    ],
)
def test_the_first_unmet_selector_is_described(wanted, labels, words):
    assert mismatch(wanted, labels) == words
    assert not matches(wanted, labels)


def test_the_words_tell_whose_labels_they_are():
    assert mismatch({"gpu": "a100"}, {}, "node n1") == "gpu=a100 is required, node n1 has no gpu"


@pytest.mark.parametrize(
    ("written", "wish"),
    [
        pytest.param("a", LabelWish(written="a", values=frozenset({"a"}), shuns=False), id="a value"),
        pytest.param("!a", LabelWish(written="!a", values=frozenset({"a"}), shuns=True), id="a shunned value"),
        pytest.param("in(a, b)", LabelWish(written="in(a, b)", values=frozenset("ab"), shuns=False), id="a list"),
        pytest.param("!in(a,b)", LabelWish(written="!in(a,b)", values=frozenset("ab"), shuns=True), id="a shunned list"),
        pytest.param("!", LabelWish(written="!", values=frozenset(), shuns=True, absent=True), id="no such label"),
        pytest.param("", LabelWish(written="", values=frozenset({""}), shuns=False), id="an empty value"),
        pytest.param("a" * 63, LabelWish(written="a" * 63, values=frozenset({"a" * 63}), shuns=False), id="63 characters"),
        pytest.param("A.b_c-9", LabelWish(written="A.b_c-9", values=frozenset({"A.b_c-9"}), shuns=False), id="every kind of character"),
    ],
)
def test_a_wish_is_read(written, wish):
    assert parse_wish("key", written) == wish
    check_selector({"key": written})


@pytest.mark.parametrize(
    ("written", "place"),
    [
        pytest.param("-a", 1, id="a dash first"),
        pytest.param("a_", 2, id="an underscore last"),
        pytest.param("a b", 2, id="a blank inside"),
        pytest.param("!!a", 2, id="two marks"),
        pytest.param("in()", 4, id="an empty list"),
        pytest.param("in(a,)", 6, id="a comma last"),
        pytest.param("in(a", 5, id="a list without an end"),
        pytest.param("in(a)x", 7, id="something after the list"),
        pytest.param("in(ab-c, b-)", 11, id="a dash last, in the second value of a list"),
        pytest.param("!in(a, in(b))", 7, id="a list in a list"),
        pytest.param("a" * 64, 64, id="64 characters"),
        pytest.param("größe", 3, id="a letter beyond ASCII"),
    ],
)
def test_what_is_no_wish_is_refused_with_its_key_and_place(written, place):
    with pytest.raises(SelectorError, match=f"^label zone: .*, character {place}: ") as raised:
        check_selector({"able": "fine", "zone": written})
    assert "write " in str(raised.value)


@pytest.mark.parametrize("match", [mismatch, matches])
def test_a_list_that_is_none_is_refused_wherever_it_is_met(match):
    with pytest.raises(SelectorError):
        match({"zone": "in(a"}, {"zone": "a"})
