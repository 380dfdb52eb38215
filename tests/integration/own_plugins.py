"""Plugins for the tests of a mesh: what users would write."""

from __future__ import annotations

import numpy as np

from mesh import plugins

# A budget is measured by the clock: on a machine with much to do a good plugin would be fenced off for being kept waiting.
plugins.BUDGET_MS = 60_000.0


class FewestCpus:
    """Nodes with fewer CPUs first; raises when it is asked for work of a GPU."""

    def score(self, demand, view):
        gpu = list(view.resources).index("gpu")
        if demand.wanted[gpu]:
            raise LookupError("no model for GPUs")
        return -view.total[:, list(view.resources).index("cpu")].astype(np.float64)


class Rules:
    """Urgent by type of work; what is called `keep` never gives way."""

    def priority(self, facts):
        return 9.0 if facts.workload_type == "urgent" else facts.priority

    def preemption_policy(self, facts):
        return None if str(facts.task).startswith("keep") else facts.priority_delta
