"""What a worker sends its runner about the task that it runs, with a runner that is slow or gone."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from ray.exceptions import RayActorError

from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.ray.stage_runner.present_task import FLUSH_S_MAX, AttemptLost, PresentTask


class Answer(Future):
    """Answer of a runner that records how long its callers wait, and makes none of them wait."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def future(self):
        return self

    def result(self, timeout=None):
        self.waits.append(timeout)
        return super().result(0)


class Method:
    def __init__(self, call):
        self.remote = call


class Runner:
    """Runner whose answers are set by the test."""

    def __init__(self):
        self.savings = []
        self.waits = []
        self.answers = []
        self.last = Answer(self.waits)
        self.pulse = Method(self._pulse)
        self.last_checkpoint = Method(lambda _stage, _node: self.last)

    def _pulse(self, _stage, _node, saving):
        self.savings.append(saving)
        self.answers.append(Answer(self.waits))
        return self.answers[-1]


@pytest.fixture
def runner():
    return Runner()


@pytest.fixture
def present(runner, tmp_path):
    present = PresentTask(
        runner, run=RunId("r"), stage=StageId("r.1"), node=NodeId("a"), attempt=1, storage_url=tmp_path.as_uri(), inline_limit_bytes=1_000
    )
    present.context.use()
    return present


def test_a_frozen_runner_delays_the_end_once(present, runner):
    present.context.save_checkpoint("first")
    present.report()
    present.context.save_checkpoint("last")
    present.flush()
    assert len([saving for saving in runner.savings if saving.saved]) == 2
    assert runner.waits == [FLUSH_S_MAX]


def test_an_end_with_nothing_new_waits_for_the_last_answer(present, runner):
    present.context.save_checkpoint("only")
    present.report()
    present.flush()
    assert (len(runner.savings), runner.waits) == (1, [FLUSH_S_MAX])


def test_a_task_waits_for_a_slow_runner_without_limit(present, runner):
    runner.last.set_result(None)
    assert present.context.last_checkpoint() is None
    assert runner.waits == [None]


def test_a_dead_runner_is_no_error_of_the_code(present, runner):
    runner.last.set_exception(RayActorError())
    with pytest.raises(AttemptLost, match="the runner of a is gone") as lost:
        present.context.last_checkpoint()
    assert lost.value.reason is Reason.WORKER_LOST
    assert not isinstance(lost.value, Exception)
