"""Snapshots shared by concurrent callers, and their age."""

import threading
from types import SimpleNamespace

import pytest

from federation.errors import StoreUnavailable
from mesh.core.clock import ManualClock
from serve_apps.snapshot_cache import single_flight
from serve_apps.snapshot_cache.single_flight import SingleFlight


class Sight:
    """Countable snapshot source that can be held open."""

    def __init__(self) -> None:
        self.looks = 0
        self.is_gone = False
        self.is_held = False
        self.has_begun = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self) -> int:
        self.looks += 1
        looks = self.looks
        if self.is_held:
            self.has_begun.set()
            assert self.goes_on.wait(60)
        if self.is_gone:
            raise StoreUnavailable("gone")
        return looks


@pytest.fixture
def sight() -> Sight:
    return Sight()


def test_a_look_is_shared_until_it_is_too_old(sight):
    clock = ManualClock(0)
    look = SingleFlight(sight, clock=clock, kept_ms=250)
    assert [look(), look()] == [1, 1]
    clock.advance(249)
    assert look() == 1
    clock.advance(1)
    assert look() == 2


def test_nothing_is_kept_where_nothing_may_be(sight):
    look = SingleFlight(sight, clock=ManualClock(0), kept_ms=0)
    assert [look(), look()] == [1, 2]


def test_an_error_is_not_kept(sight):
    look = SingleFlight(sight, clock=ManualClock(0), kept_ms=250)
    sight.is_gone = True
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            look()
    sight.is_gone = False
    assert look() == 3


class CountedLock:
    """Lock that counts its callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.comers = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.comers.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("is_gone", [False, True], ids=["a value", "an error"])
def test_concurrent_callers_share_the_next_snapshot(sight, is_gone, monkeypatch):
    lock = CountedLock()
    monkeypatch.setattr(single_flight, "threading", SimpleNamespace(Lock=lambda: lock))
    look = SingleFlight(sight, clock=ManualClock(0), kept_ms=0)
    seen: list[int | str] = []

    def ask() -> None:
        try:
            seen.append(look())
        except StoreUnavailable as gone:
            seen.append(str(gone))

    sight.is_held = True
    threads = [threading.Thread(target=ask) for _ in range(9)]
    threads[0].start()
    assert sight.has_begun.wait(60)
    sight.is_held = False
    for thread in threads[1:]:
        thread.start()
    for _ in threads:
        assert lock.comers.acquire(timeout=60)
    sight.is_gone = is_gone
    sight.goes_on.set()
    for thread in threads:
        thread.join(60)
    assert sight.looks == 2
    assert seen.count("gone" if is_gone else 2) == (9 if is_gone else 8)
