"""Rules and settings as keys and values of a federation file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from enum import Enum

from federation.config.quota_rules import PREEMPT, PREFER, TRY_ON
from federation.config.sections.values import POINT_DECIMALS, format_duration
from federation.quota.policies import Policies, PreemptionMode, QueueSettings, Rules, TimeWindow
from mesh.stages.stage_settings import StageSettings

NOT_SET = "not set"
#: Settings of a tenant without any in a file: the defaults at the top of a tree.
UNSAID = QueueSettings(policies=Policies(within_queue=PreemptionMode.LOWER_PRIORITY, reclaim=PreemptionMode.ANY))

_WORDS: Mapping[Enum, str] = {value: word for words in (PREEMPT, TRY_ON, PREFER) for word, value in words.items()}


def format_rules(rules: Rules) -> Iterator[tuple[str, str]]:
    """Return each key of the section `quota` with its value."""
    yield "quota.fair_sharing", _plain(rules.fair_sharing)
    yield "quota.min_run", format_duration(rules.min_run_ms)
    yield "quota.hold", format_duration(rules.reservation_timeout_ms)
    yield "quota.history_half_life", format_duration(rules.history_half_life_ms)


def format_settings(own: QueueSettings) -> Iterator[tuple[str, str]]:
    """Return each key of a tenant's sections `scheduling` and `limits` with its effective value, own or inherited."""
    yield "scheduling.within_tenant", _plain(own.policies.within_queue)
    yield "scheduling.reclaim", _plain(own.policies.reclaim)
    yield "scheduling.borrow", _plain(own.policies.borrow)
    yield "scheduling.borrow_priority_max", _plain(own.policies.borrow_priority_max)
    yield "scheduling.on_borrow", _plain(own.fungibility.on_borrow)
    yield "scheduling.on_preempt", _plain(own.fungibility.on_preempt)
    yield "scheduling.prefer", _plain(own.fungibility.preference)
    yield "scheduling.strict_order", _plain(own.is_strict)
    yield "scheduling.min_run", _span(own.min_run_ms)
    yield "scheduling.on_quota_reduction", _plain(own.on_quota_reduction)
    yield "limits.priority_max", _plain(own.priority_max)
    yield "limits.running_max", _plain(own.running_max)
    yield "limits.running_max_per_user", _plain(own.running_max_per_user)
    yield "limits.max_wait", _span(own.max_wait_ms)
    yield "limits.on_max_wait", _plain(own.on_max_wait)
    yield "limits.stop", _plain(own.stop)
    yield "limits.windows", "; ".join(map(_window, own.windows)) or NOT_SET


def format_mesh(own: StageSettings) -> Iterator[tuple[str, str]]:
    """Return each key of a mesh that `apply` changes with its value. Pools and queues without an entry are left out."""
    for weight in fields(own.weights):
        yield f"weights.{weight.name}", _points(getattr(own.weights, weight.name))
    yield "preemption.threshold", _points(own.preemption.threshold)
    yield "preemption.lost_work_per_s", _points(own.preemption.lost_work_per_s)
    yield "preemption.per_minute_max", _plain(own.preemption.per_minute_max)
    yield from ((f"pools.{pool}.protected", "true") for pool in sorted(own.preemption.protected_pools))
    for tenant, queue in sorted(own.queues.items()):
        yield f"queues.{tenant}.priority", str(queue.priority)
        yield f"queues.{tenant}.aging_per_s", _points(queue.aging_per_s)


def _points(micros: int | None) -> str:
    return NOT_SET if micros is None else f"{Decimal(micros).scaleb(-POINT_DECIMALS).normalize():f}"


def _plain(value: bool | float | Enum | None) -> str:
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "true" if value else "false"
    return _WORDS.get(value, str(value.value)) if isinstance(value, Enum) else str(value)


def _span(span_ms: int | None) -> str:
    return NOT_SET if span_ms is None else format_duration(span_ms)


def _window(one: TimeWindow) -> str:
    return f"opens {format_duration(one.opens_ms)}, lasts {format_duration(one.lasts_ms)}, every {format_duration(one.every_ms)}"
