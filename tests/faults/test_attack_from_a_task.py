"""Attacks by a tenant's task on each shipped configuration: the table of docs/security.md, with real parts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attack
import psutil
import pytest
from patience import eventually

import dag
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.store.redis.key_ring import RedisKeyRing
from mesh.core.clock import SystemClock
from mesh.core.ids import TenantPath
from serve_apps.configuration.config_file import read_config
from serve_apps.processes.stores import open_stores
from serve_apps.requests.auth import issue
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

on_real_parts = [pytest.mark.ray, pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(file.name for file in (ROOT / "configs").glob("*.yaml"))
#: Limit of every real wait, before a test gives up.
LIMIT_S = 240.0
#: Tenant of the attacker, tenant of the victim, and the label of a mesh where both may run, if any.
SIDES = {
    "quickstart.yaml": ("acme/research/nlp", "acme/research/vision", {"zone": "east"}),
    "three_teams.yaml": ("acme/speech", "acme/vision", {"tier": "standard"}),
    "two_clusters.yaml": ("acme/research/nlp", "acme/research/vision", {"zone": "west"}),
    "two_tenants.yaml": ("beta", "alpha", {}),
}


def secret() -> str:
    """Value that stays in its tenant's runner."""
    return "the victim's own words"


def hold(value: str, folder: str) -> str:
    """Occupy the runner during the attack."""
    Path(folder, "held").touch()
    while not Path(folder, "gate").exists():
        time.sleep(0.05)
    return value


def documented_reach(config: str) -> set[str]:
    """Return what docs/security.md says of this configuration."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line.startswith("| ")]
    head = next(number for number, cells in enumerate(table) if cells[0] == "the task reached")
    column = table[head].index(f"`{config}`")
    return {cells[0] for cells in table[head + 2 :] if cells[column] == "yes"}


@pytest.fixture
def stack(config: str, tmp_path: Path) -> Iterator[Stack]:
    before = set(psutil.Process().children(recursive=True))
    with StackFolder(tmp_path / "state") as owned:
        stack = Stack(read_config(ROOT / "configs" / config), owned, say=print)
        stack.start()
        try:
            yield stack
        finally:
            (tmp_path / "gate").touch()
            stack.stop()
    eventually(lambda: set(psutil.Process().children(recursive=True)) <= before, LIMIT_S)


def client_of(stack: Stack, tenant: str) -> Client:
    stores = open_stores(stack.redis_url, lease_ttl_ms=10_000, lease_grace_ms=3_000)
    key = issue(RedisKeyRing(stores.client, stores.keys), TenantPath(tenant), SystemClock().wall_ms())
    stores.client.connection_pool.disconnect()
    return Client(Access(address=stack.address, api_key=key, tenant=tenant))


def test_the_docs_say_what_a_task_reaches() -> None:
    assert {config for config in CONFIGS if documented_reach(config)} == set(CONFIGS)


@pytest.mark.parametrize("config", [pytest.param(config, marks=on_real_parts) for config in CONFIGS])
def test_a_task_reaches_what_the_docs_say(config: str, stack: Stack, tmp_path: Path) -> None:
    attacker, victim, labels = SIDES[config]
    with client_of(stack, victim) as one, client_of(stack, attacker) as other:
        kept = dag.task(secret, labels=labels).bind()
        one.submit(dag.task(hold, labels=labels).bind(kept, str(tmp_path)), tenant=victim, by_value=(sys.modules[__name__],))
        eventually((tmp_path / "held").exists, LIMIT_S)
        settings, addresses = str(tmp_path / "state" / "settings" / "root.json"), [each.address for each in stack.clusters.values()]
        attacking = dag.task(attack.attack, labels=labels).bind(victim, secret(), settings, addresses)
        run = other.submit(attacking, tenant=attacker, by_value=(attack,))
        assert set(run.result(LIMIT_S)) == documented_reach(config)
