"""Logs of a node that failed to start: one line of explanation, and a copy outside its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mesh.ray.cluster.node_logs import RAY_FOLDER, SESSION, fatal_line, is_too_slow, keep_logs, last_word_of

SLOW = "Check failed: status.ok() Timed out waiting for file /tmp/sm-x/session/dashboard_agent_listen_port_0a"
BROKEN = "Check failed: plasma Failed to open the store"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return the folder of a cluster as Ray leaves it."""
    (tmp_path / "sm-x" / SESSION / "logs").mkdir(parents=True)
    (tmp_path / "sm-x" / "node-0.log").write_text("click's long stack\n")
    return tmp_path / "sm-x"


def logged(cluster: Path, name: str, *lines: str) -> None:
    (cluster / SESSION / "logs" / name).write_text("\n".join(lines))


@pytest.mark.parametrize(("last_word", "too_slow"), [(SLOW, True), (BROKEN, False)], ids=["a part was too slow", "something is broken"])
def test_the_last_words_of_a_raylet_are_found_in_its_log(cluster: Path, last_word: str, too_slow: bool) -> None:
    logged(
        cluster, "raylet.out", "[I 1] all is well", f"[C 2] (raylet) node_manager.cc:3588: {last_word} ", "*** StackTrace Information ***"
    )
    line = fatal_line(cluster)
    assert line == last_word
    assert is_too_slow(line) is too_slow


def test_nodes_that_said_nothing_have_no_last_word(cluster: Path) -> None:
    logged(cluster, "raylet.out", "[I 1] all is well")
    logged(cluster, "dashboard_agent.log", SLOW)
    assert fatal_line(cluster) is None
    assert not is_too_slow(None)


def test_logs_are_kept_in_place_of_those_of_an_earlier_start(cluster: Path, tmp_path: Path) -> None:
    logged(cluster, "raylet.err", SLOW)
    kept = tmp_path / "logs" / "cluster-main"
    kept.mkdir(parents=True)
    (kept / "node-1.log").write_text("of an earlier start")
    keep_logs(cluster, kept)
    assert sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*")) == ["node-0.log", "ray", "ray/raylet.err"]


def test_an_aborted_worker_is_explained_and_its_neighbour_not(cluster: Path) -> None:
    fatal = "Check failed: it->second.submitted_task_ref_count > 0"
    logged(cluster, "python-core-worker-0a_17.log", "[I 1] all is well", f"[C 2] reference_counter.cc:624: {fatal} ", "*** StackTrace ***")
    logged(cluster, "worker-0b-01-18.err", "*** SIGSEGV received at time=1 on cpu 0 ***")
    logged(cluster, "python-core-worker-0c_19.log", "[I 1] all is well")
    logs = cluster / SESSION / "logs"
    assert [last_word_of(pid, logs) for pid in (17, 18, 19)] == [fatal, "*** SIGSEGV received at time=1 on cpu 0 ***", None]


def test_neither_links_nor_pipes_are_read_as_logs(cluster: Path, tmp_path: Path) -> None:
    logs = cluster / SESSION / "logs"
    (tmp_path / "secret").write_text(BROKEN)
    for name in ("raylet.err", "worker-0b-01-18.err"):
        (logs / name).symlink_to(tmp_path / "secret")
    for name in ("raylet.out", "python-core-worker-0a_18.log"):
        os.mkfifo(logs / name)
    keep_logs(cluster, tmp_path / "kept")
    assert (fatal_line(cluster), last_word_of(18, logs)) == (None, None)
    assert [path.name for path in (tmp_path / "kept").rglob("*")] == ["node-0.log"]


def test_logs_are_found_behind_rays_link_to_its_session(cluster: Path) -> None:
    (cluster / SESSION).rename(cluster / RAY_FOLDER / "session_1")
    (cluster / SESSION).symlink_to(cluster / RAY_FOLDER / "session_1")
    logged(cluster, "raylet.out", BROKEN)
    assert fatal_line(cluster) == BROKEN
