"""Time of one planner round: no Redis, no Ray, only leases and demands in, targets out.

Teams are in groups of twenty under one root, each with quotas of five flavors and two resources, some with borrowing limits. Each
active tenant has one lease, which pays for stages of one to ten slots, and demands up to ten slots more, on one of a hundred meshes, at
one of four priorities. A third of the demands exceeds the free quota, so part of the round is reclaim.

`read` builds the planning state from leases and demands; `grow` grants free quota; `reclaim` searches for victims. The parts are
timed in rounds of their own, since reading the clock costs time too. Growth is the time relative to that of the fewest tenants,
divided by the ratio of active tenants: below 1 it grows more slowly.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from rich.table import Table

from federation.planning.planner import plan
from federation.planning.planning_state import PlannedDemand, PlanningState
from federation.planning.values import Holding, Plan, PlannerDemand
from federation.planning.victim_search import VictimSearch
from federation.quota.forest import ForestNode, QuotaForest
from federation.quota.policies import MESH
from federation.quota.preemption.candidates import Victim
from federation.snapshot import RunningView
from federation.tenants import Quota
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from serve_apps.processes.process import collect_seldom

#: Tenants in the tree, and active ones among them.
SIZES = ((1_000, 1_000), (10_000, 1_000), (10_000, 10_000), (100_000, 1_000), (100_000, 10_000))
TURNS = 9
MESHES, FLAVORS, TEAMS_A_GROUP = 100, tuple(FlavorName(f"flavor-{number}") for number in range(5)), 20
ROUND_MS_MAX = 50.0  #: With a thousand tenants, all active.
_SLOT = {"cpu": 1, "gpu": 1}
_NOW_MS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one size; medians over the turns."""

    tenants: int
    active: int
    build_ms: float  #: Sums of the tree, computed once per configuration.
    round_ms: float
    cpu_ms: float  #: Processor time of the same rounds: comparable even if other programs use the machine.
    read_ms: float
    grow_ms: float
    reclaim_ms: float
    lowered: int
    raised: int
    unmet: int
    growth: float = 1.0

    @property
    def is_within(self) -> bool:
        """Return whether the limits for this size hold."""
        return (self.tenants, self.active) != SIZES[0] or self.round_ms <= ROUND_MS_MAX


def measure(turns: int = TURNS, *, sizes: tuple[tuple[int, int], ...] = SIZES) -> list[Found]:
    """Measure all sizes in turn, in a process that is set up as the coordinator's."""
    collect_seldom()
    found: list[Found] = []
    for tenants, active in sizes:
        one = _measure(tenants, active, turns, found[0] if found else None)
        found.append(one)
    return found


def table(found: list[Found]) -> Table:
    """Return a table with one row per size."""
    title = f"a round of the planner; {MESHES} meshes, {len(FLAVORS)} flavors of {len(_SLOT)} resources"
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in (
        "tenants",
        "active",
        "tree counted",
        "round",
        "cpu",
        "read",
        "grow",
        "reclaim",
        "lowered",
        "raised",
        "unmet",
        "growth",
        "within",
    ):
        shown.add_column(column, justify="right", no_wrap=True)
    for side in found:
        counts = (f"{side.lowered:,}", f"{side.raised:,}", f"{side.unmet:,}", f"{side.growth:.2f}", "yes" if side.is_within else "NO")
        times = [f"{ms:,.1f} ms" for ms in (side.round_ms, side.cpu_ms, side.read_ms, side.grow_ms, side.reclaim_ms)]
        shown.add_row(f"{side.tenants:,}", f"{side.active:,}", f"{side.build_ms:,.0f} ms", *times, *counts)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    names = (*Found.__slots__, "is_within")
    return {"name": "planner_round", "sides": [{name: getattr(side, name) for name in names} for side in found]}


def _measure(tenants: int, active: int, turns: int, base: Found | None) -> Found:
    random_stream = random.Random(1)  # noqa: S311  a world, no secret
    nodes = list(_nodes(random_stream, tenants))
    begun = time.perf_counter()
    forest = QuotaForest(nodes)
    build_ms = (time.perf_counter() - begun) * 1000
    teams = [TenantPath(forest.names[node]) for node in forest.queues]
    asking = random_stream.sample(teams, active)
    holdings = [_holding(random_stream, team, number) for number, team in enumerate(asking)]
    demands = [_demand(random_stream, team, number) for number, team in enumerate(asking)]
    rounds = [_timed(forest, holdings, demands) for _ in range(turns)]
    round_ms, cpu_ms = (statistics.median(ms) for ms in zip(*((wall, cpu) for wall, cpu, _ in rounds), strict=True))
    answer = rounds[0][2]
    read_ms, reclaim_ms = (statistics.median(ms) for ms in zip(*(_parts(forest, holdings, demands) for _ in range(turns)), strict=True))
    return Found(
        tenants=tenants,
        active=active,
        build_ms=build_ms,
        round_ms=round_ms,
        cpu_ms=cpu_ms,
        read_ms=read_ms,
        grow_ms=max(0.0, round_ms - read_ms - reclaim_ms),
        reclaim_ms=reclaim_ms,
        lowered=len(answer.lowered),
        raised=len(answer.raised),
        unmet=len(answer.unmet),
        growth=round_ms / base.round_ms / (active / base.active) if base else 1.0,
    )


def _timed(forest: QuotaForest, holdings: list[Holding], demands: list[PlannerDemand]) -> tuple[float, float, Plan]:
    """Return wall and processor milliseconds, and the plan."""
    gc.collect()
    begun, used = time.perf_counter(), time.process_time()
    answer = plan(forest, holdings, demands, now_ms=_NOW_MS)
    return (time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000, answer


def _parts(forest: QuotaForest, holdings: list[Holding], demands: list[PlannerDemand]) -> tuple[float, float]:
    """Return the milliseconds of building the planning state, and of all victim searches of one round."""
    begun = time.perf_counter()
    planning_state = PlanningState(forest, holdings, rules=MESH, settings={}, now_ms=_NOW_MS)
    for demand in demands:
        planning_state.claim(demand)
    read_ms = (time.perf_counter() - begun) * 1000
    with Clocked.watching() as clocked:
        plan(forest, holdings, demands, now_ms=_NOW_MS)
    return read_ms, clocked.spent_ms


@dataclass(slots=True)
class Clocked:
    """Total time of all searches for victims."""

    spent_ms: float = 0.0

    @classmethod
    @contextmanager
    def watching(cls) -> Iterator[Clocked]:
        """Measure within the block."""
        clocked, search = cls(), VictimSearch.make_room

        def timed(self: VictimSearch, claim: PlannedDemand, slots: int) -> tuple[Victim, ...] | None:
            begun = time.perf_counter()
            found = search(self, claim, slots)
            clocked.spent_ms += (time.perf_counter() - begun) * 1000
            return found

        with patch.object(VictimSearch, "make_room", timed):
            yield clocked


def _nodes(random_stream: random.Random, tenants: int) -> list[ForestNode]:
    nodes = [ForestNode(name="company")]
    for group in range(tenants // TEAMS_A_GROUP):
        nodes.append(ForestNode(name=f"company/{group}", parent="company"))
        for team in range(TEAMS_A_GROUP):
            quotas = {
                (flavor, name): Quota(nominal=random_stream.choice((0, 2, 4)), borrowing_limit=random_stream.choice((None, None, 8)))
                for flavor in FLAVORS
                for name in _SLOT
            }
            weight = Fraction(random_stream.choice((1, 2)))
            nodes.append(ForestNode(name=f"company/{group}/{team}", parent=f"company/{group}", quotas=quotas, is_queue=True, weight=weight))
    return nodes


def _holding(random_stream: random.Random, team: TenantPath, number: int) -> Holding:
    slots = random_stream.randint(1, 10)
    target = {name: units * slots for name, units in _SLOT.items()}
    mesh, flavor = MeshId(f"mesh-{random_stream.randrange(MESHES)}"), random_stream.choice(FLAVORS)
    priority, running = random_stream.randrange(4), []
    while slots:
        width = random_stream.randint(1, slots)
        slots -= width
        running.append(
            RunningView(
                stage=StageId(f"{team}:{slots}"),
                mesh=mesh,
                tenant=team,
                flavor=flavor,
                amounts=ResourceSet({name: units * width for name, units in _SLOT.items()}),
                priority=priority,
                token=number * 10 + slots + 1,
                since_ms=0,
                created_ms=0,
                is_leaving=False,
            )
        )
    return Holding(mesh=mesh, tenant=team, flavor=flavor, target=target, token=number + 1, priority=priority, running=tuple(running))


def _demand(random_stream: random.Random, team: TenantPath, number: int) -> PlannerDemand:
    mesh, flavor = MeshId(f"mesh-{random_stream.randrange(MESHES)}"), random_stream.choice(FLAVORS)
    slots, priority = random_stream.randint(1, 10), random_stream.randrange(4)
    return PlannerDemand(mesh=mesh, tenant=team, flavor=flavor, slot=_SLOT, slots=slots, priority=priority, since_ms=number)
