"""Plugins as users write them. Only a supervisor, or the process of a mesh, imports this module, by the `module:attribute` of tests."""

from __future__ import annotations

import numpy as np

from examples.plugins.near_full_gpu import NearFullGpu
from mesh.plugins import Plugins

# Budgets are in real time: on a busy machine a good plugin would be fenced. The process makes its `Plugins` after it has
# loaded this module, and passes no budget.
Plugins.__init__.__kwdefaults__["budget_ms"] = 60_000.0


near_full_gpu = NearFullGpu().score  # Its score alone: both examples have `preemption_policy`, and a mesh takes one.


def broken(*_):
    raise OSError("the model is gone")


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
