"""Jobs that are one gang: keys that are refused, bundles of members."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.core.resources import ResourceSet
from mesh.errors import JobSpecError
from mesh.jobs.gang_form import MEMBERS_MAX, REFUSED, bundles_of, read_gang_job, smallest_gang
from mesh.jobs.members import Member, members_of

ACTORS = {"name": "actors", "counts": 3, "resources": {"cpu": 0.5}}


def job(**keys: Any) -> dict[str, Any]:
    return {"leader": {"resources": {"cpu": 1}}, "workerSets": [ACTORS], **keys}


def test_members_share_bundles_as_large_as_the_largest():
    gang = smallest_gang(read_gang_job(job()), "PACK")
    assert (gang.size, gang.bundle) == (3, ResourceSet.of({"cpu": 1}))
    places = bundles_of(read_gang_job(job()), gang.bundle, gang.size)
    assert [places[member] for member in members_of(read_gang_job(job()))] == [0, 1, 1, 2]


def test_members_that_are_spread_have_a_bundle_each():
    spec = read_gang_job(job())
    gang = smallest_gang(spec, "STRICT_SPREAD")
    assert gang.size == 4
    assert sorted(bundles_of(spec, gang.bundle, gang.size).values()) == [0, 1, 2, 3]


def test_bundles_cover_the_largest_amount_of_each_resource():
    workers = {"name": "gpu", "counts": 2, "resources": {"gpu": 1}}
    spec = read_gang_job({"leader": {"resources": {"cpu": 2}}, "workerSets": [workers]})
    gang = smallest_gang(spec, "PACK")
    assert (gang.size, gang.bundle) == (2, ResourceSet.of({"cpu": 2, "gpu": 1}))
    assert bundles_of(spec, gang.bundle, gang.size) == {Member("leader"): 0, Member("gpu", 0): 0, Member("gpu", 1): 1}


@pytest.mark.parametrize(
    ("bundle", "size", "words"),
    [
        pytest.param({"cpu": 1}, 2, "need 3 bundles", id="too few bundles"),
        pytest.param({"cpu": 0.5}, 9, "leader takes", id="too small bundles"),
    ],
)
def test_a_gang_that_is_too_small_is_refused(bundle: dict[str, float], size: int, words: str):
    with pytest.raises(JobSpecError, match=words):
        bundles_of(read_gang_job(job()), ResourceSet.of(bundle), size)


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_the_node_decides_is_refused(key: str):
    with pytest.raises(JobSpecError, match=f"^{key}: is not supported in a graph: "):
        read_gang_job(job(**{key: "x"}))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        pytest.param({"cleanPodPolicy": "Running"}, "cleanPodPolicy: .* `All`", id="members that stay"),
        pytest.param({"clean_pod_policy": "None"}, "clean_pod_policy: ", id="members that stay, in snake case"),
        pytest.param({"schedulerPolicy": {"jobQueuePolicy": "DRF"}}, r"schedulerPolicy.jobQueuePolicy: ", id="an order of jobs"),
        pytest.param({"schedulerPolicy": {"basicPolicy": "BinPack"}}, r"schedulerPolicy.basicPolicy: .* `strategy`", id="a policy"),
        pytest.param({"leader": {"selector": {"a": "b"}}}, r"leader.selector: .* `label_selector`", id="a selector of the leader"),
        pytest.param({"workerSets": [{**ACTORS, "selector": {}}]}, r"workerSets.0.selector: ", id="a selector of workers"),
        pytest.param({"workerSets": [{**ACTORS, "counts": MEMBERS_MAX}]}, "1000 members at most", id="too many members"),
        pytest.param({"minWorkersNum": 4}, "more than the 3 workers", id="a contradiction"),
        pytest.param({"replicas": 2}, "write `counts`", id="an unknown key"),
    ],
)
def test_a_key_that_no_gang_honours_is_refused(keys: dict[str, Any], words: str):
    with pytest.raises(JobSpecError, match=words):
        read_gang_job(job(**keys))


def test_members_that_take_nothing_are_refused():
    with pytest.raises(JobSpecError, match="no member takes anything"):
        smallest_gang(read_gang_job({"leader": {}, "minWorkersNum": 0}), "PACK")


def test_a_gang_policy_needs_all_workers():
    assert read_gang_job(job(schedulerPolicy={"basicPolicy": "Gang"}, cleanPodPolicy="All")).workers_needed == 3
    assert read_gang_job(job()).workers_needed == 1
