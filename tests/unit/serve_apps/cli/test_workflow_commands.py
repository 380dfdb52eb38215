"""Commands on recorded workflows, and pictures of graphs and runs."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dag.run.states import RunState
from dag.spec.plans import plans_of
from dag.spec.spec import load
from dag.store.remote import Client, Run
from dag.workflows.trace_graph import check_of
from mesh.core.ids import NodeId
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld, spec_of

TASKS: list[dict[str, Any]] = [
    {"id": "cut", "name": "cut", "inputFiles": [], "outputFiles": ["x"], "children": ["map"]},
    {"id": "map", "name": "map", "inputFiles": ["x"], "outputFiles": [], "children": []},
]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> GatewayWorld:
    """The federation that every command of the test finds, as a client of research."""
    built = GatewayWorld()
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=built.http(RESEARCH), patience_s=0))
    monkeypatch.setattr(sys, "path", sys.path[:])
    return built


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    ran = [{"id": task["id"], "runtimeInSeconds": 3.0} for task in TASKS]
    specification = {"tasks": TASKS, "files": [{"id": "x", "sizeInBytes": 100}]}
    file = tmp_path / "recorded.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"workflow": {"specification": specification, "execution": {"tasks": ran}}}).encode()))
    return file


def work_of(world: GatewayWorld, run: str, node: str) -> dict[str, Any]:
    work: dict[str, Any] = plans_of(load(world.record(run).spec))[NodeId(node)].task.args[0]
    return work


def test_submit_of_a_workflow_runs_it_at_the_recorded_scale(world, recorded, capsys):
    assert run_command(["submit", str(recorded), "--id", "night", "--no-wait"]) == 0
    assert capsys.readouterr().out == "submitted night\n"
    assert set(world.record("night").nodes) == {"cut", "map", "_account_1"}
    assert (work_of(world, "night", "cut")["run_s"], work_of(world, "night", "cut")["writes"][0][1]) == (3.0, 100)


def test_an_uncompressed_workflow_is_recognized_by_its_content(world, recorded, tmp_path):
    plain = tmp_path / "recorded.json"
    plain.write_bytes(gzip.decompress(recorded.read_bytes()))
    assert run_command(["submit", str(plain), "--id", "night", "--no-wait"]) == 0
    assert "cut" in world.record("night").nodes


def test_ctrl_c_during_a_replay_cancels_the_run(world, recorded, capsys, monkeypatch):
    waits: list[float | None] = []

    def interrupted(self, timeout=None):
        waits.append(timeout)
        if timeout is None:
            raise KeyboardInterrupt
        return RunState.CANCELLED

    monkeypatch.setattr(Run, "wait", interrupted)
    scales = ("--time-scale", "0.5", "--bytes-scale", "0.1")
    assert run_command(["replay", str(recorded), *scales, "--id", "night", "--json"]) == 130
    assert "night is being cancelled" in capsys.readouterr().err
    assert [entry.kind for entry in world.store.inbox(0)] == ["submitted", "cancel"]
    assert (work_of(world, "night", "cut")["run_s"], work_of(world, "night", "cut")["writes"][0][1]) == (1.5, 10)


def test_a_replay_that_failed_names_its_failures(world, recorded, capsys, monkeypatch):
    def fails(self, timeout=None):
        world.fail("night", "cut", ValueError("bad"), skipped=("map", "_account_1"))
        return RunState.FAILED

    monkeypatch.setattr(Run, "wait", fails)
    assert run_command(["replay", str(recorded), "--id", "night", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["state"] == "FAILED"
    assert any(mismatch.startswith("node cut: ") for mismatch in report["mismatches"])


@pytest.mark.parametrize(
    ("account", "code", "mismatches"),
    [
        pytest.param({}, 0, [], id="complete"),
        pytest.param({"files_read": 0}, 1, ["files_read: 0 instead of 1"], id="a file that nobody read"),
    ],
)
def test_a_replay_compares_what_ran_with_the_file(world, recorded, capsys, monkeypatch, account, code, mismatches):
    complete = {"tasks": 2, "files_read": 1, "bytes_read": 100, "files_made": 0, "bytes_made": 0, "files_written": 1, "bytes_written": 100}
    checks = sum(check_of(task["id"]) for task in TASKS) + 2 * (check_of("x") + 100)

    def succeeds(self, timeout=None):
        world.succeed("night", {"cut": None, "map": None, "_account_1": [[], {**complete, "checks": checks, **account}]})
        return RunState.SUCCEEDED

    monkeypatch.setattr(Run, "wait", succeeds)
    assert run_command(["replay", str(recorded), "--id", "night", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["mismatches"] == mismatches


@pytest.mark.parametrize("command", ["replay", "graph", "submit"])
def test_a_damaged_workflow_is_one_clear_line(world, tmp_path, capsys, command):
    file = tmp_path / "half.json.gz"
    file.write_bytes(b"\x1f\x8bhalf of a file")
    assert run_command([command, str(file)]) == 1
    assert "half.json.gz: the gzip file is damaged" in capsys.readouterr().err


def test_a_graph_file_is_drawn_without_a_federation(recorded, capsys):
    assert run_command(["graph", str(recorded), "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.splitlines() == ["flowchart LR", '    n0["cut"]', '    n1["map"]', "    n0 --> n1"]


def test_a_run_is_drawn_with_its_states(world, tmp_path, capsys):
    world.client().submit_spec(spec_of("a", "b", id="night"))
    assert run_command(["graph", "night"]) == 0
    assert "night: 2 nodes" in capsys.readouterr().out
    assert run_command(["timeline", "night", "--format", "svg", "-o", str(tmp_path / "t.svg")]) == 0
    assert (tmp_path / "t.svg").read_text().startswith("<svg")
