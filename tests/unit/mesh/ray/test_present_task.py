"""Reports of a worker on the task that it runs, with a runner or a storage that is slow or gone."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from pathlib import Path

import fsspec
import pytest
from ray.exceptions import RayActorError

from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding
from mesh.ray.worker.exporting import export_encoded
from mesh.ray.worker.present_task import FLUSH_S_MAX, READS_MAX, AttemptLost, PresentTask


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
        self.answers_at_once = False
        self.last = Answer(self.waits)
        self.pulse = Method(self._pulse)
        self.last_checkpoint = Method(lambda _stage, _node: self.last)

    def _pulse(self, _stage, _node, saving):
        self.savings.append(saving)
        self.answers.append(Answer(self.waits))
        if self.answers_at_once:
            self.answers[-1].set_result(False)
        return self.answers[-1]


@pytest.fixture
def runner():
    return Runner()


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def present(runner, tmp_path, pauses):
    present = PresentTask(
        runner,
        run=RunId("r"),
        stage=StageId("r.1"),
        node=NodeId("a"),
        attempt=1,
        storage_url=tmp_path.as_uri(),
        inline_limit_bytes=1_000,
        sleep=pauses.append,
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


class FailingStorage:
    """Storage whose first reads fail."""

    def __init__(self, monkeypatch):
        self.errors = []
        self._open = fsspec.open
        monkeypatch.setattr(fsspec, "open", self._opened)

    def _opened(self, *args):
        if self.errors:
            raise self.errors.pop(0)
        return self._open(*args)


@pytest.fixture
def storage(monkeypatch):
    return FailingStorage(monkeypatch)


@pytest.fixture
def earlier(runner, tmp_path):
    """File of the checkpoint that an earlier attempt left."""
    data = pickle.dumps("earlier")
    saved = export_encoded(data, Encoding.PICKLE, run=RunId("r"), node=NodeId("a"), storage_url=tmp_path.as_uri(), inline_limit_bytes=0)
    runner.last.set_result(saved)
    return Path(saved[0].uri.removeprefix("file://"))


class ObjectStoreError(Exception):
    """Error that is no `OSError`."""


@pytest.mark.usefixtures("earlier")
def test_a_short_failure_of_the_storage_is_waited_for(present, storage, pauses):
    storage.errors = [TimeoutError("slow"), ObjectStoreError("503")]
    assert present.context.last_checkpoint() == "earlier"
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize("error", [TimeoutError("slow"), OSError(5, "EIO"), PermissionError("closed"), ObjectStoreError("503")])
@pytest.mark.usefixtures("earlier")
def test_a_checkpoint_outlives_a_storage_that_is_away(present, runner, storage, error):
    storage.errors = [error] * READS_MAX
    with pytest.raises(AttemptLost, match="cannot be read now") as lost:
        present.context.last_checkpoint()
    assert (lost.value.reason, runner.savings) == (Reason.VALUE_LOST, [])
    assert present.context.last_checkpoint() == "earlier"


def test_a_checkpoint_that_is_gone_starts_anew(present, runner, earlier, pauses):
    earlier.unlink()
    runner.answers_at_once = True
    assert present.context.last_checkpoint() is None
    assert (pauses, [saving.refused[0] for saving in runner.savings]) == ([], [Reason.VALUE_LOST])
