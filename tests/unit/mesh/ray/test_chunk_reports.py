"""Reports of workers on chunks: those that no chunk can have are refused."""

from __future__ import annotations

import pytest

from mesh.ray.worker.chunk_calls import ChunkReport

GOOD = ChunkReport(1, "h:1", 5, [0, 1], [1, 2], [3, 4], [b"a", None], {}, [1], {}, {}, [])


def test_report_of_a_chunk_passes():
    GOOD.check(2, is_end=True)
    GOOD._replace(running=1).check(2, is_end=False)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(GOOD._replace(tasks=[0, 2]), id="a task beyond the chunk"),
        pytest.param(GOOD._replace(tasks=[0, -1]), id="a task before the chunk"),
        pytest.param(GOOD._replace(tasks=[0, 0]), id="a task twice"),
        pytest.param(GOOD._replace(tasks=[0, "1"]), id="a task that is no number"),
        pytest.param(GOOD._replace(took_us=[3]), id="columns of different lengths"),
        pytest.param(GOOD._replace(took_us=[3, -4]), id="a negative time"),
        pytest.param(GOOD._replace(creators=[7]), id="a creator beyond the chunk"),
        pytest.param(GOOD._replace(running=2), id="a running task beyond the chunk"),
        pytest.param(GOOD._replace(worker="w" * 1_000), id="a long name"),
    ],
)
def test_report_that_no_chunk_can_have_is_refused(wrong: ChunkReport):
    with pytest.raises(ValueError, match="a chunk of 2 tasks"):
        wrong.check(2, is_end=True)


def test_stall_names_the_task_that_runs():
    with pytest.raises(ValueError, match="cannot do"):
        GOOD.check(2, is_end=False)
