"""Cancelling tasks while they begin and end: Ray aborts the process that owns them, unless its own thread cancels."""

from __future__ import annotations

import queue
import sys
import threading

import cloudpickle
import pytest
import ray

from mesh.ray.stage_runner.ray_thread import RayThread

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray

PATIENCE_S = 60.0


@ray.remote(num_cpus=0.5, max_retries=0)
def give(value: int) -> int:
    return value


@ray.remote(num_cpus=0)
class Owner:
    """Owner of tasks that it cancels."""

    def cancel_readers(self, rounds: int, readers: int) -> int:
        """Cancel tasks that begin or end at that moment; return the number of rounds."""
        ray_thread = RayThread()
        for number in range(rounds):
            first = give.remote(1)
            waiting = [give.remote(first) for _ in range(readers)]
            ray.wait(waiting if number % 2 else [first], timeout=PATIENCE_S)
            ray_thread.cancel(waiting, force=False)
            ray.wait(waiting, num_returns=readers, timeout=PATIENCE_S)
        return rounds


def test_calls_come_in_order_from_one_thread_of_rays(ray_driver):
    called: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    ray_thread = RayThread()
    for number in range(3):
        ray_thread.call(lambda number=number: called.put((number, threading.get_native_id())))
    numbers, threads = zip(*(called.get(timeout=PATIENCE_S) for _ in range(3)), strict=True)
    assert numbers == (0, 1, 2)
    assert len(set(threads)) == 1
    assert threads[0] not in {thread.native_id for thread in threading.enumerate()}


def test_a_call_that_fails_does_not_stop_the_next(ray_driver):
    called = threading.Event()
    ray_thread = RayThread()
    ray_thread.call(lambda: 1 / 0)
    ray_thread.call(called.set)
    assert called.wait(PATIENCE_S)


@pytest.mark.faults
@pytest.mark.slow
def test_an_owner_survives_the_cancelling_of_ending_tasks(ray_driver):
    owner = Owner.remote()
    assert ray.get(owner.cancel_readers.remote(60, 200), timeout=280) == 60
    ray.kill(owner)
