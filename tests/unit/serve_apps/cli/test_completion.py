"""Completion of names by the tab key, on a gateway in this process."""

from __future__ import annotations

import httpx
import pytest

from dag.store.remote import Client
from federation.snapshot import MeshRecord, PoolRecord
from mesh.core.resources import ResourceSet
from serve_apps.cli import completion
from serve_apps.cli.app import run_command
from serve_apps.cli.command_loading import FILES, PANELS
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld, spec_of


@pytest.fixture
def world(monkeypatch) -> GatewayWorld:
    """A federation with a mesh and two runs, for the key of research."""
    built = GatewayWorld()
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    built.store.join(MeshRecord(mesh="east", labels={}, pools=(pool,), cluster="c", shared=True))
    for run in ("nightly-1", "daily-1"):
        built.client().submit_spec(spec_of("a", id=run))
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setattr(completion, "client_for", lambda access: Client(access, http=built.http(RESEARCH), patience_s=0))
    return built


@pytest.fixture
def tab(monkeypatch, capsys):
    """Return a function that gives what bash would offer after the words."""

    def press(*words: str) -> list[str]:
        monkeypatch.setenv("_SCHEDULEMESH_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("schedulemesh", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        assert run_command([]) == 0
        output = capsys.readouterr()
        assert output.err == ""
        return output.out.split()

    return press


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("watch", "n"), ["nightly-1"]),
        (("watch", "x"), []),
        (("delete", "nightly-1", "d"), ["daily-1"]),
        (("resume", "acme"), [RESEARCH]),
        (("suspend", "acme"), [RESEARCH]),
        (("submit", "x.json", "--tenant", "acme"), [RESEARCH]),
        (("drain", "mesh", "e"), ["east"]),
        (("runs", "--mesh", "e"), ["east"]),
        (("wat",), ["watch"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_names_are_completed_from_the_root(world, tab, words, offered):
    assert tab(*words) == offered


@pytest.mark.parametrize("command", [("watch", ""), ("suspend", "a"), ("undrain", "")], ids=" ".join)
def test_completion_is_silent_without_a_root(tab, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    for variable in ("SCHEDULEMESH_ADDRESS", "SCHEDULEMESH_API_KEY", "SCHEDULEMESH_STATE"):
        monkeypatch.delenv(variable, raising=False)
    assert tab(*command) == []
    assert tab(*command[:-1], "--address", "http://127.0.0.1:1", command[-1]) == []
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "k")
    assert tab(*command[:-1], "--address", "http://127.0.0.1:1", command[-1]) == []


@pytest.mark.parametrize("body", ["[]", "no JSON", '{"runs": [5, {"id": 7}, {"id": "a\\u001b"}]}'])
def test_completion_offers_nothing_from_a_strange_answer(tab, monkeypatch, body):
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "k")
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=body))
    strange = httpx.Client(transport=transport, base_url="http://root.test")
    monkeypatch.setattr(completion, "client_for", lambda access: Client(access, http=strange, patience_s=0))
    assert tab("watch", "a") == []


def test_every_command_stands_in_one_panel_of_help():
    assert sorted(name for names in PANELS.values() for name in names) == sorted(name for names in FILES.values() for name in names)
