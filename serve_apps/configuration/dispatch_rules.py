"""Conversion of the file's `dispatch` section into values of the graph layer, which does not read files."""

from __future__ import annotations

from dag.backlog import BacklogLimits
from dag.run.retrying import RetryRules
from dag.schedules.schedule import ScheduleLimits
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
