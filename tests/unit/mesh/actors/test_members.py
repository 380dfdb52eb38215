"""Labels of members."""

import pytest

from mesh.actors.members import carries, labels_of

LABELS = {"gpu": "a100", "tenant": "gold", "rollout": ""}


@pytest.mark.parametrize(
    ("label", "is_carried"),
    [
        pytest.param("gpu:a100", True, id="key and value"),
        pytest.param("gpu:h100", False, id="another value"),
        pytest.param("gpu", True, id="a bare word asks for the key"),
        pytest.param("rollout", True, id="a bare queue name"),
        pytest.param("cpu", False, id="a key that is not there"),
        pytest.param({"gpu": "a100", "tenant": "gold"}, True, id="several labels, all there"),
        pytest.param({"gpu": "a100", "tenant": "silver"}, False, id="several labels, one not there"),
    ],
)
def test_a_label_finds_who_carries_all_of_it(label, is_carried):
    assert carries(LABELS, label) is is_carried


@pytest.mark.parametrize("name", ["gpu:a100", "rollout", "image:repo:tag"])
def test_whoever_waited_in_a_queue_carries_its_name(name):
    assert carries(labels_of(name), name)
