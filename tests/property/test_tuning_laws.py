"""Laws of the tuner: bounded, slow, and without oscillation under any metrics."""

from __future__ import annotations

from operator import attrgetter

from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.task_spec import Weights
from mesh.observability.metric_targets import MetricsSnapshot, Targets
from mesh.observability.tuning import CALM_BEFORE, KNOBS, REPLICAS, REST_MS, Tuner, settings_of
from mesh.tasks.settings import SchedulerSettings

TARGETS = Targets(preemptions_per_min=5, fragmentation_baseline=0.4)
PERIOD_MS = 5_000

weathers = st.fixed_dictionaries(
    {
        "schedule_latency_p95_ms": st.none() | st.floats(0, 1e6),
        "queue_wait_time_p99_ms": st.fixed_dictionaries({"standard": st.none() | st.floats(0, 1e6)}),
        "resource_fragmentation": st.none() | st.floats(0, 1),
        "preemption_count": st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 100)),
    }
)
histories = st.lists(st.tuples(weathers, st.integers(1, 80)), max_size=12)
started = st.fixed_dictionaries(
    {"aging_per_s": st.floats(0, 2), "weights.availability": st.floats(0.25, 4), "rules.cross_label_weight": st.floats(0.1, 1)}
)


@given(histories, started)
@settings(max_examples=60)
def test_settings_stay_in_bounds_and_rest_between_steps(history, first):
    current, replicas, now_ms, tuner = SchedulerSettings().changed(first), 1, 0, Tuner(TARGETS)
    base = {knob.name: 1.0 if knob.name == REPLICAS else attrgetter(knob.name)(current) for knob in KNOBS}
    moved_ms = dict.fromkeys(base, -REST_MS)
    knobs = {knob.name: knob for knob in KNOBS}
    for weather, periods in history:
        for _ in range(periods):
            now_ms += PERIOD_MS
            for change in (changes := tuner.propose(MetricsSnapshot(at_ms=now_ms, **weather), current, now_ms, replicas=replicas)):
                knob, least, most = knobs[change.name], knobs[change.name].least, knobs[change.name].most
                assert min(least, base[change.name]) <= change.new <= max(most, base[change.name])
                assert now_ms - moved_ms[change.name] >= REST_MS
                assert change.old != change.new
                is_step = abs(change.new - change.old) <= max(knob.step_min, abs(knob.factor - 1) * abs(change.old)) + 1e-6
                is_back = abs(change.new - base[change.name]) < abs(change.old - base[change.name])
                assert is_step or is_back
                moved_ms[change.name] = now_ms
            current = current.changed(settings_of(changes))
            replicas = next((int(change.new) for change in changes if change.name == REPLICAS), replicas)


@given(st.floats(1.0, 4.0), st.floats(0.0, 99.0))
@settings(max_examples=25)
def test_a_target_that_follows_its_setting_does_not_oscillate(needed, calm_latency_ms):
    """The worst case: missed below a value, calm above it. Each return waits twice as long, so turns are logarithmic in time."""
    current, now_ms, tuner, turns, last = SchedulerSettings(weights=Weights(availability=1.0)), 0, Tuner(TARGETS), 0, 0.0
    periods = 3_000
    for _ in range(periods):
        now_ms += PERIOD_MS
        latency_ms = 500.0 if current.weights.availability < needed else calm_latency_ms
        for change in (changes := tuner.propose(MetricsSnapshot(at_ms=now_ms, schedule_latency_p95_ms=latency_ms), current, now_ms)):
            turns += (change.new - change.old) * last < 0
            last = change.new - change.old
        current = current.changed(settings_of(changes))
    doublings = (periods // CALM_BEFORE).bit_length()
    assert turns <= 2 * doublings
