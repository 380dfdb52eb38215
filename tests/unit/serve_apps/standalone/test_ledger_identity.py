"""Identity of a stack's ledger over restarts, and its restoration after a loss; on a real Redis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from federation.config.loading import FederationConfig, load_config
from federation.errors import ForeignLedger, LedgerMissing, StoreUnavailable
from federation.mesh_conditions import Drain
from federation.quota.policies import Stop, TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce, TenantStop
from federation.store.redis.fixtures import copied, lose_writes, running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import MeshId, TenantPath
from mesh.stages.stage_settings import DEFAULT_SETTINGS
from serve_apps.processes.stores import Stores, open_stores
from serve_apps.requests.auth import Denial, Denied, Principal, authenticate, issue
from serve_apps.standalone.ledger_identity import LedgerIdentity, known_ledger
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

LAB, SHOP = TenantPath("lab"), TenantPath("shop")
EAST, WEST = MeshId("east"), MeshId("west")
CONFIG = """
federation: {{name: test}}
redis: {{url: "{url}"}}
clusters: {{here: {{shared: true, nodes: [{{cpu: 1}}]}}}}
root: {{cluster: here}}
flavors: {{standard: {{}}}}
meshes: {{east: {{cluster: here, pools: {{all: {{flavor: standard, capacity: {{cpu: 1}}}}}}}}}}
tenants: {{lab: {{quotas: {{standard: {{cpu: {{nominal: 1}}}}}}}}}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[redis.Redis]:
    with running_redis() as client:
        client.config_set("appendonly", "yes")
        yield client


@pytest.fixture
def client(server: redis.Redis) -> redis.Redis:
    server.flushall()
    return server


def url_of(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def tree_with(slots: int) -> TenantTree:
    return TenantTree([Tenant(path=LAB, parent=None, quotas={("standard", "cpu"): Quota(nominal=slots)})])


def kept_stores(client: redis.Redis) -> Stores:
    stores = open_stores(url_of(client), ledger="ours", lease_ttl_ms=30_000, lease_grace_ms=10_000, founding=True)
    stores.ledger.configure(tree_with(1))
    return stores


def test_emptied_server_is_restored_and_recovers_under_its_id(client: redis.Redis):
    stores = kept_stores(client)
    ring = RedisKeyRing(stores.client, stores.keys)
    key = issue(ring, LAB, 0).split("_")[1]
    stores.tenant_policies.stop(LAB, TenantStop(stop=Stop.HOLD, reason="a look at it"))
    stores.registry.publish_settings({EAST: DEFAULT_SETTINGS})
    keeper = LedgerIdentity(stores, "ours")
    keeper.guard(key)
    assert keeper.look() is False
    tenant_policies, settings = stores.tenant_policies.in_force(), stores.registry.settings_of(EAST)
    client.flushall()
    assert keeper.look() is True
    assert settings == stores.registry.settings_of(EAST) is not None
    assert stores.ledger.snapshot().recovery_ms > 0
    assert client.hget(Keys().meta, "uid") == b"ours"
    assert stores.ledger.configured().quota(LAB, ("standard", "cpu")).nominal == 1
    assert stores.tenant_policies.in_force() == tenant_policies
    assert ring.find(key) is not None
    assert keeper.look() is False


def test_tree_applied_last_survives_an_old_copy(client: redis.Redis):
    stores = kept_stores(client)
    copy = copied(client, Keys())
    keeper = LedgerIdentity(stores, "ours")
    keeper.look()
    stores.ledger.configure(tree_with(3))  # By another process, as `schedulemesh apply` does.
    assert keeper.look() is False
    lose_writes(client, Keys(), copy)
    assert keeper.look() is True
    assert stores.ledger.configured().quota(LAB, ("standard", "cpu")).nominal == 3


@pytest.mark.parametrize("loss", ["everything", "an old copy"])
def test_a_key_that_was_revoked_stays_revoked_after_a_loss(client: redis.Redis, loss: str):
    stores = kept_stores(client)
    ring = RedisKeyRing(stores.client, stores.keys)
    text, other = issue(ring, LAB, 0), issue(ring, LAB, 0)
    keeper = LedgerIdentity(stores, "ours")
    for each in (text, other):
        keeper.guard(each.split("_")[1])
    copy = copied(client, Keys())
    stores.ledger.configure(tree_with(2))
    ring.revoke(text.split("_")[1])
    keeper.look()
    lose_writes(client, Keys(), copy if loss == "an old copy" else {})
    assert keeper.look() is True
    assert authenticate(f"Bearer {text}", ring.find, 0) == Denied(reason=Denial.REVOKED)
    assert isinstance(authenticate(f"Bearer {other}", ring.find, 0), Principal)


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_rotated_key_ends_in_an_old_copy_too(client: redis.Redis, is_guarded: bool):
    stores = kept_stores(client)
    ring = RedisKeyRing(stores.client, stores.keys)
    key, other = (issue(ring, LAB, 0, expires_ms=end_ms).split("_")[1] for end_ms in (0, 900))
    keeper = LedgerIdentity(stores, "ours")
    if is_guarded:
        keeper.guard(key)
    keeper.look()
    copy = copied(client, Keys())
    ring.expire(key, 500)
    keeper.look()
    lose_writes(client, Keys(), copy)
    assert ring.find(key).expires_ms == 0
    assert keeper.look() is True
    assert ring.find(key).expires_ms == 500
    assert (ring.find(other).expires_ms, ring.find(other).rotated) == (900, False)


@pytest.mark.parametrize("loss", ["everything", "an old copy"])
def test_stops_and_revocations_survive_an_old_copy(client: redis.Redis, loss: str):
    stores = kept_stores(client)
    ring = RedisKeyRing(stores.client, stores.keys)
    mine, others = issue(ring, LAB, 0), issue(ring, LAB, 0)
    stores.tenant_policies.stop(SHOP, TenantStop(stop=Stop.HOLD, reason="until noon"))
    keeper = LedgerIdentity(stores, "ours")
    keeper.guard(mine.split("_")[1])
    keeper.look()
    copy = copied(client, Keys())
    for text in (mine, others):
        ring.revoke(text.split("_")[1])
    stores.tenant_policies.stop(LAB, TenantStop(stop=Stop.HOLD, reason="a look at it"))
    stores.tenant_policies.release(SHOP)
    keeper.look()
    tenant_policies = stores.tenant_policies.in_force()
    lose_writes(client, Keys(), copy if loss == "an old copy" else {})
    assert keeper.look() is True
    assert (stores.tenant_policies.in_force(), set(tenant_policies.stops)) == (tenant_policies, {LAB})
    assert [authenticate(f"Bearer {text}", ring.find, 0) for text in (mine, others)] == [Denied(reason=Denial.REVOKED)] * 2
    assert keeper.look() is False


@pytest.mark.parametrize("loss", ["everything", "an old copy"])
def test_drains_of_meshes_stand_after_a_loss(client: redis.Redis, loss: str):
    stores = kept_stores(client)
    stores.registry.drain(WEST, Drain(reason="until noon"))
    keeper = LedgerIdentity(stores, "ours")
    keeper.look()
    copy = copied(client, Keys())
    stores.registry.drain(EAST, Drain(reason="new disks", by="ops", since_ms=7))
    stores.registry.undrain(WEST)
    keeper.look()
    lose_writes(client, Keys(), copy if loss == "an old copy" else {})
    assert keeper.look() is True
    drains = {mesh: condition.drain for mesh, condition in stores.registry.conditions().meshes.items()}
    assert drains == {EAST: Drain(reason="new disks", by="ops", since_ms=7)}
    assert keeper.look() is False


def test_interrupted_restore_is_repeated(client: redis.Redis):
    stores = kept_stores(client)
    keeper = LedgerIdentity(stores, "ours")
    keeper.look()
    copy = copied(client, Keys())
    for tenant in (LAB, SHOP):
        stores.tenant_policies.stop(tenant, TenantStop(stop=Stop.HOLD))
    keeper.look()
    lose_writes(client, Keys(), copy)
    keeper.move_to(replace(stores, tenant_policies=CutOff(stores)))
    for _ in range(3):  # Each time it writes one order more, and then fails.
        with pytest.raises(StoreUnavailable):
            keeper.look()
    keeper.move_to(stores)
    assert keeper.look() is True
    assert set(stores.tenant_policies.in_force().stops) == {LAB, SHOP}


class CutOff:
    """Tenant policies of a server that fails during a stop."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def in_force(self) -> PoliciesInForce:
        return self._stores.tenant_policies.in_force()

    def publish(self, filed: TenantPolicies) -> None:
        self._stores.tenant_policies.publish(filed)

    def stop(self, tenant: TenantPath, stopped: TenantStop) -> None:
        raise StoreUnavailable(f"gone before {stopped.stop} of {tenant}")


class LosesAtOnce:
    """Tenant policies of a server that loses everything during a round."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def in_force(self) -> PoliciesInForce:
        self._stores.client.flushall()
        return self._stores.tenant_policies.in_force()


def test_loss_during_a_round_is_restored_whole(client: redis.Redis):
    stores = kept_stores(client)
    stores.tenant_policies.stop(LAB, TenantStop(stop=Stop.HOLD, reason="a look at it"))
    keeper = LedgerIdentity(stores, "ours")
    keeper.look()
    tenant_policies = stores.tenant_policies.in_force()
    stores.ledger.configure(tree_with(2))
    keeper.look()
    keeper.move_to(replace(stores, tenant_policies=LosesAtOnce(stores)))
    assert keeper.look() is False
    keeper.move_to(stores)
    assert keeper.look() is True
    assert (stores.tenant_policies.in_force(), stores.ledger.configured().quota(LAB, ("standard", "cpu")).nominal) == (tenant_policies, 2)


def test_nothing_is_written_to_another_ledger(client: redis.Redis):
    keeper = LedgerIdentity(kept_stores(client), "ours")
    keeper.look()
    client.flushall()
    client.hset(Keys().meta, mapping={"uid": "theirs", "version": 0})
    before = copied(client, Keys())
    assert keeper.look() is False
    assert copied(client, Keys()) == before


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StackFolder]:
    with StackFolder(tmp_path / "state") as folder:
        yield folder


def config_on(client: redis.Redis) -> FederationConfig:
    return load_config(CONFIG.format(url=url_of(client)), source="test")


def started_on(client: redis.Redis, folder: StackFolder, *, rebuild: bool = False) -> Stores:
    """Do a stack's steps before it starts Ray."""
    return Stack(config_on(client), folder, say=lambda _: None, rebuild_ledger=rebuild).start_redis()


def test_a_root_that_is_started_again_knows_its_ledger(client: redis.Redis, folder: StackFolder):
    started_on(client, folder)
    uid = known_ledger(folder)
    assert client.hget(Keys().meta, "uid").decode() == uid
    epoch = started_on(client, folder).ledger.snapshot().epoch
    assert (known_ledger(folder), started_on(client, folder).ledger.snapshot().epoch) == (uid, epoch)


def test_a_new_state_folder_takes_the_ledger_that_it_finds(client: redis.Redis, folder: StackFolder, tmp_path: Path):
    started_on(client, folder)
    with StackFolder(tmp_path / "another") as another:
        started_on(client, another)
        assert known_ledger(another) == known_ledger(folder)


def test_root_refuses_an_empty_server_unless_emptied_on_purpose(client: redis.Redis, folder: StackFolder):
    started_on(client, folder)
    uid = known_ledger(folder)
    client.flushall()
    with pytest.raises(LedgerMissing, match=f"must hold {uid} .* --rebuild-ledger"):
        started_on(client, folder)
    assert client.dbsize() == 0
    again = started_on(client, folder, rebuild=True)
    assert client.hget(Keys().meta, "uid").decode() == uid
    assert again.ledger.snapshot().recovery_ms > 0


def test_root_always_refuses_the_server_of_another_ledger(client: redis.Redis, folder: StackFolder):
    started_on(client, folder)
    client.hset(Keys().meta, "uid", "theirs")
    before = copied(client, Keys())
    for rebuild in (False, True):
        with pytest.raises(ForeignLedger, match="the ledger theirs, not"):
            started_on(client, folder, rebuild=rebuild)
    assert copied(client, Keys()) == before


def test_interrupted_start_finds_the_ledger_that_it_founded(client: redis.Redis, folder: StackFolder, monkeypatch: pytest.MonkeyPatch):
    def cut_off(_folder: StackFolder, _uid: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr("serve_apps.standalone.stack.keep_ledger", cut_off)
        with pytest.raises(KeyboardInterrupt):
            started_on(client, folder)
    founded = client.hget(Keys().meta, "uid").decode()
    started_on(client, folder)
    assert known_ledger(folder) == founded


def test_embedded_server_is_founded_again_under_the_same_id(folder: StackFolder, client: redis.Redis):
    config = config_on(client)
    config = config.model_copy(update={"redis": config.redis.model_copy(update={"url": None})})
    stack = Stack(config, folder, say=lambda _: None)
    try:
        assert stack.start_redis().ledger.snapshot().recovery_ms == 0
    finally:
        stack.stop()
    uid = known_ledger(folder)
    (folder.path / "redis").rename(folder.path / "gone")
    again = Stack(config, folder, say=lambda _: None)
    try:
        stores = again.start_redis()
        assert stores.ledger.snapshot().recovery_ms > 0
        assert stores.client.hget(Keys().meta, "uid").decode() == uid
    finally:
        again.stop()
