"""The `dispatch` section of the federation file as the values that the graph layer takes: it stands above the one that reads files."""

from __future__ import annotations

from dag.backlog import BacklogLimits
from dag.retrying import RetryRules
from federation.config.loading import FederationConfig


def backlog_limits_of(config: FederationConfig) -> BacklogLimits:
    """How much may be open."""
    section = config.dispatch
    return BacklogLimits(runs_max=section.runs_max, bytes_max=section.bytes_max, memory_percent_max=section.memory_percent_max)


def retry_rules_of(config: FederationConfig) -> RetryRules:
    """How often and how soon what failed is tried again."""
    section = config.dispatch
    return RetryRules(
        wait_ms=section.retry_wait_ms,
        wait_max_ms=section.retry_wait_max_ms,
        kills_max=section.kills_max,
        losses_max=section.losses_max,
    )
