"""First minutes with the wheel, in a fresh environment and an empty folder: nothing of the repository is in reach."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from source_tree import ROOT

from federation.store.redis.fixtures import running_redis

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(900)]

#: Limit of one step on a slow line; seconds.
STEP_S_MAX = 600
#: Small package that this project needs: if it cannot be had, none can.
SMALL = "tzdata"
#: Variables of the shell that would make a program find the repository or a running root.
LEFT_OUT = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")


@dataclass(frozen=True)
class Installed:
    """Environment in which only the wheel is installed."""

    folder: Path
    wheel: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def run(self, *command: str | Path, code: int = 0, **variables: str) -> str:
        """Run a program of the environment in an empty folder, and return its output."""
        inherited = {name: value for name, value in os.environ.items() if name not in LEFT_OUT and not name.startswith("SCHEDULEMESH_")}
        bare = self.folder / "bare"
        bare.mkdir(exist_ok=True)
        ended = subprocess.run(
            [self.python.parent / command[0], *command[1:]],
            cwd=bare,
            env={**inherited, "HOME": str(self.folder), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP_S_MAX,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout


def step(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(command), cwd=cwd, capture_output=True, text=True, check=False, timeout=STEP_S_MAX)


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """Build the wheel from a copy of the tracked files, and install it with the versions of `constraints.txt`."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        source = folder / "source"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        for file in filter(lambda each: (ROOT / each).is_file(), filter(None, tracked)):
            (source / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, source / file)
        built = step(
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "dist", source), cwd=folder
        )
        if built.returncode and "npm could not install" in built.stdout + built.stderr:
            pytest.skip("the packages of the page cannot be had: npm reaches no registry")
        assert built.returncode == 0, built.stdout + built.stderr
        (wheel,) = (folder / "dist").iterdir()
        here = Installed(folder, wheel)
        assert step(sys.executable, "-m", "venv", folder / "venv", cwd=folder).returncode == 0
        pip = (here.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
        if step(*pip, SMALL, cwd=folder).returncode:
            pytest.skip("pip reaches no package index")
        whole = step(*pip, wheel, cwd=folder)
        assert whole.returncode == 0, whole.stdout + whole.stderr
        yield here


def test_wheel_has_no_file_of_the_repository_only(installed):
    names = zipfile.ZipFile(installed.wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dag", "federation", "mesh", "serve_apps", "simulator"}
    assert [name for name in names if name.startswith("serve_apps/browser/built/") and name.endswith("index.html")]


def test_environment_has_what_the_wheel_needs(installed):
    installed.run("python", "-m", "pip", "check")


def test_help_names_every_command(installed):
    text = installed.run("schedulemesh", "--help", COLUMNS="120")
    for command in ("init", "up", "submit", "join", "doctor", "serve-config"):
        assert f" {command} " in text


def test_first_file_is_valid(installed):
    installed.run("schedulemesh", "init", "--force")
    assert "schedulemesh.yaml: ok" in installed.run("schedulemesh", "validate", "schedulemesh.yaml")
    assert json.loads(installed.run("schedulemesh", "version", "--json"))["version"]


def test_doctor_finds_the_page_and_a_redis_server(installed):
    installed.run("schedulemesh", "init", "--force")
    checks = {row["check"]: row["state"] for row in json.loads(_doctor(installed))["checks"]}
    assert {name: checks[name] for name in ("python", "ray", "redis", "page")} == dict.fromkeys(("python", "ray", "redis", "page"), "ok")


def _doctor(installed: Installed) -> str:
    """Return the rows of `doctor`, whatever this machine lacks."""
    program = "import sys; from serve_apps.cli.app import run_command; run_command(['doctor', '--json']); sys.exit(0)"
    return installed.run("python", "-c", program)


def test_ledger_is_made_by_the_scripts_of_the_wheel(installed):
    file = installed.folder / "bare" / "served.yaml"
    text = installed.run("schedulemesh", "init", "-").replace("storage: {url: null}", 'storage: {url: "s3://bucket/values"}')
    file.write_text(text)
    with running_redis() as redis:
        redis.config_set("appendonly", "yes")
        url = f"unix://{redis.connection_pool.connection_kwargs['path']}"
        said = installed.run("schedulemesh", "prepare", "served.yaml", "--state-dir", "state", SCHEDULEMESH_REDIS_URL=url)
        assert "ledger: 1 tenant, 1 flavor" in said
        assert installed.run("schedulemesh", "keys", "create", "default", "--state-dir", "state").startswith("sm")
    assert "import_path: serve_apps.root.serve_build:gateway" in installed.run("schedulemesh", "serve-config", "served.yaml")
