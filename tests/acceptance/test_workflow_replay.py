"""Recorded workflows on two real Ray clusters: shared out over both, with every task and file accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from federation_bed import CONFIG, TENANT

from dag.store.remote import Client
from serve_apps.cli.app import run_command
from serve_apps.schemas.runs import RunView

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

#: Tasks of the fan: enough to be worth both meshes, with two CPUs each.
WIDTH = 120


@pytest.fixture(scope="module")
def written() -> str:
    return CONFIG


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A workflow that cuts a file into many parts, maps each, and merges them."""
    parts = [f"map_ID{number:04}" for number in range(WIDTH)]
    tasks: list[dict[str, Any]] = [
        {"id": "cut_ID0000", "name": "cut", "inputFiles": ["in"], "outputFiles": [f"{part}.in" for part in parts], "children": parts},
        *(
            {"id": part, "name": "map", "inputFiles": [f"{part}.in"], "outputFiles": [f"{part}.out"], "children": ["merge_ID9999"]}
            for part in parts
        ),
        {"id": "merge_ID9999", "name": "merge", "inputFiles": [f"{part}.out" for part in parts], "outputFiles": ["out"], "children": []},
    ]
    files = ["in", "out", *(f"{part}.{end}" for part in parts for end in ("in", "out"))]
    ran = [{"id": task["id"], "runtimeInSeconds": 20.0 if task["name"] == "map" else 1.0} for task in tasks]
    specification = {"tasks": tasks, "files": [{"id": file, "sizeInBytes": 10_000} for file in files]}
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps({"name": "recorded", "workflow": {"specification": specification, "execution": {"tasks": ran}}}))
    return file


def test_a_replay_runs_on_both_meshes_and_accounts_for_all(
    client: Client, folder: Path, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--time-scale", "0.001", "--bytes-scale", "0.1", "--tenant", TENANT, "--id", "recorded", "--state-dir", str(folder))
    assert run_command(["replay", str(recorded), *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["got"] == report["expected"]
    assert (report["got"]["tasks"], report["got"]["files_read"]) == (WIDTH + 2, 2 * WIDTH)
    view = RunView.model_validate(client.ask("/v1/runs/recorded"))
    assert {share.mesh for share in view.meshes if share.counts} == {"east", "west"}
    assert any(stage.why_here.startswith("EARLIEST_FINISH") for stage in view.stages)
    _draws_the_run(folder, tmp_path, capsys)


def _draws_the_run(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["graph", "recorded", "--format", "svg", "-o", str(tmp_path / "g.svg"), "--state-dir", str(folder)]) == 0
    assert "map (SUCCEEDED)" in (tmp_path / "g.svg").read_text()
    capsys.readouterr()
    assert run_command(["timeline", "recorded", "--state-dir", str(folder)]) == 0
    assert {line.partition("│")[0].strip() for line in capsys.readouterr().out.splitlines()[1:]} >= {"east", "west"}
