"""Cluster whose processes belong to another user: the reach of tenants' code, and its work."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import dag
from dag.store.client_access import Access
from dag.store.remote import Client
from mesh.ray.cluster.node_logs import RAY_FOLDER
from mesh.ray.cluster.run_as import RunAs
from serve_apps.standalone.stack_folder import StackFolder

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
USER = "nobody"
PYTHON_VARIABLE = "SCHEDULEMESH_TEST_PYTHON"
LIMIT_S = 400.0
CONFIG = """
federation: {{name: walls}}
root: {{cluster: control, port: 18400, gateways: 1}}
import_paths: ["{repository}"]
storage: {{url: "file://{values}"}}
clusters:
  control: {{nodes: [{{cpu: 1}}], object_store: 80MiB}}
  tenants: {{nodes: [{{cpu: 2}}], object_store: 80MiB, user: {user}}}
flavors: {{standard: {{}}}}
meshes:
  east: {{cluster: tenants, warm_runners: 0, pools: {{general: {{flavor: standard, capacity: {{cpu: 2}}}}}}}}
tenants:
  acme: {{quotas: {{standard: {{cpu: {{nominal: 2}}}}}}, pickled_code: true}}
"""


@dataclass(frozen=True)
class Place:
    """Stack that another process runs."""

    state: Path
    values: Path
    client: Client


def environment_of(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), site.getsitepackages()[0])), **more}


def python_for_everybody() -> str:
    """Return a Python of this release that the user can run with this package, or skip the test and say what each one lacks.

    Packages come from the environment of the tests. A system's Python before 3.11.3 lacks `async_timeout` there, which redis-py imports:
    Debian has it as `python3-async-timeout`.
    """
    lacks = []
    for python in filter(None, (os.environ.get(PYTHON_VARIABLE), sys.executable, shutil.which("python3", path=os.defpath))):
        look = [python, "-c", "import sys, redis, serve_apps.cli.app; print(sys.version_info[:2])"]  # Redis has needs by version.
        try:
            done = subprocess.run(
                look, cwd="/", env=environment_of(), capture_output=True, text=True, check=False, **RunAs.find(USER).process()
            )
        except OSError as refused:
            lacks.append(f"{python}: {refused}")
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return python
        lacks.append(f"{python}: {(done.stderr or done.stdout).strip().rpartition(chr(10))[2]}")
    described = f"no Python of this release that the user {USER} may run with this package; {PYTHON_VARIABLE} names one"
    pytest.skip(f"{described} ({'; '.join(lacks)})")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    if os.geteuid() != 0:
        pytest.skip("only root may start processes of another user")
    python = python_for_everybody()
    environment = environment_of(SCHEDULEMESH_API_KEY="secret")
    folder = Path(tempfile.mkdtemp(prefix="walls-"))  # Not below pytest's folder, which only its owner may enter.
    folder.chmod(0o755)
    state, values = folder / "state", folder / "values"
    (folder / "walls.yaml").write_text(CONFIG.format(repository=REPOSITORY, values=values, user=USER))
    cli = [python, "-m", "serve_apps.cli"]
    try:
        up = subprocess.run(
            [*cli, "up", str(folder / "walls.yaml"), "--state-dir", str(state)], env=environment, check=False, timeout=LIMIT_S
        )
        assert up.returncode == 0
        owned = StackFolder(state)
        facts = owned.read("client.json")
        folders = [Path(name) for name in owned.read("clusters.json")["folders"]]
        assert {one.stat().st_uid for one in folders} == {0}
        assert {(one / RAY_FOLDER).stat().st_uid for one in folders} == {0, pwd.getpwnam(USER).pw_uid}
        with Client(Access(address=facts["address"], api_key=facts["api_key"], tenant="acme")) as client:
            yield Place(state, values, client)
        subprocess.run([*cli, "down", "--state-dir", str(state)], env=environment, check=True, timeout=LIMIT_S)
        assert [one for one in (*folders, *(state / "tokens").iterdir()) if one.exists()] == []
    finally:
        subprocess.run([*cli, "down", "--state-dir", str(state)], env=environment, check=False, timeout=LIMIT_S)
        shutil.rmtree(folder)


def attack(files: list[str], pids: list[int], redis_port: int) -> dict[str, Any]:
    """Return the reach of a task: readable files, processes it can signal, answers of Redis, its user."""
    import os
    from pathlib import Path

    import redis

    read, signalled = [], []
    for file in files:
        try:
            Path(file).read_bytes()
            read.append(file)
        except OSError:
            pass
    for pid in pids:
        try:
            os.kill(pid, 0)
            signalled.append(pid)
        except OSError:
            pass
    try:
        answer = str(redis.Redis(port=redis_port).ping())
    except redis.RedisError as refused:
        answer = type(refused).__name__
    keys = sorted(name for name in os.environ if name.startswith("SCHEDULEMESH_API"))
    return {"uid": os.getuid(), "read": read, "signalled": signalled, "redis": answer, "keys": keys}


def large(count: int) -> bytes:
    return bytes(count)


def length(value: bytes) -> int:
    return len(value)


def run_in(place: Place, node: Any) -> Any:
    return place.client.submit(node, by_value=(sys.modules[__name__],)).result(LIMIT_S)


def test_a_task_reaches_neither_keys_nor_processes(place: Place) -> None:
    files = [str(file) for file in place.state.rglob("*") if file.is_file()]
    for needed in ("client.json", "receipts.json", "settings/root.json", "settings/mesh-east.json", "tokens/control", "tokens/tenants"):
        assert str(place.state / needed) in files
    pids = [process.pid for process in psutil.process_iter(["cmdline"]) if str(place.state) in " ".join(process.info["cmdline"] or ())]
    files += [f"/proc/{pid}/environ" for pid in pids]
    port = int(re.findall(r"^port (\d+)$", (place.state / "redis" / "redis.conf").read_text(), re.MULTILINE)[0])
    reached = run_in(place, dag.task(attack).bind(files, pids, port))
    assert reached == {"uid": pwd.getpwnam(USER).pw_uid, "read": [], "signalled": [], "redis": "AuthenticationError", "keys": []}


def test_large_values_go_through_files_of_both(place: Place) -> None:
    value = dag.task(large).bind(300_000)
    assert run_in(place, dag.task(length).bind(value)) == 300_000
    assert run_in(place, value) == bytes(300_000)
    written = [file for file in place.values.rglob("*") if file.is_file()]
    assert written
    assert {file.stat().st_mode & 0o007 for file in (place.values, *written)} == {0}
