"""Command `changes`, through the gateway."""

import json

import pytest

from dag.store.remote import Client
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import reports
from serve_apps.gateway_fixtures import RESEARCH, RIVAL, GatewayWorld


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
    assert head.split() == ["at", "by", "outcome", "what", "tenant", "target"]
    assert [line.split()[2] for line in lines] == ["ann", "bob", "eve"]
    assert "allowed" in lines[0]
    assert "reason='too dear'" in lines[0]
    assert "forbidden" in lines[2]


def test_options_filter(world, capsys):
    assert [change["user"] for change in json.loads(said(capsys, "--tenant", RESEARCH, "--json"))["changes"]] == ["ann", "eve"]
    assert [change["user"] for change in json.loads(said(capsys, "--user", "bob", "--json"))["changes"]] == ["bob"]
    assert said(capsys, "--since", "2030-01-01T00:00:00Z") == "no changes that this key covers\n"
    assert "no offset from UTC" in said(capsys, "--since", "2030-01-01", code=2)


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
