"""Quota cases on a federation whose ledger is on Redis end as in memory, and leave nothing on the server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from federation.conformance.case_stores import RedisCases, memory_store
from federation.conformance.deployed_case_runner import run_all_deployed
from federation.conformance.deployed_runs import run_deployed
from federation.conformance.quota_case_runner import read_cases
from federation.quota.policies import KUEUE

CASES = {
    case["id"]: case
    for case in read_cases((Path(__file__).parents[1] / "conformance" / "quota" / "kueue.json").read_text(encoding="utf-8"))
}


@pytest.fixture(scope="module")
def on_redis(redis_process):
    cases = RedisCases(f"unix://{redis_process.connection_pool.connection_kwargs['path']}")
    return partial(run_deployed, cases.store, KUEUE)


@pytest.mark.parametrize(
    "name",
    [
        "avail-hierarchical-cohort-respects-borrowing-limit",
        "usage-remove-all-then-add-workload-using-less-quota-than-guaranteedquota",
        "share-borrowing-against-unlimited-lendable-capacity-exabyte-scale-quota",
        "preempt-preempt-newer-workloads-with-the-same-priority",
        "fair-reclaim-nominal-from-user-using-the-most",
        "flavor-hier-top-flavor",
        "sched-minimal-preemptions-when-target-queue-is-exhausted",
        "fsched-fair-sharing-schedule-earliest-timestamp-first",
    ],
)
def test_a_case_ends_on_redis_as_in_memory(on_redis, redis_process, name):
    keys = redis_process.dbsize()
    there, here = (next(run_all_deployed([CASES[name]], run, {})) for run in (on_redis, partial(run_deployed, memory_store, KUEUE)))
    assert there == here
    assert "broken" not in there.got
    assert redis_process.dbsize() == keys
