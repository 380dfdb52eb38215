"""Laws of the cache: digests of values, and claims of many runs on few keys."""

from __future__ import annotations

import pickle
from collections import Counter

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.client.fingerprints import digest_of
from dag.result_cache import CacheEntry, Claimant, Hit, InFlight
from dag.run.node_table import NodeTable
from dag.run.runs import NOTHING_CHANGED, RunRecord
from dag.run.states import RunState
from dag.store.memory import MemoryRunStore
from dag.store.memory_cache import MemoryCacheStore
from federation.store.memory.store import MemoryStore
from mesh.core.clock import ManualClock
from mesh.core.values import json_value

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5))
HASHED = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(HASHED, inner, max_size=4),
        st.sets(HASHED, max_size=4),
        st.frozensets(HASHED, max_size=4),
    ),
    max_leaves=12,
)


def reordered(value):
    """Return an equal value whose dicts and sets were filled in the other order."""
    if isinstance(value, dict):
        return {key: reordered(part) for key, part in reversed(value.items())}
    if isinstance(value, (set, frozenset)):
        return type(value)(sorted(value, key=repr, reverse=True))
    return type(value)(map(reordered, value)) if isinstance(value, (list, tuple)) else value


def meant(value):
    """Return what the digest has to tell apart, as text."""
    if isinstance(value, dict):
        return "dict", sorted((meant(key), meant(part)) for key, part in value.items())
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(map(meant, value))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [meant(part) for part in value]
    return type(value).__name__, repr(value)


@settings(max_examples=examples(300))
@given(VALUES)
def test_order_and_copies_do_not_change_a_digest(value):
    assert digest_of(value) == digest_of(reordered(value)) == digest_of(pickle.loads(pickle.dumps(value)))  # noqa: S301  its own


@settings(max_examples=examples(300))
@given(VALUES, VALUES)
def test_values_have_one_digest_if_they_mean_the_same(one, other):
    assert (digest_of(one) == digest_of(other)) == (repr(meant(one)) == repr(meant(other)))


KEYS, RUNS = ("k1", "k2"), ("r1", "r2", "r3")
steps = st.one_of(
    st.tuples(st.sampled_from(("look", "look afresh", "keep", "release", "repeat keep")), st.sampled_from(RUNS), st.sampled_from(KEYS)),
    st.tuples(st.just("end"), st.sampled_from(RUNS), st.just("")),
    st.tuples(st.just("wait"), st.just(""), st.just("")),
)


class World:
    """A cache, and what it has to answer."""

    def __init__(self):
        self.clock = ManualClock(1_000)
        self.store = MemoryStore(clock=self.clock, ttl_ms=1_000, grace_ms=1_000)
        self.runs = MemoryRunStore(self.store)
        self.cache = MemoryCacheStore(self.store, self.runs)
        self.records = {run: RunRecord(run=run, tenant="acme", digest="", spec=b"", nodes=NodeTable(["a"])) for run in RUNS}
        for record in self.records.values():
            self.runs.create(record, {})
        self.store.acknowledge(tuple(entry.entry for entry in self.store.inbox(0)))
        self.ended: set[str] = set()
        self.claims: dict[str, str] = {}
        self.waiting: dict[str, set[str]] = {key: set() for key in KEYS}
        self.expiry: dict[str, int] = {}
        self.expected: Counter[str] = Counter()

    def end(self, run):
        record = self.records[run]
        if run not in self.ended:
            record.state, record.ended_ms = RunState.CANCELLED, self.clock.now_ms
            assert self.runs.commit(record, NOTHING_CHANGED)
            self.ended.add(run)

    def look(self, run, key, *, is_fresh):
        found = self.cache.look("acme", key, Claimant(run=run, node="a"), self.clock.now_ms, is_fresh=is_fresh)
        if is_fresh:
            self.expiry.pop(key, None)
        if self.expiry.get(key, 0) > self.clock.now_ms:
            assert isinstance(found, Hit)
        elif self.claims.get(key, run) != run and self.claims[key] not in self.ended:
            assert found == InFlight(by=Claimant(run=self.claims[key], node="a"))
            self.waiting[key].add(run)
        else:
            assert found is None
            self.claims[key] = run

    def keep(self, run, key, *, times):
        now_ms = self.clock.now_ms
        entry = CacheEntry(key=key, tenant="acme", function="call:m:f", run=run, node="a", value=json_value(b"1"),
                           created_ms=now_ms, expires_ms=now_ms + 100, took_ms=1)  # fmt: skip
        for _ in range(times):
            self.cache.keep(entry, b"1")
        self.expiry[key] = now_ms + 100
        self.note_end(run, key)

    def note_end(self, run, key):
        if self.claims.get(key) == run:
            del self.claims[key]
            self.expected.update(self.waiting[key])
            self.waiting[key] = set()


@settings(max_examples=examples(200))
@given(st.lists(steps, max_size=40))
def test_one_live_run_at_most_computes_a_key(taken):
    world = World()
    for kind, run, key in taken:
        if kind == "end":
            world.end(run)
        elif kind == "wait":
            world.clock.advance(60)
        elif run not in world.ended:
            if kind.startswith("look"):
                world.look(run, key, is_fresh=kind == "look afresh")
            elif kind == "release":
                world.cache.release("acme", key, Claimant(run=run, node="a"))
                world.note_end(run, key)
            else:
                world.keep(run, key, times=2 if kind == "repeat keep" else 1)
    posted = Counter(entry.run for entry in world.store.inbox(0) if entry.kind == "cached")
    assert posted == world.expected
