"""`prepare` on a real Redis: a ledger, and a folder with which operators' commands work."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis
from deployed_federation import written

from federation.store.redis.fixtures import running_redis
from serve_apps.cli.app import run_command
from serve_apps.configuration.root_arguments import RootArguments
from serve_apps.standalone.stack_folder import StackFolder


@pytest.fixture(scope="module")
def server() -> Iterator[redis.Redis]:
    with running_redis() as client:
        client.config_set("appendonly", "yes")
        yield client


@pytest.fixture
def client(server: redis.Redis) -> redis.Redis:
    server.flushall()
    server.config_set("appendonly", "yes")
    server.config_set("maxmemory-policy", "noeviction")
    return server


@pytest.fixture
def run(client, tmp_path, monkeypatch, capsys):
    """Return a function that runs a command on the prepared folder and gives its exit code and output."""
    monkeypatch.setenv("SCHEDULEMESH_REDIS_URL", f"unix://{client.connection_pool.connection_kwargs['path']}")
    monkeypatch.setenv("SCHEDULEMESH_STATE", str(tmp_path / "state"))

    def run(*words: str) -> tuple[int, str]:
        code = run_command([*words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_prepared_folder_serves_operators_commands(run, tmp_path):
    file = written(tmp_path)
    code, said = run("keys", "create", "acme")
    assert (code, "no stack runs" in said) == (1, True)
    assert run("prepare", str(file))[0] == 0
    code, said = run("keys", "create", "acme", "--role", "admin", "--json")
    assert (code, set(json.loads(said))) == (0, {"id", "key"})
    assert run("keys", "create", "--mesh", "lab")[0] == 0
    file = written(tmp_path, changes=(("cpu: {nominal: 2}", "cpu: {nominal: 1}"), ("gateways: 2", "gateways: 3")))
    code, said = run("apply", str(file))
    assert (code, "2 → 1" in said) == (0, True)
    assert "these need `prepare`, `serve-config` and `serve deploy`: root.gateways" in said


def test_preparing_again_keeps_ledger_and_receipt_keys(run, tmp_path):
    secrets = RootArguments(federation_file={}, secrets_dir=str(tmp_path / "state" / "secrets"))
    assert run("prepare", str(written(tmp_path)))[0] == 0
    before = StackFolder(tmp_path / "state").read("ledger.json"), secrets.secrets({})
    assert run("prepare", str(written(tmp_path)))[0] == 0
    assert (StackFolder(tmp_path / "state").read("ledger.json"), secrets.secrets({})) == before


def test_emptied_server_needs_the_operators_word(run, tmp_path, client):
    assert run("prepare", str(written(tmp_path)))[0] == 0
    ledger = StackFolder(tmp_path / "state").read("ledger.json")
    client.flushall()
    code, said = run("prepare", str(written(tmp_path)))
    assert (code, "--rebuild-ledger" in said) == (1, True)
    assert run("prepare", str(written(tmp_path)), "--rebuild-ledger")[0] == 0
    assert StackFolder(tmp_path / "state").read("ledger.json") == ledger


@pytest.mark.parametrize(("setting", "value"), [("appendonly", "no"), ("maxmemory-policy", "allkeys-lru")])
def test_server_that_could_lose_leases_is_refused(run, tmp_path, client, setting, value):
    client.config_set(setting, value)
    code, said = run("prepare", str(written(tmp_path)))
    assert (code, setting in said) == (1, True)
    assert not StackFolder(tmp_path / "state").is_prepared


def test_file_of_another_federation_is_refused(run, tmp_path):
    assert run("prepare", str(written(tmp_path)))[0] == 0
    code, said = run("prepare", str(written(tmp_path, changes=(("shipped", "other"),))))
    assert (code, "belongs to shipped" in said) == (1, True)


def test_preparing_needs_a_server(run, tmp_path, monkeypatch):
    monkeypatch.delenv("SCHEDULEMESH_REDIS_URL")
    code, said = run("prepare", str(written(tmp_path)))
    assert (code, "SCHEDULEMESH_REDIS_URL" in said) == (1, True)
