"""Scaling of standing agents around those that end, without Ray."""

from __future__ import annotations

from dataclasses import replace

from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskState
from mesh.ray.local.client.agent_calls import AgentCalls
from mesh.ray.local.client.task_calls import TaskCalls
from mesh.ray.local.status_values import TaskStatus


class Answering:
    """Link to a supervisor with two agents; the second ends, and has ended when its next submission comes."""

    namespace = "tests"

    def __init__(self):
        up = TaskStatus(task="p-0", pool="p", state=TaskState.RUNNING, attempt=1)
        self.agents = {"p-0": up, "p-1": replace(up, task="p-1", is_ending=True)}
        self.submitted = []

    def ask(self, verb, *args, replaces=None):
        answers = {
            "pool_spec": lambda _: PoolSpec(pool="p", capacity=ResourceSet.of({"cpu": 2})),
            "configure_pool": lambda _: None,
            "tasks": lambda: list(self.agents.values()),
            "task": self.agents.__getitem__,
            "submit": lambda request, _order: self.submit(request.task, replaces),
        }
        return answers[verb.__name__](*args)

    def submit(self, task, replaces):
        self.submitted.append((task, replaces))
        if len(self.submitted) > 1:
            self.agents[task] = replace(self.agents[task], state=TaskState.PLACEABLE, is_ending=False, attempt=2)
        return self.agents[task]


def test_an_ending_agent_is_replaced_once_it_has_ended():
    link = Answering()
    agents = AgentCalls(link, TaskCalls(link))
    assert [handle.task for handle in agents.scale_agents("p", 2, dict)] == ["p-0", "p-1"]
    assert link.submitted == [("p-1", 1), ("p-1", 1)]
