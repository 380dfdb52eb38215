"""Units of systemd, judged by systemd where it is installed."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from deployed_federation import written

from serve_apps.cli.app import run_command
from serve_apps.configuration.config_file import read_config
from serve_apps.deployment.systemd import ROOT_UNIT, units

MESH_UNIT = "schedulemesh-mesh-lab.service"
PROGRAM = Path("/usr/bin/env")


def parsed(text: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=True, interpolation=None, delimiters=("=",))
    unit.optionxform = str  # Names keep their case.
    unit.read_string(text)
    return unit


def command_in(text: str) -> list[str]:
    return shlex.split(parsed(text)["Service"]["ExecStart"])


@pytest.fixture
def made(tmp_path):
    """Return a function that gives the units of a changed file."""

    def make(*changes: tuple[str, str], **options) -> dict[str, str]:
        file = written(tmp_path, changes=changes)
        return units(read_config(file), file, program=PROGRAM, **options)

    return make


def test_root_and_each_mesh_that_joins_have_a_unit(made, tmp_path):
    found = made()
    assert set(found) == {ROOT_UNIT, MESH_UNIT}
    assert command_in(found[ROOT_UNIT])[1:3] == ["up", str(tmp_path / "federation.yaml")]
    assert set(made(("link: joins", "link: http"))) == {ROOT_UNIT}


@pytest.mark.parametrize("unit", [ROOT_UNIT, MESH_UNIT])
def test_command_of_a_unit_can_be_given(made, unit):
    from click import Context
    from typer.main import get_command

    from serve_apps.cli.app import app

    name, *words = command_in(made()[unit])[1:]
    command = get_command(app).commands[name]
    assert command.parse_args(Context(command), words) == []


def test_mesh_joins_its_cluster_at_the_root(made):
    words = command_in(made()[MESH_UNIT])
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert (options["--root"], options["--ray"], options["--mesh"]) == ("http://127.0.0.1:8123", "10.0.0.7:6379", "lab")
    words = command_in(made(root="https://root.example", ray="127.0.0.1:6380")[MESH_UNIT])
    assert (words[words.index("--root") + 1], words[words.index("--ray") + 1]) == ("https://root.example", "127.0.0.1:6380")


def test_up_that_starts_processes_of_other_users_runs_as_root(made):
    service = parsed(made()[ROOT_UNIT])["Service"]
    assert (service["User"], service["NoNewPrivileges"]) == ("schedulemesh", "yes")
    with_users = parsed(made(('lab: {address: "10.0.0.7:6379"}', "lab: {nodes: [{cpu: 2}], user: nobody}"))[ROOT_UNIT])["Service"]
    assert {"User", "NoNewPrivileges"} & set(with_users) == set()


def test_no_unit_holds_a_secret(made):
    found = made(("storage:", 'redis: {url: "redis://user:hunter2@host:6379/0"}\nstorage:'))
    assert "hunter2" not in "".join(found.values())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path):
    folder = tmp_path / "a folder with 100% odd $names"
    folder.mkdir()
    out = tmp_path / "units"
    assert run_command(["serve-config", str(written(folder)), "--systemd", "--out", str(out)]) == 0
    files = sorted(map(str, out.iterdir()))
    assert len(files) == 2
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False)
    about_units = [line for line in checked.stderr.splitlines() if "schedulemesh-" in line]
    assert (checked.returncode, about_units) == (0, [])
