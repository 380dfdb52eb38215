"""Ctrl-C in every command that waits for a run: SIGINT while the root is being asked."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dag.run.states import RunState
from dag.store.remote import Client
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import runs
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld, spec_of


class Interrupting(httpx.BaseTransport):
    """Transport that gets a SIGINT before a certain request.

    Args:
        passed: Number of requests at this path that are answered first.
    """

    def __init__(self, world: GatewayWorld, path: str, passed: int) -> None:
        self._http = world.http(RESEARCH)
        self._path, self._passed = path, passed

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == self._path:
            self._passed -= 1
            if self._passed < 0:
                self._path = ""
                signal.raise_signal(signal.SIGINT)
        return self._http.send(request)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, int], GatewayWorld]:
    """Return a function that makes a federation with a waiting run, and interrupts the command at a request."""
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(runs, "RUNS_LOOK_S", 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.json").write_text(json.dumps(spec_of("a", id="job")))

    def built(path: str, passed: int) -> GatewayWorld:
        world = GatewayWorld()
        world.client().submit_spec(spec_of("a", id="night"))
        headers = {"Authorization": world.http(RESEARCH).headers["Authorization"]}
        http = httpx.Client(transport=Interrupting(world, path, passed), base_url="http://root.test", headers=headers)
        monkeypatch.setattr(session, "Client", lambda access: Client(access, http=http, patience_s=0))
        return world

    return built


SUMMARY = "/v1/runs/night/summary"


@pytest.mark.parametrize(
    ("words", "path", "passed"),
    [
        ("submit spec.json", "/v1/runs/job/summary", 1),
        ("submit spec.json --json", "/v1/runs/job/summary", 1),
        ("watch night", SUMMARY, 1),
        ("watch night --json", "/v1/runs/night/events", 0),
        ("logs night --follow", "/v1/runs/night/logs", 1),
        ("runs --watch", "/v1/runs", 2),
        ("run --no-working-dir --id job -- true", "/v1/runs/job/summary", 0),
        ("queue", "/v1/queues", 0),
        ("result night", "/v1/runs/night/result", 0),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_ctrl_c_is_exit_code_130(interrupt, capsys, words, path, passed):
    world = interrupt(path, passed)
    assert run_command(words.split()) == 130
    assert "Traceback" not in "".join(capsys.readouterr())
    assert world.record("night").state is RunState.PENDING
