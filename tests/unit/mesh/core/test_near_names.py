"""Suggestions for misspelt names."""

import pytest

from mesh.core.near_names import near_resource, nearest, unheld

KNOWN = frozenset({"cpu", "gpu", "memory", "tpu", "fpga_card", "tpu_v4"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        pytest.param("TPU", "tpu", id="another case"),
        pytest.param("fpga-card", "fpga_card", id="a hyphen for an underscore"),
        pytest.param("FpgaCard", "fpga_card", id="no underscore"),
        pytest.param("tpus", "tpu", id="one letter too many"),
        pytest.param("fpag_card", "fpga_card", id="two letters swapped"),
        pytest.param("TPU-V4", "tpu_v4", id="with the same number"),
        pytest.param("tpu_v5", None, id="another number"),
        pytest.param("npu", None, id="another word"),
        pytest.param("", None, id="no name"),
    ],
)
def test_a_resource_is_near_one_that_it_differs_from_by(name, meant):
    assert near_resource(name, KNOWN) == meant


@pytest.mark.parametrize(
    ("word", "words"),
    [
        pytest.param("nightyl", "; did you mean nightly?", id="two letters swapped"),
        pytest.param("faild", "; did you mean FAILED?", id="another case"),
        pytest.param("zzz", "", id="another word"),
        pytest.param("nightly" * 99, "", id="a long text"),
    ],
)
def test_a_wrong_name_is_answered_with_a_similar_one(word, words):
    assert nearest(word, ["nightly", "FAILED"]) == words


def test_no_similar_name_is_looked_for_among_thousands():
    assert nearest("node-0", [f"node-{number}" for number in range(1, 2_000)]) == ""


def test_an_unknown_resource_is_reported_with_near_names():
    assert unheld("no mesh has", "TPU", {"cpu", "tpu"}) == "no mesh has TPU; did you mean tpu?"
    assert unheld("no mesh has", "lamp", {"tpu", "cpu"}) == "no mesh has lamp; there is cpu, tpu"
    assert unheld("no mesh has", "lamp", ()) == "no mesh has lamp; there is none"
