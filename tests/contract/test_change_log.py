"""Contract of the log of changes, in memory and on a real Redis."""

import pytest

from federation.change_log import Change, Outcome
from federation.store.memory.change_log import MemoryChangeLog
from federation.store.memory.store import MemoryStore
from federation.store.redis.change_log import RedisChangeLog
from federation.store.redis.keys import Keys
from mesh.core.ids import TenantPath


@pytest.fixture
def changes(store):
    return MemoryChangeLog() if isinstance(store.queue, MemoryStore) else RedisChangeLog(store.client, Keys("contract"))


def a_change(target="", tenant="acme/lab", **fields) -> Change:
    given = {"at_ms": 7, "operation": "POST /v1/x", "key": "k", "outcome": Outcome.ALLOWED, **fields}
    return Change(tenant=TenantPath(tenant), target=target, **given)


def test_an_entry_comes_back_as_it_was(changes):
    change = a_change(
        "é|\x00", user="ann", source="::1", request_id="r", details={"reason": '"'}, outcome=Outcome.REFUSED, code="forbidden"
    )
    changes.append(change)
    assert changes.newest("acme", None, 10) == ((1, change),)


def test_numbers_count_up_over_all_logs(changes):
    assert (changes.last(), changes.logs()) == (0, ())
    for tenant in ("acme", "*", "rival/x", "acme/lab"):
        changes.append(a_change(tenant=tenant))
    assert (changes.last(), changes.logs()) == (4, ("*", "acme", "rival"))
    assert [entry.number for entry in changes.newest("acme", None, 10)] == [4, 1]
    assert [entry.number for entry in changes.newest("rival", None, 10)] == [3]


def test_a_log_is_read_in_parts_from_both_ends(changes):
    for number in range(1, 6):
        changes.append(a_change(str(number)))
    assert [entry.change.target for entry in changes.newest("acme", None, 2)] == ["5", "4"]
    assert [entry.change.target for entry in changes.newest("acme", 4, 2)] == ["3", "2"]
    assert [entry.change.target for entry in changes.following("acme", 2, 2)] == ["3", "4"]
    assert changes.following("acme", 5, 2) == changes.newest("acme", 1, 2) == changes.newest("nobody", None, 2) == ()


def test_a_full_log_drops_its_oldest_entries_alone(store):
    is_memory = isinstance(store.queue, MemoryStore)
    changes = MemoryChangeLog(kept_max=100) if is_memory else RedisChangeLog(store.client, Keys("contract"), kept_max=100)
    changes.append(a_change(tenant="rival"))
    for _ in range(400):
        changes.append(a_change())
    assert 100 <= len(changes.newest("acme", None, 1_000)) < 300
    assert changes.newest("acme", None, 1)[0].number == 401
    assert len(changes.newest("rival", None, 10)) == 1
