"""Plugins for the tests of a mesh: what users would write. Only a supervisor imports this; the tests name it by `module:attribute`."""

from __future__ import annotations

import numpy as np

from mesh.plugins import Plugins

# A budget is measured by the clock: on a machine with much to do a good plugin would be fenced off for being kept waiting. The
# supervisor makes its `Plugins` when it has loaded what they are made of, and says nothing of a budget.
Plugins.__init__.__kwdefaults__["budget_ms"] = 60_000.0


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
