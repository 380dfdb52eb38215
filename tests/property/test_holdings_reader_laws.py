"""Kept holdings are those of a new reader, however the ledger changes between two snapshots."""

from __future__ import annotations

from dataclasses import replace

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.planning.planner_inputs import HoldingsReader, holdings_of, running_by_lease
from federation.snapshot import DemandView, FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord, RunningView
from federation.tenants import TenantTree
from mesh.core.resources import ResourceSet

FLAVOR, MESHES, TEAMS = "red", ("east", "west"), ("a", "b", "c")
LEASES = [(mesh, team) for mesh in MESHES for team in TEAMS]
places = st.integers(0, len(LEASES) - 1)
#: Changes between two snapshots, each with a lease and a number.
steps = st.lists(st.tuples(st.sampled_from(["lease", "expire", "start", "stop", "retire", "demand", "protect"]), places, st.integers(0, 3)))


def units(count):
    return ResourceSet({"cpu": count})


def lease_of(place: int, held: int, target: int) -> LeaseView:
    mesh, team = LEASES[place]
    amounts = {"amounts": units(held), "target": units(target)}
    return LeaseView(lease=f"{mesh}|{team}", tenant=team, mesh=mesh, flavor=FLAVOR, token=place + 1, victims=(1,), **amounts)


class World:
    """Rows of a ledger; a row that does not change stays the same object, as from a reader with a cache."""

    def __init__(self) -> None:
        self.leases: dict[int, LeaseView] = {}
        self.running: dict[tuple[int, int], RunningView] = {}
        self.demands: dict[int, DemandView] = {}
        self.protected: set[str] = set()

    def change(self, verb: str, place: int, number: int) -> None:
        mesh, team = LEASES[place]
        where, work = {"mesh": mesh, "tenant": team, "flavor": FLAVOR}, (place, number)
        if verb == "lease":
            self.leases[place] = lease_of(place, 2 * number, 3)
        elif verb == "expire" and place in self.leases:
            self.leases[place] = replace(self.leases[place], incarnation=number)
        elif verb == "start":
            about = {"stage": f"{place}-{number}", "priority": 0, "token": number, "since_ms": 0, "created_ms": 0}
            self.running[work] = RunningView(amounts=units(2), slots=2, **about, **where)
        elif verb == "stop" and work in self.running:
            self.running[work] = replace(self.running[work], is_leaving=True)
        elif verb == "retire" and work in self.running:
            self.running[work] = replace(self.running[work], retiring=1)
        elif verb == "demand":
            self.demands.pop(place, None)
            if number:
                self.demands[place] = DemandView(slot=units(1), slots=number, priority=0, waiting_ms=0, **where)
        elif verb == "protect":
            self.protected ^= {mesh}

    def snapshot(self) -> FederationSnapshot:
        meshes = []
        for mesh in MESHES:
            pool = PoolRecord(pool="p", flavor=FLAVOR, capacity=units(9), used=units(0))
            record = MeshRecord(mesh=mesh, labels={}, pools=(pool,), cluster=mesh)
            if mesh in self.protected:
                limits = replace(record.settings.preemption, protected_pools=("p",))
                record = replace(record, settings=replace(record.settings, preemption=limits))
            meshes.append(MeshView(record=record, incarnation=1, alive=True, heartbeat_age_ms=0))
        rows = {"leases": self.leases, "running": self.running, "demands": self.demands}
        return FederationSnapshot(
            at_ms=0, tree=TenantTree([]), meshes=tuple(meshes), **{name: tuple(each.values()) for name, each in rows.items()}
        )


@given(rounds=st.lists(steps, min_size=2, max_size=6))
@settings(max_examples=examples(300))
def test_kept_holdings_are_those_of_a_new_reader(rounds):
    world, kept = World(), HoldingsReader()
    for changes in rounds:
        for verb, place, number in changes:
            world.change(verb, place, number)
        snapshot = world.snapshot()
        assert kept.read(snapshot, running_by_lease(snapshot)) == holdings_of(snapshot)


def test_a_holding_of_unchanged_rows_is_kept():
    world, kept = World(), HoldingsReader()
    world.change("lease", 0, 1)
    world.change("lease", 1, 1)
    before = kept.read(world.snapshot(), running_by_lease(world.snapshot()))
    world.change("lease", 1, 2)
    after = kept.read(world.snapshot(), running_by_lease(world.snapshot()))
    assert (after[0] is before[0], after[1] is before[1]) == (True, False)
