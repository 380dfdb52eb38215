"""The kind `preemption`: eligible victims with score and reason, and the victims that the mesh would stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mesh.conformance.fields import CaseError, Fields
from mesh.core.ids import LabelName, NodeName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import AmountError
from mesh.preemption.rules import (
    Candidate,
    PreemptionRules,
    PreemptionRulesError,
    Preemptor,
    Scored,
    evaluate,
    parse_cross_label,
)
from mesh.preemption.victims import PreemptionPlan, PreemptionRefused, plan
from mesh.tasks.gang_placement import PlacementDemand, PlacementUnit
from mesh.tasks.gang_victims import Gives, plan_together

_SCORE_DIGITS = 6
_RULES = ("threshold", "kappa_per_s", "min_run_ms", "lost_work_per_s", "cross_label_weight", "cross_pool", "per_minute_max")


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return verdicts and scores by task, then the victims and their node, or the refusal."""
    with Fields(case["given"], "given") as given:
        now_ms, nodes = given.take("now_ms", 0), given.take("nodes")
        rows = {name: row for row, name in enumerate(nodes)}
        request, wanted, places = _request(given.take("request"))
        tasks = [_candidate(name, task, rows) for name, task in given.take("tasks", {}).items()]
        short = _amounts(given.take("pool_short", {}), "pool_short")
        recent_preemptions, reusable = given.take("recent_preemptions", {}), frozenset(given.take("reusable", []))
        try:
            rules = _rules(given.take("rules", {}))
        except PreemptionRulesError as wrong:
            return {"error": "PreemptionRulesError", "words": str(wrong)}
    scored = evaluate(request, tasks, rules, now_ms, recent_preemptions=recent_preemptions)
    if places:
        free = {name: _amounts(amounts, f"nodes.{name}") for name, amounts in nodes.items()}
        return {
            **_judged(scored),
            **_result_together(_together(places, free, scored, short, request, rules, recent_preemptions), list(nodes)),
        }
    found = plan(
        wanted,
        pool=request.pool,
        pool_short=short,
        free_by_row={rows[name]: _amounts(free, f"nodes.{name}") for name, free in nodes.items()},
        scored=scored,
        preemptor=request,
        rules=rules,
        recent_preemptions=recent_preemptions,
        reusable=reusable,
    )
    return {**_judged(scored), **_result_of(found, list(nodes))}


def _judged(scored: Sequence[Scored]) -> Mapping[str, Any]:
    return {
        "verdicts": {one.candidate.task: one.verdict.value for one in scored},
        "scores": {one.candidate.task: round(one.score, _SCORE_DIGITS) for one in scored},
        "words": {one.candidate.task: one.words for one in scored},
    }


def _together(
    places: Sequence[ResourceSet],
    free: Mapping[str, ResourceSet],
    scored: Sequence[Scored],
    short: ResourceSet,
    request: Preemptor,
    rules: PreemptionRules,
    recent_preemptions: Mapping[LabelName, int],
) -> PreemptionPlan | PreemptionRefused:
    """Plan several places at once; each may be on any node that could hold it without its running tasks."""
    table = NodeTable()
    whole = dict(free)
    for one in scored:
        name = list(free)[one.candidate.row]
        whole[name] += one.candidate.resources
    for name in free:
        table.join(NodeName(name), whole[name], {})
    for one in scored:
        table.queue_for(one.candidate.row, table.vector(one.candidate.resources))
    vectors = [table.vector(wanted) for wanted in places]
    placement_units = tuple(
        PlacementUnit(task=TaskId(f"place-{index}"), vector=vector, rows=np.flatnonzero((table.total[: len(free)] >= vector).all(axis=1)))
        for index, vector in enumerate([table.widened(vector) for vector in vectors])
    )
    gives = {
        one.candidate.task: Gives(
            rooms=((one.candidate.row, table.vector(one.candidate.resources)),),
            quota=one.candidate.resources if one.candidate.pool == request.pool else NOTHING,
        )
        for one in scored
    }
    return plan_together(
        PlacementDemand(pool=request.pool, placement_units=placement_units, quota=sum(places, start=NOTHING)),
        free=table.left[: len(free)],
        quota_short=short,
        groups_short=0,
        scored=scored,
        gives=gives,
        preemptor=request,
        rules=rules,
        recent_preemptions=recent_preemptions,
    )


def _result_together(found: PreemptionPlan | PreemptionRefused, nodes: list[str]) -> Mapping[str, Any]:
    result = _result_of(found, nodes)
    return result if isinstance(found, PreemptionRefused) else {**result, "nodes": [nodes[row] for _, (row,) in found.places]}


def _result_of(found: PreemptionPlan | PreemptionRefused, nodes: list[str]) -> Mapping[str, Any]:
    if isinstance(found, PreemptionRefused):
        return {"victims": None, "node": None, "reuses": None, "refused": found.reason.value, "detail": found.detail}
    victims = sorted(victim.task for victim in found.victims)
    return {"victims": victims, "node": nodes[found.row], "reuses": found.reuses, "refused": None, "detail": None}


def _request(written: object) -> tuple[Preemptor, ResourceSet, list[ResourceSet]]:
    with Fields(written, "given.request") as fields:
        wanted = _amounts(fields.take("resources", {}), "given.request.resources")
        places = [_amounts(place, "given.request.places") for place in fields.take("places", [])]
        return (
            Preemptor(
                task=fields.take("task", "request"),
                label=fields.take("label", ""),
                pool=fields.take("pool", "pool"),
                priority=fields.take("priority"),
            ),
            wanted,
            places,
        )


def _candidate(name: str, written: object, rows: Mapping[str, int]) -> Candidate:
    with Fields(written, f"given.tasks.{name}") as fields:
        node, started_ms = fields.take("node"), fields.take("started_ms", 0)
        if node not in rows:
            raise CaseError(f"{fields.place} runs on {node!r}, which is not in `nodes`")
        return Candidate(
            task=name,  # type: ignore[arg-type]  # what a file calls a task is its id
            label=fields.take("label", ""),
            pool=fields.take("pool", "pool"),
            tenant=fields.take("tenant", ""),
            priority=fields.take("priority"),
            resources=_amounts(fields.take("resources"), f"{fields.place}.resources"),
            row=rows[node],
            started_ms=started_ms,
            kept_ms=fields.take("kept_ms", started_ms),
            estimated_ms=fields.take("estimated_ms", None),
            group=fields.take("group", None),
            preemptible=fields.take("preemptible", True),
        )


def _rules(written: object) -> PreemptionRules:
    """Return a preset with single rules changed, and the rules between labels."""
    with Fields(written, "given.rules") as fields:
        aggressiveness = fields.take("aggressiveness", "medium")
        changes = {name: value for name in _RULES if (value := fields.take(name, None)) is not None}
        cross_label, protected = fields.take("cross_label", {}), frozenset(fields.take("protected_pools", []))
    return PreemptionRules.of(aggressiveness, **changes, cross_label=parse_cross_label(cross_label), protected_pools=protected)


def _amounts(written: Mapping[str, object], place: str) -> ResourceSet:
    try:
        return ResourceSet.of(written)
    except (AmountError, AttributeError) as wrong:
        raise CaseError(f"{place}: {wrong}") from None
