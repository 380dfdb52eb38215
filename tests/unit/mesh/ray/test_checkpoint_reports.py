"""Rate at which a runner reports checkpoints and progress."""

from __future__ import annotations

import pytest

from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING
from mesh.core.values import Encoding, StoredValue
from mesh.ray.stage_runner.checkpoints import REFUSALS_MAX, REPORT_EVERY_S, Checkpoints, Saving
from mesh.stages.messages import CheckpointRefused, NodeCheckpoint, NodeProgress
from mesh.stages.spec import StageSpec, TaskSpec

STAGE, TASK = StageId("r.1"), TaskSpec(node=NodeId("a"), attempt=3, function="call:work:do")


def saved(name: str, uri: str | None = None) -> Saving:
    stored = StoredValue(sha256=name, size_bytes=1, encoding=Encoding.PICKLE, uri=uri)
    return Saving(saved=(stored, None if uri else name.encode()))


class Driven:
    """Checkpoints of one task, and the names of what was reported."""

    def __init__(self, task: TaskSpec = TASK, **blobs: bytes) -> None:
        self.reported: list[object] = []
        self.blobs: dict[str, bytes] = {}
        self.checkpoints = Checkpoints(self._put)
        spec = StageSpec(stage=STAGE, run=RunId("r"), tenant=TenantPath("t"), tasks=(task,), slot=NOTHING, width=1)
        self.checkpoints.begin(spec, blobs)

    def _put(self, message, blobs):
        self.blobs.update(blobs or {})
        if isinstance(message, NodeCheckpoint):
            assert message.attempt == TASK.attempt
            self.reported.append((message.number, message.stored.sha256))
        elif isinstance(message, NodeProgress):
            self.reported.append(message.progress)
        else:
            assert isinstance(message, CheckpointRefused)
            self.reported.append(message.detail)

    def save(self, saving, at_s):
        self.checkpoints.save(TASK, STAGE, saving, at_s)

    def flush(self, at_s):
        self.checkpoints.flush(STAGE, TASK.node, at_s)


@pytest.fixture
def driven():
    return Driven()


def test_the_first_checkpoint_is_reported_at_once(driven):
    driven.save(saved("one"), 5.0)
    assert driven.reported == [(1, "one")]
    assert driven.blobs == {"one": b"one"}
    assert driven.checkpoints.pause_s(5.0) is None


def test_of_many_checkpoints_only_the_newest_is_reported(driven):
    for at, name in enumerate(["one", "two", "three"]):
        driven.save(saved(name), at / 10)
    assert driven.checkpoints.pause_s(0.25) == REPORT_EVERY_S - 0.25
    driven.checkpoints.report_due(REPORT_EVERY_S - 0.1)
    assert driven.reported == [(1, "one")]
    driven.checkpoints.report_due(REPORT_EVERY_S)
    driven.checkpoints.report_due(2 * REPORT_EVERY_S)
    assert driven.reported == [(1, "one"), (3, "three")]


def test_a_stop_reports_what_waits(driven):
    driven.save(saved("one"), 0.0)
    driven.save(saved("two"), 0.1)
    driven.flush(0.2)
    driven.flush(0.3)
    assert driven.reported == [(1, "one"), (2, "two")]


def test_each_file_is_reported(driven):
    for name in ("one", "two"):
        driven.save(saved(name, uri=f"file:///{name}"), 0.0)
    assert driven.reported == [(1, "one"), (2, "two")]
    assert driven.blobs == {}


def test_progress_waits_like_checkpoints_and_is_reported_once(driven):
    for at_s, progress in enumerate([0.25, 0.5, 0.75]):
        driven.save(Saving(progress=progress), at_s / 10)
    driven.checkpoints.report_due(REPORT_EVERY_S)
    driven.save(Saving(), 9.0)
    assert driven.reported == [2_500, 7_500]


def refused(detail):
    return Saving(refused=(Reason.VALUE_LOST, detail))


def test_a_first_refusal_is_reported_at_once(driven):
    driven.save(refused("too large"), 0.1)
    assert driven.reported == ["too large"]


def test_a_refusal_waits_like_a_checkpoint(driven):
    driven.save(saved("one"), 0.0)
    driven.save(refused("too large"), 0.1)
    assert driven.reported == [(1, "one")]
    driven.checkpoints.report_due(REPORT_EVERY_S)
    assert driven.reported == [(1, "one"), "too large"]


def test_a_stop_reports_the_refusal_that_waits(driven):
    driven.save(saved("one"), 0.0)
    driven.save(refused("too large"), 0.1)
    driven.flush(0.2)
    assert driven.reported == [(1, "one"), "too large"]


def test_the_same_refusal_is_reported_once(driven):
    for at_s in range(100):
        driven.save(refused(f"{at_s:032x}.part: no room"), 2.0 * at_s)
    assert driven.reported == [f"{0:032x}.part: no room"]
    assert driven.checkpoints.pause_s(200.0) is None


def test_different_refusals_have_a_limit(driven):
    for at_s in range(100):
        driven.save(refused(f"request {at_s} failed"), 2.0 * at_s)
    assert len(driven.reported) == REFUSALS_MAX


def test_the_last_checkpoint_is_the_newest_reported_or_not(driven):
    for name in ("one", "two"):
        driven.save(saved(name), 0.0)
    assert driven.checkpoints.last(STAGE, TASK.node) == saved("two").saved


def test_an_attempt_begins_with_an_earlier_checkpoint():
    earlier = StoredValue(sha256="old", size_bytes=3, encoding=Encoding.PICKLE)
    task = TaskSpec(node=TASK.node, attempt=3, function="call:work:do", checkpoint=earlier)
    driven = Driven(task, old=b"old")
    assert driven.checkpoints.last(STAGE, TASK.node) == (earlier, b"old")
    driven.flush(0.0)
    assert driven.reported == []
    assert Driven(task).checkpoints.last(STAGE, TASK.node) == (earlier, None)


def test_a_task_that_succeeded_reports_no_more(driven):
    driven.save(saved("one"), 0.0)
    driven.save(saved("two"), 0.1)
    driven.checkpoints.drop(STAGE, (TASK.node,))
    driven.checkpoints.report_due(9.0)
    assert driven.reported == [(1, "one")]
    assert driven.checkpoints.last(STAGE, TASK.node) is None


def test_an_ended_stage_is_forgotten(driven):
    driven.save(saved("one"), 0.0)
    driven.save(saved("two"), 0.1)
    driven.checkpoints.end(STAGE)
    assert driven.checkpoints.pause_s(0.2) is None
    assert driven.checkpoints.last(STAGE, TASK.node) is None
