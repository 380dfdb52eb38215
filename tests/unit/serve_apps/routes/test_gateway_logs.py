"""Logs of runs: the answers of `/v1/runs/{run}/logs`, the Python client and the terminal, on stores in memory."""

import json

import pytest

from dag.errors import UnknownRun
from dag.store.remote import Client
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING
from mesh.stages.messages import NodeOutput
from mesh.stages.spec import StageSpec
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.gateway_fixtures import EAST, RESEARCH, RIVAL, GatewayWorld, spec_of

RUN = RunId("night")
#: Run with an array of two parts.
FAN = RunId("fan")


class Printing(GatewayWorld):
    """A run whose nodes print."""

    def __post_init__(self):
        super().__post_init__()
        self.http().post("/v1/runs", json=spec_of("a", "b", id=RUN)).raise_for_status()
        fan = spec_of("score", id=FAN)
        fan["nodes"]["score"]["args"] = [{"$each": [1, 2]}]
        self.http().post("/v1/runs", json=fan).raise_for_status()
        self.mesh = ManualMesh(self.store, MeshRecord(mesh=EAST, labels={}, pools=(), cluster="c"))
        self.claim = self.claim_of(RUN)
        self.batch = 0

    def claim_of(self, run):
        stage = StageId(f"{run}.s")
        self.store.submit(EAST, StageSpec(stage=stage, run=run, tenant=TenantPath(RESEARCH), tasks=(), slot=NOTHING, width=1))
        return self.store.claim(self.mesh.session, stage, None).claim

    def print(self, node, *lines, number=1, attempt=1, stream="stdout", claim=None):
        self.batch += 1
        claim = claim or self.claim
        output = NodeOutput(stage=claim.stage, node=NodeId(node), attempt=attempt, number=number, at_ms=7, stream=stream, lines=lines)
        self.run_log.append(claim, self.batch, (output,))


@pytest.fixture
def world(monkeypatch):
    built = Printing()
    built.print("a", "one", "two")
    built.print("b", "to stderr", stream="stderr")
    built.print("a", "nine", number=9)
    built.print("a", "again", attempt=2)
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=built.http(RESEARCH), patience_s=0))
    return built


def read(world, **asked):
    return world.http().get(f"/v1/runs/{RUN}/logs", params=asked).raise_for_status().json()


def test_logs_come_with_node_attempt_mesh_and_numbers(world):
    page = read(world)
    assert page["entries"][0] == {
        "seq": 1, "at": "1970-01-01T00:00:00.007Z", "mesh": EAST, "node": "a", "attempt": 1, "stream": "stdout", "number": 1,
        "lines": ["one", "two"],
    }  # fmt: skip
    assert (page["next"], page["more"]) == (4, False)


def test_logs_come_in_pages_of_the_wanted_entries(world):
    page = read(world, node="a", limit=2)
    assert ([entry["seq"] for entry in page["entries"]], page["next"], page["more"]) == ([1, 3], 3, True)
    rest = read(world, node="a", limit=2, after=page["next"])
    assert ([entry["lines"] for entry in rest["entries"]], rest["more"]) == ([["again"]], False)
    assert [entry["lines"] for entry in read(world, attempt=2)["entries"]] == [["again"]]


def test_logs_of_another_tenants_run_are_404(world):
    assert world.http(RIVAL).get(f"/v1/runs/{RUN}/logs").status_code == 404


def test_a_stream_of_logs_ends_with_the_run(world):
    world.succeed(RUN, {"a": 1, "b": 2})
    answer = world.http().get(f"/v1/runs/{RUN}/logs", params={"follow": True, "node": "a", "after": 1})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in answer.text.strip().split("\n\n")[1:]]
    assert [(event["event"], event["id"]) for event in events] == [("output", "3"), ("output", "4"), ("end", "4")]
    assert json.loads(events[0]["data"])["lines"] == ["nine"]


def test_logs_are_gone_with_their_run(world):
    world.succeed(RUN, {"a": 1, "b": 2})
    world.runs.retire(2**50)
    assert world.run_log.read(RUN) == ()


def test_python_reads_lines_with_what_was_left_out(world):
    lines = list(world.client().run(RUN).logs("a", attempt=1))
    assert [(str(line), line.number, line.left_out) for line in lines] == [("one", 1, 0), ("two", 2, 0), ("nine", 9, 6)]


def test_python_follows_up_to_the_end_of_the_run(world):
    world.succeed(RUN, {"a": 1, "b": 2})
    assert [line.text for line in world.client().run(RUN).logs(follow=True)] == ["one", "two", "to stderr", "nine", "again"]


def test_logs_of_an_unknown_run_are_an_error(world):
    with pytest.raises(UnknownRun):
        list(world.client().log_of(RunId("nobody's")).lines())


@pytest.mark.parametrize("asked", [{}, {"follow": True}], ids=["as a page", "as a stream"])
def test_logs_of_a_misspelt_node_are_404(world, asked):
    answer = world.http().get(f"/v1/runs/{FAN}/logs", params={"node": "scor", **asked})
    assert answer.status_code == 404
    assert (answer.json()["code"], answer.json()["detail"]) == ("unknown_node", f"run {FAN} has no node scor; did you mean score?")


def test_logs_of_an_array_are_those_of_its_parts(world):
    claim = world.claim_of(FAN)
    world.print("score@1", "of a part", claim=claim)
    assert [entry["node"] for entry in world.http().get(f"/v1/runs/{FAN}/logs", params={"node": "score"}).json()["entries"]] == ["score@1"]
    assert world.http().get(f"/v1/runs/{FAN}/logs", params={"node": "score@1"}).json()["entries"]


def test_the_terminal_reports_a_misspelt_node(world, capsys):
    assert run_command(["logs", FAN, "scor"]) == 1
    assert capsys.readouterr().err == f"error: run {FAN} has no node scor; did you mean score?\n"


def test_a_node_that_has_printed_nothing_is_no_error(world, capsys):
    assert run_command(["logs", FAN, "score"]) == 0
    assert capsys.readouterr().out == ""


def test_the_terminal_prints_logs_with_the_names_of_nodes(world, capsys):
    assert run_command(["logs", RUN]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a | one", "a | two", "b | to stderr", "a | ... 6 lines left out ...", "a | nine", "a | again",
    ]  # fmt: skip


def test_the_terminal_prints_one_node_without_its_name(world, capsys):
    assert run_command(["logs", RUN, "b"]) == 0
    assert capsys.readouterr().out == "to stderr\n"


def test_the_terminal_escapes_what_a_node_printed(world, capsys):
    world.print("b", "\x1b[2J[bold]red\u202e", number=2)
    run_command(["logs", RUN, "b", "--tail", "1"])
    assert capsys.readouterr().out == "\\x1b[2J[bold]red\\u202e\n"


def test_the_terminal_follows_after_the_last_lines(world, capsys):
    world.succeed(RUN, {"a": 1, "b": 2})
    assert run_command(["logs", RUN, "--tail", "2", "--follow"]) == 0
    assert capsys.readouterr().out.splitlines() == ["a | ... 6 lines left out ...", "a | nine", "a | again"]


def test_logs_as_json_are_one_object_a_line(world, capsys):
    assert run_command(["logs", RUN, "a", "--attempt", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "node": "a", "text": "again", "stream": "stdout", "attempt": 2, "mesh": EAST, "at_ms": 7, "number": 1, "left_out": 0,
    }  # fmt: skip
