"""Small quota cases for tests of what becomes of them on a federation."""

from __future__ import annotations

from typing import Any

from federation.conformance.deployed_cases import DeployedCase
from federation.conformance.fields import Fields
from federation.conformance.quota_cases import read_case
from federation.quota.policies import KUEUE

PREEMPTS = {"within_queue": "LowerPriority", "reclaim_within_cohort": "Any", "borrow_within_cohort": None}
STOPS = {"when_can_borrow": "MayStopSearch", "when_can_preempt": "TryNextFlavor", "preference": None}


def quota(nominal: int, flavor: str = "spot", resource: str = "cpu", *, borrowing: int | None = None) -> dict[str, Any]:
    return {"flavor": flavor, "resource": resource, "nominal": nominal, "borrowing_limit": borrowing, "lending_limit": None}


def queue(name: str, *quotas: dict[str, Any], cohort: str | None = None, **more: Any) -> dict[str, Any]:
    """A queue with one group for all its flavors, whose work preempts whatever the rules allow."""
    flavors, resources = (list(dict.fromkeys(each[key] for each in quotas)) for key in ("flavor", "resource"))
    plain = {
        "weight": 1,
        "policies": PREEMPTS,
        "resource_groups": [{"resources": resources, "flavors": flavors}],
        "queueing_strategy": "BestEffortFIFO",
        "fungibility": STOPS,
    }
    return {"name": name, "cohort": cohort, "quotas": list(quotas), **plain, **more}


def running(name: str, of: str, cpu: int = 0, *, priority: int = 0, reserved_at: int = 1000, **more: Any) -> dict[str, Any]:
    requests = more.pop("requests", {"spot": {"cpu": cpu}})
    return {"name": name, "queue": of, "priority": priority, "created": 0, "reserved_at": reserved_at, "requests": requests, **more}


def pod_set(count: int, *, least: int | None = None, **requests: int) -> dict[str, Any]:
    return {"name": "main", "count": count, "min_count": least, "requests": requests}


def waiting(name: str, of: str, *pod_sets: dict[str, Any], priority: int = 0, created: int = 990) -> dict[str, Any]:
    return {"name": name, "queue": of, "priority": priority, "created": created, "pod_sets": list(pod_sets)}


def case(kind: str, *queues: dict[str, Any], expect: dict[str, Any], **more: Any) -> dict[str, Any]:
    plain = {"cohorts": [], "admitted": [], "fair_sharing": False, "strategies": []}
    return {"id": "made", "kind": kind, "queues": list(queues), "expect": expect, **plain, **more}


def preempting(expect: dict[str, Any], *admitted: dict[str, Any], priority: int = 1) -> dict[str, Any]:
    """A queue of 2 CPUs, and waiting work that wants one of them."""
    incoming = {"name": "new", "queue": "a", "priority": priority, "created": 990, "requests": {"spot": {"cpu": 1}}}
    return case(
        "preempt", queue("a", quota(2)), admitted=list(admitted), expect=expect, incoming={**incoming, "preempt_on": [["spot", "cpu"]]}
    )


def read(written: dict[str, Any]) -> DeployedCase:
    return DeployedCase(*read_case(KUEUE, Fields(written, "made")))
