"""Cost of a planner tick with a real Redis: reading the ledger, planning, and applying, separately.

Teams are in groups of twenty under one root, each with quotas of five flavors and two resources. A thousand of them are active: each
has one lease, on one of a hundred meshes. Three kinds of tick take turns: one without changes since a tick that changed something; another
one, for which the plan before still holds; and one after a hundred leases have grown and a hundred teams demand a slot more that is free.
Times are this process's processor time, and `redis` the server's: equal to wall time on an idle machine. Reading must cost no more than
planning, and depend on the leases held, not on the number of tenants.
`first look` is the cost of reading the tree, at a process's start and after each change of the tree.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import redis
from rich.table import Table

from federation.leases import LeaseLedger, LeaseTerms, QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.planning.planner_loop import PlannerLoop
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.redis.fixtures import running_redis, servers
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.resources import ResourceSet
from serve_apps.processes.process import collect_seldom

TENANTS, ACTIVE = (1_000, 10_000, 100_000), 1_000
TURNS = 9
MESHES, FLAVORS, TEAMS_A_GROUP, DEMANDS = 100, tuple(FlavorName(f"flavor-{number}") for number in range(5)), 20, 100
_SLOT = ResourceSet.of({"cpu": 1, "memory": "1GiB"})
#: Longer than any turn, so that no session expires.
_LONG_MS = 3_600_000
_NOTHING_NEW, _AGAIN, _SOMETHING_NEW = "nothing new", "again nothing new", f"{DEMANDS} leases grown, {DEMANDS} wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one kind of tick at one size; medians over the turns."""

    tenants: int
    what: str
    first_ms: float  #: First read of a process.
    tick_ms: float
    read_ms: float
    plan_ms: float
    apply_ms: float
    redis_ms: float  #: Processor time of the server, for the whole tick.
    wall_ms: float
    raised: int

    @property
    def is_within(self) -> bool:
        """Return whether reading costs no more than planning."""
        return self.read_ms <= self.plan_ms or self.what == _AGAIN


@dataclass(slots=True)
class ClockedLedger:
    """Ledger that measures the processor time of its calls, in ms."""

    ledger: RedisLedger
    read_ms: float = 0.0
    apply_ms: float = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    def snapshot(self) -> Any:
        begun = time.process_time()
        found = self.ledger.snapshot()
        self.read_ms += (time.process_time() - begun) * 1000
        return found

    def plan_apply(self, *arguments: Any) -> Any:
        begun = time.process_time()
        found = self.ledger.plan_apply(*arguments)
        self.apply_ms += (time.process_time() - begun) * 1000
        return found


def measure(turns: int = TURNS, *, sizes: tuple[int, ...] = TENANTS, active: int = ACTIVE) -> list[Found]:
    """Measure all sizes in turn, in a process set up as the coordinator's, on the `redis-server` of the PATH if there is one."""
    collect_seldom()
    found: list[Found] = []
    for tenants in sizes:
        with running_redis(servers().get("path")) as client:
            found.extend(_measure(client, tenants, active, turns))
    return found


def table(found: list[Found]) -> Table:
    """Return a table with one row per size and kind."""
    held = f"{ACTIVE:,} leases on {MESHES} meshes, {len(FLAVORS)} flavors of {len(_SLOT)} resources"
    title = f"a tick of the planner; {held}; processor time"
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("tenants", "first look"):
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_column("then", no_wrap=True)
    for column in ("tick", "read", "plan", "apply", "redis", "wall", "raised", "within"):
        shown.add_column(column, justify="right", no_wrap=True)
    for side in found:
        times = [f"{ms:,.1f} ms" for ms in (side.tick_ms, side.read_ms, side.plan_ms, side.apply_ms, side.redis_ms, side.wall_ms)]
        within = "yes" if side.is_within else "NO"
        shown.add_row(f"{side.tenants:,}", f"{side.first_ms:,.0f} ms", side.what, *times, f"{side.raised:,}", within)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    names = (*Found.__slots__, "is_within")
    return {"name": "planner_tick", "sides": [{name: getattr(side, name) for name in names} for side in found]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tick:
    """Times of one tick."""

    tick_ms: float
    read_ms: float
    apply_ms: float
    redis_ms: float
    wall_ms: float
    raised: int


def _measure(client: redis.Redis, tenants: int, active: int, turns: int) -> Iterator[Found]:
    terms = LeaseTerms.of(_LONG_MS, _LONG_MS // 3)
    ledger = RedisLedger(client, Keys(), terms=terms, founding=True)
    ledger.configure(TenantTree(_tenants(tenants)))
    teams = [(path, FLAVORS[number % len(FLAVORS)]) for number, path in enumerate(_teams(tenants, active))]
    meshes = [ManualMesh(ledger, _record(number)) for number in range(MESHES)]
    for number, (team, flavor) in enumerate(teams):
        meshes[number % MESHES].acquire(team, flavor, _SLOT, 3)
    clocked = ClockedLedger(RedisLedger(client, Keys(), terms=terms))
    planner_loop = PlannerLoop(cast("LeaseLedger", clocked), "root", leader_ttl_ms=_LONG_MS, tenant_policies=MemoryTenantPolicies())
    begun = time.process_time()
    clocked.snapshot()
    first_ms = (time.process_time() - begun) * 1000
    planner_loop.tick()
    still: list[_Tick] = []
    again: list[_Tick] = []
    moving: list[_Tick] = []
    for turn in range(turns):
        still.append(_ticked(client, planner_loop, clocked))
        again.append(_ticked(client, planner_loop, clocked))
        _demand(meshes, teams, turn)
        moving.append(_ticked(client, planner_loop, clocked))
        for mesh in meshes:
            mesh.heartbeat(demands=())
    for what, ticks in (
        (_NOTHING_NEW, still),
        (_AGAIN, again),
        (_SOMETHING_NEW, moving[1:] or moving),
    ):  # No lease has grown before the first kind of tick.
        yield _found(tenants, what, first_ms, ticks)


def _found(tenants: int, what: str, first_ms: float, ticks: list[_Tick]) -> Found:
    tick, read, apply, server, wall = (
        statistics.median(getattr(one, name) for one in ticks) for name in ("tick_ms", "read_ms", "apply_ms", "redis_ms", "wall_ms")
    )
    plan_ms = statistics.median(one.tick_ms - one.read_ms - one.apply_ms for one in ticks)
    return Found(
        tenants=tenants,
        what=what,
        first_ms=first_ms,
        tick_ms=tick,
        read_ms=read,
        plan_ms=plan_ms,
        apply_ms=apply,
        redis_ms=server,
        wall_ms=wall,
        raised=ticks[-1].raised,
    )


def _ticked(client: redis.Redis, planner_loop: PlannerLoop, clocked: ClockedLedger) -> _Tick:
    gc.collect()
    clocked.read_ms = clocked.apply_ms = 0.0
    served = _served_ms(client)
    begun, used = time.perf_counter(), time.process_time()
    plan = planner_loop.tick()
    tick_ms, wall_ms = (time.process_time() - used) * 1000, (time.perf_counter() - begun) * 1000
    return _Tick(
        tick_ms=tick_ms,
        read_ms=clocked.read_ms,
        apply_ms=clocked.apply_ms,
        redis_ms=_served_ms(client) - served,
        wall_ms=wall_ms,
        raised=len(plan.raised) if plan is not None else 0,
    )


def _served_ms(client: redis.Redis) -> float:
    """Return the server's processor time so far."""
    usage = client.info("cpu")
    return 1000.0 * (float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"]))


def _demand(meshes: list[ManualMesh], teams: list[tuple[TenantPath, FlavorName]], turn: int) -> None:
    """Make some teams demand a slot more, each on its own mesh; other teams in the next turn."""
    asking: dict[int, list[QuotaDemand]] = {}
    for place in range(turn * DEMANDS, (turn + 1) * DEMANDS):
        team, flavor = teams[place % len(teams)]
        asking.setdefault(place % len(teams) % MESHES, []).append(QuotaDemand(tenant=team, flavor=flavor, slot=_SLOT))
    for number, demands in asking.items():
        meshes[number].heartbeat(demands=tuple(demands))


def _tenants(count: int) -> Iterator[Tenant]:
    quotas = {(flavor, name): Quota(nominal=units * 10) for flavor in FLAVORS for name, units in _SLOT.items()}
    yield Tenant(path=TenantPath("company"), parent=None)
    for group in range(count // TEAMS_A_GROUP):
        above = TenantPath(f"company/{group}")
        yield Tenant(path=above, parent=TenantPath("company"))
        for team in range(TEAMS_A_GROUP):
            yield Tenant(path=TenantPath(f"{above}/{team}"), parent=above, quotas=quotas)


def _teams(count: int, active: int) -> Iterator[TenantPath]:
    """Return teams spread evenly over all groups."""
    return (TenantPath(f"company/{place // TEAMS_A_GROUP}/{place % TEAMS_A_GROUP}") for place in range(0, count, max(1, count // active)))


def _record(number: int) -> MeshRecord:
    capacity = _SLOT.times(10_000)
    pools = tuple(PoolRecord(pool=PoolName(flavor), flavor=flavor, capacity=capacity) for flavor in FLAVORS)
    return MeshRecord(mesh=MeshId(f"mesh-{number}"), labels={}, pools=pools, cluster="c")
