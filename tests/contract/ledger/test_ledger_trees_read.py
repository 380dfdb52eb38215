"""Transfer of trees to and from Redis: written in parts, visible whole or not at all, read only after a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from two_teams import A100, ACME, LAB, TERMS, ask, gpu, record, tree

from federation.auditing import mismatches
from federation.errors import QuotaExceeded, StoreUnavailable
from federation.manual_mesh import ManualMesh
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import TenantPath

KEYS = Keys("contract")
#: More than one part, and more than one page.
MANY = 1_200


class Meddler:
    """Client that runs a hook before each command."""

    def __init__(self, client: redis.Redis, before: Callable[[int], None] = lambda _: None) -> None:
        self._client = client
        self._before = before
        self.sent: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def execute_command(self, *command: Any) -> Any:
        self._before(len(self.sent))
        self.sent.append(command)
        return self._client.execute_command(*command)


@pytest.fixture(params=["redis_server", "newer_redis_process"], ids=["scripts", "functions"])
def client(request: pytest.FixtureRequest) -> redis.Redis:
    """A server that holds only a ledger with the tree of two teams."""
    found: redis.Redis = request.getfixturevalue(request.param)
    found.flushall()
    ledger_on(found).configure(tree())
    return found


def ledger_on(client: Any) -> RedisLedger:
    return RedisLedger(client, KEYS, terms=TERMS, founding=True)


def many(gpus: int = 1) -> TenantTree:
    quotas = {(A100, "gpu"): Quota(nominal=gpus * 10_000)}
    return TenantTree(
        [Tenant(path=ACME, parent=None), *(Tenant(path=TenantPath(f"acme/{n}"), parent=ACME, quotas=quotas) for n in range(MANY))]
    )


def drafts(client: redis.Redis) -> list[bytes]:
    return list(client.scan_iter(KEYS.draft("*")))


@pytest.mark.every_form
def test_tree_is_written_in_parts_and_enforced_whole(client: redis.Redis):
    reader, seen = ledger_on(client), []
    meddler = Meddler(client, lambda _: seen.append(reader.configured()))
    ledger_on(meddler).configure(many())
    assert len(seen) > 5
    assert all(one == tree() for one in seen)
    assert reader.configured() == reader.snapshot().tree == many()


def test_concurrent_trees_are_each_whole_and_the_last_wins(client: redis.Redis):
    other = ledger_on(client)
    meddler = Meddler(client, lambda at: at == 3 and other.configure(many(gpus=2)))
    version = ledger_on(meddler).configure(many()).version
    assert (version, other.configured()) == (3, many())
    assert drafts(client) == []


def test_tree_part_lost_in_transit_is_sent_again(client: redis.Redis):
    meddler = Meddler(client, lambda at: at == 4 and client.delete(*drafts(client)))
    ledger = ledger_on(meddler)
    ledger.configure(many())
    assert ledger.configured() == many()


def test_lost_draft_is_reported_and_the_tree_stays(client: redis.Redis):
    meddler = Meddler(client, lambda _: [client.delete(draft) for draft in drafts(client)])
    with pytest.raises(StoreUnavailable, match="lost parts of the tenant tree"):
        ledger_on(meddler).configure(many())
    assert ledger_on(client).configured() == tree()


def test_abandoned_draft_expires_and_a_tree_in_force_does_not(client: redis.Redis):
    def break_off(at: int) -> None:
        if at == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger_on(Meddler(client, break_off)).configure(many())
    (draft,) = drafts(client)
    assert 0 < client.ttl(draft) <= 3_600
    ledger_on(client).configure(many())
    assert client.ttl(KEYS.tree) == -1


def test_repeated_apply_of_a_tree_gets_the_same_answer(client: redis.Redis):
    ask(ManualMesh(ledger_on(client), record()), 6)
    meddler = Meddler(client)
    ledger = ledger_on(meddler)
    said = ledger.configure(tree(lab=2, shop=2), expected=1)
    assert said.over == (f"{ACME}|{A100}|gpu",)
    _, version, over = client.execute_command(*meddler.sent[-1])
    assert (int(version), [node.decode() for node in over]) == (said.version, list(said.over))


def test_known_tree_is_not_read_again_but_usage_is(client: redis.Redis):
    ledger_on(client).configure(many())
    meddler = Meddler(client)
    ledger, west = ledger_on(meddler), ManualMesh(ledger_on(client), record())
    before = ledger.snapshot()
    read = len(meddler.sent)
    west.acquire(TenantPath("acme/7"), A100, gpu(1), 1)
    after = ledger.snapshot()
    assert (read > 2, len(meddler.sent)) == (True, read + 1)
    assert after.tree is before.tree
    assert (before.usage, after.usage[TenantPath("acme/7"), A100, "gpu"]) == ({}, 10_000)


def test_usage_is_never_paired_with_a_replaced_tree(client: redis.Redis):
    writer = ledger_on(client)
    writer.configure(many())
    west = ManualMesh(writer, record())
    west.acquire(TenantPath("acme/7"), A100, gpu(1), 1)

    def replace(at: int) -> None:
        if at in (1, 2, 4):
            writer.configure(many(gpus=at))

    meddler = Meddler(client, replace)
    seen = ledger_on(meddler).snapshot()
    assert (seen.tree, seen.version, len(meddler.sent) > 5) == (many(gpus=4), 5, True)
    assert mismatches(seen) == ()


def test_tree_replaced_at_each_read_is_unavailable(client: redis.Redis):
    writer = ledger_on(client)
    meddler = Meddler(client, lambda at: writer.configure(tree(lab=at % 2)))
    for look in (ledger_on(meddler).snapshot, ledger_on(meddler).configured):
        with pytest.raises(StoreUnavailable, match="could not be read in"):
            look()


def test_skipped_row_is_noticed_and_the_tree_read_again(client: redis.Redis):
    """A server that has taken over meanwhile gives a cursor another meaning."""
    ledger_on(client).configure(many())
    name = f"tenant|acme/{MANY - 1}"
    row = client.hget(KEYS.tree, name)

    def hide(at: int) -> None:
        client.hdel(KEYS.tree, name) if at == 1 else client.hset(KEYS.tree, name, row) if at > 3 else None

    assert ledger_on(Meddler(client, hide)).snapshot().tree == many()


def test_vanished_tenant_leaves_the_tree_once_uncharged(client: redis.Redis):
    ledger = ledger_on(client)
    west = ManualMesh(ledger, record())
    ask(west, 3)
    ledger.configure(TenantTree([tree().tenant(ACME)]))
    first = ledger.snapshot()
    west.release(LAB, A100, gpu(1))
    second = ledger.snapshot()
    assert second.tree is first.tree
    assert second.usage[LAB, A100, "gpu"] == 10_000
    west.release(LAB, A100)
    third = ledger.snapshot()
    assert list(third.tree.tenants) == [ACME]
    assert first.tree.covers(third.tree)
    assert not third.tree.covers(first.tree)


def written(client: redis.Redis) -> dict[bytes, bytes]:
    return client.hgetall(KEYS.tree)


def test_similar_tree_is_amended(client: redis.Redis):
    meddler = Meddler(client)
    ledger = ledger_on(meddler)
    ledger.configure(many())
    west = ManualMesh(ledger, record())
    west.acquire(TenantPath("acme/7"), A100, gpu(1), 1)
    tenants = dict(many().tenants)
    del tenants[TenantPath("acme/7")]
    tenants[TenantPath("acme/8")] = Tenant(path=TenantPath("acme/8"), parent=TenantPath("acme/9"))
    amended = TenantTree(tenants.values())
    sent = len(meddler.sent)
    ledger.configure(amended)
    assert len(meddler.sent) == sent + 2
    rows, reader = written(client), ledger_on(client)
    assert reader.configured() == ledger.configured() == amended
    assert list(reader.snapshot().tree.tenants) == sorted([*amended.tenants, "acme/7"])
    assert reader.audit() == ()
    client.hset(KEYS.meta, "tree", "another")
    ledger_on(client).configure(amended)
    assert rows == written(client)


def test_tree_is_sent_whole_when_its_base_is_gone(client: redis.Redis):
    ledger = ledger_on(client)
    ledger.configure(many())
    ledger_on(client).configure(tree())
    amended = TenantTree([*many().tenants.values(), Tenant(path=TenantPath("more"), parent=None)])
    ledger.configure(amended)
    assert ledger_on(client).configured() == amended
    assert drafts(client) == []


def test_tenant_moves_by_few_rows_and_refusals_change_nothing(client: redis.Redis):
    ledger_on(client).configure(many())
    meddler = Meddler(client)
    ledger = ledger_on(meddler)
    west, moved, under = ManualMesh(ledger_on(client), record()), TenantPath("acme/3"), TenantPath("acme/4")
    west.acquire(moved, A100, gpu(1), 9)
    version = ledger.snapshot().version
    sent, rows = len(meddler.sent), written(client)
    with pytest.raises(QuotaExceeded):
        ledger.reparent(moved, None, expected=version)
    assert (written(client), drafts(client)) == (rows, [])
    ledger.reparent(moved, under, expected=version)
    assert len(meddler.sent) <= sent + 6
    assert (client.hget(KEYS.tree, f"quota|{under}|{A100}"), client.hget(KEYS.tree, f"parent|{moved}")) == (
        b"gpu|20000|0|-",
        under.encode(),
    )
    assert ledger_on(client).snapshot().usage[under, A100, "gpu"] == 90_000
