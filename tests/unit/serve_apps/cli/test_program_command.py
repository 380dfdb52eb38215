"""Command `run`: the folder that goes along, on a gateway in this process."""

from __future__ import annotations

import io
import sys
import zipfile

import pytest

from dag.spec.spec import load
from dag.store import working_dir
from dag.store.remote import Client
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld


@pytest.fixture
def world(monkeypatch, tmp_path) -> GatewayWorld:
    """The federation that the command finds; the current folder holds a script, and a file that git ignores."""
    built = GatewayWorld()
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=built.http(RESEARCH), patience_s=0))
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "secret.env").write_text("KEY=1")
    (tmp_path / ".gitignore").write_text("*.env\n")
    return built


def sent_files(world: GatewayWorld) -> set[str] | None:
    """Return the names of the files that went along with the run; None: no folder did."""
    (node,) = load(world.record("first").spec).nodes.values()
    if node.program.working_dir is None:
        return None
    sha256 = node.program.working_dir.sha256
    return set(zipfile.ZipFile(io.BytesIO(world.store.get("first", (sha256,))[sha256])).namelist())


def run(*options: str) -> int:
    return run_command(["run", "--detach", "--id", "first", *options, "--", "python", "train.py"])


def test_the_current_folder_goes_along_by_default(world, capsys):
    assert run() == 0
    output = capsys.readouterr()
    assert output.out == "first\n"
    assert output.err.startswith("the current folder is sent along (2 files, ")
    assert output.err.endswith("--no-working-dir sends none\n")
    assert sent_files(world) == {"train.py", ".gitignore"}


def test_a_home_folder_does_not_go_along_unasked(world, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run() == 1
    assert "which is more than a program: name its folder by --working-dir" in " ".join(capsys.readouterr().err.split())
    assert run("--working-dir", ".") == 0


def test_another_folder_is_sent_instead(world, tmp_path, capsys):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").touch()
    assert run("--working-dir", "job") == 0
    assert sent_files(world) == {"train.py"}
    assert capsys.readouterr().err == ""


def test_no_folder_is_sent_on_request(world, capsys):
    assert run("--no-working-dir") == 0
    assert sent_files(world) is None
    assert capsys.readouterr().err == ""
    assert run("--no-working-dir", "--working-dir", ".") == 2
    assert "give either --working-dir or --no-working-dir" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_json_output_has_no_note(world, capsys):
    assert run("--json") == 0
    assert capsys.readouterr().err == ""


def test_a_current_folder_that_is_too_large_is_refused(world, monkeypatch, capsys):
    monkeypatch.setattr(working_dir, "FILES_MAX", 1)
    assert run() == 1
    assert "or name another folder by --working-dir, or send none by --no-working-dir" in capsys.readouterr().err
