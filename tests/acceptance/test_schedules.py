"""Schedules on a whole federation: a trigger, a time that was missed while the root was away, a replaced run."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from federation_bed import LIMIT_S, TENANT, eventually

import dag
from dag.schedules.schedule import Schedule
from dag.store.remote import Client, Run
from dag.store.schedules import ScheduleHandle
from mesh.core.ids import RunId, TenantPath
from serve_apps.processes.stores import Stores

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

YEAR_MS = 365 * 86_400_000


def say(at: str) -> str:
    return f"at {at}"


def schedule(client: Client, name: str, graph: dag.Node, overlap: str = "skip") -> ScheduleHandle:
    """Make a schedule that fires by itself once a year: a test decides when."""
    here = sys.modules[__name__]
    return dag.schedule(graph, name=name, cron="0 0 1 1 *", overlap=overlap, tenant=TENANT, by_value=(here,), client=client)


def make_due(stores: Stores, name: str) -> Schedule:
    """Let the schedule have been without a coordinator for two years."""
    schedules = stores.schedules
    kept = schedules.load(TenantPath(TENANT), name)
    assert kept is not None
    before_ms = kept.cursor_ms - 2 * YEAR_MS
    made = schedules.put(replace(kept, cursor_ms=before_ms, next_ms=before_ms))
    assert made is not None
    return made


def fired(handle: ScheduleHandle) -> dict[str, Any]:
    """Return the firing by cron."""
    firings = [firing for firing in handle.show()["firings"] if not firing["triggered"]]
    assert firings
    return firings[0]


def waits_for_signal(client: Client, run: Run) -> None:
    line = client.ask(f"{run.path}/summary")
    assert (line["state"], line["reason"]) == ("WAITING", "WAITING_FOR_SIGNAL")


def test_schedules_fire_by_trigger_and_by_cron(client: Client, stores: Stores) -> None:
    handle = schedule(client, "yearly", dag.bind(say, dag.param("SCHEDULED_AT", default="")))
    assert handle.trigger().result(timeout=LIMIT_S).startswith("at 20")
    make_due(stores, "yearly")
    firing = eventually(lambda: fired(handle))
    assert Run(RunId(firing["run"]), client).result(timeout=LIMIT_S) == f"at {firing['due_at']}"
    assert [one["outcome"] for one in handle.show()["firings"]] == ["STARTED", "STARTED"]
    assert [one["labels"]["schedule"] for one in handle.show()["runs"]] == ["yearly", "yearly"]
    handle.delete()


def test_replace_cancels_the_earlier_run(client: Client, stores: Stores) -> None:
    handle = schedule(client, "replacing", dag.after(dag.bind(say, ""), dag.wait_signal("go")), overlap="replace")
    first = handle.trigger()
    make_due(stores, "replacing")
    second = Run(RunId(eventually(lambda: fired(handle))["run"]), client)
    assert first.wait(timeout=LIMIT_S) == "CANCELLED"
    eventually(lambda: waits_for_signal(client, second))
    second.signal("go")
    assert second.result(timeout=LIMIT_S) == "at "
    handle.delete()
