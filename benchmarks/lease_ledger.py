"""What the lease ledger costs, beside the least that a script can cost, on every Redis server of this machine.

One client on one server, call after call, so all sides wait for the same wire. The measure is a script that counts up one
key. A heartbeat must cost the same whatever is held, and no more than twice the measure; a call that grants or takes back
a hundred leases (four tenants deep, two resources) must come to two leases or more in the time of the measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import redis
from rich.table import Table

from federation.leases import ROWS_MAX, Acquired, Kept, LeaseTerms, Told, Want
from federation.snapshot import MeshRecord
from federation.store.keys import Keys
from federation.store.redis_ledger import RedisLedger
from federation.store.testing import running_redis, servers
from federation.tenants import Quota, Tenant, TenantTree
from federation.testing import HandMesh
from mesh.ids import FlavorName, MeshId, TenantPath
from mesh.resources import ResourceSet

TURNS = 30
HEARTBEAT_SHARE_MIN, LEASES_PER_COUNT_MIN = 0.5, 2.0
_RED = FlavorName("red")
_SLOT = ResourceSet.of({"cpu": 1, "memory": "1GiB"})
_HELD = (1, 100, 1000)
_COUNTER = "return redis.call('INCR', KEYS[1])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One side."""

    server: str
    what: str
    per_s: float  #: Calls, or leases.
    to_count: float  #: Of the calls per second that the bare counter makes.
    least: float | None = None  #: What `to_count` has to reach.

    @property
    def is_within(self) -> bool:
        """The limit holds."""
        return self.least is None or self.to_count >= self.least


def measure(turns: int = TURNS, *, calls: int = 2000) -> list[Found]:
    """All sides on every server; `turns` calls that grow and shrink, and so many heartbeats."""
    found: list[Found] = []
    for binary in servers().values():
        with running_redis(binary) as client:
            found += _measure(client, calls, turns)
    return found


def _measure(client: redis.Redis, calls: int, turns: int) -> list[Found]:
    server = f"Redis {client.info('server')['redis_version']}"
    sha = client.script_load(_COUNTER)
    counted = _per_s(lambda: client.evalsha(sha, 1, "counter"), calls)
    found = [Found(server=server, what="bare counter", per_s=counted, to_count=1.0)]
    ledger = RedisLedger(client, Keys("bench"), terms=LeaseTerms(ttl_ms=600_000, grace_ms=10_000), founding=True)
    tenants = _tree(ledger)
    for held in _HELD:
        mesh = HandMesh(ledger, MeshRecord(mesh=MeshId(f"m{held}"), labels={}, pools=(), cluster="c"))
        for first in range(0, held, ROWS_MAX):
            _take_in(mesh, ledger.acquire(mesh.session, _wants(mesh, tenants[first : min(held, first + ROWS_MAX)])))
        per_s = _per_s(mesh.beat, calls)
        what = f"heartbeat, {held} leases"
        found.append(Found(server=server, what=what, per_s=per_s, to_count=per_s / counted, least=HEARTBEAT_SHARE_MIN))
    for what, spent in _grow_and_shrink(ledger, tenants[:ROWS_MAX], turns).items():
        per_s = ROWS_MAX / spent
        found.append(Found(server=server, what=what, per_s=per_s, to_count=per_s / counted, least=LEASES_PER_COUNT_MIN))
    return found


def _grow_and_shrink(ledger: RedisLedger, tenants: list[TenantPath], turns: int) -> dict[str, float]:
    """Seconds of the call of either kind that was disturbed least."""
    mesh = HandMesh(ledger, MeshRecord(mesh=MeshId("grows"), labels={}, pools=(), cluster="c"))
    grow_s, shrink_s = [], []
    for _ in range(turns):
        wants = _wants(mesh, tenants)
        started = time.perf_counter()
        acquired = ledger.acquire(mesh.session, wants)
        grow_s.append(time.perf_counter() - started)
        _take_in(mesh, acquired)
        parts = tuple(Kept(tenant=path, flavor=_RED, version=mesh.lease(path, _RED).version, amounts=ResourceSet()) for path in tenants)
        started = time.perf_counter()
        told = ledger.release(mesh.session, parts)
        shrink_s.append(time.perf_counter() - started)
        mesh.session = replace(mesh.session, mark=told.mark)
        mesh.leases.clear()
    return {f"grow {ROWS_MAX} leases a call": min(grow_s), f"shrink {ROWS_MAX} leases a call": min(shrink_s)}


def _per_s(call: Callable[[], object], calls: int) -> float:
    """Calls per second in the run that was disturbed least, of twenty."""
    spent = []
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(calls // 20):
            call()
        spent.append(time.perf_counter() - started)
    return calls / 20 / min(spent)


def _tree(ledger: RedisLedger) -> list[TenantPath]:
    """A thousand tenants, four deep."""
    limits = {(_RED, "cpu"): Quota(nominal=10**9), (_RED, "memory"): Quota(nominal=10**13)}
    root, middle = TenantPath("r"), TenantPath("r/m")
    teams = [TenantPath(f"r/m/{number}") for number in range(10)]
    leaves = [TenantPath(f"{team}/{number}") for team in teams for number in range(100)]
    above = [Tenant(path=root, parent=None, quotas=limits), Tenant(path=middle, parent=root)]
    below = [Tenant(path=team, parent=middle) for team in teams]
    ledger.configure(TenantTree([*above, *below, *(Tenant(path=leaf, parent=TenantPath(leaf.rpartition("/")[0])) for leaf in leaves)]))
    return leaves


def _wants(mesh: HandMesh, tenants: list[TenantPath]) -> tuple[Want, ...]:
    return tuple(Want(tenant=path, flavor=_RED, slot=_SLOT, version=mesh.lease(path, _RED).version) for path in tenants)


def _take_in(mesh: HandMesh, acquired: Acquired) -> None:
    told: Told = acquired.told
    mesh.session = replace(mesh.session, mark=told.mark)
    mesh.leases.update({(lease.tenant, lease.flavor): lease for lease in told.leases})


def table(found: list[Found]) -> Table:
    """One row for each side."""
    shown = Table(title="the lease ledger beside a bare counter, one client", title_justify="left", box=None, pad_edge=False)
    for column in ("server", "side", "per second", "of the counter", "at least", "within"):
        shown.add_column(column, justify="right", no_wrap=True)
    for side in found:
        least = "" if side.least is None else f"{side.least:g}"
        within = "" if side.least is None else "yes" if side.is_within else "NO"
        shown.add_row(side.server, side.what, f"{side.per_s:,.0f}", f"{side.to_count:.2f}", least, within)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """The same figures for programs."""
    names = (*Found.__slots__, "is_within")
    return {"name": "lease_ledger", "sides": [{name: getattr(side, name) for name in names} for side in found]}
