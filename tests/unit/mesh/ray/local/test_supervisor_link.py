"""Link to a supervisor, with a fake Ray."""

from __future__ import annotations

import pytest
import ray

from mesh.ray.local.client import supervisor_link
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.supervision_errors import SupervisorLost


@pytest.fixture
def named(monkeypatch):
    """Resolve the supervisor's name to these in turn, the last one for ever. None: unknown."""
    seen: list[object] = []
    killed: list[object] = []

    def get_actor(*_: object, **__: object) -> object:
        found = seen.pop(0) if len(seen) > 1 else seen[0]
        if found is None:
            raise ValueError("no such actor")
        return found

    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(ray, "kill", lambda actor, *, no_restart: killed.append((actor, no_restart)))
    monkeypatch.setattr(supervisor_link, "require_cluster", lambda: None)
    monkeypatch.setattr(supervisor_link, "_PAUSE_S", 0.0)
    return seen, killed


@pytest.mark.parametrize("last", [None, "another"], ids=["the name is free", "another one has the name"])
def test_an_end_is_awaited_until(named, last):
    seen, killed = named
    seen += ["ours", "ours", last]
    SupervisorLink("night", "tests").end("ours")
    assert (seen, killed) == ([last], [("ours", True)])


def test_a_client_that_does_not_end_is_reported(named, monkeypatch):
    seen, _ = named
    seen.append("ours")
    monkeypatch.setattr(supervisor_link, "END_S_MAX", 0.0)
    with pytest.raises(SupervisorLost, match="night was ended but still has its name"):
        SupervisorLink("night", "tests").end("ours")
