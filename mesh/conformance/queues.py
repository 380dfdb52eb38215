"""The kinds `queue` and `task_states`: the order of queued tasks, and the transitions of task states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.conformance.answering import Verbs, answer_all
from mesh.conformance.fields import Fields
from mesh.core.ids import AgentId, JobId, LabelName, TaskId
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskState
from mesh.tasks.queues import LabelQueues, LabelSettings
from mesh.tasks.task_queues import SchedulingQueues


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run steps on label queues; return the answer to each, and the number of tasks after the last."""
    with Fields(case.get("given", {}), "given") as given:
        queues = LabelQueues(LabelSettings(**given.take("others", {})))
        for label, settings in given.take("labels", {}).items():
            queues.configure(LabelName(label), LabelSettings(**settings))
    answers = answer_all(_QUEUE_VERBS, queues, case)
    return {"answers": answers, "count": len(queues), "wrong": queues.check()}


def run_states(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run steps on queues by state; return the answer to each, and after the last the tasks and demands by state."""
    with Fields(case.get("given", {}), "given"):
        queues = SchedulingQueues()
    answers = answer_all(_STATE_VERBS, queues, case)
    filled = [state for state, count in queues.counts().items() if count]
    return {
        "answers": answers,
        "tasks": {state.value: queues.in_state(state) for state in filled},
        "wanted": {state.value: queues.wanted(state).in_ray_units() for state in filled},
        "wrong": queues.check(),
    }


# -- label queues ------------------------------------------------------------------------------------------------------


def _add(queues: LabelQueues, task: str, fields: Fields) -> str:
    label, bucket = LabelName(fields.take("label", "")), fields.take("bucket", "b")
    priority, since_ms, arrival = fields.take("priority", 5.0), fields.take("since_ms", 0), fields.take("arrival", len(queues))
    queues.add(TaskId(task), bucket=bucket, label=label, priority=priority, since_ms=since_ms, arrival=arrival)
    return "done"


def _configure(queues: LabelQueues, label: str | None, fields: Fields) -> str:
    default = LabelSettings()
    priority, aging_per_s = fields.take("priority", default.priority), fields.take("aging_per_s", default.aging_per_s)
    queues.configure(None if label is None else LabelName(label), LabelSettings(priority=priority, aging_per_s=aging_per_s))
    return "done"


def _round(queues: LabelQueues, now_ms: int, fields: Fields) -> list[str]:
    """Return the tasks considered. A task of a bucket in `does_not_fit` stays and hides those behind it."""
    too_large = fields.take("does_not_fit", ())
    looked_at: list[str] = []
    turn = queues.round(now_ms, fields.take("buckets", None))
    while (found := turn.next()) is not None:
        bucket, task = found
        looked_at.append(task)
        if bucket not in too_large:
            queues.remove(task)
            turn.again(bucket)
    return looked_at


_QUEUE_VERBS: Verbs[LabelQueues] = {
    "add": _add,
    "remove": lambda queues, task, _: queues.remove(TaskId(task)),
    "configure": _configure,
    "round": _round,
    "walk": lambda queues, now_ms, _: list(queues.walk(now_ms)),
    "tasks": lambda queues, bucket, _: queues.tasks(bucket),
    "priority_of": lambda queues, task, fields: queues.workload_priority(TaskId(task), fields.take("at_ms")),
    "position_of": lambda queues, task, fields: queues.position(TaskId(task), fields.take("at_ms")),
}


# -- queues by state ---------------------------------------------------------------------------------------------------


def _enter(queues: SchedulingQueues, task: str, fields: Fields) -> str:
    state, resources = TaskState(fields.take("state")), ResourceSet.of(fields.take("resources", {}))
    job, agent = fields.take("job", None), fields.take("agent", None)
    queues.add(TaskId(task), state, resources, None if job is None else JobId(job), None if agent is None else AgentId(agent))
    return "done"


def _move(queues: SchedulingQueues, task: str, fields: Fields) -> str:
    queues.move(TaskId(task), TaskState(fields.take("to")))
    return "done"


def _remove(queues: SchedulingQueues, task: str, _: Fields) -> str | None:
    state = queues.remove(TaskId(task))
    return None if state is None else state.value


_STATE_VERBS: Verbs[SchedulingQueues] = {
    "add": _enter,
    "move": _move,
    "remove": _remove,
    "of_job": lambda queues, job, _: queues.of_job(JobId(job)),
    "of_agent": lambda queues, agent, _: queues.of_agent(AgentId(agent)),
    "of_shape": lambda queues, resources, _: queues.ready.of_shape(ResourceSet.of(resources)),
    "shapes": lambda queues, _, __: [shape.in_ray_units() for shape in queues.ready.shapes()],
    "only": lambda queues, tasks, fields: queues.only(tasks, TaskState(fields.take("state"))),
}
