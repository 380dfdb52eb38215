"""Conversion of the file's sections `dispatch` and `webhooks` into values of the graph layer, which does not read files."""

from __future__ import annotations

from dag.backlog import BacklogLimits
from dag.run.retrying import RetryRules
from dag.run.states import RunState
from dag.schedules.schedule import ScheduleLimits
from dag.webhooks.webhook import Webhook
from federation.config.loading import FederationConfig


def backlog_limits_of(config: FederationConfig) -> BacklogLimits:
    """Return how much work may be open."""
    section = config.dispatch
    return BacklogLimits(runs_max=section.runs_max, bytes_max=section.bytes_max, memory_percent_max=section.memory_percent_max)


def schedule_limits_of(config: FederationConfig) -> ScheduleLimits:
    """Return how many schedules a tenant may have, and how large."""
    return ScheduleLimits(schedules_max=config.dispatch.schedules_max, bytes_max=config.dispatch.schedule_bytes_max)


def retry_rules_of(config: FederationConfig) -> RetryRules:
    """Return how often and how soon failed work is retried."""
    section = config.dispatch
    return RetryRules(
        wait_ms=section.retry_wait_ms,
        wait_max_ms=section.retry_wait_max_ms,
        kills_max=section.kills_max,
        losses_max=section.losses_max,
        resume_window_ms=section.resume_window_ms,
    )


def webhooks_of(config: FederationConfig) -> tuple[Webhook, ...]:
    """Return the receivers that are called when runs end."""
    return tuple(
        Webhook(
            name=name,
            url=section.url,
            events=tuple(map(RunState, section.events)),
            tenant=section.tenant,
            secret_file=section.secret_file,
            timeout_ms=section.timeout_ms,
            attempts_max=section.attempts_max,
        )
        for name, section in config.webhooks.endpoints.items()
    )
