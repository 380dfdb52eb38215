"""`doctor` finds faults that are real: each is made on this machine, and is found with its remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from deployed_federation import written
from faults.server import Server, clocks_can_be_shifted, free_port

from federation.store.redis.fixtures import running_redis
from mesh.core.clock import SystemClock
from mesh.ray.cluster.ports import promise_ports
from serve_apps.cli.app import run_command
from serve_apps.gateway_fixtures import ACME, EAST, GatewayWorld, with_mesh
from serve_apps.link_fixtures import serving
from serve_apps.requests.auth import issue

#: Longer than the session of a mesh.
LONG_MS = 3_600_000
Doctor = Callable[..., dict[str, str]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Return a function that runs `doctor` in an empty folder, and gives the row of a check."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SCHEDULEMESH_ADDRESS", "SCHEDULEMESH_API_KEY", "SCHEDULEMESH_STATE", "SCHEDULEMESH_REDIS_URL", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)

    def run(check: str, *arguments: str, **variables: str) -> dict[str, str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code = run_command(["doctor", *arguments, "--json"])
        printed = json.loads(capsys.readouterr().out)
        assert printed["ok"] == (code == 0)
        found: dict[str, str] = next(row for row in printed["checks"] if row["check"] == check)
        assert bool(found["remedy"]) == (found["state"] != "ok")
        return found

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[redis.Redis]:
    with running_redis() as client:
        yield client


@pytest.fixture
def client(server: redis.Redis) -> redis.Redis:
    for name, value in (("appendonly", "yes"), ("maxmemory-policy", "noeviction"), ("maxmemory", "0")):
        server.config_set(name, value)
    return server


def url_of(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def test_server_that_is_safe_is_no_fault(doctor, client):
    row = doctor("redis server", SCHEDULEMESH_REDIS_URL=url_of(client))
    assert (row["state"], "evicts nothing" in row["found"]) == ("ok", True)


@pytest.mark.parametrize(
    ("setting", "value", "state"),
    [("appendonly", "no", "fail"), ("maxmemory-policy", "allkeys-lru", "fail"), ("maxmemory", "1mb", "warn")],
)
def test_setting_of_redis_is_found(doctor, client, setting, value, state):
    client.config_set(setting, value)
    row = doctor("redis server", SCHEDULEMESH_REDIS_URL=url_of(client))
    assert (row["state"], setting.partition("-")[0] in row["found"]) == (state, True)


def test_server_that_is_away_is_found(doctor):
    row = doctor("redis server", SCHEDULEMESH_REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert row["state"] == "fail"


def test_wrong_password_of_redis_is_found(doctor, client):
    row = doctor("redis server", SCHEDULEMESH_REDIS_URL=url_of(client).replace("unix://", "unix://nobody:wrong@"))
    assert (row["state"], "wrong" in row["found"]) == ("fail", False)


@pytest.mark.skipif(not clocks_can_be_shifted(), reason="the library that shifts clocks is not installed")
def test_clock_of_redis_that_is_wrong_is_found(doctor, tmp_path):
    server = Server(tmp_path / "redis", has_own_clock=True)
    try:
        server.shift_clock(60_000)
        row = doctor("clock", SCHEDULEMESH_REDIS_URL=server.url)
    finally:
        server.close()
    assert (row["state"], row["found"]) == ("warn", "Redis ahead by 60 s")


def test_port_of_the_root_that_is_taken_is_found(doctor, tmp_path, client):
    with serving(GatewayWorld().app) as address:
        port = address.rpartition(":")[2]
        row = doctor("port", str(written(tmp_path, changes=(("8123", port),))))
    assert (row["state"], row["found"]) == ("warn", f"{port} is taken")
    assert doctor("port", str(written(tmp_path, changes=(("8123", str(promise_ports(1)[0])),))))["state"] == "ok"


def test_cluster_that_is_away_is_found(doctor, tmp_path):
    away, too = (f"127.0.0.1:{free_port()}" for _ in range(2))
    file = written(tmp_path, changes=(("127.0.0.1:6379", away), ("10.0.0.7:6379", too)))
    row = doctor("clusters", str(file))
    assert (row["state"], all(f"no answer from {address}" in row["found"] for address in (away, too))) == ("fail", True)


def test_file_of_a_token_that_others_may_read_is_found(doctor, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    row = doctor("secrets", RAY_AUTH_TOKEN_PATH=str(token))
    assert (row["state"], row["found"]) == ("fail", f"others may read {token}")
    token.chmod(0o600)
    assert doctor("secrets")["state"] == "ok"


def test_federation_file_with_a_password_is_found(doctor, tmp_path):
    file = written(tmp_path, changes=(("storage:", f'redis: {{url: "redis://user:hunter2@127.0.0.1:{free_port()}/0"}}\nstorage:'),))
    file.chmod(0o644)
    assert doctor("secrets", str(file))["found"] == f"others may read {file}"
    file.chmod(0o600)
    assert doctor("secrets", str(file))["state"] == "ok"


def test_state_folder_that_others_may_read_is_found(doctor, tmp_path):
    settings = tmp_path / ".schedulemesh" / "settings"
    settings.mkdir(parents=True)
    (settings / "mesh-east.json").write_text("{}")
    (settings / "mesh-east.json").chmod(0o644)
    (tmp_path / ".schedulemesh").chmod(0o755)
    assert doctor("secrets")["found"].endswith("settings/mesh-east.json")
    (tmp_path / ".schedulemesh").chmod(0o700)
    assert doctor("secrets")["state"] == "ok"


def test_key_that_is_wrong_or_expired_is_found(doctor):
    world, now_ms = GatewayWorld(), SystemClock().wall_ms()
    expired = issue(world.keys, ACME, 1, expires_ms=2)
    soon = issue(world.keys, ACME, 1, expires_ms=now_ms + 3_600_000)
    with serving(world.app) as address:
        wrong = doctor("root", SCHEDULEMESH_ADDRESS=address, SCHEDULEMESH_API_KEY="smk_wrong")
        assert wrong["state"] == "fail"
        assert "has expired" in doctor("root", SCHEDULEMESH_API_KEY=expired)["found"]
        row = doctor("key", SCHEDULEMESH_API_KEY=soon)
        assert (row["state"], row["found"]) == ("warn", "expires in 0.0 days")
        assert doctor("key", SCHEDULEMESH_API_KEY=issue(world.keys, ACME, 1))["state"] == "ok"


def test_mesh_that_does_not_report_is_found(doctor):
    world = GatewayWorld()
    with_mesh(world)
    key = issue(world.keys, ACME, 1)
    with serving(world.app) as address:
        assert doctor("meshes", SCHEDULEMESH_ADDRESS=address, SCHEDULEMESH_API_KEY=key)["state"] == "ok"
        world.clock.advance(LONG_MS)
        row = doctor("meshes")
    assert (row["state"], row["found"].startswith(EAST)) == ("warn", True)


def test_low_limit_of_open_files_is_found(tmp_path):
    command = f"ulimit -n 256; exec {sys.executable} -m serve_apps.cli doctor --json"
    ended = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    row = next(row for row in json.loads(ended.stdout)["checks"] if row["check"] == "open files")
    assert (row["state"], row["found"], ended.returncode) == ("fail", "limit 256", 1)
