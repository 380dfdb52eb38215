"""Errors of tasks that mean the end of a worker."""

from __future__ import annotations

from mesh.ray.worker.execution import _end_of_worker


def test_errors_that_cause_each_other_end_no_worker() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert _end_of_worker(first) is None


def test_the_end_of_a_worker_is_found_behind_another_cause() -> None:
    end, error = SystemExit(1), ValueError("while it ended")
    end.ray_terminate_msg = "SIGTERM"  # type: ignore[attr-defined]  as Ray's handler does
    error.__cause__, error.__context__ = KeyError("something else"), end
    assert _end_of_worker(error) is end
