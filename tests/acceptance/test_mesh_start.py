"""Task starts on real raylets: warm processes, kept groups, GPUs, and the reasons of failed starts."""

from __future__ import annotations

import pytest
from mesh_scene import Broken, Demanding, Probe, clean
from patience import eventually

import mesh
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskState
from mesh.preemption.rules import PreemptionRules
from mesh.ray.local.supervision_errors import PoolUnknown, SubmissionError, SupervisorLost, TaskFailed
from mesh.tasks.settings import SchedulerSettings

pytestmark = pytest.mark.ray

#: `make test` runs each value of a table once, `make faults` their combinations.
FAULTS = (pytest.mark.faults, pytest.mark.slow)
RAISES, MISSES = "the model file is missing", "missing 1 required positional argument: 'model'"
SETTINGS = SchedulerSettings(rules=PreemptionRules(min_run_ms=0))


@pytest.fixture(scope="module")
def running(two_nodes, tmp_path_factory):
    with mesh.running_mesh("starts", state_dir=tmp_path_factory.mktemp("mesh"), settings=SETTINGS) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_left(running):
    """Check after every test: no pool, no placement group, nothing held, and agreeing ledgers."""
    yield
    clean(running)


@pytest.fixture
def pool(running):
    running.create_pool("main", capacity={"cpu": 3, "gpu": 2})
    return "main"


def warm(running, **wanted):
    return {
        each.process for each in running.list_agents() if each.is_warm and all(getattr(each, name) == it for name, it in wanted.items())
    }


def process_of(running, task):
    return next(each.process for each in running.list_agents() if each.task == task.task)


def free(running):
    return [pool.free == pool.capacity for pool in running.list_pools()]


def test_s7_urgent_task_starts_on_a_warm_reserved_process(running, pool):
    running.configure_pool(pool, high_priority_pg_specs=[{"cpu": 1}], max_dynamic_pgs=1)
    reserved = eventually(lambda: [group.group for group in running.list_groups() if group.state == "IDLE"])[0]
    waiting = eventually(lambda: warm(running, group=reserved))
    urgent = running.submit_task(Probe, pool=pool, resources={"cpu": 1}, priority=9)
    assert urgent.wait_started(60).group == reserved
    assert {process_of(running, urgent)} == waiting


def test_s7_preemptor_takes_over_group_and_warm_process(running):
    running.create_pool("full", capacity={"cpu": 1})
    running.configure_pool("full", max_dynamic_pgs=1)
    victim = running.submit_task(Probe, pool="full", resources={"cpu": 1}, priority=1, tenant="acme")
    group = victim.wait_started(60).group
    eventually(lambda: len(warm(running, group=None)) == 2)
    there = {each.process for each in running.list_agents()}
    urgent = running.submit_task(Probe, pool="full", resources={"cpu": 1}, priority=7, tenant="other")
    assert urgent.wait_started(60).group == group
    assert process_of(running, urgent) in there
    victim.cancel()


@pytest.mark.parametrize("groups", [pytest.param(False, marks=FAULTS), True], ids=["without a placement group", "with a placement group"])
def test_s8_agent_with_a_gpu_learns_its_id(running, pool, groups):
    if groups:
        running.configure_pool(pool, max_dynamic_pgs=2)
    two = [running.submit_task(Probe, pool=pool, resources={"cpu": 1, "gpu": 1}) for _ in range(2)]
    assert sorted(str(given) for task in two for given in task.call("gpu_ids")) == ["0", "1"]


@pytest.mark.parametrize(
    ("kind", "words", "groups"),
    [
        pytest.param(Broken, RAISES, False, id="its constructor raises"),
        pytest.param(Demanding, MISSES, True, id="an argument is missing, with a placement group"),
        pytest.param(Broken, RAISES, True, id="its constructor raises, with a placement group", marks=FAULTS),
        pytest.param(Demanding, MISSES, False, id="an argument is missing", marks=FAULTS),
    ],
)
def test_s8_failing_constructor_reports_error_and_holds_nothing(running, pool, kind, words, groups):
    if groups:
        running.configure_pool(pool, max_dynamic_pgs=1)
    task = running.submit_task(kind, pool=pool, resources={"cpu": 1})
    with pytest.raises(TaskFailed, match=words):
        task.result(60)
    assert free(running) == [True]
    assert eventually(running.audit)
    assert running.submit_task(Probe, pool=pool, resources={"cpu": 1}).call("add") == 1


def test_s8_unsatisfiable_demand_is_refused_and_holds_nothing(running):
    running.create_pool("odd", capacity={"cpu": 4, "accelerator": 4})
    task = running.submit_task(Probe, pool="odd", resources={"cpu": 1, "accelerator": 1})
    assert (task.status().state, task.status().reason) == (TaskState.INFEASIBLE, Reason.NO_NODE_FITS)
    assert "accelerator" in task.why()
    assert free(running) == [True]


def test_s8_equal_priority_waits_in_a_full_pool_until_a_finish(running):
    running.create_pool("full", capacity={"cpu": 1})
    first, second = (running.submit_task(Probe, pool="full", resources={"cpu": 1}) for _ in range(2))
    first.wait_started(60)
    assert (second.status().state, second.status().reason, second.status().position) == (TaskState.PLACEABLE, Reason.POOL_BUSY, 1)
    first.finish()
    assert second.wait_started(60).state is TaskState.RUNNING
    assert second.finish().state is TaskState.SUCCEEDED
    assert free(running) == [True]


# -- wrong input: the message names the remedy -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        pytest.param({"pool": "man"}, PoolUnknown, "there is no pool man; did you mean main", id="an unknown pool"),
        pytest.param({"actor_class": Probe()}, SubmissionError, "class", id="an instance instead of its class"),
        pytest.param({"resources": {"cpu": -1}}, SubmissionError, "resources: ", id="a negative amount"),
        pytest.param({"resources": {"cpu": "many"}}, SubmissionError, "resources: ", id="an invalid amount"),
        pytest.param({"policy": "best"}, mesh.errors.MeshError, "there is no policy 'best'", id="an unknown policy"),
        pytest.param(
            {"method": "trian"},
            SubmissionError,
            "has no such method; it has .*train; did you mean train",
            id="an unknown method",
        ),
    ],
)
def test_a_wrong_submission_is_an_error_that_names_the_remedy(running, pool, changes, error, words):
    whole = {"actor_class": Probe, "pool": pool, "resources": {"cpu": 1}}
    with pytest.raises(error, match=words):
        running.submit_task(**{**whole, **changes}).result(30)
    assert free(running) == [True]


def test_a_task_that_comes_after_another_says_after_which(running, pool):
    waiting = running.submit_task(Probe, pool=pool, resources={"cpu": 1}, after=["nobody"])
    assert (waiting.status().state, waiting.status().reason) == (TaskState.WAITING, Reason.WAITING_FOR_INPUTS)
    assert waiting.why() == "WAITING_FOR_INPUTS: it waits for nobody (not submitted yet)."


def test_a_call_after_the_end_of_the_mesh_says_how_to_start_one(running, tmp_path):
    with mesh.running_mesh("ended", state_dir=tmp_path, standbys_per_node=0) as ended:
        ended.create_pool("main", capacity={"cpu": 1})
    with pytest.raises(SupervisorLost, match=r"ScheduleMesh\.start"):
        ended.list_pools()
