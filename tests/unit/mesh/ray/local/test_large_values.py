"""Results of entry methods: small, large and lost ones."""

from __future__ import annotations

from types import SimpleNamespace

import cloudpickle
import pytest
from ray.exceptions import ObjectLostError

from mesh.ray.local.agent_messages import Ended
from mesh.ray.local.client import large_values
from mesh.ray.local.client.large_values import value_of
from mesh.ray.local.supervision_errors import ResultLost

LARGE = Ended(task="t", attempt=1)


class Store:
    """Fake of Ray's object store: it holds these references, and has lost all others."""

    def __init__(self, **held):
        self._held = held

    def get(self, reference):
        if reference not in self._held:
            raise ObjectLostError("0" * 56, "owner", "call site")
        return self._held[reference]


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(large_values, "ray", SimpleNamespace(get=Store(ref="a large value").get))


def test_a_small_result_is_in_the_answer():
    assert value_of(Ended(task="t", attempt=1, result=cloudpickle.dumps(7)), None, "task t") == 7


@pytest.mark.usefixtures("store")
def test_a_large_result_is_fetched():
    assert value_of(LARGE, "ref", "task t") == "a large value"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("reference", "words"),
    [
        pytest.param(None, "lost with the supervisor", id="nobody has its reference any more"),
        pytest.param("gone", "lost with its node", id="nobody has its bytes any more"),
    ],
)
def test_a_lost_large_result_is_reported_with_the_remedy(reference, words):
    with pytest.raises(ResultLost, match=f"the result of task t .* {words}.*: run it again"):
        value_of(LARGE, reference, "task t")
