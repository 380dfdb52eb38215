"""Laws of flap detection: a world of meshes, sampled now and then, against the plain definition."""

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.flap_detection import WATCH_GAP_MS, FlapRules, Sighting, changed, watch
from mesh.core.ids import MeshId

MESHES = [MeshId("east"), MeshId("north"), MeshId("west")]
RULES = FlapRules(probation_ms=1_000, probation_ms_max=8_000, window_ms=20_000)

#: One look: the time since the last one, and the changes of each mesh since then.
looks = st.lists(
    st.tuples(
        st.integers(1, 4_000) | st.just(WATCH_GAP_MS + 1),
        st.fixed_dictionaries({mesh: st.sampled_from(["stays", "stays", "lost", "back", "anew", "left"]) for mesh in MESHES}),
    ),
    min_size=1,
    max_size=40,
)


class Meshes:
    """Sessions as the ledger would show them."""

    def __init__(self):
        self.token = 0
        self.seen = {}

    def become(self, mesh, what):
        kept = self.seen.get(mesh)
        if what == "left":
            self.seen.pop(mesh, None)
        elif what == "anew" or (what == "back" and (kept is None or not kept.alive)):
            self.token += 1
            self.seen[mesh] = Sighting(incarnation=self.token, alive=True)
        elif what == "lost" and kept is not None:
            self.seen[mesh] = Sighting(incarnation=kept.incarnation, alive=False)


def played(history):
    """Yield each look: its time, the interval, the known state before, the sessions seen, the known state after."""
    meshes, known, now_ms, watched_ms = Meshes(), {}, 10**6, 10**6
    for after_ms, fates in history:
        now_ms += after_ms
        for mesh, what in fates.items():
            meshes.become(mesh, what)
        seen = dict(meshes.seen)
        after = watch(known, seen, now_ms=now_ms, watched_ms=watched_ms, rules=RULES)
        yield now_ms, after_ms, known, seen, after
        known, watched_ms = after, now_ms


@settings(max_examples=60)
@given(looks)
def test_a_mesh_lost_alone_is_steady_after_its_probation(history):
    due_ms = dict.fromkeys(MESHES, 0)
    owed = dict.fromkeys(MESHES, False)
    for now_ms, gap_ms, before, seen, after in played(history):
        present = {mesh for mesh, kept in before.items() if kept.alive and mesh in seen}
        lost = {mesh for mesh in present if not seen[mesh].alive or seen[mesh].incarnation != before[mesh].incarnation}
        is_blamed = gap_ms <= WATCH_GAP_MS and not (lost == present and len(present) > 1)
        for mesh in lost:
            owed[mesh] = is_blamed
        for mesh, sighting in seen.items():
            if sighting.alive and owed[mesh]:
                due_ms[mesh], owed[mesh] = max(due_ms[mesh], now_ms + RULES.probation_ms), False
            assert after[mesh].stable_ms >= due_ms[mesh]
            assert (after[mesh].remaining_ms(now_ms) > 0) >= (now_ms < due_ms[mesh])


@settings(max_examples=60)
@given(looks)
def test_probation_is_bounded_and_needs_a_loss(history):
    for now_ms, _, _, _, after in played(history):
        for kept in after.values():
            assert kept.remaining_ms(now_ms) <= RULES.probation_ms_max
            assert kept.losses_ms or not kept.stable_ms


@settings(max_examples=60)
@given(looks)
def test_a_reported_probation_never_gets_shorter(history):
    for _, _, before, _, after in played(history):
        assert all(after[mesh].stable_ms >= kept.stable_ms for mesh, kept in before.items())


@settings(max_examples=60)
@given(looks, st.randoms(use_true_random=False))
def test_the_order_of_meshes_and_a_repeated_look_change_nothing(history, random_stream):
    for now_ms, after_ms, before, seen, after in played(history):
        shuffled = list(seen.items())
        random_stream.shuffle(shuffled)
        watched_ms = now_ms - after_ms
        assert watch(before, dict(shuffled), now_ms=now_ms, watched_ms=watched_ms, rules=RULES) == after
        assert changed(after, watch(after, seen, now_ms=now_ms, watched_ms=now_ms, rules=RULES)) == {}
