"""The commands that ask the root, on a gateway in this process."""

import json
import sys
from types import SimpleNamespace

import pytest

from dag.states import NodeState, RunState
from dag.store.remote import Client, Run
from federation.snapshot import MeshRecord, PoolRecord
from mesh.resources import ResourceSet
from mesh.values import Encoding
from serve_apps.cli import checking, federation, runs, session
from serve_apps.cli.app import run_command
from serve_apps.testing import RESEARCH, World, spec_of

SOURCE = """
import dag

@dag.task
def greet(name):
    return f"hello {name}"

graph = greet.bind("world")
"""


@pytest.fixture
def world(monkeypatch) -> World:
    """The federation that every command of the test finds, as a client of research."""
    built = World()
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=built.http(RESEARCH), patience_s=0))
    monkeypatch.setattr(sys, "path", sys.path[:])
    return built


def test_submit_of_a_python_file_prints_the_id_and_no_more_when_asked_not_to_wait(world, tmp_path, capsys):
    file = tmp_path / "flow_for_the_command_line.py"
    file.write_text(SOURCE)
    assert run_command(["submit", f"{file}:graph", "--id", "night", "--no-wait"]) == 0
    assert capsys.readouterr().out == "submitted night\n"
    assert set(world.record("night").nodes) == {"greet"}


def test_submit_of_a_json_file_takes_what_the_command_line_says_instead(world, tmp_path, capsys):
    file = tmp_path / "spec.json"
    spec = spec_of("a", id="theirs", params={"day": "monday", "count": 1})
    spec["nodes"]["a"]["args"] = [{"$param": "day"}, {"$param": "count"}]
    file.write_text(json.dumps(spec))
    assert run_command(["submit", str(file), "--id", "mine", "--param", "count=2", "--param", "day=friday", "--no-wait", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "mine"
    assert json.loads(world.record("mine").spec)["params"] == {"day": "friday", "count": 2}


def test_submit_waits_and_prints_the_result(world, tmp_path, capsys, monkeypatch):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", id="night")))
    ask = runs.Session.view

    def finish_first(self, kind, path, params=None):
        if world.record("night").state is RunState.PENDING:
            world.succeed("night", {"a": {"accuracy": 0.97}})
        return ask(self, kind, path, params)

    monkeypatch.setattr(runs.Session, "view", finish_first)
    assert run_command(["submit", str(file)]) == 0
    told = capsys.readouterr().out
    assert "SUCCEEDED" in told
    assert '"accuracy": 0.97' in told


def test_ctrl_c_while_waiting_is_130_and_says_that_the_run_goes_on(world, tmp_path, capsys, monkeypatch):
    def interrupted(self, timeout=None):
        raise KeyboardInterrupt

    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_of("a", id="night")))
    monkeypatch.setattr(Run, "wait", interrupted)
    assert run_command(["submit", str(file), "--json"]) == 130
    told = capsys.readouterr()
    assert told.out == ""
    assert "night goes on" in told.err
    assert "schedulemesh cancel night" in told.err


def test_a_failed_run_is_exit_code_one_with_the_users_traceback(world, capsys):
    world.client().submit_spec(spec_of("a", "b", id="night"))
    world.fail("night", "a", ValueError("bad"), skipped=("b",))
    assert run_command(["watch", "night"]) == 1
    assert "Traceback: in a" in capsys.readouterr().out
    assert run_command(["result", "night", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failures"][0]["node"] == "a"


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
def operated(world, monkeypatch) -> World:
    """The same federation, with one mesh, for whoever has an operator's key or the state folder."""
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 2}))
    world.store.join(MeshRecord(mesh="east", labels={"zone": "east"}, pools=(pool,), cluster="c"))
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=world.http("*"), patience_s=0))
    monkeypatch.setattr(federation, "running_stores", lambda _: SimpleNamespace(ledger=world.store, registry=world.registry))
    return world


@pytest.mark.parametrize("way", ["the address", "the state folder"])
def test_a_mesh_is_drained_and_undrained_by_way_of(operated, monkeypatch, capsys, way):
    if way == "the state folder":
        monkeypatch.delenv("SCHEDULEMESH_ADDRESS")
    assert run_command(["drain", "east", "--reason", "new disks"]) == 0
    told = capsys.readouterr().out
    assert "east gets nothing new" in told
    assert "draining: new" in told
    assert operated.registry.standings().meshes["east"].drain.reason == "new disks"
    assert run_command(["undrain", "east", "--json"]) == 0
    (mesh,) = json.loads(capsys.readouterr().out)["meshes"]
    assert mesh["draining"] is False
    assert run_command(["drain", "eats"]) == 1
    assert "did you mean east?" in capsys.readouterr().err


def test_a_tenants_key_drains_nothing(world, capsys):
    assert run_command(["drain", "east"]) == 1
    assert "schedulemesh keys create '*'" in capsys.readouterr().err


def test_cancel_says_what_became_of_the_run(world, capsys):
    world.client().submit_spec(spec_of("a", id="night"))
    assert run_command(["cancel", "night", "--reason", "enough"]) == 0
    assert "is being stopped" in capsys.readouterr().out
    world.succeed("night", {"a": 1})
    assert run_command(["cancel", "night"]) == 0
    assert "had ended already: SUCCEEDED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["watch", "nobody"], "there is no run nobody"),
        (["submit", "gone.py:graph"], "there is no file gone.py"),
        (["submit", "gone.json"], "gone.json cannot be read"),
        (["runs", "--tenant", "rival"], "does not reach the tenant rival"),
    ],
    ids=["an unknown run", "a Python file that is not there", "a JSON file that is not there", "a tenant out of reach"],
)
def test_what_goes_wrong_is_one_line_and_exit_code_one(world, capsys, arguments, words):
    assert run_command(arguments) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert words in told.err
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["runs", "--limit", "0"], ["watch"], ["submit", "x.json", "--param", "day"]],
    ids=["an unknown command", "a number out of bounds", "a missing argument", "a parameter without a value"],
)
def test_a_wrong_command_line_is_exit_code_two(world, capsys, arguments):
    assert run_command(arguments) == 2
    assert capsys.readouterr().out == ""


def test_without_a_federation_every_way_to_one_is_told(tmp_path, monkeypatch, capsys):
    for variable in ("SCHEDULEMESH_ADDRESS", "SCHEDULEMESH_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_command(["runs"]) == 1
    assert "schedulemesh up" in capsys.readouterr().err


def test_validate_lists_every_problem_of_a_spec(tmp_path, capsys):
    spec = spec_of("a", "b")
    spec["nodes"]["a"]["after"] = ["nowhere"]
    spec["nodes"]["b"]["args"] = [{"$ref": "nobody"}]
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    assert run_command(["validate", str(file), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    file.write_text(json.dumps(spec_of("a")))
    assert run_command(["validate", str(file)]) == 0
    assert "ok, 1 nodes, 1 outputs" in capsys.readouterr().out


def test_validate_names_the_line_of_a_wrong_configuration(tmp_path, capsys):
    file = tmp_path / "broken.yaml"
    file.write_text("federation: {name: x}\nflavours: {}\n")
    assert run_command(["validate", str(file)]) == 1
    assert f"{file}:2" in capsys.readouterr().err


def test_version_is_the_packages(capsys):
    assert run_command(["version"]) == 0
    assert capsys.readouterr().out.strip() == checking.version_of("schedulemesh")
