"""`schedulemesh up` as a process of its own: SIGTERM during a start, and warnings said once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).parents[2]
MARK = "SCHEDULEMESH_TEST_MARK"
#: Reserved ports of all starts on the machine: it stays.
PORTS = "schedulemesh-ports-"
#: Limit for a start or a stop on a busy machine.
LIMIT_S = 120.0
FOREGROUND = pytest.param(("--foreground",), marks=[pytest.mark.faults, pytest.mark.slow])
#: Its root is on the cluster of its tenants, which is worth a warning and no more.
CONFIG = """
federation: {{name: begun, lease_ttl: 8s, heartbeat: 2s}}
root: {{cluster: here, port: {port}}}
clusters: {{here: {origin}}}
flavors: {{standard: {{}}}}
meshes: {{east: {{cluster: here, pools: {{all: {{flavor: standard, capacity: {{cpu: 1}}}}}}}}}}
tenants: {{lab: {{quotas: {{standard: {{cpu: {{nominal: 1}}}}}}}}}}
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a folder for temporary files, short enough for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="up"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def environment(temporary: Path) -> Iterator[Mapping[str, str]]:
    """Return the environment that marks the test's processes; none outlives the test."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary), MARK: uuid.uuid4().hex}
    environment.pop("SCHEDULEMESH_STATE", None)
    yield environment
    for process in marked(environment[MARK]):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def marked(mark: str) -> list[psutil.Process]:
    """Return all processes with this mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def up(tmp_path: Path, environment: Mapping[str, str], origin: str, *options: str) -> subprocess.Popen[str]:
    """Start `schedulemesh up`, with its output in a pipe."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "begun.yaml"
    file.write_text(CONFIG.format(port=port, origin=origin))
    command = [sys.executable, "-u", "-m", "serve_apps.cli", "up", str(file), "--state-dir", str(tmp_path / "state"), *options]
    return subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path)


@pytest.mark.parametrize("options", [(), FOREGROUND], ids=["which goes to the background", "in the foreground"])
def test_sigterm_ends_a_start_whole(tmp_path, temporary, environment, options):
    started = up(tmp_path, environment, "{nodes: [{cpu: 1}], object_store: 80MiB, shared: true}", *options)
    assert started.stdout is not None
    said = ""
    while "starting Ray" not in said:  # Ends with the process, if there is no such line.
        line = started.stdout.readline()
        assert line, said
        said += line
    started.send_signal(signal.SIGTERM)
    rest, _ = started.communicate(timeout=LIMIT_S)
    assert started.returncode == 130, said + rest
    assert marked(environment[MARK]) == []
    left = [path.name for path in temporary.iterdir() if not path.name.startswith(PORTS)]
    assert left == []
    assert not (tmp_path / "state" / "client.json").exists()
    assert not (tmp_path / "state" / "stack.json").exists()


@pytest.mark.parametrize("options", [(), FOREGROUND], ids=["in the background", "in the foreground"])
def test_a_warning_is_said_once_by_a_start(tmp_path, environment, options):
    nobody_there = "{address: '127.0.0.1:1', shared: true}"
    said, _ = up(tmp_path, environment, nobody_there, *options).communicate(timeout=LIMIT_S)
    assert said.count("warning: ") == 1, said
    assert said.count("it is shared by the root and its tenants") == 1, said
    assert marked(environment[MARK]) == []
