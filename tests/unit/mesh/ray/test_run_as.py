"""User of a cluster's processes: lookup, and refusal where nothing could run."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster import run_as
from mesh.ray.cluster.run_as import RunAs, share_folder

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes of another user")


def test_without_a_name_it_is_whoever_asks() -> None:
    me = RunAs.find(None)
    assert (me.uid, me.name) == (os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name)


def test_an_unknown_user_is_reported_with_the_remedy() -> None:
    with pytest.raises(RuntimeAdapterError, match=r"no user nobody-at-all; create it: `useradd --system nobody-at-all`"):
        RunAs.find("nobody-at-all")


def test_another_user_is_for_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_as.os, "geteuid", lambda: 4711)
    with pytest.raises(
        RuntimeAdapterError, match="only root may start processes of the user nobody; start `up` as root, or leave `user` out"
    ):
        RunAs.find("nobody")


@ROOT_ONLY
def test_a_python_that_the_user_cannot_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.symlink_to("/bin/true")
    tmp_path.chmod(0o700)
    monkeypatch.setattr(run_as.sys, "executable", str(python))
    with pytest.raises(RuntimeAdapterError, match=rf"the user nobody cannot run {python} \(Permission denied\); install Python"):
        RunAs.find("nobody").check_reach({}, [])


def test_a_check_that_takes_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_as, "_LOOK", "import threading; threading.Event().wait()")
    monkeypatch.setattr(run_as, "_LOOK_S_MAX", 0.1)
    with pytest.raises(RuntimeAdapterError, match=r"could not start Python and look .*; try again when the load on this machine is lower"):
        RunAs.find(None).check_reach({}, [])


def test_a_shared_folder_is_its_groups_and_nobody_elses(tmp_path: Path) -> None:
    me = RunAs.find(None)
    share_folder(tmp_path / "deep" / "values", me)
    found = (tmp_path / "deep" / "values").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o2770, me.gid)


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    share_folder(tmp_path, RunAs.find(None))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
