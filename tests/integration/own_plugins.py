"""Plugins as users write them. Only a supervisor imports this module, by the `module:attribute` that tests pass."""

from __future__ import annotations

import numpy as np

from mesh.plugins import Plugins

# Budgets are in real time: on a busy machine a good plugin would be fenced. The supervisor makes its `Plugins` after it has
# loaded this module, and passes no budget.
Plugins.__init__.__kwdefaults__["budget_ms"] = 60_000.0


class FewestCpus:
    """Policy that prefers nodes with fewer CPUs; it raises for work with a GPU."""

    def score(self, demand, view):
        gpu = list(view.resources).index("gpu")
        if demand.wanted[gpu]:
            raise LookupError("no model for GPUs")
        return -view.total[:, list(view.resources).index("cpu")].astype(np.float64)


class Rules:
    """Priorities by type of work; tasks called `keep` are never preempted."""

    def priority(self, facts):
        return 9.0 if facts.workload_type == "urgent" else facts.priority

    def preemption_policy(self, facts):
        return None if str(facts.task).startswith("keep") else facts.priority_delta
