"""Kinds of cases with their runners. A new kind needs a line here and a section in docs/conformance.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mesh.conformance import instances, jobs, ledgers, nodes, placements, policies, preemption, quantities, queues, selectors

#: From a case to its result as JSON values. Raises `CaseError` for unknown input.
Run = Callable[[Mapping[str, Any]], Any]

KINDS: Mapping[str, Run] = {
    "amount": quantities.run,
    "drf": jobs.run_drf,
    "feasibility": placements.run,
    "fragmentation": policies.run_fragmentation,
    "gang": policies.run_gang,
    "group_pool": ledgers.run_groups,
    "instances": instances.run,
    "job": jobs.run_job,
    "job_round": jobs.run_round,
    "nodes": nodes.run,
    "policy": policies.run_policy,
    "pool": ledgers.run_pool,
    "preemption": preemption.run,
    "queue": queues.run,
    "resource_set": quantities.run,
    "selector": selectors.run,
    "spill_over": placements.run,
    "task_states": queues.run_states,
    "two_pass": placements.run,
}

#: Runners of kinds with steps.
STEPPED: frozenset[Run] = frozenset(
    {quantities.run, ledgers.run_groups, ledgers.run_pool, instances.run, jobs.run_job, nodes.run, queues.run, queues.run_states}
)
