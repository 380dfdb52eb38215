"""Scheduler settings that users and the tuner may change while the scheduler runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from mesh.core.task_spec import Weights
from mesh.errors import MeshError
from mesh.preemption.rules import PreemptionRules


class SettingError(MeshError, ValueError):
    """A setting is unknown, or its value is out of bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Settings of one mesh's scheduler."""

    weights: Weights = field(default_factory=Weights)  #: Weights of the node score, unless the task or label sets its own.
    aging_per_s: float = 0.01  #: Priority points per second of waiting.
    rules: PreemptionRules = field(default_factory=PreemptionRules)
    grace_ms: int = 5_000  #: How long a victim may take to save its state and stop.
    reservation_timeout_ms: int = 60_000  #: How long freed capacity is held for a preemptor that does not start.
    reserve_after_ms: int | None = 120_000  #: Wait after which capacity is reserved for a head as it becomes free; None: never.
    start_tries: int = 5  #: Failed starts before the task fails.
    demands_sent_max: int = 64  #: Limit on demands sent to the autoscaler.
    top_k_fraction: float = 0.2  #: Share of the nodes, for `hybrid`.
    top_k_absolute: int = 1
    spread_threshold: float = 0.5

    def changed(self, changes: Mapping[str, float]) -> SchedulerSettings:
        """Return a copy with some numbers changed; nested ones are named with a dot: `weights.availability`, `rules.threshold`.

        Raises:
            SettingError: The setting is unknown.
        """
        changed = self
        for name, value in changes.items():
            part, _, rest = name.partition(".")
            known = {kept.name for kept in fields(changed)}
            if part not in known:
                raise SettingError(f"there is no setting {name!r}; settings: {', '.join(sorted(known))}")
            inner = getattr(changed, part)
            if not rest:
                number: dict[str, Any] = {part: _number(name, inner, value)}
                changed = replace(changed, **number)
                continue
            if not is_dataclass(inner) or isinstance(inner, type):
                raise SettingError(f"{part} has no nested settings; write {part!r} alone")
            if rest not in {kept.name for kept in fields(inner)}:
                raise SettingError(f"there is no setting {name!r}; {part} has {', '.join(kept.name for kept in fields(inner))}")
            whole: dict[str, Any] = {part: _with_part(name, inner, rest, value)}
            changed = replace(changed, **whole)
        return changed


def _with_part(name: str, inner: Any, part: str, value: object) -> Any:
    number = _number(name, getattr(inner, part), value)
    try:
        return replace(inner, **{part: number})
    except ValueError as wrong:
        raise SettingError(str(wrong)) from None


def _number(name: str, now: object, value: object) -> Any:
    """Return the value if it and the current value are numbers; an integer if the current value is one, or None: counts and times."""
    if isinstance(now, bool) or not isinstance(now, (int, float, type(None))):
        raise SettingError(f"{name} is not a number and can be set at start only")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SettingError(f"{name} must be finite, got {value!r}")
    if not isinstance(now, float) and value != int(value):
        raise SettingError(f"{name} must be a whole number, got {value!r}")
    return float(value) if isinstance(now, float) else int(value)
