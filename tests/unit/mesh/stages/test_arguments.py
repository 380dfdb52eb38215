"""Forms of arguments: references, and escapes."""

from __future__ import annotations

import pytest

from mesh.errors import RuntimeAdapterError
from mesh.stages.arguments import refs_of, resolve

VALUES = {"a": {"w": [10, 20]}, "b": "bee", "t": (1, 2)}
BLOBS = {"00": {1, 2}}


def resolved(form):
    return resolve(form, value_of=VALUES.__getitem__, blob_of=BLOBS.__getitem__)


@pytest.mark.parametrize(
    ("form", "argument"),
    [
        pytest.param([1, 2.5, None, True, "x"], [1, 2.5, None, True, "x"], id="JSON is itself"),
        pytest.param({"$ref": "b"}, "bee", id="a reference is the node's value"),
        pytest.param({"$ref": "a", "path": []}, VALUES["a"], id="an empty path is the whole value"),
        pytest.param({"$ref": "a", "path": ["w", 1]}, 20, id="a path leads into the value"),
        pytest.param({"$ref": "t", "path": [-1]}, 2, id="a path counts from the end as Python does"),
        pytest.param({"$blob": "00"}, {1, 2}, id="a blob is its object"),
        pytest.param({"$uri": "s3://bucket/key"}, "s3://bucket/key", id="an address is the address itself"),
        pytest.param({"$tuple": [1, {"$tuple": []}, {"$ref": "b"}]}, (1, (), "bee"), id="a tuple of forms"),
        pytest.param({"x": [{"$ref": "b"}], "y": {"$ref": "b"}}, {"x": ["bee"], "y": "bee"}, id="forms deep inside"),
        pytest.param({"$$ref": "b"}, {"$ref": "b"}, id="a user's own $ref"),
        pytest.param({"$$ref": "b", "path": [1]}, {"$ref": "b", "path": [1]}, id="a user's own $ref with a path"),
        pytest.param({"$$$x": 1, "$$y": 2}, {"$$x": 1, "$y": 2}, id="each escaped key loses one dollar"),
        pytest.param({"cost$": 1, "": 2}, {"cost$": 1, "": 2}, id="a dollar elsewhere is nothing special"),
        pytest.param({}, {}, id="an empty object"),
    ],
)
def test_a_form_stands_for_its_argument(form, argument):
    assert resolved(form) == argument
    assert type(resolved(form)) is type(argument)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param({"$item": True}, id="a kind that is not known"),
        pytest.param({"$ref": "b", "default": 1}, id="a reference with a key that is not known"),
        pytest.param({"$blob": "00", "x": 1}, id="a blob beside another key"),
    ],
)
def test_an_unknown_form_is_refused_and_names_the_escape(form):
    with pytest.raises(RuntimeAdapterError, match=r"is not an argument form; write \$\$"):
        resolved(form)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param({"$ref": "a", "path": ["nope"]}, KeyError, id="a key that is not there"),
        pytest.param({"$ref": "a", "path": ["w", 7]}, IndexError, id="an index that is not there"),
        pytest.param({"$ref": "b", "path": ["w"]}, TypeError, id="a step into what has no parts"),
    ],
)
def test_a_path_that_leads_nowhere_names_node_and_step(form, kind):
    with pytest.raises(kind, match=f"value of {form['$ref']} has no"):
        resolved(form)


def test_lists_and_objects_are_new_each_time():
    form = {"numbers": [1, 2]}
    first = resolved(form)
    first["numbers"].append(3)
    assert resolved(form) == {"numbers": [1, 2]}


def test_references_are_found_in_order_without_escaped_ones():
    form = [{"$ref": "c"}, {"x": {"$tuple": [{"$ref": "a", "path": ["$ref"]}, {"$ref": "c"}]}}, {"$$ref": "z"}, {"$blob": "00"}]
    assert list(refs_of(form)) == ["c", "a", "c"]
