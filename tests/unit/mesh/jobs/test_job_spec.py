"""Specs of jobs: defaults, and all errors by key."""

from __future__ import annotations

import pytest

from mesh.core.resources import ResourceSet
from mesh.errors import JobSpecError
from mesh.jobs.form import JobForm, read_job
from mesh.jobs.members import Member, environment, member_of_task, member_request, member_task, members_of, rank_of, replica_of
from mesh.jobs.spec import BasicPolicy, CleanPolicy, JobQueuePolicy, JobSpec, ReplicaSpec, WorkerSetSpec

PONG = {
    "name": "pong",
    "pool": "train",
    "leader": {"name": "learner", "resources": {"cpu": 2, "gpu": 1, "memory": "4GiB"}, "selector": {"gpu": "a100"}},
    "workerSets": [{"name": "actors", "counts": 8, "resources": {"cpu": 1}}, {"name": "judges", "resources": {"cpu": 0.5}}],
    "minWorkersNum": 4,
    "restartLimit": 2,
    "cleanPodPolicy": "Running",
    "priority": 7,
    "schedulerPolicy": {"jobQueuePolicy": "DRF", "basicPolicy": "LeaderFirst"},
    "selector": {"zone": "west"},
}


def pong(**changes):
    return {**PONG, **changes}


def test_s34_a_job_is_read_with_the_words_of_the_seed():
    spec = read_job(PONG)
    assert spec == JobSpec(
        job="pong",
        pool="train",
        leader=ReplicaSpec(name="learner", resources=ResourceSet.of({"cpu": 2, "gpu": 1, "memory": "4GiB"}), selector={"gpu": "a100"}),
        worker_sets=(
            WorkerSetSpec(name="actors", counts=8, resources=ResourceSet.of({"cpu": 1})),
            WorkerSetSpec(name="judges", resources=ResourceSet.of({"cpu": 0.5})),
        ),
        min_workers_num=4,
        restart_limit=2,
        clean_pod_policy=CleanPolicy.RUNNING,
        priority=7,
        job_queue_policy=JobQueuePolicy.DRF,
        basic_policy=BasicPolicy.LEADER_FIRST,
        selector={"zone": "west"},
    )


def test_s34_a_minimal_job_gets_the_defaults():
    spec = read_job({"name": "pong", "pool": "train", "leader": {}, "worker_sets": [{"name": "actors"}]})
    assert (spec.restart_limit, spec.min_workers_num, spec.priority) == (3, 1, 5)
    assert (spec.clean_pod_policy, spec.terminating) == (CleanPolicy.ALL, False)
    assert spec.worker_sets[0].counts == 1


@pytest.mark.parametrize("spelled", ["schedulerPolicy", "scheduler_policy"])
def test_a_missing_key_is_reported_in_both_spellings(spelled):
    with pytest.raises(JobSpecError, match=r"^minWorkersNum \(min_workers_num\): 1 needed, but there is no worker set"):
        read_job({"name": "pong", "pool": "train", "leader": {}, spelled: {}})


def test_keys_may_be_written_with_underscores_too():
    spec = pong(min_workers_num=4, scheduler_policy={"job_queue_policy": "DRF", "basic_policy": "LeaderFirst"})
    assert read_job({key: value for key, value in spec.items() if key not in ("minWorkersNum", "schedulerPolicy")}) == read_job(PONG)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"priority": 11}, "priority: must be from 1 to 10, got 11; 5 is the default, 10 goes first", id="too high a priority"),
        pytest.param({"priority": 0}, "priority: must be from 1 to 10, got 0", id="too low a priority"),
        pytest.param(
            {"restartLimit": -1}, "restartLimit: must be at least 0, got -1; 0 means", id="a limit below zero, in its own spelling"
        ),
        pytest.param(
            {"minWorkersNum": 10}, "minWorkersNum: 10 is more than the 9 workers of all sets together; lower", id="too many needed"
        ),
        pytest.param(
            {"workerSets": []},
            "minWorkersNum: 4 needed, but there is no worker set; add `workerSets` (`worker_sets`), or write 0 for a leader alone",
            id="workers wanted of no set",
        ),
        pytest.param({"minWorkersNum": -1}, "minWorkersNum: must be at least 0, got -1; 0 means", id="fewer than none needed"),
        pytest.param({"workerSets": [{"name": "a", "counts": 0}]}, "workerSets.a.counts: must be at least 1, got 0", id="an empty set"),
        pytest.param(
            {"workerSets": [{"name": "a"}] * 2}, "workerSets: 2 sets are called 'a'; give each set its own name", id="a name twice"
        ),
        pytest.param({"workerSets": [{"name": "leader"}]}, "workerSets: 'leader' is reserved for the leader", id="a set called leader"),
        pytest.param({"workerSets": [{"name": "a:b"}]}, "workerSets: invalid name of a set 'a:b'; use", id="a set of an odd name"),
        pytest.param({"name": "a/b"}, "name: invalid name 'a/b'; use 1 to 128 letters", id="a job of an odd name"),
        pytest.param({"pool": ""}, "pool: is empty; name the pool", id="no pool"),
        pytest.param({"selector": {"zone": "in(a"}}, "selector: label zone: 'in(a', character 5: `)` is missing", id="a bad selector"),
        pytest.param({"minWorkers": 3}, "minWorkers: is unknown: write `min_workers_num`", id="a word that is close"),
        pytest.param({"prioritty": 3}, "prioritty: is unknown; write `priority`", id="a slip of the pen"),
        pytest.param({"wibble": 3}, "wibble: is unknown; leave it out, or write one of: clean_pod_policy, label", id="an unheard-of key"),
        pytest.param({"basicPolicy": "Gang"}, "basicPolicy: is unknown: it belongs in `scheduler_policy`", id="a key at the wrong place"),
        pytest.param({"volumes": []}, "volumes: is unknown: members share only what", id="pods' volumes"),
        pytest.param({"leader": {"template": {}}}, "leader.template: is unknown: members are Ray actors", id="a pod's template"),
        pytest.param({"workerSets": [{"counts": 2}]}, "workerSets.0.name: is missing; the job needs it", id="a set without a name"),
        pytest.param({"workerSets": [{"name": "a", "cuonts": 1}]}, "workerSets.0.cuonts: is unknown; write `counts`", id="a slip in a set"),
        pytest.param({"priority": "high"}, "priority: must be a whole number (got 'high')", id="a word for a number"),
        pytest.param({"priority": True}, "priority: must be a whole number (got True)", id="a truth for a number"),
        pytest.param(
            {"cleanPodPolicy": "Some"}, "cleanPodPolicy: must be one of 'All', 'Running' or 'None', got 'Some'", id="no such clean policy"
        ),
        pytest.param({"leader": {"resources": {"cpu": -1}}}, "leader.resources: cpu: -1 is below zero", id="a negative amount"),
        pytest.param(
            {"workerSets": [{"name": "a", "resources": {"memory": "much"}}]}, "workerSets.a.resources: 'much' is not a size", id="no amount"
        ),
        pytest.param({"min_workers_num": 3}, "minWorkersNum: is also written min_workers_num; keep one", id="both spellings of a key"),
    ],
)
def test_s34_a_wrong_job_is_reported_by_key_and_remedy(changes, message):
    with pytest.raises(JobSpecError) as broken:
        read_job(pong(**changes))
    assert message in str(broken.value)


def test_all_errors_are_reported_at_once():
    with pytest.raises(JobSpecError) as broken:
        read_job(pong(priority=0, restartLimit=-1, minWorkersNum=99))
    assert [line.partition(":")[0] for line in str(broken.value).splitlines()] == ["priority", "restartLimit", "minWorkersNum"]


def test_s34_errors_of_form_do_not_hide_errors_of_meaning():
    invalid = pong(
        schedulerPolicy={"basicPolicy": "LeaderFrist"},
        leader={"resources": {"cpu": -1}},
        restartLimit=-3,
        prioritty=3,
        workerSets=[{"counts": "two"}, {"name": "a", "counts": 0}],
        clean_pod_policy="All",
        cleanPodPolicy="All",
    )
    with pytest.raises(JobSpecError) as broken:
        read_job(invalid)
    assert {line.partition(":")[0] for line in str(broken.value).splitlines()} == {
        "cleanPodPolicy",
        "schedulerPolicy.basicPolicy",
        "workerSets.0.name",
        "workerSets.0.counts",
        "prioritty",
        "leader.resources",
        "restartLimit",
        "workerSets.a.counts",
    }


def test_every_key_of_the_form_is_explained():
    assert {name for name, field in JobForm.model_fields.items() if not (field.description or "").endswith(".")} == set()


def test_a_gang_needs_all_its_workers():
    spec = read_job(pong(schedulerPolicy={"basicPolicy": "Gang"}))
    assert (spec.workers_needed, spec.workers_num) == (9, 9)


def test_members_have_ranks_from_the_leader_on_and_set_by_set():
    spec = read_job(PONG)
    members = members_of(spec)
    assert [str(member) for member in members[:2]] + [str(members[-1])] == ["leader", "actors-0", "judges-0"]
    assert [rank_of(spec, member) for member in members] == list(range(10))
    assert environment(spec, members[-1], "host:1")["SCHEDULEMESH_RANK"] == "9"


def test_a_member_that_the_job_does_not_have_is_an_error():
    with pytest.raises(JobSpecError, match="job pong has no member actors-8"):
        rank_of(read_job(PONG), Member("actors", 8))
    with pytest.raises(JobSpecError, match="no worker set 'critics'; it has actors, judges"):
        replica_of(read_job(PONG), "critics")


def test_a_member_is_a_task_on_its_node_and_no_other():
    request = member_request(read_job(PONG), Member("leader"), "n1", 2)
    assert (request.node, request.policy, request.soft) == ("n1", "node_affinity", False)
    assert (request.job, request.role, request.pool, request.priority) == ("pong", "leader", "train", 7.0)
    assert request.selector == {"zone": "west", "gpu": "a100"}
    assert request.resources == ResourceSet.of({"cpu": 2, "gpu": 1, "memory": "4GiB"})
    assert request.max_restarts == 0


def test_the_task_of_an_attempt_leads_back_to_its_member():
    first, second = (member_task("pong", Member("actors", 3), attempt) for attempt in (1, 2))
    assert first != second
    assert member_of_task(second) == ("pong", Member("actors", 3), 2)
    assert member_of_task("a-task-of-its-own") is None
    assert member_of_task("a:b:c:d") is None
