"""Settings that a replica in Ray Serve finds by itself, on a real Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from deployed_federation import written

from federation.errors import LedgerMissing, LedgerUnsafe, StoreUnavailable
from federation.store.redis.fixtures import running_redis
from serve_apps.configuration.config_file import read_config
from serve_apps.configuration.root_arguments import RootArguments, SecretMissing, arguments_of, write_secrets
from serve_apps.root import serve_build
from serve_apps.root.serve_build import prepared_settings
from serve_apps.standalone.ledger_setup import prepare
from serve_apps.standalone.stack_folder import StackFolder

#: The root shares its cluster, so no replica has to ask Ray for the id of its own.
SHARED = (('control: {address: "127.0.0.1:6379"}', 'control: {address: "127.0.0.1:6379", shared: true}'),)


@pytest.fixture(scope="module")
def server() -> Iterator[redis.Redis]:
    with running_redis() as client:
        yield client


@pytest.fixture
def url(server: redis.Redis) -> str:
    server.flushall()
    server.config_set("appendonly", "yes")
    return f"unix://{server.connection_pool.connection_kwargs['path']}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, changes=SHARED)


def arguments(file: Path) -> RootArguments:
    return arguments_of(file.read_text(), source="federation.yaml", secrets_dir=str(file.parent / "state" / "secrets"))


def prepared(file: Path, url: str) -> StackFolder:
    with StackFolder(file.parent / "state") as folder:
        prepare(read_config(file), folder, redis_url=url, say=lambda _: None)
    return folder


def test_replica_finds_what_was_prepared(file, url):
    folder = prepared(file, url)
    settings = prepared_settings(arguments(file))
    assert (settings.ledger, settings.redis_url) == (folder.read("ledger.json")["uid"], url)
    assert {str(number): key for number, key in settings.receipt_keys.items()} == folder.read("receipts.json")
    assert (settings.storage_url, settings.gateways, settings.cluster_stays) == ("s3://bucket/values", 2, True)


def test_replica_refuses_a_server_that_was_not_prepared(file, url):
    write_secrets(file.parent / "state" / "secrets", redis_url=url, receipt_keys={1: "ab"})
    with pytest.raises(LedgerMissing, match="schedulemesh prepare"):
        prepared_settings(arguments(file))


def test_replica_refuses_a_server_that_has_become_unsafe(file, url, server):
    prepared(file, url)
    server.config_set("appendonly", "no")
    with pytest.raises(LedgerUnsafe, match="appendonly"):
        prepared_settings(arguments(file))


def test_replica_without_its_secrets_names_them(file, url):
    with pytest.raises(SecretMissing, match="redis-url"):
        prepared_settings(arguments(file))


def test_replica_waits_for_the_server_within_its_limit(file, monkeypatch):
    monkeypatch.setattr(serve_build, "STORE_S_MAX", 0.0)
    write_secrets(file.parent / "state" / "secrets", redis_url="redis://127.0.0.1:1/0", receipt_keys={1: "ab"})
    with pytest.raises(StoreUnavailable):
        prepared_settings(arguments(file))
