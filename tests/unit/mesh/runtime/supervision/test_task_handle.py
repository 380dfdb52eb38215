"""Where the calls on a task go, without Ray."""

from __future__ import annotations

from dataclasses import replace

from mesh.ids import TaskId
from mesh.runtime.supervision.answers import TaskStatus
from mesh.runtime.supervision.task_handle import TaskHandle
from mesh.scheduling.tasks import TaskState


class Process:
    """An agent of which Ray says that it lives, whatever the mesh says; it answers with its name."""

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
    """A way to a supervisor that has one task."""

    def __init__(self):
        self.status = TaskStatus(task="t", pool="p", state=TaskState.RUNNING, attempt=1)

    def ask(self, method, *_):
        return (Process(f"process {self.status.attempt}"), self.status.attempt) if method == "handle" else self.status

    def start_again(self):
        self.status = replace(self.status, attempt=self.status.attempt + 1)


def test_a_handle_that_has_heard_of_a_later_attempt_calls_that_one_also_when_ray_does_not_know_of_the_death_yet():
    link = Answering()
    handle = TaskHandle(link, TaskId("t"))
    for told in (handle.status, handle.wait_started):
        before = handle.remote("go")
        link.start_again()
        assert handle.remote("go") == before, "nobody has told it"
        assert told().attempt == link.status.attempt
        attempt = link.status.attempt
        assert handle.remote("go") == (f"process {attempt}", f"t#{attempt}.go") != before
