"""Flap detection over successive observations of meshes."""

from __future__ import annotations

import pytest

from federation.flap_detection import LOSSES_KEPT, WATCH_GAP_MS, FlapRules, Sighting, changed, watch

RULES = FlapRules(probation_ms=5_000, probation_ms_max=40_000, window_ms=600_000)
NOW_MS = 1_000_000


class Watcher:
    """Observes meshes once a second: incarnation, negative while away, absent after leaving."""

    def __init__(self, rules=RULES, **meshes):
        self.rules, self.now_ms, self.watched_ms, self.known = rules, NOW_MS, NOW_MS, {}
        self.look(0, **meshes)

    def look(self, after_ms=1_000, **meshes):
        self.now_ms += after_ms
        seen = {mesh: Sighting(incarnation=abs(number), alive=number > 0) for mesh, number in meshes.items()}
        before = self.known
        self.known = watch(before, seen, now_ms=self.now_ms, watched_ms=self.watched_ms, rules=self.rules)
        self.watched_ms = self.now_ms
        return changed(before, self.known)

    def left_ms(self, mesh="east"):
        return self.known[mesh].remaining_ms(self.now_ms)


def test_a_mesh_that_is_seen_for_the_first_time_is_steady():
    assert Watcher(east=1, west=1).left_ms() == 0


def test_a_look_that_shows_nothing_new_changes_nothing():
    watcher = Watcher(east=1, west=1)
    assert watcher.look(east=1, west=1) == {}


def test_returned_mesh_is_on_probation_until_stable():
    watcher = Watcher(east=1, west=1)
    watcher.look(east=-1, west=1)
    watcher.look(east=2, west=1)
    assert watcher.left_ms() == 5_000
    watcher.look(4_999, east=2, west=1)
    assert watcher.left_ms() == 1
    watcher.look(1, east=2, west=1)
    assert (watcher.left_ms(), watcher.left_ms("west")) == (0, 0)


def test_probation_begins_at_the_return():
    watcher = Watcher(east=1, west=1)
    for _ in range(100):
        watcher.look(9_000, east=-1, west=1)
    watcher.look(east=2, west=1)
    assert watcher.left_ms() == 5_000


@pytest.mark.parametrize(
    "again", [pytest.param(2, id="with a new session between two observations"), pytest.param(1, id="with the same expired session")]
)
def test_a_loss_shows_by_the_session_or_by_the_silence(again):
    watcher = Watcher(east=1, west=1)
    if again == 1:
        watcher.look(east=-1, west=1)
    watcher.look(east=again, west=1)
    assert (watcher.left_ms(), len(watcher.known["east"].losses_ms)) == (5_000, 1)


def test_each_further_loss_doubles_the_probation_up_to_the_most():
    watcher, probations = Watcher(east=1, west=1), []
    for incarnation in range(2, 8):
        watcher.look(east=incarnation, west=1)
        probations.append(watcher.left_ms())
    assert probations == [5_000, 10_000, 20_000, 40_000, 40_000, 40_000]


def test_losses_outside_the_window_are_forgotten():
    watcher = Watcher(east=1, west=1)
    watcher.look(east=2, west=1)
    watcher.look(east=3, west=1)
    for _ in range(100):
        watcher.look(6_500, east=3, west=1)
    watcher.look(east=4, west=1)
    assert (watcher.left_ms(), len(watcher.known["east"].losses_ms)) == (5_000, 1)


def test_a_mesh_that_left_in_good_order_is_not_lost():
    watcher = Watcher(east=1, west=1)
    watcher.look(west=1)
    watcher.look(east=2, west=1)
    assert (watcher.left_ms(), watcher.known["east"].losses_ms) == (0, ())


def test_leaving_in_good_order_shortens_no_probation():
    watcher = Watcher(east=1, west=1)
    watcher.look(east=2, west=1)
    watcher.look(west=1)
    watcher.look(east=3, west=1)
    assert watcher.left_ms() == 3_000


def test_a_good_bye_after_the_loss_excuses_nothing():
    watcher = Watcher(east=1, west=1)
    watcher.look(east=-1, west=1)
    watcher.look(west=1)
    watcher.look(east=2, west=1)
    assert watcher.left_ms() == 5_000


def test_simultaneous_loss_of_all_meshes_blames_none():
    watcher = Watcher(east=1, west=1)
    watcher.look(east=-1, west=-1)
    watcher.look(east=2, west=-1)
    watcher.look(east=2, west=2)
    assert (watcher.left_ms(), watcher.left_ms("west")) == (0, 0)


def test_the_only_mesh_is_blamed_for_its_loss():
    watcher = Watcher(east=1)
    watcher.look(east=2)
    assert watcher.left_ms() == 5_000


def test_losses_during_an_observation_gap_count_for_none():
    watcher = Watcher(east=1, west=1)
    watcher.look(WATCH_GAP_MS + 1, east=2, west=1)
    assert watcher.left_ms() == 0


def test_loss_known_before_a_gap_still_counts():
    watcher = Watcher(east=1, west=1)
    watcher.look(east=-1, west=1)
    watcher.look(WATCH_GAP_MS + 1, east=2, west=1)
    assert watcher.left_ms() == 5_000


def test_a_mesh_that_is_away_when_it_is_first_seen_was_lost():
    watcher = Watcher(west=1)
    watcher.look(east=-1, west=1)
    watcher.look(east=2, west=1)
    assert watcher.left_ms() == 5_000


def test_without_probation_every_return_is_believed():
    watcher = Watcher(FlapRules(probation_ms=0), east=1, west=1)
    watcher.look(east=2, west=1)
    assert watcher.left_ms() == 0


def test_clock_that_falls_back_does_not_prolong_probation():
    watcher = Watcher(east=1, west=1)
    watcher.look(east=2, west=1)
    watcher.look(-900_000, east=2, west=1)
    assert watcher.left_ms() == 5_000


def test_no_more_losses_are_kept_than_count():
    watcher = Watcher(FlapRules(window_ms=10**9), east=1, west=1)
    for incarnation in range(2, 60):
        watcher.look(east=incarnation, west=1)
    assert len(watcher.known["east"].losses_ms) == LOSSES_KEPT
    assert watcher.left_ms() == watcher.rules.probation_ms_max
