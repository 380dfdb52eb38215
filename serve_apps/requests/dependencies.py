"""Ports of the gateway, given once and available in each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, NoReturn, cast

from fastapi import Depends, Request

from dag.result_cache import CacheStore
from dag.run.runs import RunStore
from dag.schedules.schedule import ScheduleStore
from dag.store.event_feed import EventFeed
from dag.webhooks.webhook import WebhookStore
from federation.api_keys import KeyRing
from federation.blobs import BlobStore
from federation.change_log import ChangeLog
from federation.configured_meshes import NO_CONFIGURED_MESHES, ConfiguredMeshes
from federation.dispatch import StageQueue
from federation.durability import Durability, DurableStore
from federation.estimates import COST_RULES, CostRules
from federation.leases import LeaseLedger
from federation.quota.tenant_policies import PoliciesInForce, TenantPolicyStore
from federation.receipts import ReceiptKeys
from federation.registry import MeshRegistry
from federation.run_log import RunLog
from federation.snapshot import FederationSnapshot
from federation.usage.records import UsageStore
from mesh.core.clock import Clock
from serve_apps.requests.accepted_runs import KEPT_MS, AcceptedRuns
from serve_apps.requests.auth import Principal
from serve_apps.requests.errors import NotAuthenticated, TooManyCalls
from serve_apps.requests.known_keys import KnownKeys
from serve_apps.requests.limits import CallBudget, Rate
from serve_apps.snapshot_cache.single_flight import SingleFlight
from serve_apps.snapshot_cache.snapshots import snapshot_now
from serve_apps.snapshot_cache.waits import Waits, queues_of, waits_in

#: Calls of a key per second, and the burst after a pause.
CALLS_PER_S, CALLS_BURST = 1_000.0, 1_000
#: The same for calls that read the whole ledger.
SNAPSHOTS_PER_S, SNAPSHOTS_BURST = 20.0, 200
#: Wrong keys per second from one address, and the burst.
WRONG_PER_S, WRONG_BURST = 0.5, 20
#: Records of a key's last use per second.
USES_PER_S = 1 / 60
#: Most keys and addresses that are counted.
KEYS_MAX, ADDRESSES_MAX = 16_384, 4_096


class RequestLimiter:
    """Call counts of one replica; thread-safe. `now_ms` is on a monotonic clock."""

    def __init__(self) -> None:
        self._calls = CallBudget(calls_per_s=CALLS_PER_S, burst=CALLS_BURST, keys_max=KEYS_MAX)
        self._looks = CallBudget(calls_per_s=SNAPSHOTS_PER_S, burst=SNAPSHOTS_BURST, keys_max=KEYS_MAX)
        self._uses = CallBudget(calls_per_s=USES_PER_S, burst=1, keys_max=KEYS_MAX)
        self._wrong = CallBudget(calls_per_s=WRONG_PER_S, burst=WRONG_BURST, keys_max=ADDRESSES_MAX)

    def count_call(self, principal: Principal, now_ms: int) -> None:
        """Count a call. Raises TooManyCalls if the key is over its limit."""
        _take(self._calls, principal, "calls", now_ms)

    def count_look(self, principal: Principal, now_ms: int) -> None:
        """Count a read of the whole ledger. Raises TooManyCalls if the key is over its limit."""
        _take(self._looks, principal, "reads of the whole ledger", now_ms)

    def calls_left(self, principal: Principal, now_ms: int) -> Rate:
        """Return what is left of the key's calls."""
        return self._calls.rate(principal.key, now_ms)

    def looks_left(self, principal: Principal, now_ms: int) -> Rate:
        """Return what is left of the key's reads of the whole ledger."""
        return self._looks.rate(principal.key, now_ms)

    def is_use_due(self, key: str, now_ms: int) -> bool:
        """Return whether this use of the key is to be recorded; True once in a while."""
        return self._uses.take(key, now_ms) == 0

    def is_use_noted(self, key: str, now_ms: int) -> bool:
        """Return whether no use of the key is to be recorded now."""
        return self._uses.wait_ms(key, now_ms) > 0

    def is_suspect(self, address: str, now_ms: int) -> bool:
        """Return whether the address has sent too many wrong keys."""
        return self._wrong.wait_ms(address, now_ms) > 0

    def refuse(self, address: str, denied: NotAuthenticated, now_ms: int) -> NoReturn:
        """Count a wrong key from this address and raise: the denial, or TooManyCalls."""
        wait_ms = self._wrong.take(address, now_ms)
        if wait_ms:
            raise TooManyCalls(f"too many wrong keys from {address}; try again in {wait_ms} ms", wait_ms=wait_ms) from denied
        raise denied


def _take(budget: CallBudget, principal: Principal, what: str, now_ms: int) -> None:
    wait_ms = budget.take(principal.key, now_ms)
    if wait_ms:
        raise TooManyCalls(f"key {principal.key} is over its limit of {what}; try again in {wait_ms} ms", wait_ms=wait_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Ports and settings of the gateway."""

    runs: RunStore
    ledger: LeaseLedger
    registry: MeshRegistry
    tenant_policies: TenantPolicyStore
    queue: StageQueue
    blobs: BlobStore
    run_log: RunLog
    cache: CacheStore
    schedules: ScheduleStore
    webhooks: WebhookStore
    usage: UsageStore
    changes: ChangeLog
    feed: EventFeed
    keys: KeyRing
    body_limit_bytes: int
    costs: CostRules = COST_RULES  #: Cost rules for routing in dry runs; the same as the coordinator's.
    storage_url: str = ""  #: Folder of files with values; other files are not opened. Empty: no file is opened.
    heartbeat_ms: int = 2_000  #: Interval in which meshes renew their sessions; sent to meshes that join over the link.
    inline_limit_bytes: int = 65_536  #: Values up to this size travel through the control store; sent to meshes as well.
    ledger_id: str = ""  #: Sent to joining meshes, which name their things on the Ray cluster by it.
    configured_meshes: ConfiguredMeshes = (
        NO_CONFIGURED_MESHES  #: Meshes and flavors of the root's file; joining meshes are checked against them.
    )
    receipts: ReceiptKeys | None = None  #: Keys that sign tokens sent to meshes, and verify tokens from meshes; None: meshes are trusted.
    clock: Clock
    durable: DurableStore
    durability: Durability = Durability.D0  #: Durability of submissions that name none.
    snapshot_ttl_ms: int = 250  #: Greatest age of a snapshot that is displayed, or by which a graph is accepted; requests share one.
    retention_ms: int = KEPT_MS  #: How long ended runs are kept.
    close: Callable[[], Awaitable[None]] | None = None  #: Awaited when the application stops: closes what lives in its event loop.
    limiter: RequestLimiter = field(init=False, default_factory=RequestLimiter)  #: Call limits.
    known_keys: KnownKeys = field(init=False)  #: Keys by which calls are authenticated.
    accepting: SingleFlight[FederationSnapshot] = field(init=False)
    """Snapshot by which graphs are accepted; apart from `shown`, or readers would see the state before their own submission."""
    policies: SingleFlight[PoliciesInForce] = field(init=False)  #: Settings of tenants by which graphs are accepted.
    shown: SingleFlight[FederationSnapshot] = field(init=False)  #: Snapshot of the ledger for display.
    waits: SingleFlight[Waits] = field(init=False)  #: Why queued work waits, for display.
    accepted: AcceptedRuns = field(init=False)  #: Runs accepted recently by this replica.

    def __post_init__(self) -> None:
        object.__setattr__(self, "known_keys", KnownKeys(self.keys, self.clock))
        object.__setattr__(self, "accepting", SingleFlight(self._look, clock=self.clock, kept_ms=self.snapshot_ttl_ms))
        object.__setattr__(self, "policies", SingleFlight(self._look_at_policies, clock=self.clock, kept_ms=self.snapshot_ttl_ms))
        object.__setattr__(self, "shown", SingleFlight(self._look, clock=self.clock, kept_ms=self.snapshot_ttl_ms))
        object.__setattr__(self, "waits", SingleFlight(self._look_at_waits, clock=self.clock, kept_ms=self.snapshot_ttl_ms))
        accepted = AcceptedRuns(self.runs, epoch=self._epoch, clock=self.clock, kept_ms=self.retention_ms)
        object.__setattr__(self, "accepted", accepted)

    def _look(self) -> FederationSnapshot:
        return self.ledger.snapshot()

    def _look_at_policies(self) -> PoliciesInForce:
        return self.tenant_policies.in_force()

    def _look_at_waits(self) -> Waits:
        snapshot = snapshot_now(self.shown, self.registry, self.configured_meshes)
        return waits_in(snapshot, self.tenant_policies.in_force(), queues_of(snapshot, self.queue), self.costs)

    def _epoch(self) -> int:
        return self.ledger.epoch()


def dependencies_of(request: Request) -> Dependencies:
    """Return the ports that `create_app` was given."""
    return cast(Dependencies, request.app.state.dependencies)


async def _ports(request: Request) -> Dependencies:
    """Return the ports; a plain function would cost each request the way to a thread."""
    return dependencies_of(request)


#: Route parameter: the ports.
Ports = Annotated[Dependencies, Depends(_ports)]
