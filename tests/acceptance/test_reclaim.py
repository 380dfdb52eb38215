"""Quota over two real Ray clusters: lent, reclaimed across clusters, and returned when a cluster dies."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, eventually, submit, wait_for

import dag
from dag.store.remote import Client, Run
from mesh.core.reasons import Reason
from serve_apps.processes.stores import Stores
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

OWNER, GUEST, ORDERLY = "shared/owner", "shared/guest", "shared/orderly"
EAST, WEST = {"zone": "east"}, {"zone": "west"}


def wait_for_gate(folder: str, name: str) -> str:
    """Log each attempt; return when the gate is open."""
    with Path(folder, name).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(folder, "gate").exists():
        time.sleep(0.01)
    return name


def name_of(name: str) -> str:
    return name


def attempts(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def gated(client: Client, folder: Path, name: str, labels: dict[str, str], tenant: str = GUEST) -> Run:
    """Submit a run and wait until it has begun."""
    run = submit(client, dag.task(wait_for_gate, labels=labels, name=name).bind(str(folder), name), tenant=tenant)
    eventually(lambda: _assert_attempts(folder, name, 1))
    return run


def _assert_attempts(folder: Path, name: str, count: int) -> None:
    assert attempts(folder, name) == count


def losses(run: Run) -> list[tuple[str | None, str | None]]:
    """Return the mesh and the reason of each stopped or lost stage."""
    return [
        (event.mesh, event.reason.value if event.reason is not None else None)
        for event in run.events()
        if event.kind == "stage" and event.after in ("STOPPED", "LOST")
    ]


def cpus_of(stores: Stores, tenant: str) -> int:
    return (
        sum(units for (path, _, resource), units in stores.ledger.snapshot().usage.items() if (path, resource) == (tenant, "cpu")) // 10_000
    )


def incarnation_of(stores: Stores, mesh: str) -> int:
    views = [view for view in stores.ledger.snapshot().meshes if view.record.mesh == mesh]
    assert [view.alive for view in views] == [True]
    return views[0].incarnation


def _assert_billed(client: Client) -> None:
    """Check that the bill has what the guest held, what of it was borrowed, and what it lost; and that its owner lost nothing."""
    (guest,) = (row for row in client.usage(tenant=GUEST) if row.resource == "cpu")
    assert guest.used > guest.lost > 0
    assert guest.used >= guest.borrowed > 0
    assert sum(row.used for row in client.usage(tenant=GUEST, by=("day", "user", "flavor")) if row.resource == "cpu") >= guest.used
    (owner,) = (row for row in client.usage(tenant=OWNER) if row.resource == "cpu")
    assert (owner.used > 0, owner.borrowed) == (True, 0)


def test_s40_quota_lent_on_a_cluster_is_reclaimed_on_another(sharers: Client, stores: Stores, tmp_path: Path) -> None:
    runs = [gated(sharers, tmp_path, "first", EAST), gated(sharers, tmp_path, "second", WEST), gated(sharers, tmp_path, "third", WEST)]
    assert (cpus_of(stores, GUEST), cpus_of(stores, OWNER)) == (3, 0)  # All quota is lent.
    claimed = submit(sharers, dag.task(name_of, labels=EAST).bind("mine"), tenant=OWNER)
    assert claimed.result(LIMIT_S) == "mine"
    (tmp_path / "gate").touch()
    assert [run.result(LIMIT_S) for run in runs] == ["first", "second", "third"]
    lost = [loss for run in runs for loss in losses(run)]
    assert lost
    assert {reason for _, reason in lost} == {Reason.QUOTA_RECLAIMED.value}
    assert sum(attempts(tmp_path, name) for name in ("first", "second", "third")) == 3 + len(lost)
    eventually(lambda: _assert_billed(sharers))


def test_s41_urgent_work_preempts_and_the_victim_reruns(sharers: Client, stores: Stores, tmp_path: Path) -> None:
    runs = [gated(sharers, tmp_path, name, EAST, OWNER) for name in ("one", "two")]
    eventually(lambda: _assert_full(stores, "east"))
    urgent = submit(sharers, dag.task(name_of, labels=EAST, priority=9).bind("urgent"), tenant=OWNER)
    assert urgent.result(LIMIT_S) == "urgent"  # The gate is still shut, so a victim made room.
    (tmp_path / "gate").touch()
    assert [run.result(LIMIT_S) for run in runs] == ["one", "two"]
    assert [loss for run in (*runs, urgent) for loss in losses(run)] == [("east", Reason.PREEMPTED_WITHIN_TENANT.value)]
    assert sum(attempts(tmp_path, name) for name in ("one", "two")) == 3


def test_strict_fifo_keeps_small_work_behind_large_work(sharers: Client, tmp_path: Path) -> None:
    runs = [gated(sharers, tmp_path, "first", EAST, ORDERLY)]
    for name, cpus, reason in (("large", 2, Reason.POOL_BUSY), ("small", 1, Reason.BEHIND_HEAD)):
        task = dag.task(wait_for_gate, labels=EAST, name=name, num_cpus=cpus)
        runs.append(submit(sharers, task.bind(str(tmp_path), name), tenant=ORDERLY))
        wait_for(runs[-1], lambda event, reason=reason: event.reason is reason)  # type: ignore[misc]
    assert attempts(tmp_path, "small") == 0  # One CPU of the mesh is free.
    (tmp_path / "gate").touch()
    assert [run.result(LIMIT_S) for run in runs] == ["first", "large", "small"]
    began = [next(event.at_ms for event in run.events() if event.kind == "stage" and event.after == "RUNNING") for run in runs]
    assert began == sorted(began)


def test_quota_of_a_killed_cluster_returns_and_work_moves(stack: Stack, sharers: Client, stores: Stores, tmp_path: Path) -> None:
    full, folder = tmp_path / "full", tmp_path / "moved"
    full.mkdir()
    folder.mkdir()
    fillers = [gated(sharers, full, name, EAST) for name in ("one", "two")]  # The third has to go west.
    eventually(lambda: _assert_full(stores, "east"))
    run = submit(sharers, dag.task(wait_for_gate, name="moved").bind(str(folder), "moved"), tenant=GUEST)
    eventually(lambda: _assert_attempts(folder, "moved", 1))
    before = incarnation_of(stores, "west")
    stack.clusters["second"].kill()
    (full / "gate").touch()
    eventually(lambda: _assert_attempts(folder, "moved", 2))
    (folder / "gate").touch()
    assert [filler.result(LIMIT_S) for filler in fillers] == ["one", "two"]
    assert run.result(LIMIT_S) == "moved"
    assert attempts(folder, "moved") == 2
    assert {mesh for mesh, _ in losses(run)} <= {"west"}  # Runner, mesh and ledger may each notice first; a node's own loss ends no stage.
    eventually(lambda: _assert_nothing_held(stores))
    eventually(lambda: _assert_joined_again(stores, "west", before))  # The files that follow use it.


def _assert_full(stores: Stores, mesh: str) -> None:
    (pool,) = next(view.record.pools for view in stores.ledger.snapshot().meshes if view.record.mesh == mesh)
    assert pool.used["cpu"] == pool.capacity["cpu"]


def _assert_nothing_held(stores: Stores) -> None:
    assert cpus_of(stores, GUEST) == 0


def _assert_joined_again(stores: Stores, mesh: str, before: int) -> None:
    assert incarnation_of(stores, mesh) > before
