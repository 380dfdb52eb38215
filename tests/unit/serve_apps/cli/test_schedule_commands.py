"""Commands `schedule` and `dag.schedule`, through the gateway."""

import json
import sys

import pytest

import dag
from dag.errors import GraphTypeError, TooManySchedules, UnknownSchedule
from dag.schedules.schedule import ScheduleLimits
from dag.store.client_access import Access
from dag.store.remote import Client
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.gateway_fixtures import ACME, ADDRESS, RESEARCH, GatewayWorld, spec_of

SOURCE = """
import dag

@dag.task
def greet(name, at):
    return f"hello {name}"

def graph(name="world"):
    return greet.bind(name, dag.param("SCHEDULED_AT", default=""))
"""


@pytest.fixture
def world(monkeypatch):
    built = GatewayWorld()
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    http = built.http(RESEARCH)  # One key for all commands.
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=http, patience_s=0))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", sys.path[:])
    return built


def said(capsys, *arguments, code=0):
    assert run_command(["schedule", *arguments]) == code
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "scheduled_greeting", raising=False)
    path = tmp_path / "scheduled_greeting.py"
    path.write_text(SOURCE)
    return f"{path}:graph"


def test_a_schedule_is_made_shown_and_deleted(world, capsys, file):
    rules = ("--cron", "0 3 * * 1-5", "--timezone", "Europe/Berlin", "--overlap", "queue", "--starts-within", "1h")
    made = said(capsys, "create", "nightly", file, *rules, "--param", "name=Ann", "--label", "team=ads", "--wait-for-capacity")
    assert made == "schedule nightly fires next at 2023-11-15 02:00:00Z\n"
    listed = json.loads(said(capsys, "ls", "--json"))["schedules"]
    assert [(each["name"], each["overlap"], each["starts_within_ms"]) for each in listed] == [("nightly", "queue", 3_600_000)]
    assert "0 3 * * 1-5" in said(capsys, "ls")
    assert "is paused" in said(capsys, "pause", "nightly")
    assert "fires next" in said(capsys, "resume", "nightly")
    run = json.loads(said(capsys, "trigger", "nightly", "--json"))["id"]
    shown = said(capsys, "show", "nightly")
    assert run in shown
    assert "starts within 3600 s" in shown
    assert said(capsys, "delete", "nightly") == "schedule nightly is deleted\n"
    assert "there is no schedule nightly" in said(capsys, "show", "nightly", code=1)
    assert "there are no schedules" in said(capsys, "ls")


def test_problems_of_a_file_have_their_place(world, capsys, tmp_path):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(spec_of("a") | {"nodes": {"a": {"call": "wrong"}}}))
    shown = said(capsys, "create", "nightly", str(path), "--cron", "* * * * *", code=1)
    assert f"{path}:1:" in shown
    assert "/nodes/a/call" in shown


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        pytest.param(("--cron", "nightly"), "is no cron expression", 1, id="a wrong cron"),
        pytest.param(("--cron", "* * * * *", "--starts-within", "soon"), "must be a time like", 2, id="a wrong time"),
        pytest.param(("--cron", "* * * * *", "--overlap", "often"), "is not one of", 2, id="a wrong overlap"),
        pytest.param((), "Missing option '--cron'", 2, id="no cron"),
    ],
)
def test_a_wrong_schedule_is_refused(world, capsys, file, arguments, words, code):
    assert words in said(capsys, "create", "nightly", file, *arguments, code=code)


def test_python_schedules_a_graph(world):
    @dag.task
    def greet(at):
        return at

    with Client(Access(address=ADDRESS, api_key="in the headers", tenant=RESEARCH), http=world.http(ACME), patience_s=0) as client:
        graph = greet.bind(dag.param("SCHEDULED_AT", default=""))
        handle = dag.schedule(graph, name="nightly", cron="0 3 * * *", starts_within_s=60, wait_for_capacity=True, client=client)
        assert (handle.show()["starts_within_ms"], handle.show()["paused"]) == (60_000, False)
        assert handle.trigger().status == "PENDING"
        handle.pause()
        assert handle.show()["paused"]
        handle.resume()
        handle.delete()
        with pytest.raises(UnknownSchedule):
            handle.show()
        with pytest.raises(GraphTypeError, match="no name of a schedule"):
            dag.schedule(graph, name="a/b", cron="* * * * *", client=client)


def test_python_names_the_limit_of_schedules(world):
    full = GatewayWorld(schedule_limits=ScheduleLimits(schedules_max=0))
    with full.client(RESEARCH) as client, pytest.raises(TooManySchedules, match="schedules_max"):
        dag.schedule(dag.bind(len, [1]), name="a", cron="* * * * *", wait_for_capacity=True, client=client)


def test_terminal_and_python_send_the_same_request(world, monkeypatch, capsys, tmp_path):
    sent = []
    monkeypatch.setattr(Client, "put", lambda _self, path, body: sent.append((path, body)) or {})
    graph = {"spec": "dag/1", "tenant": RESEARCH, "nodes": {"a": {"call": "m:f"}}, "outputs": {"a": {"$ref": "a"}}, "labels": {"by": "x"}}
    monkeypatch.setattr(Client, "spec_of", lambda *_, **__: dict(graph))
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph))
    run_command(["schedule", "create", "n", str(path), "--cron", "0 3 * * *", "--starts-within", "1m", "--label", "team=ads"])
    with world.client(RESEARCH) as client:
        labels = {"team": "ads"}
        dag.schedule(dag.task(len).bind([]), name="n", cron="0 3 * * *", starts_within_s=60, labels=labels, client=client)
    terminal, python = sent
    assert terminal == python
    assert python[1]["graph"]["labels"] == {"by": "x", "team": "ads"}


def test_a_misspelt_schedule_is_answered_with_a_near_one(world, capsys, file):
    said(capsys, "create", "nightly", file, "--cron", "0 3 * * *")
    for command in ("show", "pause", "resume", "trigger", "delete"):
        assert "there is no schedule nihgtly of acme/research; did you mean nightly?" in said(capsys, command, "nihgtly", code=1)


def test_a_misspelt_overlap_is_answered_with_a_near_one(world, capsys, file):
    words = said(capsys, "create", "nightly", file, "--cron", "0 3 * * *", "--overlap", "replce", code=2)
    assert "did you mean replace?" in words
