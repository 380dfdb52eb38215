"""Accepted runs that a store has lost with its last writes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dag.backlog import BacklogLimits
from dag.run.states import RunState
from federation.errors import StoreUnavailable
from mesh.core.ids import RunId
from serve_apps.gateway_fixtures import ACME, GatewayWorld, spec_of
from serve_apps.requests import accepted_runs
from serve_apps.requests.accepted_runs import KEPT_BYTES_MAX, KEPT_MS, AcceptedRuns


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


def keep(world):
    """Return a copy of all data."""
    return world.store.copied(), world.runs.copied()


def lose(world, kept):
    """Restart the server without later writes, and advance the lease clock."""
    world.clock.advance(1)
    world.store.lose_writes(kept[0])
    world.runs.lose_writes(kept[1])


def submit(world, run="night", **fields):
    answer = world.http().post("/v1/runs", json=spec_of("a", id=run, **fields), headers={"Idempotency-Key": run})
    assert answer.status_code in (200, 202), answer.text
    return answer


def accepted(world):
    return world.app.state.dependencies.accepted


def runs(world):
    return [summary.run for summary in world.runs.list(ACME)]


def test_run_lost_by_the_store_is_stored_again(world):
    before = keep(world)
    submit(world)
    record = world.record("night")
    lose(world, before)
    assert runs(world) == []
    assert accepted(world).look() == 1
    assert world.record("night") == record
    assert [(entry.run, entry.kind) for entry in world.store.inbox(0)] == [("night", "submitted")]
    assert submit(world).json()["created"] is False


def test_lost_run_is_restored_once_and_others_stay(world):
    submit(world, "kept")
    before = keep(world)
    submit(world, "lost")
    lose(world, before)
    world.move("kept", RunState.RUNNING)
    assert [accepted(world).look() for _ in range(2)] == [1, 0]
    assert (world.record("kept").state, world.record("lost").state) == (RunState.RUNNING, RunState.PENDING)
    lose(world, before)
    assert accepted(world).look() == 1


def test_restore_is_attempted_only_after_an_epoch_change(world, monkeypatch):
    submit(world)
    monkeypatch.setattr(world.runs, "create", lambda *_: pytest.fail("it was stored again"))
    assert accepted(world).look() == 0


def test_the_code_that_was_sent_along_comes_back(world):
    before = keep(world)
    record = replace(_record(world), run=RunId("night"))
    accepted(world).create(record, {"sha": b"code"}, epoch=world.store.epoch())
    lose(world, before)
    accepted(world).look()
    assert world.store.get(RunId("night"), ("sha",)) == {"sha": b"code"}


def _record(world):
    submit(world, "pattern")
    return replace(world.record("pattern"), key="")


def test_expired_run_is_not_restored(world):
    before = keep(world)
    submit(world, "early")
    world.clock.advance(1)
    submit(world, "late")
    world.clock.advance(KEPT_MS - 2)
    lose(world, before)
    accepted(world).look()
    assert runs(world) == ["late"]


def test_nothing_is_kept_for_longer_than_ended_runs_are(world):
    kept = AcceptedRuns(world.runs, epoch=world.store.epoch, clock=world.clock, kept_ms=50)
    record = _record(world)
    before = keep(world)
    kept.create(replace(record, run=RunId("night")), {}, epoch=world.store.epoch())
    world.clock.advance(49)
    lose(world, before)
    assert kept.look() == 0


def test_oldest_runs_are_dropped_at_the_limit(world):
    record, half = _record(world), bytes(KEPT_BYTES_MAX // 2 - 10_000)
    kept = AcceptedRuns(world.runs, epoch=world.store.epoch, clock=world.clock)
    before = keep(world)
    for name in ("one", "two", "three"):
        kept.create(replace(record, run=RunId(name)), {"sha": half}, epoch=world.store.epoch())
    lose(world, before)
    assert kept.look() == 2
    assert {"two", "three"} <= set(runs(world))


def test_repeat_is_kept_for_an_open_run_only(world):
    """Another replica may have stored it and be gone."""
    before = keep(world)
    submit(world, "going")
    submit(world, "over")
    world.move("over", RunState.RUNNING)
    world.move("over", RunState.SUCCEEDED, ended_ms=1)
    kept = AcceptedRuns(world.runs, epoch=world.store.epoch, clock=world.clock)
    for name in ("going", "over"):
        assert kept.create(world.record(name), {}, epoch=world.store.epoch()) is False
    lose(world, before)
    assert kept.look() == 1
    assert runs(world) == ["going"]


def test_full_store_is_retried_but_a_taken_id_is_not():
    world = GatewayWorld(limits=BacklogLimits(runs_max=1, bytes_max=1 << 30, memory_percent_max=80))
    before = keep(world)
    submit(world)
    lose(world, before)
    submit(world, "other")
    assert accepted(world).look() == 0
    world.move("other", RunState.RUNNING)
    world.move("other", RunState.SUCCEEDED, ended_ms=1)
    world.runs.settle(RunId("other"))
    assert accepted(world).look() == 1
    lose(world, before)
    world.http().post("/v1/runs", json=spec_of("a", "b", id="night"))
    assert [accepted(world).look() for _ in range(2)] == [0, 0]
    assert world.record("night").nodes.keys() == {"a", "b"}


def test_unavailable_store_is_retried_at_the_next_round(world, monkeypatch):
    before = keep(world)
    submit(world)
    lose(world, before)
    monkeypatch.setattr(accepted_runs, "LOOK_S", 0)
    answers = iter([StoreUnavailable("away"), RuntimeError("broken")])
    done = asyncio.Event()
    store_again, loop = world.runs.create, asyncio.new_event_loop()

    def create(record, blobs):
        wrong = next(answers, None)
        if wrong is not None:
            raise wrong
        created = store_again(record, blobs)
        loop.call_soon_threadsafe(done.set)
        return created

    monkeypatch.setattr(world.runs, "create", create)

    async def follow():
        async with world.app.router.lifespan_context(world.app):  # As long as the gateway lives.
            await asyncio.wait_for(done.wait(), 60)

    loop.run_until_complete(follow())
    loop.close()
    assert runs(world) == ["night"]
