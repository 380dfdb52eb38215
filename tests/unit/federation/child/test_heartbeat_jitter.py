"""Jitter of heartbeats over many meshes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.child.deadlines import Deadlines
from federation.child.heartbeat_jitter import interval_ms

TTL_MS, HEARTBEAT_MS = 10_000, 2_000
MESHES = [f"mesh-{number}" for number in range(200)]
names = st.text(min_size=1, max_size=20)


def interval(mesh, number, heartbeat_ms=HEARTBEAT_MS, ttl_ms=TTL_MS):
    return interval_ms(mesh, number, heartbeat_ms=heartbeat_ms, ttl_ms=ttl_ms)


@given(names, st.integers(1, 10**9), st.integers(50, 100_000), st.integers(200, 3_600_000))
def test_interval_varies_by_a_fifth_at_most(mesh, number, heartbeat_ms, ttl_ms):
    assert heartbeat_ms * 4 // 5 <= interval(mesh, number, heartbeat_ms, ttl_ms) <= heartbeat_ms * 6 // 5


@given(names, st.integers(0, 10**9), st.integers(200, 3_600_000), st.data())
def test_jitter_keeps_heartbeats_before_their_deadlines(mesh, number, ttl_ms, data):
    heartbeat_ms = data.draw(st.integers(1, max(1, (ttl_ms - 1) // 2)))
    deadlines = Deadlines.of(ttl_ms)
    once_ms, again_ms = (interval(mesh, each, heartbeat_ms, ttl_ms) for each in (number, number + 1))
    for deadline_ms in (deadlines.no_admission_ms, deadlines.stop_ms, deadlines.over_ms):
        assert once_ms <= max(heartbeat_ms, deadline_ms)
        if 2 * heartbeat_ms <= deadline_ms:
            assert once_ms + again_ms <= deadline_ms


def test_second_heartbeats_of_many_meshes_are_spread():
    due_ms = sorted(interval(mesh, 0) for mesh in MESHES)
    assert due_ms[0] >= HEARTBEAT_MS // 5
    assert due_ms[-1] <= HEARTBEAT_MS
    slots = {at_ms // 200 for at_ms in due_ms}
    assert slots >= set(range(2, 10))


@pytest.mark.parametrize("ttl_ms", [TTL_MS, None])
def test_no_two_meshes_keep_step(ttl_ms):
    paces = {tuple(interval(mesh, number, ttl_ms=ttl_ms) for number in range(1, 6)) for mesh in MESHES}
    assert len(paces) == len(MESHES)


def test_heartbeat_interval_is_reproducible():
    assert [interval("east", number) for number in range(4)] == [interval("east", number) for number in range(4)]


def test_on_average_a_mesh_beats_as_often_as_the_file_says():
    heartbeats = 5_000
    total_ms = sum(interval("east", number) for number in range(1, heartbeats + 1))
    assert abs(total_ms / heartbeats - HEARTBEAT_MS) < HEARTBEAT_MS / 50
