"""Cost of the lease ledger relative to the cheapest possible script, on every Redis server of this machine.

One client on one server makes call after call, and all sides take turns, so all use the same connection and machine. Results are
medians; ratios are medians over the turns. The reference is a script that increments one key. A heartbeat must cost the same
whatever is held, and at most twice the reference. A call that grants or takes back a hundred leases (four tenants deep, two
resources) must handle two leases or more in the time of the reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import redis
from rich.table import Table

from benchmarks.measuring import WALL, Sample, Series, in_turns
from federation.leases import ROWS_MAX, Acquired, HeartbeatReport, LeaseAck, LeaseTerms, LedgerResponse, QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from federation.store.redis.fixtures import running_redis, servers
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import ResourceSet

TURNS = 30
HEARTBEAT_SHARE_MIN, LEASES_PER_COUNT_MIN = 0.5, 2.0
_RED = FlavorName("red")
_SLOT = ResourceSet.of({"cpu": 1, "memory": "1GiB"})
_HELD = (1, 100, 1000)
_COUNTING, _GROWING, _SHRINKING = "bare counter", f"grow {ROWS_MAX} leases a call", f"shrink {ROWS_MAX} leases a call"
#: For all calls but heartbeats.
_LEAST = {_GROWING: LEASES_PER_COUNT_MIN, _SHRINKING: LEASES_PER_COUNT_MIN}
_COUNTER = "return redis.call('INCR', KEYS[1])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one side."""

    server: str
    what: str
    per_s: float  #: Calls, or leases.
    to_count: float  #: Relative to the bare counter's calls per second.
    least: float | None = None  #: Least allowed `to_count`.

    @property
    def is_within(self) -> bool:
        """Return whether the limit holds."""
        return self.least is None or self.to_count >= self.least


def measure(turns: int = TURNS, *, calls: int = 100) -> list[Found]:
    """Measure all sides on every server, in turns: `calls` calls per side and turn, but one of a side that grows or shrinks."""
    found: list[Found] = []
    for binary in servers().values():
        with running_redis(binary) as client:
            found += _measure(client, calls, turns)
    return found


def _measure(client: redis.Redis, calls: int, turns: int) -> list[Found]:
    server = f"Redis {client.info('server')['redis_version']}"
    sha = client.script_load(_COUNTER)
    ledger = RedisLedger(client, Keys("bench"), terms=LeaseTerms(ttl_ms=600_000, grace_ms=10_000), founding=True)
    tenants = _tree(ledger)
    sides: dict[str, Callable[[], Sample]] = {_COUNTING: partial(_spent, lambda: client.evalsha(sha, 1, "counter"), calls)}
    for held in _HELD:
        mesh = _mesh(ledger, f"m{held}")
        for first in range(0, held, ROWS_MAX):
            _apply(mesh, ledger.acquire(mesh.session, _demands(mesh, tenants[first : min(held, first + ROWS_MAX)])))
        sides[f"heartbeat, {held} leases"] = partial(_spent, partial(_heartbeat, mesh), calls)
    grows = _mesh(ledger, "grows")
    sides[_GROWING] = partial(_grow, ledger, grows, tenants[:ROWS_MAX])
    sides[_SHRINKING] = partial(_shrink, ledger, grows, tenants[:ROWS_MAX])
    taken = in_turns(sides, warm_ups=2, turns=turns)
    counted = _series(_COUNTING, taken)
    return [_found(server, _series(side, taken), counted) for side in sides]


def _found(server: str, side: Series, counted: Series) -> Found:
    """Return the rate and its ratio to the counter's. Both come from times per call or lease, so the ratio of times is inverted."""
    least = None if side.name == counted.name else _LEAST.get(side.name, HEARTBEAT_SHARE_MIN)
    return Found(server=server, what=side.name, per_s=1000 / side.median_ms, to_count=1 / side.ratio_to(counted), least=least)


def _series(side: str, taken: dict[str, list[Sample]]) -> Series:
    return Series(name=side, samples_ms=tuple(sample[WALL] for sample in taken[side]))


def _spent(call: Callable[[], object], calls: int) -> Sample:
    """Return milliseconds per call."""
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return {WALL: (time.perf_counter() - started) * 1000 / calls}


def _heartbeat(mesh: ManualMesh) -> None:
    """Send a heartbeat without reports. Work of the mesh on the response is not counted, as with the other calls."""
    mesh.number += 1
    mesh.ledger.heartbeat(mesh.session, mesh.record, HeartbeatReport(number=mesh.number))


def _grow(ledger: RedisLedger, mesh: ManualMesh, tenants: list[TenantPath]) -> Sample:
    """Return milliseconds per lease; leases still held are returned first, which is not counted."""
    _release(ledger, mesh, tenants)
    demands = _demands(mesh, tenants)
    started = time.perf_counter()
    acquired = ledger.acquire(mesh.session, demands)
    spent = (time.perf_counter() - started) * 1000 / len(tenants)
    _apply(mesh, acquired)
    return {WALL: spent}


def _shrink(ledger: RedisLedger, mesh: ManualMesh, tenants: list[TenantPath]) -> Sample:
    """Return milliseconds per lease; the leases are granted first, which is not counted."""
    _grow(ledger, mesh, tenants)
    return {WALL: _release(ledger, mesh, tenants) / len(tenants)}


def _release(ledger: RedisLedger, mesh: ManualMesh, tenants: list[TenantPath]) -> float:
    parts = tuple(LeaseAck(tenant=path, flavor=_RED, version=mesh.lease(path, _RED).version, amounts=ResourceSet()) for path in tenants)
    started = time.perf_counter()
    response = ledger.release(mesh.session, parts)
    spent = (time.perf_counter() - started) * 1000
    mesh.session = replace(mesh.session, mark=response.mark)
    mesh.leases.clear()
    return spent


def _mesh(ledger: RedisLedger, name: str) -> ManualMesh:
    return ManualMesh(ledger, MeshRecord(mesh=MeshId(name), labels={}, pools=(), cluster="c"))


def _tree(ledger: RedisLedger) -> list[TenantPath]:
    """Return a tree of a thousand tenants, four deep. Each owns what it asks for: what several would borrow in one call is contested."""
    limits = {(_RED, "cpu"): Quota(nominal=10**9), (_RED, "memory"): Quota(nominal=10**13)}
    root, middle = TenantPath("r"), TenantPath("r/m")
    teams = [TenantPath(f"r/m/{number}") for number in range(10)]
    leaves = [TenantPath(f"{team}/{number}") for team in teams for number in range(100)]
    above = [Tenant(path=root, parent=None, quotas=limits), Tenant(path=middle, parent=root)]
    below = [Tenant(path=team, parent=middle) for team in teams]
    own = {(_RED, name): Quota(nominal=units) for name, units in _SLOT.times(len(_HELD) + 1).items()}
    owners = [Tenant(path=leaf, parent=TenantPath(leaf.rpartition("/")[0]), quotas=own) for leaf in leaves]
    ledger.configure(TenantTree([*above, *below, *owners]))
    return leaves


def _demands(mesh: ManualMesh, tenants: list[TenantPath]) -> tuple[QuotaDemand, ...]:
    return tuple(QuotaDemand(tenant=path, flavor=_RED, slot=_SLOT, version=mesh.lease(path, _RED).version) for path in tenants)


def _apply(mesh: ManualMesh, acquired: Acquired) -> None:
    response: LedgerResponse = acquired.response
    mesh.session = replace(mesh.session, mark=response.mark)
    mesh.leases.update({(lease.tenant, lease.flavor): lease for lease in response.leases})


def table(found: list[Found]) -> Table:
    """Return a table with one row per side."""
    shown = Table(title="the lease ledger beside a bare counter, one client", title_justify="left", box=None, pad_edge=False)
    for column in ("server", "side", "per second", "of the counter", "at least", "within"):
        shown.add_column(column, justify="right", no_wrap=True)
    for side in found:
        least = "" if side.least is None else f"{side.least:g}"
        within = "" if side.least is None else "yes" if side.is_within else "NO"
        shown.add_row(side.server, side.what, f"{side.per_s:,.0f}", f"{side.to_count:.2f}", least, within)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    names = (*Found.__slots__, "is_within")
    return {"name": "lease_ledger", "sides": [{name: getattr(side, name) for name in names} for side in found]}
