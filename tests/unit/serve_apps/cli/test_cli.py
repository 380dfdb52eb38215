"""Commands that call the root, on a gateway in this process."""

import contextlib
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from dag.run.states import NodeState, RunState
from dag.spec.spec import load
from dag.store.remote import Client
from federation.config.loading import stage_settings_of, tenants_of
from federation.config.quota_rules import tenant_policies_of
from federation.configured_meshes import ConfiguredMeshes
from federation.dispatch import Notification, NotificationKind
from federation.flap_detection import FlapRules
from federation.manual_mesh import ManualMesh
from federation.quota.policies import QueueSettings, Stop, TenantPolicies
from federation.quota.tenant_policies import TenantStop
from federation.registry import observe
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import TenantTree
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import applying, draining, lifecycle, runs, stopping, versions
from serve_apps.configuration.config_file import read_config
from serve_apps.gateway_fixtures import RESEARCH, SALES, STANDARD, GatewayWorld, spec_of
from serve_apps.requests.known_keys import KEPT_MS
from serve_apps.schemas.runs import RunLine
from serve_apps.standalone.child_pids import note
from serve_apps.standalone.stack_folder import StackFolder
from serve_apps.standalone.startup_config import keep

SOURCE = """
import dag

@dag.task
def greet(name):
    return f"hello {name}"

graph = greet.bind("world")
"""

DOUBTFUL = """
federation: {{name: x, lease_ttl: 8s, heartbeat: {heartbeat}}}
clusters: {{here: {{nodes: [{{cpu: 1}}]}}, root: {{nodes: [{{cpu: 1}}]}}}}
root: {{cluster: root}}
flavors: {{standard: {{}}}}
meshes: {{east: {{cluster: here, pools: {{all: {{flavor: standard, capacity: {{cpu: 1}}}}}}}}}}
tenants: {{lab: {{quotas: {{standard: {{cpu: {{nominal: 9}}}}}}}}}}
"""


def opened_by(world):
    """Return the stores of a command on the machine of the state folder."""
    of_tenants = {"tenant_policies": world.tenant_policies, "runs": world.runs, "changes": world.changes}
    return SimpleNamespace(ledger=world.store, queue=world.store, registry=world.registry, client=None, keys=None, **of_tenants)


@pytest.fixture
def world(monkeypatch) -> GatewayWorld:
    """The federation that every command of the test finds, as a client of research."""
    built = GatewayWorld()
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=built.http(RESEARCH), patience_s=0))
    monkeypatch.setattr(sys, "path", sys.path[:])
    return built


def test_submit_of_a_python_file_prints_the_id_without_waiting(world, tmp_path, capsys):
    file = tmp_path / "flow_for_the_command_line.py"
    file.write_text(SOURCE)
    assert run_command(["submit", f"{file}:graph", "--id", "night", "--no-wait"]) == 0
    assert capsys.readouterr().out == "submitted night\n"
    assert set(world.record("night").nodes) == {"greet"}


def test_submit_of_a_json_file_is_overridden_by_options(world, tmp_path, capsys):
    file = tmp_path / "spec.json"
    spec = spec_of("a", id="theirs", params={"day": "monday", "count": 1})
    spec["nodes"]["a"]["args"] = [{"$param": "day"}, {"$param": "count"}]
    file.write_text(json.dumps(spec))
    assert run_command(["submit", str(file), "--id", "mine", "--param", "count=2", "--param", "day=friday", "--no-wait", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "mine"
    assert load(world.record("mine").spec).params == {"day": "friday", "count": 2}


def test_submit_waits_and_prints_the_result(world, tmp_path, capsys, monkeypatch):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", id="night")))
    ask = runs.CliSession.view

    def finish_first(self, kind, path, params=None):
        if world.record("night").state is RunState.PENDING:
            world.succeed("night", {"a": {"accuracy": 0.97}})
        return ask(self, kind, path, params)

    monkeypatch.setattr(runs.CliSession, "view", finish_first)
    assert run_command(["submit", str(file)]) == 0
    output = capsys.readouterr().out
    assert "SUCCEEDED" in output
    assert '"accuracy": 0.97' in output


def test_ctrl_c_while_waiting_exits_130_and_the_run_continues(world, tmp_path, capsys, monkeypatch):
    def interrupted(_session, _run):
        raise KeyboardInterrupt

    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", id="night")))
    monkeypatch.setattr(runs, "wait_for_start", interrupted)
    assert run_command(["submit", str(file), "--json"]) == 130
    output = capsys.readouterr()
    assert output.out == ""
    assert "night continues" in output.err
    assert "schedulemesh cancel night" in output.err


def test_a_failed_run_is_exit_code_one_with_the_users_traceback(world, capsys):
    world.client().submit_spec(spec_of("a", "b", id="night"))
    world.fail("night", "a", ValueError("bad"), skipped=("b",))
    assert run_command(["watch", "night"]) == 1
    assert "Traceback: in a" in capsys.readouterr().out
    assert run_command(["result", "night", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failures"][0]["node"] == "a"


def test_failed_submit_prints_its_failure_once(world, tmp_path, capsys, monkeypatch):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", "b", id="night")))
    ask = runs.CliSession.view

    def fail_first(self, kind, path, params=None):
        if world.record("night").state is RunState.PENDING:
            world.fail("night", "a", ValueError("the cat is on the keyboard"), skipped=("b",))
        return ask(self, kind, path, params)

    monkeypatch.setattr(runs.CliSession, "view", fail_first)
    assert run_command(["submit", str(file)]) == 1
    assert capsys.readouterr().out.count("the cat is on the keyboard") == 1


def test_watch_once_shows_a_run_that_goes_on(world, capsys):
    world.client().submit_spec(spec_of("a", "b", id="night"))
    world.start("night", "a")
    assert run_command(["watch", "night", "--once"]) == 0
    out = capsys.readouterr().out
    assert ("ends about -" in out, "a  0/1  running" in out) == (True, True)
    assert run_command(["watch", "night", "--once", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["estimated_end"], [group["name"] for group in view["groups"]]) == (None, ["a", "b"])


def test_a_pipe_gets_a_line_for_each_name_that_has_changed(world, capsys, monkeypatch):
    world.client().submit_spec(spec_of("a", "b", id="night"))
    world.start("night", "a")
    monkeypatch.setattr(runs, "LOOKS_PER_BARS", 1)
    monkeypatch.setattr(runs, "LOG_LOOK_S", 0)
    steps = [lambda: None, lambda: world.move("night", RunState.RUNNING, nodes={"a": {"state": NodeState.SUCCEEDED}})]
    ask = runs.CliSession.view

    def advance(self, kind, path, params=None):
        if params is not None and steps:
            steps.pop(0)()
        elif params is not None:
            world.succeed("night", {"a": 1, "b": 2})
        return ask(self, kind, path, params)

    monkeypatch.setattr(runs.CliSession, "view", advance)
    assert run_command(["watch", "night"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:4] == ["a  0/1  running", "b  0/1", "a  1/1"]
    assert lines.count("b  0/1") == 1, "it has not changed"


def test_watch_as_json_prints_an_event_per_line(world, capsys):
    world.client().submit_spec(spec_of("a", id="night"))
    world.succeed("night", {"a": 1})
    assert run_command(["watch", "night", "--json"]) == 0
    assert [json.loads(line)["after"] for line in capsys.readouterr().out.splitlines()] == ["SUCCEEDED", "SUCCEEDED"]


def test_results_are_written_as_they_were_stored(world, tmp_path, capsys):
    spec = spec_of("a", "b", id="night")
    spec["outputs"]["all:a"] = {"$ref": "a"}
    world.client().submit_spec(spec)
    stored = world.keep("night", {1}, Encoding.PICKLE)
    world.move("night", RunState.RUNNING, nodes={"b": {"state": NodeState.SUCCEEDED, "stored": stored}})
    world.succeed("night", {"a": [1]})
    assert run_command(["result", "night", "--out", str(tmp_path / "out")]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "b.pickle": world.store.get("night", (stored.sha256,))[stored.sha256],
        "all%3Aa.json": b"[1]",
    }


def test_runs_tenants_and_meshes_print_tables_and_json(world, capsys):
    world.client().submit_spec(spec_of("a", id="night"))
    for command, word in ((["runs"], "night"), (["tenants"], RESEARCH), (["meshes"], "no mesh")):
        assert run_command(command) == 0
        assert word in capsys.readouterr().out
        assert run_command([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


@pytest.fixture
def operated(world, monkeypatch) -> GatewayWorld:
    """The same federation with one mesh, for operators and the stack's owner."""
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    world.store.join(MeshRecord(mesh="east", labels={"zone": "east"}, pools=(pool,), cluster="c", shared=True))
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=world.http("*"), patience_s=0))
    monkeypatch.setattr(draining, "running_stores", lambda _: opened_by(world))
    monkeypatch.setattr(draining, "configured_meshes_of_stack", lambda _: world.configured_meshes)
    return world


def test_meshes_as_json_list_the_processes_of_this_stack(operated, tmp_path, monkeypatch, capsys):
    folder = StackFolder(tmp_path / ".schedulemesh")
    folder.path.mkdir()
    note(folder, {"east": os.getpid()})
    folder.write("client.json", {"address": "http://root.test", "api_key": "k", "tenant": "acme"})
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert run_command(["meshes", "--json"]) == 0
    (mesh,) = json.loads(capsys.readouterr().out)["meshes"]
    assert (mesh["pid"], mesh["last_heard_at"] is not None) == (os.getpid(), True)
    assert run_command(["meshes", "--json", "--address", "http://other.test"]) == 0
    (mesh,) = json.loads(capsys.readouterr().out)["meshes"]
    assert mesh["pid"] is None


@pytest.mark.parametrize("way", ["the address", "the state folder"])
def test_mesh_is_drained_and_undrained_through(operated, monkeypatch, capsys, way):
    if way == "the state folder":
        monkeypatch.delenv("SCHEDULEMESH_ADDRESS")
    assert run_command(["drain", "mesh", "east", "--reason", "new disks"]) == 0
    output = capsys.readouterr().out
    assert "east is draining: it gets no new work" in output
    assert "draining: new" in output
    assert operated.registry.conditions().meshes["east"].drain.reason == "new disks"
    assert run_command(["undrain", "east", "--json"]) == 0
    (mesh,) = json.loads(capsys.readouterr().out)["meshes"]
    assert mesh["draining"] is False
    assert run_command(["drain", "mesh", "eats"]) == 1
    assert "did you mean east?" in capsys.readouterr().err


def test_a_tenants_key_drains_nothing(world, capsys):
    assert run_command(["drain", "mesh", "east"]) == 1
    assert "schedulemesh keys create '*'" in capsys.readouterr().err


def test_cancel_says_what_became_of_the_run(world, capsys):
    world.client().submit_spec(spec_of("a", id="night"))
    assert run_command(["cancel", "night", "--reason", "enough"]) == 0
    assert "is being stopped" in capsys.readouterr().out
    assert run_command(["cancel", "night", "--also-cleanup"]) == 0
    assert [entry.kind for entry in world.store.inbox(0)] == ["submitted", "cancel", "cancel_all"]
    capsys.readouterr()
    world.succeed("night", {"a": 1})
    assert run_command(["cancel", "night"]) == 0
    assert "had already ended: SUCCEEDED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["watch", "nobody"], "there is no run nobody"),
        (["submit", "gone.py:graph"], "there is no file gone.py"),
        (["submit", "gone.json"], "gone.json cannot be read"),
        (["runs", "--tenant", "rival"], "there is no tenant 'rival' that this API key covers"),
        (["runs", "--address", "http://root:http"], "--address 'http://root:http' is not an address"),
    ],
    ids=["an unknown run", "a missing Python file", "a missing JSON file", "a tenant out of reach", "no address"],
)
def test_error_is_one_line_with_exit_code_one(world, capsys, arguments, words):
    assert run_command(arguments) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert words in output.err
    assert len(output.err.splitlines()) == 1


def test_unknown_parameter_of_a_spec_file_is_refused(world, tmp_path, capsys):
    file = tmp_path / "spec.json"
    spec = spec_of("a", params={"day": "monday"})
    spec["nodes"]["a"]["args"] = [{"$param": "day"}, [{"$param": "count"}]]
    file.write_text(json.dumps(spec))
    assert run_command(["submit", str(file), "--param", "dya=friday", "--no-wait"]) == 2
    assert "has no parameter dya; did you mean day?" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert run_command(["submit", str(file), "--param", "x=1", "--no-wait"]) == 2
    assert "its parameters: count, day" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("command", [["watch"], ["result"], ["cancel"], ["explain"]])
def test_an_id_with_a_slash_is_an_unknown_run(world, capsys, command):
    assert run_command([*command, "a/b"]) == 1
    assert "there is no run" in capsys.readouterr().err


def test_refused_spec_is_reported_with_its_file(world, tmp_path, capsys):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({**spec_of("a"), "id": 5}))
    assert run_command(["submit", str(file), "--no-wait"]) == 1
    output = capsys.readouterr().err
    assert output.startswith(f"error: {file}: the submission was refused")
    assert "/id: " in output


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["runs", "--limit", "0"], ["watch"], ["submit", "x.json", "--param", "day"]],
    ids=["an unknown command", "a number out of bounds", "a missing argument", "a parameter without a value"],
)
def test_a_wrong_command_line_is_exit_code_two(world, capsys, arguments):
    assert run_command(arguments) == 2
    assert capsys.readouterr().out == ""


def test_missing_federation_error_names_every_way_to_one(tmp_path, monkeypatch, capsys):
    for variable in ("SCHEDULEMESH_ADDRESS", "SCHEDULEMESH_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_command(["runs"]) == 1
    assert "schedulemesh up" in capsys.readouterr().err


def test_remedy_of_a_refused_submit_names_the_same_file_kind(world, tmp_path, capsys):
    file = tmp_path / "SPEC.JSON"
    file.write_text("{}")
    assert run_command(["submit", str(file)]) == 1
    assert f"schedulemesh validate {file}" in capsys.readouterr().err
    assert run_command(["validate", str(file)]) == 1
    assert f"{file}:1:1: /nodes: " in capsys.readouterr().err


@pytest.mark.parametrize("has_address", [True, False], ids=["a key is missing", "all are missing"])
def test_missing_argument_error_names_only_cli_options(tmp_path, monkeypatch, capsys, has_address):
    for variable in ("SCHEDULEMESH_ADDRESS", "SCHEDULEMESH_API_KEY", "SCHEDULEMESH_STATE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_command(["runs", *(["--address", "http://root.test"] if has_address else [])]) == 1
    output = capsys.readouterr().err
    assert "SCHEDULEMESH_API_KEY" in output
    assert ("--address" in output) is not has_address
    assert "api_key=" not in output
    assert "address=" not in output


def test_validate_lists_every_problem_of_a_spec(tmp_path, capsys):
    spec = spec_of("a", "b")
    spec["nodes"]["a"]["after"] = ["nowhere"]
    spec["nodes"]["b"]["args"] = [{"$ref": "nobody"}]
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    assert run_command(["validate", str(file), "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [(one["place"], one["message"], one["remedy"]) for one in problems] == [
        ("/nodes/a/after/0", "there is no node nowhere", ""),
        ("/nodes/b/args/0", "there is no node nobody", ""),
    ]
    assert {one["line"] for one in problems} == {1}
    file.write_text(json.dumps(spec_of("a")))
    assert run_command(["validate", str(file)]) == 0
    assert "ok, 1 node, 1 output" in capsys.readouterr().out


WRONG_SPEC = """{
  "spec": "dag/2",
  "id": "no id",
  "nodes": {
    "a": {"call": "os", "args": [], "args": [{"$ref": "b"}]},
    "b": {"call": "m:f", "optoins": {}}
  },
  "outputs": {"x": {"$ref": "c"}}
}
"""


def test_validate_lists_all_spec_errors_with_lines(tmp_path, capsys):
    file = tmp_path / "spec.json"
    file.write_text(WRONG_SPEC)
    assert run_command(["validate", str(file)]) == 1
    output = [line.removeprefix(f"{file}:").split(": ")[:2] for line in capsys.readouterr().err.splitlines()[:-1]]
    assert output == [
        ["2:3", "/spec"],
        ["3:3", "/id"],
        ["5:11", "/nodes/a/call"],
        ["5:25", "/nodes/a/args"],
        ["6:26", "/nodes/b/optoins"],
        ["8:21", "/outputs/x/$ref"],
    ]
    assert run_command(["validate", str(file), "--json"]) == 1
    option = json.loads(capsys.readouterr().out)["problems"][4]
    assert option == {
        "message": "unknown key",
        "remedy": "did you mean options?",
        "line": 6,
        "column": 26,
        "place": "/nodes/b/optoins",
    }


@pytest.mark.parametrize(
    ("text", "place"),
    [(b'{\n "spec": }', (2, 10)), (b"\xff", (1, 1)), (b"[" * 100_000, (None, None)), (b"[1]", (None, None))],
    ids=["no JSON", "no text", "nested too deep", "a list"],
)
def test_unparsable_spec_names_the_place(tmp_path, capsys, text, place):
    file = tmp_path / "spec.json"
    file.write_bytes(text)
    assert run_command(["validate", str(file), "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["line"], problem["column"]) == place


def test_validate_names_the_line_of_a_wrong_configuration(tmp_path, capsys):
    file = tmp_path / "broken.yaml"
    file.write_text("federation: {name: x}\nflavours: {}\n")
    assert run_command(["validate", str(file)]) == 1
    assert f"{file}:2" in capsys.readouterr().err


WITH_PLUGIN = """
federation: {{name: tests}}
root: {{cluster: root}}
clusters: {{local: {{nodes: [{{cpu: 4}}]}}, root: {{nodes: [{{cpu: 1}}]}}}}
flavors: {{standard: {{}}}}
meshes:
  east:
    cluster: local
    pools: {{general: {{flavor: standard, capacity: {{cpu: 4}}, policy: {policy}}}}}
    plugins: {{packed: packed.wat}}
tenants: {{acme: {{quotas: {{standard: {{cpu: {{nominal: 4}}}}}}}}}}
"""
PRIORITY = '(func (export "priority") (param f64 f64 f64 f64 f64) (result f64) (local.get 0))'


@pytest.mark.parametrize("heartbeat", ["1s", "5s"], ids=["and all is right", "and something is wrong"])
def test_validate_shows_what_is_doubtful_after_what_is_wrong(tmp_path, capsys, heartbeat):
    file = tmp_path / "doubtful.yaml"
    file.write_text(DOUBTFUL.format(heartbeat=heartbeat))
    is_wrong = heartbeat == "5s"
    assert run_command(["validate", str(file)]) == is_wrong
    out, err = capsys.readouterr()
    lines = (err if is_wrong else out).splitlines()
    assert [line.startswith("warning: ") for line in lines] == [*[False] * is_wrong, True, False]
    assert "tenants own 9 cpu" in lines[-2]
    assert run_command(["validate", str(file), "--json"]) == is_wrong
    view = json.loads(capsys.readouterr().out)
    assert (view["ok"], len(view["problems"]), len(view["warnings"])) == (not is_wrong, is_wrong, 1)


def test_version_is_the_packages(capsys):
    assert run_command(["version"]) == 0
    assert capsys.readouterr().out.strip() == versions.version_of("schedulemesh")


def test_a_meshs_key_is_no_users(capsys):
    assert run_command(["keys", "create", "--mesh", "east", "--user", "ann"]) == 2
    assert "--user" in capsys.readouterr().err


def test_each_reason_to_wait_is_said_once(world, capsys):
    run = world.client().submit_spec(spec_of("a", id="night"))
    shown = RunLine.model_validate(world.http().get(f"{run.path}/summary").json())
    waits = {"state": "WAITING", "reason": "LEDGER_RECOVERING", "detail": "the ledger recovers"}
    states = [{}, waits, waits, {"state": "RUNNING"}]
    lines = [shown.model_copy(update=fields) for fields in states]
    runs.wait_for_start(SimpleNamespace(view=lambda *_: lines.pop(0)), run)
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "night waits: LEDGER_RECOVERING: the ledger recovers\n")
    assert lines == []


# -- explanations --------------------------------------------------------------------------------------------------------


def crowded(world):
    """A federation in which research demands more than the borrowing sales leaves, and a stage waits."""
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 8}))
    mesh = ManualMesh(world.store, MeshRecord(mesh="east", labels={}, pools=(pool,), cluster="c1", shared=True))
    mesh.acquire(SALES, STANDARD, ResourceSet.of({"cpu": 1}), 6)
    world.client().submit_spec(spec_of("a", id="night"))
    world.coordinator().step(0)


@pytest.mark.parametrize(
    ("columns", "width"), [(None, 80), ("200", 200), ("60", 60)], ids=["a pipe", "a pipe with a width", "a narrow one"]
)
def test_piped_tables_have_a_width_and_cut_nothing(world, monkeypatch, capsys, columns, width):
    monkeypatch.delenv("COLUMNS")
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    crowded(world)
    run = f"a-run-with-a-long-name-{'x' * 20}"
    world.client().submit_spec(spec_of("a", id=run))
    world.coordinator().step(0)
    for command in (["queue"], ["runs"], ["explain", run], ["history"], ["leases"], ["tenants"], ["meshes"]):
        assert run_command(command) == 0
        output = capsys.readouterr().out
        # Sentences, and the line about a run, are whole lines.
        rows = [line for line in output.splitlines() if "  " in line.strip() and "  WAITING  " not in line]
        assert max(map(len, rows), default=0) <= width
        assert "…" not in output
        assert (output.count("x") >= run.count("x")) is (command[0] in ("queue", "runs", "explain"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("runs", "--state", "faild"), "'failed', 'cancelled'; did you mean failed?"),
        (("keys", "create", "acme", "--role", "admn"), "'admin'; did you mean admin?"),
        (("usage", "--by", "tennant"), "did you mean tenant?"),
        (("runs", "--state", "zzz"), "'zzz' is not one of 'pending'"),
        (("run", "--cpus", "-1", "--", "true"), "'--cpus': must be greater than or equal to 0"),
    ],
    ids=["a state", "a role", "a column", "another word", "a number"],
)
def test_a_wrong_word_of_an_option_is_answered_with_a_near_one(world, capsys, command, words):
    assert run_command(list(command)) == 2
    printed = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert words in printed
    assert "Value error" not in printed


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("runs", "--since", "garbage"), "'garbage' is no time; write it like 2026-01-31T09:00:00Z"),
        (("runs", "--until", "2026-01-31"), "'2026-01-31' has no offset from UTC; write it like 2026-01-31T09:00:00Z"),
        (("changes", "--since", "garbage"), "'garbage' is no time; write it like 2026-01-31T09:00:00Z"),
        (("usage", "--from", "garbage"), "'garbage' is no day; write it like 2026-01-31"),
        (("usage", "--to", "2026-02-30"), "'2026-02-30' is no day; write it like 2026-01-31"),
    ],
    ids=" ".join,
)
def test_a_wrong_time_is_refused_in_the_same_words(world, capsys, command, words):
    assert run_command(list(command)) == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())
    name, value = command[1].removeprefix("--"), command[2]
    answer = world.http().get(f"/v1/{command[0]}", params={name: value})
    assert (answer.status_code, answer.json()["problems"]) == (422, [{"place": f"query/{name}", "problem": words}])


def test_queue_shows_positions_reasons_and_needed_changes(world, capsys):
    crowded(world)
    assert run_command(["queue"]) == 0
    output = capsys.readouterr().out
    assert "night.1" in output
    assert "1 (1)" in output
    assert "1 cpu of standard became free in acme" in output
    assert run_command(["queue", RESEARCH, "--limit", "0", "--json"]) == 0
    (waiting,) = json.loads(capsys.readouterr().out)["waiting"]
    assert (waiting["stage"], waiting["tenant_position"]) == ("night.1", None)


def test_queue_says_that_nothing_waits(world, capsys):
    assert run_command(["queue", RESEARCH]) == 0
    assert capsys.readouterr().out == "nothing of acme/research waits\n"


def test_explain_shows_a_run_and_one_stage_with_its_history(world, capsys):
    crowded(world)
    assert run_command(["explain", "night"]) == 0
    assert "stage 1 would start if" in capsys.readouterr().out
    assert run_command(["explain", "night", "1"]) == 0
    output = capsys.readouterr().out
    assert "1. in the queue of east, 1. of its tenant" in output
    assert "history" in output
    assert run_command(["explain", "night", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stage"] == "night.1"
    assert run_command(["explain", "night", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["position"] == 1


def test_leases_and_their_history_are_shown(world, capsys):
    crowded(world)
    assert world.store.history(None, [SALES])
    assert run_command(["leases"]) == 0
    assert "no leases are held" in capsys.readouterr().out  # Those of sales are out of research's reach.
    assert run_command(["history", "--limit", "5"]) == 0
    assert "no history of leases that this key covers" in capsys.readouterr().out
    assert run_command(["leases", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leases"] == []
    assert run_command(["history", RESEARCH, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"lease_events": []}


def test_a_dry_run_submits_nothing_and_says_what_would_be(world, tmp_path, capsys):
    crowded(world)
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", id="tomorrow")))
    assert run_command(["submit", str(file), "--dry-run", "--user", "ann"]) == 0
    output = capsys.readouterr().out
    assert "dry run for acme/research, as ann: nothing was submitted" in output
    assert "QUOTA_EXHAUSTED" in output
    assert world.runs.summary("tomorrow") is None
    source = tmp_path / "flow_for_a_dry_run.py"
    source.write_text(SOURCE)
    assert run_command(["submit", f"{source}:graph", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["mesh"] == "east"


@pytest.mark.parametrize("more", [["--no-wait"], ["--dry-run"]], ids=["submitted", "rehearsed"])
def test_work_larger_than_any_mesh_is_refused_with_exit_1(world, tmp_path, capsys, more):
    crowded(world)
    file = tmp_path / "spec.json"
    spec = spec_of("a", id="big")
    spec["nodes"]["a"]["options"] = {"num_cpus": 50}
    file.write_text(json.dumps(spec))
    assert run_command(["submit", str(file), *more]) == 1
    refused = capsys.readouterr().err
    assert f"{file}:1:" in refused
    assert ": /nodes/a: east: needs {cpu: 50}, more than any pool holds when empty" in refused
    assert "--wait-for-capacity" in refused
    assert world.runs.summary("big") is None
    assert run_command(["submit", str(file), "--wait-for-capacity", *more]) == 0
    world.coordinator().step(0)
    assert run_command(["runs", "--state", "blocked"]) == 0
    assert ("BLOCKED" in capsys.readouterr().out) is (more == ["--no-wait"])


def test_a_run_is_submitted_for_a_user(world, tmp_path, capsys):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", id="night")))
    assert run_command(["submit", str(file), "--user", "ann", "--no-wait"]) == 0
    assert world.record("night").user == "ann"


def test_a_tenant_is_held_drained_and_released_over_http(world, capsys):
    assert run_command(["suspend", RESEARCH, "--reason", "the budget"]) == 0
    assert capsys.readouterr().out == "acme/research is on hold: no new work starts, running work continues\n"
    assert world.tenant_policies.in_force().stops[RESEARCH].reason == "the budget"
    assert run_command(["tenants"]) == 0
    assert "acme/research (hold)" in capsys.readouterr().out
    assert run_command(["drain", "tenant", RESEARCH, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stop"] == "drain"
    assert run_command(["resume", RESEARCH]) == 0
    assert capsys.readouterr().out == "work of acme/research starts again\n"
    assert run_command(["resume", RESEARCH]) == 0
    assert capsys.readouterr().out == "acme/research was not stopped by a command\n"
    assert run_command(["suspend", "acme/reserch"]) == 1
    assert "did you mean acme/research?" in capsys.readouterr().err
    assert run_command(["suspend", "rival"]) == 1
    assert "there is no tenant 'rival' that this API key covers" in capsys.readouterr().err


def test_repeated_stop_without_a_reason_keeps_the_old_one(world, capsys):
    for arguments in (["suspend", RESEARCH, "--reason", "the budget"], ["suspend", RESEARCH], ["drain", "tenant", RESEARCH]):
        assert run_command(arguments) == 0
        assert world.tenant_policies.in_force().stops[RESEARCH].reason == "the budget"
    assert run_command(["suspend", RESEARCH, "--reason", "the audit"]) == 0
    assert world.tenant_policies.in_force().stops[RESEARCH].reason == "the audit"


def test_a_release_says_what_the_file_still_stops(world, capsys):
    world.tenant_policies.publish(TenantPolicies(settings={RESEARCH: QueueSettings(stop=Stop.HOLD)}))
    assert run_command(["resume", RESEARCH]) == 0
    assert "the federation file still has `stop: hold` for it" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["suspend", "drain tenant", "resume"])
def test_stack_owner_stops_its_tenants_without_a_key(world, monkeypatch, capsys, command):
    monkeypatch.delenv("SCHEDULEMESH_ADDRESS")
    monkeypatch.setattr(stopping, "running_stores", lambda _: opened_by(world))
    world.tenant_policies.stop(RESEARCH, TenantStop())
    assert run_command([*command.split(), RESEARCH]) == 0
    stopped = world.tenant_policies.in_force().stops.get(RESEARCH)
    assert (stopped.by if stopped is not None else None) == (None if command == "resume" else "terminal")


@pytest.mark.parametrize(
    "arguments",
    [["watch"], ["result"], ["cancel"], ["logs"], ["explain"], ["graph"], ["timeline"], ["resume", "--run"], ["resume"], ["delete"]],
    ids=" ".join,
)
@pytest.mark.parametrize("typed", ["nihgtly-0a1b", "nightly"], ids=["a slip", "the beginning of an id"])
def test_a_near_run_id_is_suggested(world, capsys, arguments, typed):
    world.client().submit_spec(spec_of("a", id="nightly-0a1b"))
    assert run_command([*arguments, typed]) == 1
    output = capsys.readouterr()
    assert f"there is no run {typed}" in output.err
    assert "did you mean nightly-0a1b?" in output.err
    assert len(output.err.splitlines()) == 1


@pytest.mark.parametrize("is_owner", [False, True], ids=["with a key", "as the owner of the stack"])
def test_resume_of_nothing_says_that_there_is_no_such_run(world, monkeypatch, tmp_path, capsys, is_owner):
    if is_owner:
        monkeypatch.delenv("SCHEDULEMESH_ADDRESS")
        opened = opened_by(world)
        monkeypatch.setattr(stopping, "running_stores", lambda _: opened)
        (tmp_path / "client.json").write_text(json.dumps({"address": "http://root.test", "api_key": "k"}))
        monkeypatch.setenv("SCHEDULEMESH_STATE", str(tmp_path))
    assert run_command(["resume", "nosuch"]) == 1
    assert capsys.readouterr().err == "error: there is no run nosuch, and no tenant of this name; `schedulemesh runs` lists the runs\n"
    assert run_command(["resume", "acme/nosuch"]) == 1
    assert "there is no tenant 'acme/nosuch'" in capsys.readouterr().err


@pytest.fixture
def applied(world, tmp_path, monkeypatch, capsys):
    """Return a function that applies the changed quickstart file and gives exit code and output."""
    opened = opened_by(world)
    opened.schedules = world.schedules
    monkeypatch.setattr(applying, "running_stores", lambda _: opened)
    monkeypatch.setattr(applying, "RedisKeyRing", lambda *_: world.keys)
    text = Path("configs/quickstart.yaml").read_text(encoding="utf-8").replace('import_paths: [".."]', "")
    (tmp_path / "started.yaml").write_text(text, encoding="utf-8")
    started = read_config(tmp_path / "started.yaml")
    keep(StackFolder(tmp_path), started)
    world.store.configure(TenantTree(tenants_of(started)))
    world.tenant_policies.publish(tenant_policies_of(started))
    world.registry.publish_settings(stage_settings_of(started))

    def apply(old: str = "", new: str = "", *more: str) -> tuple[int, str]:
        assert old in text
        file = tmp_path / "x.yaml"
        file.write_text(text.replace(old, new, 1), encoding="utf-8")
        code = run_command(["apply", str(file), "--state-dir", str(tmp_path), *more])
        return code, "".join(capsys.readouterr())

    return apply


def test_apply_changes_weights_and_limits_without_a_restart(world, applied):
    assert applied()[0] == 0
    filed = world.tenant_policies.in_force().filed
    assert set(filed.settings) == set(world.store.snapshot().tree.tenants)


def recorded(world):
    return [(entry.change.operation, entry.change.target, entry.change.outcome.value) for entry in world.changes.newest("*", None, 10)]


def test_apply_leaves_a_change_with_its_differences(world, applied):
    applied("      ops:", "      ops2:", "--dry-run")
    assert recorded(world) == []
    assert applied("      ops:", "      ops2:")[0] == 0
    assert recorded(world) == [("schedulemesh apply", "x.yaml", "allowed")]
    (entry,) = world.changes.newest("*", None, 1)
    assert "removed tenants: acme/ops" in entry.change.details["changed"]
    assert entry.change.key == "terminal"
    assert entry.change.source


def test_apply_of_the_same_file_shows_no_difference(applied):
    assert len(applied()[1].splitlines()) == 1


def test_apply_of_another_federations_file_needs_an_option(world, applied):
    before = world.store.snapshot().tree
    code, output = applied("name: quickstart", "name: other")
    assert code == 1
    assert "write `name: quickstart` into the file" in output
    assert world.store.snapshot().tree == before


def test_apply_refuses_a_second_tenant_on_an_unisolated_mesh(world, applied):
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    far = MeshRecord(mesh="far", labels={}, pools=(pool,), cluster="c")
    world.store.join(far)
    before = world.store.snapshot().tree
    code, output = applied("tenants:\n", "tenants:\n  beta: {}\n")
    assert code == 1
    assert "mesh far would run work of acme, beta on one Ray cluster, which isolates no tenants" in " ".join(output.split())
    assert world.store.snapshot().tree == before
    world.store.join(replace(far, tenants=("acme",)))
    assert applied("tenants:\n", "tenants:\n  beta: {}\n")[0] == 0


def test_apply_lists_added_and_removed_tenants(applied):
    code, output = applied("      ops:", "      ops2:")
    assert code == 0
    assert "new tenants: acme/ops2\nremoved tenants: acme/ops\n" in output


def test_apply_revokes_the_keys_of_removed_tenants_for_good(world, applied):
    kept, gone, mine = (world.http(tenant) for tenant in ("acme", "acme/ops", "acme/research"))
    key = gone.headers["authorization"].split("_")[1]
    assert f"would revoke API keys of removed tenants: {key}" in applied("      ops:", "      ops2:", "--dry-run")[1]
    assert json.loads(applied("      ops:", "      ops2:", "--dry-run", "--json")[1])["revoked_keys"] == [key]
    assert gone.get("/v1/whoami").status_code == 200
    assert f"revoked API keys of removed tenants: {key}" in applied("      ops:", "      ops2:")[1]
    world.clock.advance(KEPT_MS)
    assert applied()[0] == 0, "the tenant is there again"
    assert [http.get("/v1/whoami").status_code for http in (kept, gone, mine)] == [200, 401, 200]


DEFAULT = {"address": "http://root.test", "api_key": "k"}


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["applied", "rehearsed"])
def test_apply_moves_the_client_default_from_a_removed_tenant(applied, tmp_path, more):
    folder = StackFolder(tmp_path)
    folder.write("client.json", {**DEFAULT, "tenant": "acme/research/vision"})
    assert "warning" not in applied("", "", *more)[1]
    output = applied("          vision:", "          vision2:", *more)[1]
    words = "warning: the default tenant acme/research/vision was removed; work without a tenant now goes to acme/research/"
    assert words in " ".join(output.split())
    published = folder.read("client.json")
    assert (published["address"], published["api_key"]) == ("http://root.test", "k")
    assert (published["tenant"] == "acme/research/vision") == bool(more)
    if not more:
        assert "warning" not in applied("          vision:", "          vision2:")[1], "it is put right"


def test_apply_reports_a_published_key_without_a_tenant(applied, tmp_path):
    StackFolder(tmp_path).write("client.json", {**DEFAULT, "tenant": "gone/lab"})
    output = json.loads(applied("", "", "--json")[1])
    assert output["default_tenant"] == {"before": "gone/lab", "after": None}
    assert "covers no remaining tenant. `schedulemesh keys create TENANT` makes one" in " ".join(applied()[1].split())
    assert StackFolder(tmp_path).read("client.json")["tenant"] == "gone/lab"


VISION = "vision: {quotas: {standard: {cpu: {nominal: 1}}}}"
LESS_FOR_VISION = "vision: {weight: 3, quotas: {standard: {cpu: {nominal: 0.5, borrowing_limit: 1}}}}"


def test_apply_shows_each_changed_limit_with_both_values(applied):
    output = applied(VISION, LESS_FOR_VISION)[1]
    assert "acme/research/vision: standard.cpu.nominal: 1 → 0.5\n" in output
    assert "acme/research/vision: standard.cpu.borrowing_limit: no limit → 1\n" in output
    assert "acme/research/vision: weight: 1 → 3\n" in output
    assert "nlp" not in output
    assert len(applied(VISION, LESS_FOR_VISION)[1].splitlines()) == 1, "what is in force already changes nothing"


def test_apply_names_settings_as_in_the_file(applied):
    asked = "vision: {scheduling: {within_tenant: never, strict_order: true, min_run: 90s}, limits: {max_wait: 20s}, quotas"
    output = applied("vision: {quotas", asked, "--dry-run")[1].splitlines()
    assert output[2:] == [
        "  acme/research/vision: scheduling.within_tenant: lower_priority → never",
        "  acme/research/vision: scheduling.strict_order: false → true",
        "  acme/research/vision: scheduling.min_run: not set → 90s",
        "  acme/research/vision: limits.max_wait: not set → 20s",
    ]


EAST = "  east:\n"
EAST_SETTINGS = """  east:
    weights: {availability: 0.25}
    preemption: {threshold: 0.5, per_minute_max: 3}
    queues: {acme/research: {priority: 5}, "*": {aging_per_s: 0.01}}
"""


def test_apply_shows_changed_settings_of_meshes_and_notifies(world, applied):
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    world.store.join(MeshRecord(mesh="east", labels={}, pools=(pool,), cluster="c"))
    cursor, _ = world.store.notifications("east", "", 0)
    assert applied(EAST, EAST_SETTINGS, "--dry-run")[0] == 0
    assert world.store.notifications("east", cursor, 0)[1] == ()
    code, output = applied(EAST, EAST_SETTINGS)
    assert (code, output.splitlines()[1:]) == (
        0,
        [
            "changed settings of meshes, which a running mesh follows within seconds:",
            "  mesh east: weights.availability: 0.1 → 0.25",
            "  mesh east: preemption.threshold: not set → 0.5",
            "  mesh east: preemption.per_minute_max: not set → 3",
            "  mesh east: queues.*.priority: not set → 0",
            "  mesh east: queues.*.aging_per_s: not set → 0.01",
            "  mesh east: queues.acme/research.priority: not set → 5",
            "  mesh east: queues.acme/research.aging_per_s: not set → 0",
        ],
    )
    assert world.registry.settings_of("east").queues["*"].aging_per_s == 10_000
    assert world.store.notifications("east", cursor, 0)[1] == (Notification(kind=NotificationKind.SETTINGS, subject=""),)
    assert json.loads(applied(EAST, EAST_SETTINGS, "--json")[1])["meshes"] == []


def test_apply_notifies_a_mesh_that_leaves_the_file(world, applied):
    """It follows its own settings from then on, so it has to read them."""
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    for mesh in ("east", "west"):
        world.store.join(MeshRecord(mesh=mesh, labels={}, pools=(pool,), cluster="c"))
    cursors = {mesh: world.store.notifications(mesh, "", 0)[0] for mesh in ("east", "west")}
    filed = Path("configs/quickstart.yaml").read_text(encoding="utf-8")
    west = filed[filed.index("  west:\n") : filed.index("quota: {min_run")]
    assert applied(west, "\n")[0] == 0
    assert world.registry.settings_of("west") is None
    sent = {mesh: world.store.notifications(mesh, cursor, 0)[1] for mesh, cursor in cursors.items()}
    assert sent == {"east": (), "west": (Notification(kind=NotificationKind.SETTINGS, subject=""),)}


def test_apply_protects_a_pool(world, applied):
    protected = "capacity: {cpu: 2, memory: 1GiB}", "protected: true, capacity: {cpu: 2, memory: 1GiB}"
    found = json.loads(applied(*protected, "--json")[1])
    assert found["meshes"] == [{"mesh": "east", "what": "pools.general.protected", "before": "false", "after": "true"}]
    assert found["not_applied"] == []
    assert world.registry.settings_of("east").preemption.protected_pools == ("general",)


def test_apply_shows_a_new_flavor_order_once(applied):
    output = applied("flavors:", "flavors:\n  spot: {labels: {}}\n", "--dry-run")[1]
    assert output.splitlines()[1:3] == ["changed settings:", "  the federation: flavors: standard → spot, standard"]
    assert "acme/ops2: " not in applied("      ops:", "      ops2:", "--dry-run")[1].partition("settings")[2]


def test_apply_shows_a_tenants_own_flavor_order(applied):
    filed = Path("configs/quickstart.yaml").read_text(encoding="utf-8").replace('import_paths: [".."]', "")
    two = filed.replace("flavors:", "flavors:\n  spot: {labels: {}}\n", 1)
    applied(filed, two)
    own = two.replace("vision: {quotas", "vision: {scheduling: {flavor_order: [standard]}, quotas", 1)
    line = "  acme/research/vision: scheduling.flavor_order: "
    assert applied(filed, own)[1].splitlines()[2:3] == [f"{line}not set → standard, spot"]
    assert applied(filed, two)[1].splitlines()[2:3] == [f"{line}standard, spot → not set"]


def test_dry_run_of_apply_shows_the_same_and_changes_nothing(world, applied):
    before, filed = world.store.snapshot().tree, world.tenant_policies.in_force().filed
    code, output = applied(VISION, LESS_FOR_VISION, "--dry-run", "--json")
    found = json.loads(output)
    assert (code, found["applied"]) == (0, False)
    assert {"tenant": "acme/research/vision", "what": "standard.cpu.nominal", "before": "1", "after": "0.5"} in found["limits"]
    assert (world.store.snapshot().tree, world.tenant_policies.in_force().filed) == (before, filed)


def test_apply_lists_tenants_over_their_limits_after_a_cut(world, applied):
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    mesh = ManualMesh(world.store, MeshRecord(mesh="east", labels={}, pools=(pool,), cluster="c"))
    mesh.acquire("acme/ops", "standard", ResourceSet.of({"cpu": 1}))
    quota = "ops:\n        quotas: {standard: {cpu: {nominal: %s,"
    old, new = quota % "1", quota % "0, borrowing_limit: 0"
    over = "over their limits, and granted nothing more until they are within them:\n  acme/ops: standard.cpu; "
    assert f"{over}running work continues until it ends (`on_quota_reduction: keep`)\n" in applied(old, new, "--dry-run")[1]
    evicting = f"ops:\n        scheduling: {{on_quota_reduction: evict}}{new.removeprefix('ops:')}"
    assert f"{over}work is stopped until the limit holds (`on_quota_reduction: evict`)\n" in applied(old, evicting, "--dry-run")[1]
    (output,) = json.loads(applied(old, new, "--json")[1])["over_limits"]
    assert output == {"tenant": "acme/ops", "flavor": "standard", "resource": "cpu", "on_quota_reduction": "keep"}


def test_up_refuses_the_file_of_another_federation(tmp_path, capsys):
    text = Path("configs/quickstart.yaml").read_text(encoding="utf-8").replace('import_paths: [".."]', "")
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    keep(StackFolder(tmp_path), read_config(tmp_path / "x.yaml"))
    (tmp_path / "x.yaml").write_text(text.replace("name: quickstart", "name: other", 1), encoding="utf-8")
    assert run_command(["up", str(tmp_path / "x.yaml"), "--state-dir", str(tmp_path)]) == 1
    output = capsys.readouterr().err
    assert "describes the federation other" in output
    assert "give another folder with --state-dir" in " ".join(output.split())
    assert not (tmp_path / "logs").exists()


def test_demo_without_its_default_file_says_to_name_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["demo"]) == 1
    output = " ".join(capsys.readouterr().err.split())
    assert "has no configs/quickstart.yaml" in output
    assert "give one as the command's argument" in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["up", "demo", "apply", "validate"])
def test_missing_named_file_is_reported_with_a_remedy(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    assert run_command([command, "configs/quickstart.yaml"]) == 1
    output = " ".join(capsys.readouterr().err.split())
    assert f"configs/quickstart.yaml: cannot be read: No such file or directory; give a file that can be read from {tmp_path}" in output
    assert "no federation file is given" not in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param("port: 8000", "port: 8001", ["root.port: 8000 → 8001"], id="a number of the root"),
        pytest.param(
            "capacity: {cpu: 2,", "capacity: {cpu: 1,", ["meshes.east.pools.general.capacity.cpu: 2 → 1"], id="a number of a pool"
        ),
        pytest.param(
            "capacity: {cpu: 2, memory: 1GiB}",
            "capacity: {cpu: 2, lamp: 3}",
            ["meshes.east.pools.general.capacity.lamp (new)", "meshes.east.pools.general.capacity.memory (removed)"],
            id="keys of an added and a removed pool",
        ),
        pytest.param("    node_labels: {zone: east}\n", "", ["meshes.east.node_labels.zone (removed)"], id="a removed key alone"),
        pytest.param("{zone: west, tier:", "{disk: ssd, zone: west, tier:", ["meshes.west.labels.disk (new)"], id="an added label"),
        pytest.param("heartbeat: 2s", "heartbeat: 500ms", ["federation.heartbeat: 2s → 500ms"], id="a time with its unit"),
        pytest.param("body_limit: 16MiB", "body_limit: 8MiB", ["federation.body_limit: 16MiB → 8MiB"], id="a size with its unit"),
        pytest.param("retention: 1d", "retention: 24h", [], id="the same, written otherwise"),
    ],
)
def test_apply_lists_sections_that_need_a_restart(applied, old, new, words):
    code, output = applied(old, new)
    assert code == 0
    line = "not applied, because these need `down` and `up`: "
    assert [row.removeprefix(line) for row in output.splitlines() if row.startswith(line)] == ([", ".join(words)] if words else [])


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["for people", "for programs"])
def test_apply_reports_a_changed_password_without_showing_it(applied, tmp_path, more):
    assert applied("redis: {url: null}", 'redis: {url: "redis://:hunter2@h:1/0"}')[0] == 0
    keep(StackFolder(tmp_path), read_config(tmp_path / "x.yaml"))
    code, output = applied("redis: {url: null}", 'redis: {url: "redis://:correct-horse@h:1/0"}', *more)
    assert code == 0
    assert "redis.url (changed)" in output
    kept = "".join(file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.json"))
    assert not [secret for secret in ("hunter2", "correct-horse") if secret in output + kept]


def test_apply_of_an_older_folder_says_that_a_part_changed(applied, tmp_path):
    noted = StackFolder(tmp_path).read("federation.json")
    StackFolder(tmp_path).write("federation.json", {key: noted[key] for key in ("name", "parts")})
    assert "root.port (changed)" in applied("port: 8000", "port: 8001")[1]


@pytest.mark.usefixtures("applied")
def test_texts_of_the_file_are_kept_as_digests(tmp_path):
    kept = StackFolder(tmp_path).read("federation.json")["leaves"].values()
    assert any(value.startswith("sha256:") for value in kept)
    assert not any(value.startswith('"') for value in kept)


def test_an_error_is_json_as_well_where_json_is_asked_for(world, capsys):
    assert run_command(["watch", "nothing", "--json"]) == 1
    output = capsys.readouterr()
    error = json.loads(output.out)["error"]
    assert error["code"] == "unknown_run"
    assert output.err.strip() == f"error: {error['message']}"


def test_problems_of_a_refused_graph_are_printed_as_json(world, tmp_path, capsys):
    spec = spec_of("a")
    spec["nodes"]["a"]["after"] = ["nowhere"]
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    assert run_command(["submit", str(file), "--json"]) == 1
    assert "nowhere" in json.loads(capsys.readouterr().out)["error"]["problems"][0]["problem"]


def test_a_priority_above_the_bound_is_refused_with_a_remedy(world, tmp_path, capsys):
    world.tenant_policies.publish(TenantPolicies(settings={RESEARCH: QueueSettings(priority_max=4)}))
    spec = spec_of("a", defaults={"priority": 5})
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    assert run_command(["submit", str(file)]) == 1
    printed = " ".join(capsys.readouterr().err.split())
    assert f"priority 5 is above 4, the highest priority of tenant {RESEARCH} (limits.priority_max); ask for 4 or less" in printed


def test_existing_run_is_reported_as_such(world, tmp_path, capsys):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", id="night")))
    for words in ("submitted night\n", "night already exists with this graph\n"):
        assert run_command(["submit", str(file), "--no-wait"]) == 0
        assert capsys.readouterr().out == words


def test_the_version_is_an_option_too(capsys):
    assert run_command(["--version"]) == 0
    asked = capsys.readouterr().out
    assert run_command(["version"]) == 0
    assert asked == capsys.readouterr().out


def test_environment_names_the_state_folder_of_every_command(world, tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(session, "Client", lambda access: asked.append(access) or Client(access, http=world.http(RESEARCH), patience_s=0))
    for variable in ("SCHEDULEMESH_ADDRESS", "SCHEDULEMESH_API_KEY"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("SCHEDULEMESH_STATE", str(tmp_path))
    assert run_command(["runs"]) == 1
    assert f"nothing runs with the state folder {tmp_path}" in capsys.readouterr().err
    StackFolder(tmp_path).write("client.json", {"address": "http://root.test", "api_key": "k", "tenant": "acme"})
    assert run_command(["runs"]) == 0
    assert [(access.address, access.tenant) for access in asked] == [("http://root.test", "acme")]


@pytest.mark.parametrize("command", ["tenants", "meshes", "runs", "queue", "leases", "history", "watch RUN", "explain RUN", "cancel RUN"])
def test_an_option_names_the_state_folder_of_a_question(tmp_path, capsys, command):
    assert run_command([*command.split(), "--state-dir", str(tmp_path / "none")]) == 1
    reported = capsys.readouterr().err
    assert f"nothing runs with the state folder {tmp_path / 'none'}, which --state-dir names" in reported
    assert "--state-dir or SCHEDULEMESH_STATE names another folder" in reported


@pytest.mark.parametrize("command", ["tenants", "up", "down", "audit"])
def test_a_state_is_no_folder(command, capsys):
    assert run_command([command, "--state", "x"]) == 2
    assert "--state-dir" in capsys.readouterr().err


@pytest.fixture
def half_there(monkeypatch) -> GatewayWorld:
    """The file names three meshes: one is present, one has left in order, one never joined."""
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "k")
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    filed = {name: MeshRecord(mesh=name, labels={"zone": name}, pools=(pool,), cluster="") for name in ("east", "gamma", "lab")}
    world = GatewayWorld(configured_meshes=ConfiguredMeshes(flavors={"standard": {}}, meshes=filed))
    sessions = {name: world.store.join(replace(filed[name], cluster="c")) for name in ("east", "gamma")}
    _, note = observe(world.store.snapshot(), world.registry.conditions(), {}, FlapRules())
    world.registry.note(note, 0)
    world.store.leave(sessions["gamma"])
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=world.http("*"), patience_s=0))
    monkeypatch.setattr(draining, "running_stores", lambda _: opened_by(world))
    monkeypatch.setattr(draining, "configured_meshes_of_stack", lambda _: world.configured_meshes)
    return world


def test_absent_meshes_are_shown_as_absent(half_there, capsys):
    assert run_command(["meshes"]) == 0
    output = capsys.readouterr().out
    assert "not joined yet: lab (add them with `schedulemesh join`)" in output
    assert "left in good order: gamma (add them again with `schedulemesh join`)" in output
    assert "east  " in output


@pytest.mark.parametrize("way", ["the address", "the state folder"])
def test_drain_of_an_absent_mesh_is_reported_and_listed(half_there, monkeypatch, capsys, way):
    if way == "the state folder":
        monkeypatch.delenv("SCHEDULEMESH_ADDRESS")
    assert run_command(["drain", "mesh", "gamma", "--reason", "new disks"]) == 0
    output = capsys.readouterr().out
    assert "gamma has not joined; after it joins it gets no work until `schedulemesh undrain gamma`" in output
    assert "left in good order: gamma [drained: new disks]" in output
    assert run_command(["drain", "mesh", "lab"]) == 0, "the file names it"
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    capsys.readouterr()
    assert run_command(["meshes"]) == 0
    output = capsys.readouterr().out
    assert "left in good order: gamma [drained: new disks]" in output
    assert "not joined yet: lab [drained]" in output


def test_mesh_that_differs_from_the_file_is_reported(half_there, capsys):
    half_there.store.join(replace(half_there.configured_meshes.meshes["lab"], labels={"zone": "moon"}))
    assert run_command(["meshes"]) == 0
    assert "warning: lab: its labels are zone=moon; the root's file says zone=lab" in capsys.readouterr().out


def test_refused_key_is_reported_with_its_origin(world, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=world.http(None), patience_s=0))
    assert run_command(["runs"]) == 1
    assert "(the key is that of SCHEDULEMESH_API_KEY)" in " ".join(capsys.readouterr().err.split())


class StartThatFailsOnCtrlC:
    """Stack of which a part fails once the signal arrives."""

    address = "http://root.test"
    stopped_at: ClassVar[list[str]] = []

    def __init__(self, *_args, is_wanted, **_named) -> None:
        self.is_wanted = is_wanted
        self.steps: list[str] = []

    def start(self) -> None:
        assert self.is_wanted()
        signal.raise_signal(signal.SIGINT)
        self.steps.append("the step is done, and noted")
        assert not self.is_wanted()
        raise OSError("the connection is gone")

    def check_wanted(self) -> None:
        if not self.is_wanted():
            raise KeyboardInterrupt

    def stop(self) -> None:
        self.stopped_at.extend(self.steps)


class StartThatIsDoneBefore(StartThatFailsOnCtrlC):
    """Stack whose last step ends before the check for the signal."""

    def start(self) -> None:
        with contextlib.suppress(OSError):
            super().start()


class UpUntilASignal(StartThatFailsOnCtrlC):
    """Stack that comes up, and gets a signal at its first check."""

    number: ClassVar[signal.Signals] = signal.SIGINT

    def start(self) -> None:
        self.steps.append("up")

    def watch(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("command", [["up", "--foreground"], ["demo", "--keep"]], ids=" ".join)
def test_a_stack_in_the_foreground_exits_by_its_signal(monkeypatch, capsys, tmp_path, number, code, command):
    monkeypatch.setattr(UpUntilASignal, "stopped_at", [])
    monkeypatch.setattr(UpUntilASignal, "number", number)
    monkeypatch.setattr(UpUntilASignal, "api_key", "k", raising=False)
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(lifecycle, "Stack", UpUntilASignal)
    monkeypatch.setattr(lifecycle, "configure_logging", lambda _: None)  # It would write to a closed stream after this test.
    monkeypatch.setattr(lifecycle, "show_demo", lambda *_: None)
    monkeypatch.setattr(lifecycle, "WATCH_S", 0)
    monkeypatch.setenv("SCHEDULEMESH_STATE", str(tmp_path / "state"))
    try:
        assert run_command([command[0], "configs/quickstart.yaml", *command[1:]]) == code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert UpUntilASignal.stopped_at == ["up"]
    assert "all processes have stopped" in capsys.readouterr().out


@pytest.mark.parametrize("stack", [StartThatFailsOnCtrlC, StartThatIsDoneBefore], ids=["reported as another error", "too late for a step"])
def test_ctrl_c_during_start_ends_it_between_two_steps(monkeypatch, capsys, tmp_path, stack):
    monkeypatch.setattr(stack, "stopped_at", [])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(lifecycle, "Stack", stack)
    monkeypatch.setattr(lifecycle, "configure_logging", lambda _: None)  # It would write to a closed stream after this test.
    try:
        assert run_command(["up", "configs/quickstart.yaml", "--state-dir", str(tmp_path / "state"), "--foreground"]) == 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    output = capsys.readouterr().out
    assert "all processes have stopped" in output
    assert "Ctrl-C stops everything" not in output, "it is not up"
    assert stack.stopped_at == ["the step is done, and noted"]


@pytest.mark.parametrize(
    ("module", "policy", "code", "words"),
    [
        pytest.param('(func (export "prio"))', "hybrid", 1, "plugins.packed: plugin packed: {} exports none of score", id="no hook"),
        pytest.param("(", "hybrid", 1, "plugins.packed: plugin packed: {} is not a valid module", id="no module"),
        pytest.param(PRIORITY, "packed", 1, "pools.general.policy: plugin packed has no score()", id="no score"),
        pytest.param(PRIORITY, "hybrid", 0, "plugins: priority() of plugin packed is not called", id="an unused hook"),
    ],
)
def test_s13_validate_loads_webassembly_plugins(tmp_path, capsys, module, policy, code, words):
    plugin, file = tmp_path / "packed.wat", tmp_path / "plugins.yaml"
    plugin.write_text(f"(module {module})")
    file.write_text(WITH_PLUGIN.format(policy=policy))
    assert run_command(["validate", str(file)]) == code
    said = capsys.readouterr()
    assert f"meshes.east.{words.format(plugin)}" in said.err + said.out
