"""Running tasks, a preemptor, and the choice of victims, shared by tests of preemption."""

from __future__ import annotations

from mesh.core.resources import NOTHING, ResourceSet
from mesh.preemption.rules import Candidate, PreemptionRules, Preemptor, evaluate
from mesh.preemption.victims import PreemptionPlan, plan

NOW_MS = 100_000
RULES = PreemptionRules(threshold=0.0, kappa_per_s=0.0, lost_work_per_s=0.0, min_run_ms=0)


def runs(task="t", **facts):
    """Return a running task: one CPU on row 0 of pool p, priority 1, since time 0."""
    kept = {"label": "", "pool": "p", "tenant": "", "priority": 1.0, "cpu": 1, "row": 0, "started_ms": 0} | facts
    amounts = {"cpu": kept.pop("cpu")} | ({"gpu": kept.pop("gpu")} if "gpu" in kept else {})
    kept.setdefault("kept_ms", kept["started_ms"])
    return Candidate(task=task, resources=ResourceSet.of(amounts), **kept)


def demand(priority=9.0, **facts):
    return Preemptor(**({"task": "new", "label": "", "pool": "p", "priority": priority} | facts))


def cpu(count):
    return ResourceSet.of({"cpu": count})


def verdict_on(candidate, preemptor=None, rules=RULES, **more):
    return evaluate(preemptor or demand(), [candidate], rules, NOW_MS, **more)[0].verdict


def choose(candidates, *, wanted=1, short=NOTHING, free=None, rules=RULES, preemptor=None, **more):
    """Return the dry run and the plan; all rows are full by default."""
    preemptor = preemptor or demand()
    free = {row: {"cpu": 10_000 * free.get(row, 0)} for row in {*free, *(one.row for one in candidates)}} if free is not None else None
    by_row = free if free is not None else {one.row: {} for one in candidates}
    wanted = wanted if isinstance(wanted, ResourceSet) else cpu(wanted)
    scored = evaluate(preemptor, candidates, rules, NOW_MS)
    return plan(wanted, pool=preemptor.pool, pool_short=short, free_by_row=by_row, scored=scored, preemptor=preemptor, rules=rules, **more)


def victims(found):
    assert isinstance(found, PreemptionPlan), found
    return {victim.task for victim in found.victims}
