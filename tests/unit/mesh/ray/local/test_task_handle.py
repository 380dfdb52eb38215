"""Targets of the calls of a task handle, without Ray."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from mesh.core.ids import TaskId
from mesh.core.task_spec import TaskState
from mesh.ray.local.client.task_handle import TaskHandle
from mesh.ray.local.status_values import TaskStatus
from mesh.ray.local.supervision_errors import TaskNotRunning
from mesh.ray.local.verbs import TaskVerbs


class Process:
    """Agent that is alive for Ray, whatever the mesh says; it returns its name."""

    def __init__(self, name):
        self.name = name
        self.call_named = self

    def _get_local_state(self):
        return None

    def options(self, *, name):
        self.called = name
        return self

    def remote(self):
        return self.name, self.called


class Answering:
    """Link to a supervisor with one task."""

    def __init__(self, agent=None):
        self.status = TaskStatus(task="t", pool="p", state=TaskState.RUNNING, attempt=1)
        self.agent = agent
        self.asked_for_agents = 0

    def ask(self, verb, *_):
        if verb is not TaskVerbs.handle:
            return self.status
        self.asked_for_agents += 1
        return self.agent or Process(f"process {self.status.attempt}"), self.status.attempt

    def start_again(self):
        self.status = replace(self.status, attempt=self.status.attempt + 1)


def test_a_handle_calls_the_latest_attempt_it_knows():
    link = Answering()
    handle = TaskHandle(link, TaskId("t"))
    for ask in (handle.status, handle.wait_started):
        before = handle.remote("go")
        link.start_again()
        assert handle.remote("go") == before, "nobody has told it"
        assert ask().attempt == link.status.attempt
        attempt = link.status.attempt
        assert handle.remote("go") == (f"process {attempt}", f"t#{attempt}.go") != before


def test_reports_of_an_earlier_attempt_remove_no_agent():
    link = Answering()
    link.start_again()
    handle = TaskHandle(link, TaskId("t"))
    before, asked = handle.remote("go"), link.asked_for_agents
    link.status = replace(link.status, attempt=1)
    assert handle.status().attempt == 1
    assert (handle.remote("go"), link.asked_for_agents) == (before, asked)


class HeardMeanwhile(TaskHandle):
    """Task handle that learns of a later attempt, by another thread, after each look at its agent."""

    @property
    def _agent(self):
        kept, self._kept = self._kept, None
        return kept

    @_agent.setter
    def _agent(self, agent):
        self._kept = agent


def test_a_call_survives_an_update_by_another_thread():
    handle = HeardMeanwhile(Answering(), TaskId("t"))
    assert [handle.remote("go") for _ in range(3)] == [("process 1", "t#1.go")] * 3


class Losing(Process):
    """Agent that breaks off every call."""

    def __init__(self, error):
        super().__init__("process")
        self.error = error

    def remote(self):
        raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(ActorDiedError(), "the agent of task t died during the call of go", id="it died"),
        pytest.param(
            ActorUnavailableError("no answer", None), "the agent of task t was unreachable during the call of go", id="perhaps not"
        ),
    ],
)
def test_an_agent_is_called_dead_only_where_ray_says_so(error, words):
    link = Answering(Losing(error))
    link.status = replace(link.status, state=TaskState.READY)  # The supervisor knows of it.
    with pytest.raises(TaskNotRunning, match=f"^{words}, which may have begun; if it is safe to run twice, call again"):
        TaskHandle(link, TaskId("t")).call("go")
