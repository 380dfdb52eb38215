"""Stores of a process: refusals when they are opened."""

from __future__ import annotations

import pytest
import redis

from federation.errors import SchemaMismatch
from federation.snapshot import MeshRecord
from federation.store.redis.fixtures import running_redis
from federation.store.redis.keys import SCHEMA, Keys
from mesh.core.ids import MeshId
from serve_apps.processes.settings import ChildSettings, StoreSettings
from serve_apps.processes.stores import open_child_ports


@pytest.fixture(scope="module")
def client():
    with running_redis() as client:
        yield client


def child_on(url: str) -> ChildSettings:
    return ChildSettings(
        ray_address="",
        heartbeat_ms=1_000,
        storage_url="",
        store=StoreSettings(redis_url=url, lease_ttl_ms=30_000, lease_grace_ms=10_000),
        link=None,
        record=MeshRecord(mesh=MeshId("west"), labels={}, pools=(), cluster=""),
        node_labels={},
        inline_limit_bytes=0,
        warm_runners=0,
    )


def url_of(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def test_direct_mesh_does_not_start_on_another_schema(client: redis.Redis):
    open_child_ports(child_on(url_of(client)))
    client.hset(Keys().meta, "schema", SCHEMA + 1)
    with pytest.raises(SchemaMismatch, match="run the version that wrote the data"):
        open_child_ports(child_on(url_of(client)))


def test_mesh_starts_and_waits_for_its_store():
    assert open_child_ports(child_on("unix:///nowhere/redis.sock")).link is None
