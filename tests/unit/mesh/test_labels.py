from __future__ import annotations

import pytest

from mesh.labels import mismatch


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
    ],
)
def test_demands_are_met(wanted, labels):
    assert mismatch(wanted, labels) is None


@pytest.mark.parametrize(
    ("wanted", "labels", "words"),
    [
        pytest.param({"gpu": "a100"}, {}, "gpu=a100 is asked, the mesh has no gpu", id="the label is absent"),
        pytest.param({"gpu": "a100"}, {"gpu": "t4"}, "gpu=a100 is asked, the mesh has gpu=t4", id="another value"),
        pytest.param({"gpu": ""}, {"gpu": "t4"}, "gpu= is asked, the mesh has gpu=t4", id="an empty value is asked"),
        pytest.param({"gpu": "A100"}, {"gpu": "a100"}, "gpu=A100 is asked, the mesh has gpu=a100", id="case counts"),
        pytest.param({"zone": "!east"}, {"zone": "east"}, "zone=east is shunned", id="the shunned value"),
        pytest.param({"spot": "!"}, {"spot": "no"}, "spot=no is shunned", id="a label that must be absent is there"),
        pytest.param({"spot": "!"}, {"spot": ""}, "spot= is shunned", id="a label that must be absent is there with an empty value"),
        pytest.param({"mood": "!!"}, {"mood": "!"}, "mood=! is shunned", id="a value that is an exclamation mark"),
        pytest.param({"b": "1", "a": "1"}, {}, "a=1 is asked, the mesh has no a", id="the first demand by name"),
    ],
)
def test_the_first_unmet_demand_is_told_in_words(wanted, labels, words):
    assert mismatch(wanted, labels) == words
