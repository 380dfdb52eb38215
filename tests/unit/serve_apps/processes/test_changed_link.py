"""A mesh whose `link` setting changes while its next process continues its stages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from federation.dispatch import Claim
from federation.link import Report
from federation.snapshot import MeshRecord
from federation.store.http_link import HttpStageQueue
from federation.store.redis.fixtures import running_redis
from federation.store.report_parts import PART_MESSAGES, parts_of
from federation.tenants import Tenant, TenantTree
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING
from mesh.stages.messages import NodeStarted
from mesh.stages.spec import StageSpec, TaskSpec
from serve_apps.processes.settings import ChildSettings, StoreSettings
from serve_apps.processes.stores import Stores, open_child_ports, open_stores

WEST, RUN, STAGE, LAB = MeshId("west"), RunId("r"), StageId("r.1"), TenantPath("lab")
RECORD = MeshRecord(mesh=WEST, labels={}, pools=(), cluster="c")


@pytest.fixture
def url() -> Iterator[str]:
    with running_redis() as client:
        yield url_of(client)


def url_of(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


@pytest.fixture
def root(url: str) -> Stores:
    stores = open_stores(url, lease_ttl_ms=30_000, lease_grace_ms=10_000, founding=True)
    stores.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas={})]))
    return stores


@pytest.fixture
def claim(root: Stores) -> Claim:
    """Claim on a stage that needs no resources, and so no lease."""
    task = TaskSpec(node=NodeId("a"), attempt=1, function="call:m:f", resources=NOTHING)
    root.queue.submit(WEST, StageSpec(stage=STAGE, run=RUN, tenant=LAB, tasks=(task,), slot=NOTHING, width=1))
    claimed = root.queue.claim(root.ledger.join(RECORD), STAGE, None)
    assert claimed is not None
    return claimed.claim


def direct(url: str) -> Any:
    """Return the queue of a process with a key to the store."""
    store = StoreSettings(redis_url=url, lease_ttl_ms=30_000, lease_grace_ms=10_000)
    return open_child_ports(
        ChildSettings(
            ray_address="",
            heartbeat_ms=1_000,
            storage_url="",
            store=store,
            link=None,
            record=RECORD,
            node_labels={},
            inline_limit_bytes=0,
            warm_runners=0,
        )
    ).queue


def linked(root: Stores) -> Any:
    """Return the queue of a process that reaches the root over HTTP, through the root's own handler."""

    def call(_: object, asked: Report) -> None:
        root.queue.report(asked.claim, asked.batch, asked.messages)

    return HttpStageQueue(SimpleNamespace(call=call), WEST)  # type: ignore[arg-type]  # the one method of a link that it calls


def reports_at(root: Stores) -> int:
    return len([entry for entry in root.queue.inbox(0) if entry.kind == "stage"])


@pytest.mark.parametrize("before", ["http", "direct"])
def test_reports_after_the_link_change_count_once(url: str, root: Stores, claim: Claim, before: str) -> None:
    queues = [linked(root), direct(url)] if before == "http" else [direct(url), linked(root)]
    for batch in (1, 2, 3):
        queues[0].report(claim, batch, (started(batch),))
    assert reports_at(root) == 3
    queues[1].report(claim, 3, (started(3),))  # Its answer was lost.
    assert reports_at(root) == 3
    queues[1].report(claim, 4, (started(4),))
    assert reports_at(root) == 4


def test_batch_sent_in_part_is_completed_over_the_other_link(url: str, root: Stores, claim: Claim) -> None:
    messages = tuple(started(attempt) for attempt in range(1, PART_MESSAGES + 2))
    (number, first), _ = parts_of(1, messages)
    root.queue.report(claim, number, first)
    direct(url).report(claim, 1, messages)
    bodies = [json.loads(entry.body) for entry in root.queue.inbox(0) if entry.kind == "stage"]
    assert [len(body) for body in bodies] == [PART_MESSAGES, 1]


def started(attempt: int) -> NodeStarted:
    return NodeStarted(stage=STAGE, node=NodeId("a"), attempt=attempt, started_ms=1)
