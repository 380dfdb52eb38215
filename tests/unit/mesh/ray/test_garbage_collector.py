"""Schedule of the garbage collector, and waiting for its sweep."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator

import pytest
from patience import eventually

from mesh.core.ids import MeshId
from mesh.ray.user_code.collector import GarbageCollector
from mesh.ray.user_code.sweep import Swept

PATIENCE_S = 60.0


class Ray:
    """Fake sweeps with these results in turn; each waits until it is released."""

    def __init__(self, *comes_to: Swept | Exception) -> None:
        self._comes_to = list(comes_to)
        self.may_go_on = threading.Semaphore(0)
        self.begun: queue.SimpleQueue[list[str]] = queue.SimpleQueue()

    def __call__(self, given_back: Collection[str]) -> Swept:
        self.begun.put(sorted(given_back))
        assert self.may_go_on.acquire(timeout=PATIENCE_S)
        swept = self._comes_to.pop(0)
        if isinstance(swept, Exception):
            raise swept
        return swept


@pytest.fixture
def collecting() -> Iterator[Callable[[Ray], GarbageCollector]]:
    made: list[tuple[Ray, GarbageCollector]] = []

    def make(ray: Ray) -> GarbageCollector:
        made.append((ray, GarbageCollector(MeshId("m"), ray, retry_s=0.0)))
        return made[-1][1]

    yield make
    for ray, collector in made:
        ray.may_go_on.release(100)
        collector.close(PATIENCE_S)


def test_a_group_is_clean_when_nothing_was_left(collecting: Callable[[Ray], GarbageCollector]) -> None:
    ray, clean = Ray(Swept.CLEAN, Swept.REMOVED), list[bool]()
    collector = collecting(ray)
    ray.may_go_on.release(2)
    collector.clear("a", clean.append, wait_s=PATIENCE_S)
    collector.clear("b", clean.append, wait_s=PATIENCE_S)
    assert clean == [True, False]


def test_nobody_waits_for_a_removal_that_hangs(collecting: Callable[[Ray], GarbageCollector]) -> None:
    ray, clean = Ray(Swept.CLEAN, Swept.CLEAN, Swept.CLEAN), list[bool]()
    collector = collecting(ray)
    collector.clear("a", clean.append, wait_s=0.01)
    collector.clear("b", clean.append, wait_s=PATIENCE_S)  # One late sweep is enough: this call does not wait.
    collector.clear("c", clean.append, wait_s=PATIENCE_S)
    assert clean == []
    ray.may_go_on.release(2)
    eventually(lambda: clean == [False] * 3)  # Others may have taken the room meanwhile.
    assert [ray.begun.get(timeout=PATIENCE_S) for _ in range(2)] == [["a"], ["b", "c"]]
    ray.may_go_on.release()
    collector.clear("d", clean.append, wait_s=PATIENCE_S)
    assert clean[-1]


@pytest.mark.parametrize("first", [Swept.LEFT, OSError("away")], ids=["something is left", "Ray is away"])
def test_it_sweeps_again_until_nothing_is_left(first: Swept | Exception, collecting: Callable[[Ray], GarbageCollector]) -> None:
    ray, clean = Ray(first, first, Swept.REMOVED), list[bool]()
    collector = collecting(ray)
    ray.may_go_on.release(3)
    collector.clear("a", clean.append, wait_s=PATIENCE_S)
    assert clean == [False]
    assert [ray.begun.get(timeout=PATIENCE_S) for _ in range(3)] == [["a"], [], []]


def test_a_group_that_cannot_be_given_back_holds_up_nobody(collecting: Callable[[Ray], GarbageCollector]) -> None:
    ray, clean = Ray(Swept.CLEAN, Swept.CLEAN), list[bool]()
    collector = collecting(ray)
    ray.may_go_on.release(2)
    collector.clear("a", lambda _: {}["gone"], wait_s=PATIENCE_S)
    collector.clear("b", clean.append, wait_s=PATIENCE_S)
    assert clean == [True]
