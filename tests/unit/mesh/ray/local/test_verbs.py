"""The table of verbs, and both of its ends."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_type_hints

import pytest

from mesh.ray.local.services.agent_service import AgentService
from mesh.ray.local.services.group_service import GroupService
from mesh.ray.local.services.job_service import JobService
from mesh.ray.local.services.mesh_service import MeshService
from mesh.ray.local.services.pool_service import PoolService
from mesh.ray.local.services.supervisor import MeshSupervisor
from mesh.ray.local.services.task_service import TaskService
from mesh.ray.local.verbs import VERBS, Services, TaskVerbs, send

SERVICES = {
    "tasks": TaskService,
    "pools": PoolService,
    "groups": GroupService,
    "jobs": JobService,
    "agents": AgentService,
    "mesh": MeshService,
}


def test_every_service_of_the_table_has_a_class():
    assert set(get_type_hints(Services)) == set(SERVICES) == {verb.service for verb in VERBS}


def test_each_verb_has_a_name_of_its_own():
    assert len({verb.name for verb in VERBS}) == len(VERBS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_actor_and_service_have_the_verbs_parameters(verb):
    wanted = inspect.signature(verb.signature)
    assert inspect.signature(getattr(SERVICES[verb.service], verb.name)) == wanted
    method = getattr(MeshSupervisor, verb.name)
    assert inspect.iscoroutinefunction(method)
    own = [one for one in inspect.signature(method).parameters.values() if one.name != "_ray_trace_ctx"]  # Ray adds this one.
    assert own == list(wanted.parameters.values())


def test_services_answer_verbs_only():
    public = {(field, name) for field, kind in SERVICES.items() for name in vars(kind) if not name.startswith("_")}
    assert public == {(verb.service, verb.name) for verb in VERBS}


def test_an_agent_imports_no_scheduler_and_no_metrics():
    code = "import sys, mesh.ray.local.agent.agent; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith(("mesh.observability", "mesh.tasks"))]


def test_a_call_goes_to_the_actors_method_of_that_name():
    class Method:
        def remote(self, *args, **kwargs):
            return args, kwargs

    class Actor:
        resume = Method()

    assert send(Actor(), TaskVerbs.resume, "t") == (("t",), {})
