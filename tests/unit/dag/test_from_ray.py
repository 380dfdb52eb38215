"""`@ray.remote` functions in graphs: every option of Ray is honoured or refused by name."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import ray
from ray._common.ray_option_utils import actor_options, task_options, valid_options
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import dag
from dag.client import from_ray
from dag.client.compiling import compile_graph
from dag.client.from_ray import ACCELERATOR_LABEL, RAY_OPTIONS
from dag.client.tasks import Options
from dag.errors import GraphTypeError, NotSerializable, SpecError
from dag.spec.plans import NodePlan, plans_of
from dag.spec.spec import parse
from mesh.core.resources import ResourceSet

REFUSED = {name: option for name, option in RAY_OPTIONS.items() if option.refused_because}
HONOURED = {name: option for name, option in RAY_OPTIONS.items() if option.honoured_as}
#: A value that Ray accepts, for each refused option of tasks.
ASKS = {
    "scheduling_strategy": "SPREAD",
    "placement_group": "a group",
    "placement_group_bundle_index": 1,
    "placement_group_capture_child_tasks": False,
    "fallback_strategy": [{"label_selector": {"zone": "west"}}],
    "enable_task_events": False,
    "_labels": {"team": "ads"},
    "_generator_backpressure_num_objects": 7,
    "_num_objects_per_yield": 3,
}


def clean(path="x"):
    return path


def plan_of(function: Any, **options: Any) -> NodePlan:
    """Return the plan that the root reads for a node of the function."""
    (plan,) = plans_of(parse(json.dumps(compile_graph(dag.task(function, **options).bind())).encode())).values()
    return plan


def test_the_table_is_rays_own_list():
    assert set(RAY_OPTIONS) == set(valid_options)


def test_an_option_is_either_honoured_or_refused():
    assert all(bool(option.honoured_as) != bool(option.refused_because) for option in RAY_OPTIONS.values())
    assert {name for name in task_options if name in REFUSED} == {*ASKS, "object_store_memory"}
    assert set(actor_options) - set(task_options) <= set(REFUSED)


@pytest.mark.parametrize("name", ASKS)
def test_a_refused_option_names_function_and_remedy(name: str):
    remote = ray.remote(**{name: ASKS[name]})(clean)
    for write in (lambda: dag.task(remote), lambda: dag.bind(remote), lambda: dag.task(clean, **{name: ASKS[name]})):
        with pytest.raises(GraphTypeError, match=rf"task clean: Ray's option {name}=.* is not supported: .*:") as raised:
            write()
        assert REFUSED[name].refused_because in str(raised.value)


@pytest.mark.parametrize("name", ["enable_task_events", "scheduling_strategy"])
def test_an_option_of_options_is_refused_as_well(name: str):
    with pytest.raises(GraphTypeError, match=f"task clean: Ray's option {name}="):
        dag.bind(ray.remote(clean).options(**{name: ASKS[name]}))
    with pytest.raises(GraphTypeError, match=f"task clean: Ray's option {name}="):
        dag.bind(clean).options(**{name: ASKS[name]})


@pytest.mark.parametrize("name", sorted(set(actor_options) - set(task_options)))
def test_an_option_of_actors_says_so(name: str):
    with pytest.raises(GraphTypeError, match=f"task clean: Ray's option {name}='it' is not supported: it is an option of actors"):
        dag.task(clean, **{name: "it"})


@pytest.mark.parametrize("name", sorted(task_options))
def test_rays_own_default_asks_for_nothing(name: str):
    default = task_options[name].default_value
    settings = dag.task(ray.remote(**{name: default})(clean)).settings if name != "placement_group" else dag.task(clean).settings
    assert settings == Options().changed({name: default}) if name in HONOURED else settings == Options()


def test_a_strategy_object_is_refused_without_its_insides():
    strategy = NodeAffinitySchedulingStrategy("0" * 56, soft=False)
    with pytest.raises(GraphTypeError, match=r"scheduling_strategy=.* is not supported: the mesh places each node"):
        dag.task(ray.remote(scheduling_strategy=strategy)(clean))


def test_an_option_that_only_a_newer_ray_has_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(from_ray, "RAY_OPTIONS", {name: row for name, row in RAY_OPTIONS.items() if name != "num_cpus"})
    with pytest.raises(GraphTypeError, match="task clean: Ray's option num_cpus is unknown"):
        dag.task(ray.remote(num_cpus=1)(clean))


# -- honoured ----------------------------------------------------------------------------------------------------------


def test_every_honoured_option_reaches_the_plan():
    asked: dict[str, Any] = {
        "num_cpus": 2,
        "num_gpus": 1,
        "memory": 2**30,
        "resources": {"lamp": 1},
        "name": "tidy",
        "label_selector": {"zone": "west"},
        "accelerator_type": "A100",
        "runtime_env": {"env_vars": {"A": "1"}},
        "max_calls": 5,
        "max_retries": 4,
        "num_returns": 3,
        "retry_exceptions": [OSError],
    }
    assert set(asked) == set(HONOURED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own method for options.
        remote = ray.remote(**asked)(clean)
    spec = compile_graph(dag.bind(remote))
    plan = plan_of(remote)
    assert (plan.task.node, spec["code"]) == ("tidy", {"runtime_env": {"env_vars": {"A": "1"}}})
    assert plan.task.resources == ResourceSet.of({"cpu": 2, "gpu": 1, "memory": 2**30, "lamp": 1})
    assert plan.task.ray_options == {
        "label_selector": {"zone": "west", ACCELERATOR_LABEL: "A100"},
        "max_calls": 5,
        "max_retries": 4,
    }
    assert (plan.retries, plan.retry_exceptions, plan.task.num_returns) == (4, {"builtins.OSError"}, 3)


@pytest.mark.parametrize(
    ("of_ray", "ours", "retries", "which"),
    [
        pytest.param({"max_retries": 3}, {}, 0, None, id="by default no error is retried"),
        pytest.param({"max_retries": 3, "retry_exceptions": False}, {}, 0, None, id="Ray has retries turned off"),
        pytest.param({"max_retries": 3, "retry_exceptions": True}, {}, 3, None, id="any error, as often as Ray would"),
        pytest.param({"retry_exceptions": True}, {}, 3, None, id="three times where nothing is said"),
        pytest.param({"retry_exceptions": [KeyError]}, {}, 3, {"builtins.KeyError"}, id="only errors of the classes named"),
        pytest.param({"retry_exceptions": True}, {"retries": 1}, 1, None, id="our own word stands above Ray's"),
        pytest.param({"retry_exceptions": True}, {"retries": 0}, 0, None, id="also where it is zero"),
        pytest.param({"retry_exceptions": False}, {"retries": 2}, 2, None, id="and above a refusal"),
        pytest.param({"max_retries": 5}, {"retry_exceptions": True}, 5, None, id="the two may be said apart"),
        pytest.param({}, {"retries": 4, "retry_exceptions": [OSError]}, 4, {"builtins.OSError"}, id="without Ray"),
        pytest.param({"retry_exceptions": [OSError]}, {"retry_exceptions": None}, 0, None, id="none again as by default"),
        pytest.param({"retry_exceptions": [OSError]}, {"retry_exceptions": None, "retries": 2}, 2, None, id="but as often as said"),
    ],
)
def test_retries_are_those_that_ray_would_make(of_ray: dict[str, Any], ours: dict[str, Any], retries: int, which: set[str] | None):
    plan = plan_of(ray.remote(**of_ray)(clean) if of_ray else clean, **ours)
    assert (plan.retries, plan.retry_exceptions) == (retries, which)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        pytest.param({"max_retries": -1, "retry_exceptions": True}, SpecError, "give retries=100, or fewer", id="without end"),
        pytest.param({"retries": 2, "retry_exceptions": False}, SpecError, "contradict: leave one out", id="two meanings"),
        pytest.param({"retry_exceptions": ["OSError"]}, GraphTypeError, "a list of exception classes", id="a class by its name"),
        pytest.param({"retry_exceptions": [KeyboardInterrupt]}, GraphTypeError, "a list of exception classes", id="no error"),
        pytest.param({"accelerator_type": 100}, GraphTypeError, "accelerator_type must be text", id="a number as an accelerator"),
    ],
)
def test_retries_that_cannot_be_are_refused(options: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        dag.task(clean, **options)


def test_what_options_gives_brings_function_and_options():
    task = dag.task(ray.remote(num_cpus=2)(clean).options(name="tidy"), priority=3)
    assert task.function is clean
    assert (task.settings.num_cpus, task.settings.name, task.settings.priority) == (2, "tidy", 3)


def test_a_gpu_function_keeps_rays_one_call_per_worker():
    assert plan_of(ray.remote(num_gpus=1)(clean)).task.ray_options == {"max_calls": 1}
    assert plan_of(ray.remote(num_gpus=1, max_calls=0)(clean)).task.ray_options == {"max_calls": 0}


# -- values of a Ray of the user's own -----------------------------------------------------------------------------------


@ray.remote
def produce(size=1):
    return list(range(size))


@ray.remote
def stream():
    yield 1


@ray.remote
class Keeper:
    """An actor."""


BOUND = produce.bind(3)
WRAP = r"is a FunctionNode of Ray's own graphs: wrap the function first, like dag\.task\(f\)\.bind"


def test_a_node_of_rays_own_is_refused_within_a_node_of_ours():
    for write in (
        lambda: dag.bind(BOUND),
        lambda: dag.task(clean, after=BOUND),
        lambda: dag.task(clean, after=[BOUND]),
    ):
        with pytest.raises(GraphTypeError, match=WRAP):
            write()
    for argument in (BOUND, [BOUND], {"x": (1, BOUND)}, [dag.bind(clean), BOUND]):
        with pytest.raises(NotSerializable, match=f"argument path of clean.*{WRAP}"):
            compile_graph(dag.bind(clean, argument))
    with pytest.raises(NotSerializable, match=f"the function lambda cannot be pickled.*{WRAP}"):
        compile_graph(dag.bind(lambda bound=BOUND: bound))


def test_a_reference_of_rays_own_is_refused():
    reference = ray.ObjectRef.nil()
    with pytest.raises(NotSerializable, match=r"is an ObjectRef of your own Ray cluster.*bind the function instead of f\.remote\(\)"):
        compile_graph(dag.bind(clean, [reference]))
    with pytest.raises(GraphTypeError, match="is an ObjectRef of your own Ray cluster"):
        compile_graph(reference)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(Keeper, id="a class"),
        pytest.param(Keeper.options(num_cpus=1), id="with options"),
        pytest.param(Keeper.bind(), id="bound"),
    ],
)
def test_actors_of_ray_are_no_functions(given: Any):
    with pytest.raises(GraphTypeError, match=r"make (an actor of it|the actor here), dag\.actor\(Class\)"):
        dag.bind(given)


def test_a_task_may_use_remote_functions_and_actor_classes():
    def inside():
        return produce.remote(), Keeper.remote(), Keeper.options(num_cpus=1)

    compile_graph(dag.bind(inside))


def test_a_remote_generator_is_a_node_of_one_list():
    for given in (stream, stream.options(num_cpus=1), stream.options(num_returns="streaming")):
        assert dag.bind(given).settings.num_returns is None


@pytest.mark.parametrize(
    ("env", "words"),
    [
        pytest.param({"working_dir": "."}, r"working_dir '\.' is on this machine: give the address of an archive", id="a folder"),
        pytest.param({"py_modules": ["s3://a/b.zip", dag]}, "py_modules .*module.* is on this machine", id="a module"),
    ],
)
def test_files_of_this_machine_are_no_environment(env: dict[str, Any], words: str):
    with pytest.raises(GraphTypeError, match=f"task clean: runtime_env: {words}"):
        dag.task(clean, runtime_env=env)
    assert dag.task(clean, runtime_env={"working_dir": "s3://a/b.zip"}).settings.runtime_env == {"working_dir": "s3://a/b.zip"}
