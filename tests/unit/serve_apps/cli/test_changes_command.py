"""Command `changes`, through the gateway."""

import json

import pytest

from dag.store.remote import Client
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.cli.changes_render import WORDS, in_words
from serve_apps.cli.commands import reports
from serve_apps.gateway_fixtures import RESEARCH, RIVAL, GatewayWorld
from serve_apps.requests.recorded_changes import RECORDED, RECORDED_IF_FORBIDDEN
from serve_apps.schemas.history import RecordedChangeView


@pytest.fixture
def world(monkeypatch):
    built = GatewayWorld()
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    http = built.http("*")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=http, patience_s=0))
    monkeypatch.setenv("COLUMNS", "200")
    for tenant, user in ((RESEARCH, "ann"), (RIVAL, "bob")):
        built.http("*", user).post(f"/v1/tenants/{tenant}/suspend", json={"reason": "too dear"})
    built.http(RESEARCH, "eve").post(f"/v1/tenants/{RIVAL}/resume")
    return built


def said(capsys, *arguments, code=0):
    assert run_command(["changes", *arguments]) == code
    return "".join(capsys.readouterr())


def test_changes_are_shown_with_who_what_and_outcome(world, capsys):
    head, *lines = said(capsys).splitlines()
    assert head.split() == ["at", "by", "outcome", "what"]
    assert [line.split()[2] for line in lines] == ["ann", "bob", "eve"]
    assert "allowed" in lines[0]
    assert lines[0].rstrip().endswith(f"suspend tenant {RESEARCH}; reason: too dear")
    assert lines[2].rstrip().endswith(f"refused  resume tenant {RIVAL}; code: forbidden")


def test_changes_fit_a_terminal_and_break_no_word(world, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = said(capsys)
    assert max(map(len, printed.splitlines())) <= 80
    assert set(f"suspend tenant {RESEARCH}; reason: too dear".split()) <= set(printed.split())


def test_every_change_has_words():
    operations = {" ".join(call) for call in RECORDED | RECORDED_IF_FORBIDDEN}
    assert {operation for operation in WORDS if not operation.startswith("schedulemesh ")} == operations


def test_a_signal_names_run_and_signal():
    change = RecordedChangeView(
        number=1, at_ms=1, operation="POST /v1/runs/{run_id}/signals/{name}", tenant=RESEARCH, target="night/go", key="k", outcome="allowed"
    )
    assert in_words(change) == f"signal run night: go of {RESEARCH}"
    assert in_words(change.model_copy(update={"operation": "POST /v9/new/{part}"})) == f"POST /v9/new/{{part}} night/go of {RESEARCH}"


def test_options_filter(world, capsys):
    assert [change["user"] for change in json.loads(said(capsys, "--tenant", RESEARCH, "--json"))["changes"]] == ["ann", "eve"]
    assert [change["user"] for change in json.loads(said(capsys, "--user", "bob", "--json"))["changes"]] == ["bob"]
    assert said(capsys, "--since", "2030-01-01T00:00:00Z") == "no changes that this key covers\n"
    assert "has no offset from UTC" in said(capsys, "--since", "2030-01-01", code=2)


def test_follow_prints_each_change_once(world, capsys, monkeypatch):
    rounds = iter(range(2))

    def work(_s):
        if next(rounds, None) is None:
            raise KeyboardInterrupt
        world.http("*", "later").post(f"/v1/tenants/{RESEARCH}/resume")

    monkeypatch.setattr(reports.time, "sleep", work)
    printed = said(capsys, "--follow", "--json", "--limit", "1", code=130)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [(line["number"], line["user"]) for line in lines] == [(3, "eve"), (4, "later"), (5, "later")]
