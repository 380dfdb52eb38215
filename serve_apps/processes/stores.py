"""Ports of a process, built from its settings: the only module that knows all adapters of the root and of a child."""

from dataclasses import dataclass
from typing import cast

import redis
import structlog

from dag.backlog import BACKLOG_LIMITS, BacklogLimits
from dag.schedules.schedule import SCHEDULE_LIMITS, ScheduleLimits
from dag.store.redis_cache import RedisCacheStore
from dag.store.redis_runs import RedisRunStore
from dag.store.redis_schedules import RedisScheduleStore
from dag.store.redis_webhooks import RedisWebhooks
from federation.blobs import BlobStore
from federation.dispatch import StageQueue
from federation.errors import SchemaMismatch, StoreUnavailable
from federation.leases import LeaseLedger, LeaseTerms
from federation.receipts import ReceiptKeys
from federation.registry import PublishedSettings
from federation.run_log import RunLog
from federation.store.http_link import HttpBlobs, HttpLedger, HttpLink, HttpRunLog, HttpSettings, HttpStageQueue, trusted
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.change_log import RedisChangeLog
from federation.store.redis.client import connect
from federation.store.redis.durability import RedisDurability
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.policies import RedisTenantPolicies
from federation.store.redis.queue import ChildStageQueue, RedisStageQueue
from federation.store.redis.registry import RedisRegistry
from federation.store.redis.run_log import ChildRunLog, RedisRunLog
from federation.store.redis.safety import check_schema
from federation.store.redis.usage import RedisUsage
from serve_apps.processes.settings import ChildSettings, LinkSettings

log = structlog.get_logger(__name__)

#: Longest wait for an answer of Redis, beyond the wait that a blocking call asks for.
ANSWER_MS_MAX = 5_000
#: Longest wait for a replica to confirm a grant.
COPY_MS_MAX = 100
#: Packages whose verbs a root calls on Redis.
VERB_FOLDERS = ("federation.store.lua", "dag.store.lua")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Ports of one process."""

    client: redis.Redis
    keys: Keys
    ledger: RedisLedger
    registry: RedisRegistry
    tenant_policies: RedisTenantPolicies
    queue: RedisStageQueue
    blobs: RedisBlobs
    runs: RedisRunStore
    run_log: RedisRunLog
    cache: RedisCacheStore
    schedules: RedisScheduleStore
    webhooks: RedisWebhooks
    usage: RedisUsage
    changes: RedisChangeLog
    durable: RedisDurability


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPorts:
    """Ports of a child mesh; only a child's verbs are called on them."""

    ledger: LeaseLedger
    queue: StageQueue
    blobs: BlobStore
    settings: PublishedSettings
    run_log: RunLog
    link: HttpLink | None = None  #: The link, if the ports use HTTP.


def open_child_ports(settings: ChildSettings) -> ChildPorts:
    """Open the child's ports, over Redis or over HTTP as the settings say.

    The store need not answer yet: callers wait for it. Only a Redis cluster must have a node that answers.

    Raises:
        SchemaMismatch: The store holds data of another version of this program.
        StoreUnavailable: The CA file cannot be read, or no node of the cluster answers.
    """
    if settings.store is not None:
        own = settings.store
        stores = open_stores(
            own.redis_url, ledger=own.ledger, replicated=own.replicated, lease_ttl_ms=own.lease_ttl_ms, lease_grace_ms=own.lease_grace_ms
        )
        _refuse_other_schema(stores)
        queue = ChildStageQueue(stores.client, stores.keys)
        run_log = ChildRunLog(stores.client, stores.keys)
        return ChildPorts(ledger=stores.ledger, queue=queue, blobs=stores.blobs, settings=stores.registry, run_log=run_log)
    assert settings.link is not None  # noqa: S101  the settings hold one of the two
    link = open_link(settings.link)
    # The adapters have the child's verbs, which are all that it calls; the port types have the root's as well.
    ledger, stages = cast("LeaseLedger", HttpLedger(link)), cast("StageQueue", HttpStageQueue(link, settings.record.mesh))
    return ChildPorts(
        ledger=ledger,
        queue=stages,
        blobs=cast("BlobStore", HttpBlobs(link)),
        settings=HttpSettings(link),
        run_log=cast("RunLog", HttpRunLog(link)),
        link=link,
    )


def _refuse_other_schema(stores: Stores) -> None:
    try:
        check_schema(stores.client, stores.keys)
    except SchemaMismatch:
        raise
    except StoreUnavailable as gone:
        log.warning("the store does not answer yet", error=str(gone))


def open_link(settings: LinkSettings) -> HttpLink:
    """Open the link. Raises as `open_child_ports`."""
    return HttpLink(settings.roots, settings.key, verify=trusted(settings.ca_file))


def open_stores(
    url: str,
    *,
    lease_ttl_ms: int,
    lease_grace_ms: int,
    ledger: str | None = None,
    replicated: bool = False,
    founding: bool = False,
    receipts: ReceiptKeys | None = None,
    limits: BacklogLimits = BACKLOG_LIMITS,
    schedule_limits: ScheduleLimits = SCHEDULE_LIMITS,
) -> Stores:
    """Open the stores.

    One server, and a master known to sentinels, are connected at the first command; a cluster is contacted at once. A lost
    connection is made again once, at the next command.

    Args:
        ledger: Ledger id, under which the ledger is recreated after a loss; None: any id.
        replicated: Replicas are configured, and grants wait briefly for one of them.
        receipts: Keys that sign what meshes receive and verify what they claim; None: callers are trusted.
        limits: How much work may be open.
        schedule_limits: How many schedules a tenant may have.
        founding: The storage is new, so no lease can exist that a new ledger would have to recover.

    Raises:
        StoreUnavailable: No node of the cluster answers.
    """
    client = connect(url, timeout_ms=ANSWER_MS_MAX)
    keys = Keys()
    terms = LeaseTerms.of(lease_ttl_ms, lease_grace_ms)
    return Stores(
        client=client,
        keys=keys,
        ledger=RedisLedger(
            client, keys, terms=terms, uid=ledger, founding=founding, receipts=receipts, copy_wait_ms=COPY_MS_MAX if replicated else 0
        ),
        registry=RedisRegistry(client, keys),
        tenant_policies=RedisTenantPolicies(client, keys),
        queue=RedisStageQueue(client, keys),
        blobs=RedisBlobs(client, keys),
        runs=RedisRunStore(client, keys, limits),
        run_log=RedisRunLog(client, keys),
        cache=RedisCacheStore(client, keys),
        schedules=RedisScheduleStore(client, keys, schedule_limits),
        webhooks=RedisWebhooks(client, keys),
        usage=RedisUsage(client, keys),
        changes=RedisChangeLog(client, keys),
        durable=RedisDurability(client, keys),
    )
