"""Parts of a gang's bundles: who has room, in which order, and what comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.placement.bundle_ledger import BundleLedger, arranged

ONE = {"CPU": 1.0}


def test_a_part_has_a_place_for_each_bundle():
    ledger = BundleLedger([{"CPU": 2.0}, {"CPU": 2.0}])
    ledger.ask("a", [ONE, ONE, ONE])
    assert ledger.places("a") == [0, 0, 1]
    ledger.ask("b", [{"CPU": 2.0}])
    assert ledger.places("b") is None
    ledger.release("a")
    assert ledger.places("b") == [0]


def test_parts_get_room_in_the_order_of_asking():
    ledger = BundleLedger([ONE, ONE])
    for part, bundles in (("a", [ONE]), ("large", [ONE, ONE]), ("small", [ONE])):
        ledger.ask(part, bundles)
    assert (ledger.places("large"), ledger.places("small")) == (None, None)
    ledger.release("large")
    assert ledger.places("small") == [1]
    assert ledger.parts() == ["a", "small"]


def test_spread_prefers_unused_bundles():
    free = [{"CPU": 2.0}, {"CPU": 2.0}]
    assert arranged(free, [ONE] * 3, "SPREAD") == [0, 1, 0]
    assert arranged(free, [ONE] * 3, "STRICT_SPREAD") is None
    assert arranged(free, [ONE] * 2, "STRICT_SPREAD") == [0, 1]
    assert arranged(free, [{"GPU": 1.0}]) is None
    assert arranged(free, [{"CPU": 1.0, "GPU": 0.0}]) == [0]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.booleans()), max_size=30))
def test_no_bundle_is_over_granted_and_all_comes_back(steps: list[tuple[str, int, bool]]):
    ledger, asked = BundleLedger([{"CPU": 2.0}] * 3), {}
    for number, (name, size, releases) in enumerate(steps):
        if releases:
            for part in [part for part in asked if part.startswith(name)]:
                ledger.release(part)
                del asked[part]
        else:
            asked[f"{name}{number}"] = size
            ledger.ask(f"{name}{number}", [ONE] * size)
        placed = [place for part in asked for place in ledger.places(part) or ()]
        assert all(placed.count(place) <= 2 for place in range(3))
    for part in asked:
        ledger.release(part)
    ledger.ask("all", [{"CPU": 2.0}] * 3)
    assert ledger.places("all") == [0, 1, 2]
