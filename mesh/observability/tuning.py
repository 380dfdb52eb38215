"""Control loop that adjusts settings when metrics miss their targets.

    missed                            changed
    schedule_latency_p95              weights.availability (alpha) up; at its bound, one scheduler replica more
    queue_wait_time_p99{standard}     aging_per_s up, so that long-waiting tasks move forward
    resource_fragmentation            weights.fragmentation (beta) up
    preemption_count{label}           rules.cross_label_weight down, so that labels preempt each other less

Each setting serves one metric only, so that no two targets pull it in opposite directions. It moves by a bounded step, within bounds,
after the target was missed three times in a row. Then it rests until the change can show.

When a metric has stayed well within its target for long, its setting moves half of the way back to the user's value. If that proves too
early, the next attempt waits twice as long, so that oscillations become ever rarer. If the user changes a setting, the new value becomes
the one to return to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from mesh.observability.metric_targets import STANDARD, MetricsSnapshot, TargetCheck, Targets, TargetStatus, check_targets
from mesh.tasks.settings import SchedulerSettings

REPLICAS = "scheduler_replicas"
MISSED_BEFORE = 3  #: Consecutive observations before a setting moves.
CALM_BEFORE = 24  #: Consecutive observations before the first move back; doubled each time that was too early.
CALM_BEFORE_MAX = 24 * 2**10
CALM_SHARE = 0.5  #: Share of its target below which a metric is calm.
REST_MS = 30_000  #: Pause after a change of a setting.


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """Setting that is adjusted for one metric."""

    name: str  #: Dotted, as in `SettingsChanged`.
    metric: str
    tag: str | None = None  #: None: any tag; the worst counts.
    least: float
    most: float
    factor: float  #: Factor of a step; below 1 if a missed target calls for a lower value.
    step_min: float  #: Smallest change of a step; otherwise a setting at zero would stay there.
    span: float | None = None  #: Limit as a multiple of the user's value; weights are relative to each other.
    after: str = ""  #: Moves only once this knob, listed before it, is at its bound.


KNOBS = (
    Knob(name="weights.availability", metric="schedule_latency_p95", least=0.0, most=4.0, factor=1.25, step_min=0.01, span=4.0),
    Knob(name=REPLICAS, metric="schedule_latency_p95", least=1, most=4, factor=1.0, step_min=1, after="weights.availability"),
    Knob(name="aging_per_s", metric="queue_wait_time_p99", tag=STANDARD, least=0.0, most=1.0, factor=1.5, step_min=0.001),
    Knob(name="weights.fragmentation", metric="resource_fragmentation", least=0.0, most=4.0, factor=1.25, step_min=0.01, span=4.0),
    Knob(name="rules.cross_label_weight", metric="preemption_count", least=0.1, most=1.0, factor=0.8, step_min=0.02),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """Proposed change of a setting."""

    name: str
    old: float
    new: float
    reason: str


def settings_of(changes: Iterable[SettingChange]) -> dict[str, float]:
    """Return the changes as `SettingsChanged` takes them, without the number of replicas, which the host applies."""
    return {change.name: change.new for change in changes if change.name != REPLICAS}


@dataclass(slots=True)
class _KnobState:
    base: float  #: Set by the user.
    last: float  #: Last value, set by the tuner or the user.
    missed: int = 0
    calm: int = 0
    calm_before: int = CALM_BEFORE
    moved_ms: int | None = None
    was_eased: bool = False  #: The last move went back towards the base.


class Tuner:
    """Tuner that sees each set of metrics once, in order."""

    def __init__(self, targets: Targets, knobs: tuple[Knob, ...] = KNOBS) -> None:
        self._targets = targets
        self._knobs = knobs
        self._states: dict[str, _KnobState] = {}

    def propose(
        self, metrics: MetricsSnapshot, settings: SchedulerSettings, now_ms: int, *, replicas: int = 1
    ) -> tuple[SettingChange, ...]:
        """Return the changes to make now. The caller applies them or not, and passes the resulting settings next time.

        Args:
            replicas: Number of replicas of the scheduler's front end.
        """
        checks = check_targets(metrics, self._targets)
        values = {knob.name: float(replicas) if knob.name == REPLICAS else attrgetter(knob.name)(settings) for knob in self._knobs}
        changes = []
        for knob in self._knobs:
            change = self._turn(knob, values, _worst(knob, checks), now_ms)
            if change is not None:
                changes.append(change)
        return tuple(changes)

    def _turn(self, knob: Knob, values: Mapping[str, float], worst: TargetCheck | None, now_ms: int) -> SettingChange | None:
        value = values[knob.name]
        state = self._states.setdefault(knob.name, _KnobState(value, value))
        if value != state.last:
            state.base = state.last = value
        is_missed = worst is not None and worst.status is TargetStatus.MISSED
        state.missed = state.missed + 1 if is_missed else 0
        state.calm = state.calm + 1 if worst is None or _is_calm(worst) else 0
        if state.moved_ms is not None and now_ms - state.moved_ms < REST_MS:
            return None
        if is_missed and worst is not None and state.missed >= MISSED_BEFORE and self._may_move(knob, values):
            if state.was_eased:
                state.calm_before = min(CALM_BEFORE_MAX, 2 * state.calm_before)
            shown = f"{worst.name}{{{worst.tag}}}" if worst.tag else worst.name
            return _move(knob, state, _stepped(knob, value, state.base), now_ms, f"{shown} is {worst.value:g}, its target {worst.target:g}")
        if state.calm >= state.calm_before and value != state.base:
            return _move(knob, state, _eased(knob, value, state.base), now_ms, f"{knob.metric} has stayed well within its target")
        return None

    def _may_move(self, knob: Knob, values: Mapping[str, float]) -> bool:
        """Return whether the knob before it is at its bound."""
        before = next((other for other in self._knobs if other.name == knob.after), None)
        if before is None:
            return True
        value, state = values[before.name], self._states[before.name]
        return _stepped(before, value, state.base) == value


def _move(knob: Knob, state: _KnobState, new: float, now_ms: int, reason: str) -> SettingChange | None:
    if new == state.last:
        return None
    change = SettingChange(name=knob.name, old=state.last, new=new, reason=reason)
    state.was_eased = abs(new - state.base) < abs(state.last - state.base)
    state.last, state.moved_ms, state.missed, state.calm = new, now_ms, 0, 0
    return change


def _worst(knob: Knob, checks: Iterable[TargetCheck]) -> TargetCheck | None:
    """Return the worst value of the knob's metric; None if it has no target or value."""
    found = [one for one in checks if one.name == knob.metric and knob.tag in (None, one.tag) and one.status is not TargetStatus.NO_TARGET]
    return max(found, key=lambda one: one.value, default=None)


def _is_calm(check: TargetCheck) -> bool:
    return check.target is not None and check.value <= CALM_SHARE * check.target


def _stepped(knob: Knob, value: float, base: float) -> float:
    """Return the value one step further, within the bound; a user's value beyond the bound stays."""
    if knob.factor < 1:
        stepped = max(knob.least, min(value * knob.factor, value - knob.step_min))
        return round(stepped, 6) if stepped < value else value
    most = knob.most if knob.span is None else min(knob.most, knob.span * max(base, knob.step_min))
    stepped = min(most, max(value * knob.factor, value + knob.step_min))
    return round(stepped, 6) if stepped > value else value


def _eased(knob: Knob, value: float, base: float) -> float:
    """Return the value half of the way back to the base; the last bit in one step."""
    if abs(value - base) <= 2 * knob.step_min:
        return base
    halved = (value + base) / 2
    return float(round(halved)) if knob.name == REPLICAS else round(halved, 6)
