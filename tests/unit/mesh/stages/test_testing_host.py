"""Host for tests: stages that run in memory."""

from __future__ import annotations

import hashlib
import json

import pytest

from mesh.core.clock import ManualClock
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import InputLost, NodeFailed, NodeStarted, NodeSucceeded, StageEnded, StageResized
from mesh.stages.simulated_host import SimulatedHost, value_of
from mesh.stages.spec import StageSpec, TaskSpec

CPU = ResourceSet.of({"cpu": 1})


class Hosted:
    """Host in virtual time, with all its reports; each task takes `duration_ms`, those in `failing` fail."""

    def __init__(self, duration_ms=10, failing=()):
        self.clock = ManualClock(1_000)
        self.reports = []
        self.host = SimulatedHost(self.reports.append, self.clock, lambda task: (duration_ms, task.node in failing))

    def start(self, *tasks, stage="s", slots=1, token=7, inputs=None):
        return self.host.start(spec(*tasks, stage=stage), slots, token, {}, inputs or {})

    def note(self, stage="s"):
        """Return the note that a new process would find."""
        self.host.read_clock()
        self.host.extend_deadline(1, 10_000, 10_000, 1)
        return next(held.note for held in self.host.find().stages if held.stage == stage)

    def run(self, by_ms=10):
        """Let time pass, and return the reports."""
        self.reports.clear()
        self.host.advance()
        self.clock.advance(by_ms)
        self.host.advance()
        return [message for report in self.reports for message in report.messages]


def spec(*tasks, stage="s"):
    """Return a spec. A task: `name: needs`; a need with `~` is only waited for; a name with `!` is exported."""
    made = []
    for text in tasks:
        node, _, needs = text.partition(":")
        inputs = tuple(need for need in needs.split() if not need.startswith("~"))
        after = tuple(need[1:] for need in needs.split() if need.startswith("~"))
        made.append(TaskSpec(node=node.rstrip("!"), attempt=1, function="call:m:f", inputs=inputs, after=after, export=node.endswith("!")))
    return StageSpec(stage=stage, run="r", tenant="t", tasks=tuple(made), slot=CPU, width=1)


def delivered(value):
    data = json.dumps(value).encode()
    return StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.JSON), data


def started(messages):
    return [message.node for message in messages if isinstance(message, NodeStarted)]


def succeeded(messages):
    return [message.node for message in messages if isinstance(message, NodeSucceeded)]


def has_ended(messages):
    return any(isinstance(message, StageEnded) for message in messages)


def test_no_more_tasks_run_at_once_than_there_are_slots():
    hosted = Hosted()
    hosted.start("a:", "b:", "c:", slots=2)
    messages = hosted.run()
    assert started(messages) == ["a", "b", "c"]
    assert succeeded(messages) == ["a", "b"]
    assert succeeded(hosted.run()) == ["c"]


def test_tasks_start_when_ready_and_the_last_ends_the_stage():
    hosted = Hosted()
    hosted.start("a:", "b: a", "c: ~b", slots=3)
    assert [succeeded(hosted.run()) for _ in range(2)] == [["a"], ["b"]]
    last = hosted.run()
    assert succeeded(last) == ["c"]
    assert has_ended(last)


def test_a_value_depends_on_the_node_and_on_every_input():
    hosted = Hosted()
    hosted.start("a!: x", inputs={"x": delivered("seven")})
    hosted.run()
    (blobs,) = [report.blobs for report in hosted.reports if report.blobs]
    assert [json.loads(data) for data in blobs.values()] == [value_of("a", ("seven",))]
    assert value_of("a", ("seven",)) != value_of("a", ("eight",))
    assert value_of("a", ("seven",)) != value_of("b", ("seven",))


def test_only_what_leaves_the_mesh_is_stored():
    hosted = Hosted()
    hosted.start("a:", "b!: a")
    first = hosted.run()
    assert [message.stored for message in first if isinstance(message, NodeSucceeded)] == [None]
    (message,) = [message for message in hosted.run() if isinstance(message, NodeSucceeded)]
    assert message.stored is not None
    assert hashlib.sha256(hosted.reports[-1].blobs[message.stored.sha256]).hexdigest() == message.stored.sha256


def test_a_stage_reads_earlier_values_of_the_same_holder():
    hosted = Hosted()
    first = hosted.start("a:")
    hosted.run()
    assert hosted.start("b: a", stage="t", token=8) == first
    assert succeeded(hosted.run()) == ["b"]


def test_an_input_that_will_not_come_drops_what_waits_for_it():
    hosted = Hosted()
    hosted.start("a: x", "b: a", "c:")
    hosted.host.deliver("s", "x", None)
    messages = hosted.run()
    assert succeeded(messages) == ["c"]
    assert has_ended(messages)


def test_a_failure_is_reported_and_drops_what_is_behind_it():
    hosted = Hosted(failing={"a"})
    hosted.start("a:", "b: a", "c:", slots=3)
    messages = hosted.run()
    (failure,) = [message.failure for message in messages if isinstance(message, NodeFailed)]
    assert (failure.reason, failure.message) == (Reason.USER_ERROR, "a fails")
    assert succeeded(messages) == ["c"]
    assert has_ended(messages)


def test_a_cancelled_stage_fails_what_runs_and_ends():
    hosted = Hosted(duration_ms=1_000)
    hosted.start("a:", "b: a")
    hosted.run()
    hosted.host.cancel("s")
    messages = hosted.run()
    assert [(message.node, message.failure.reason) for message in messages if isinstance(message, NodeFailed)] == [
        ("a", Reason.CANCELLED_BY_USER)
    ]
    assert has_ended(messages)


def test_a_stop_of_all_reports_nothing_and_changes_the_holder():
    hosted = Hosted()
    first = hosted.start("a:")
    hosted.host.stop_all()
    assert hosted.run() == []
    assert hosted.host.is_empty
    assert hosted.start("a:", token=9) != first


def test_a_forgotten_run_leaves_no_value():
    hosted = Hosted()
    hosted.start("a:")
    hosted.run()
    assert not hosted.host.is_empty
    hosted.host.forget("another")
    assert not hosted.host.is_empty
    assert list(hosted.host.held()) == ["r"]
    hosted.host.forget("r")
    assert hosted.host.is_empty
    assert hosted.host.held() == {}


def test_words_about_a_stage_that_is_over_are_harmless():
    hosted = Hosted()
    hosted.host.deliver("gone", "x", None)
    hosted.host.cancel("gone")
    assert hosted.run() == []


def test_a_value_whose_bytes_are_not_its_own_is_not_taken():
    hosted = Hosted()
    stored, _ = delivered("seven")
    with pytest.raises(AssertionError):
        hosted.start("a: x", inputs={"x": (stored, b'"eight"')})


def test_an_input_without_its_bytes_fails_its_readers():
    hosted = Hosted()
    stored, _ = delivered("seven")
    hosted.start("a: x", "b: a", "c:", inputs={"x": (stored, None)})
    messages = hosted.run()
    assert InputLost(stage="s", node="x") in messages
    assert [(message.node, message.failure.reason) for message in messages if isinstance(message, NodeFailed)] == [("a", Reason.VALUE_LOST)]
    assert started(messages) == ["c"]
    assert has_ended(messages)


# -- growth and shrinking ------------------------------------------------------------------------------------------------


def resized(messages):
    return [message.slots for message in messages if isinstance(message, StageResized)]


def test_a_stage_that_grows_starts_more_tasks_at_once():
    hosted = Hosted()
    hosted.start("a:", "b:", "c:")
    hosted.run(by_ms=1)
    hosted.host.grow("s", 1, b"two")
    messages = hosted.run(by_ms=1)
    assert (resized(messages), started(messages)) == ([2], ["b"])
    assert hosted.note() == b"two"


def test_a_stage_that_shrinks_gives_up_slots_as_tasks_end():
    hosted = Hosted()
    hosted.start("a:", "b:", "c:", "d:", slots=2)
    hosted.run(by_ms=1)
    hosted.host.shrink("s", 1)
    assert resized(hosted.run(by_ms=1)) == []
    messages = hosted.run()
    assert (resized(messages), started(messages)) == ([1], ["c"])
    assert hosted.host.slots_in_use("t") == 1


def test_idle_slots_go_at_once_and_the_last_stays():
    hosted = Hosted()
    hosted.start("a:", slots=3)
    hosted.run(by_ms=1)
    for seen in ([1], []):
        hosted.host.shrink("s", 0)
        assert resized(hosted.run(by_ms=1)) == seen


def test_tasks_of_slots_that_go_at_once_are_interrupted():
    hosted = Hosted()
    hosted.start("a:", "b:", "c:", slots=3)
    hosted.run(by_ms=1)
    hosted.host.shrink("s", 1, at_once=True)
    messages = hosted.run(by_ms=1)
    failed = [(message.node, message.failure.reason) for message in messages if isinstance(message, NodeFailed)]
    assert failed == [("b", Reason.QUOTA_RECLAIMED), ("c", Reason.QUOTA_RECLAIMED)]
    assert resized(messages) == [1]


def test_nothing_happens_to_a_stage_that_is_over():
    hosted = Hosted()
    hosted.host.grow("gone", 1, b"")
    hosted.host.shrink("gone", 1)
    assert hosted.run() == []


@pytest.mark.parametrize(("node", "reports"), [("a", ["NodeFailed", "NodeStarted"]), ("c", [])], ids=["it runs", "it waits"])
def test_a_task_whose_own_value_is_withheld_is_stopped_alone(node, reports):
    hosted = Hosted()
    hosted.start("a:", "b:", "c:", "d: a c")
    hosted.host.advance()
    hosted.reports.clear()
    hosted.host.deliver("s", node, None)
    hosted.host.advance()
    assert [type(message).__name__ for report in hosted.reports for message in report.messages] == reports
    ends = [message for _ in range(4) for message in hosted.run()]
    assert {message.node for message in ends if isinstance(message, NodeSucceeded)} == {"a", "b", "c"} - {node}
    assert isinstance(ends[-1], StageEnded)
