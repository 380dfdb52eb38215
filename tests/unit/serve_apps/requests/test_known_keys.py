from dataclasses import replace

import pytest

from federation.api_keys import ApiKey
from federation.errors import StoreUnavailable
from mesh.core.clock import ManualClock
from serve_apps.requests.known_keys import KEPT_MS, KEYS_MAX, KnownKeys

KEY = ApiKey(key="00000001", tenant="acme", sha256="a" * 64, created_ms=1)


class Ring:
    """A key ring that counts its reads."""

    def __init__(self) -> None:
        self.keys = {KEY.key: KEY}
        self.reads = 0
        self.is_away = False

    def find(self, key):
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return self.keys.get(key)


class World:
    def __init__(self) -> None:
        self.ring, self.clock = Ring(), ManualClock(1_000)
        self.known = KnownKeys(self.ring, self.clock)


@pytest.fixture
def world():
    return World()


def test_a_key_is_read_once_in_a_while(world):
    assert [world.known.find(KEY.key) for _ in range(3)] == [KEY] * 3
    assert world.ring.reads == 1
    world.clock.advance(KEPT_MS)
    assert (world.known.kept(KEY.key), world.known.find(KEY.key), world.ring.reads) == (None, KEY, 2)


def test_a_revoked_key_is_refused_when_its_record_is_old(world):
    world.known.find(KEY.key)
    revoked = world.ring.keys[KEY.key] = replace(KEY, revoked=True)
    assert world.known.find(KEY.key) == KEY
    world.clock.advance(KEPT_MS)
    assert world.known.find(KEY.key) == revoked


def test_a_dropped_key_is_read_at_once(world):
    world.known.find(KEY.key)
    world.known.drop(KEY.key)
    world.known.drop("00000009")
    assert (world.known.kept(KEY.key), world.known.find(KEY.key), world.ring.reads) == (None, KEY, 2)


def test_an_unknown_key_is_read_each_time(world):
    assert world.known.find("00000002") is None
    world.ring.keys["00000002"] = replace(KEY, key="00000002")
    assert world.known.find("00000002") is not None


def test_no_key_outlasts_its_record_when_the_store_is_away(world):
    world.known.find(KEY.key)
    world.ring.is_away = True
    assert world.known.find(KEY.key) == KEY
    world.clock.advance(KEPT_MS)
    with pytest.raises(StoreUnavailable):
        world.known.find(KEY.key)


def test_the_number_of_kept_keys_is_bounded(world):
    names = [f"{number:08x}" for number in range(KEYS_MAX + 1)]
    world.ring.keys = {name: replace(KEY, key=name) for name in names}
    for name in names:
        world.known.find(name)
    assert (world.known.kept(names[0]), world.known.kept(names[1])) == (None, world.ring.keys[names[1]])
