"""A node that did not come up tells why, in one line, and its logs outlive its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.runtime.node_logs import fatal_line, is_too_slow, keep_logs, last_word_of

SLOW = "Check failed: status.ok() Timed out waiting for file /tmp/sm-x/session/dashboard_agent_listen_port_0a"
BROKEN = "Check failed: plasma Failed to open the store"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A cluster's folder as Ray leaves it."""
    (tmp_path / "sm-x" / "session_latest" / "logs").mkdir(parents=True)
    (tmp_path / "sm-x" / "node-0.log").write_text("click's long stack\n")
    return tmp_path / "sm-x"


def logged(cluster: Path, name: str, *lines: str) -> None:
    (cluster / "session_latest" / "logs" / name).write_text("\n".join(lines))


@pytest.mark.parametrize(("last_word", "too_slow"), [(SLOW, True), (BROKEN, False)], ids=["a part was too slow", "something is broken"])
def test_the_last_word_of_a_raylet_is_found_between_its_other_lines(cluster: Path, last_word: str, too_slow: bool) -> None:
    logged(
        cluster, "raylet.out", "[I 1] all is well", f"[C 2] (raylet) node_manager.cc:3588: {last_word} ", "*** StackTrace Information ***"
    )
    told = fatal_line(cluster)
    assert told == last_word
    assert is_too_slow(told) is too_slow


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


def test_a_worker_that_aborted_says_why_and_its_neighbour_does_not(cluster: Path) -> None:
    fatal = "Check failed: it->second.submitted_task_ref_count > 0"
    logged(cluster, "python-core-worker-0a_17.log", "[I 1] all is well", f"[C 2] reference_counter.cc:624: {fatal} ", "*** StackTrace ***")
    logged(cluster, "worker-0b-01-18.err", "*** SIGSEGV received at time=1 on cpu 0 ***")
    logged(cluster, "python-core-worker-0c_19.log", "[I 1] all is well")
    logs = cluster / "session_latest" / "logs"
    assert [last_word_of(pid, logs) for pid in (17, 18, 19)] == [fatal, "*** SIGSEGV received at time=1 on cpu 0 ***", None]
