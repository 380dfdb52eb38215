"""The job of `bandit.py` as a node of a graph: a federation places it whole, on a mesh with room for all of its members.

schedulemesh submit examples/jobs/graph.py:graph --id bandit-1
"""

from __future__ import annotations

from typing import Any

import dag
from examples.jobs.bandit import Actor, Learner

#: As `bandit.yaml`, without name, pool and order, which are the node's.
JOB = {
    "leader": {"resources": {"cpu": 1}},
    "workerSets": [{"name": "actors", "counts": 2, "resources": {"cpu": 0.5}}],
    "minWorkersNum": 1,
    "restartLimit": 3,
}


def summary(report: dict[str, Any]) -> str:
    """Return the report in words."""
    return f"machine {report['best']} wins {report['win_rate']:.0%} of its plays"


def graph(plays: int = 600) -> dict[str, dag.Node]:
    """Return the outputs of the graph: the learner's report, and what it means."""
    report = dag.job(JOB, leader=Learner, workers={"actors": Actor}, args={"leader": (plays,)}, kwargs={"actors": {"seed": 3}})
    return {"report": report, "summary": dag.bind(summary, report)}
