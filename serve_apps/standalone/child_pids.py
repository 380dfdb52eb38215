"""Processes that a stack has started for its meshes, recorded so that a user can find and end one that hangs."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from mesh.ray.cluster.process import start_mark
from serve_apps.standalone.stack_folder import CHILDREN_FILE, StackFolder


def note(folder: StackFolder, pids: Mapping[str, int]) -> None:
    """Record the processes by mesh; leave out processes that have ended."""
    marks = {mesh: (pid, _mark_of(pid)) for mesh, pid in pids.items()}
    folder.write(CHILDREN_FILE, {mesh: {"pid": pid, "started": mark} for mesh, (pid, mark) in marks.items() if mark})


def living(folder: StackFolder) -> dict[str, int]:
    """Return the recorded process ids by mesh, of processes that still run."""
    found: dict[str, int] = {}
    for mesh, facts in folder.read(CHILDREN_FILE).items():
        pid = facts.get("pid") if isinstance(facts, dict) else None
        if isinstance(pid, int) and facts.get("started") and _mark_of(pid) == facts["started"]:
            found[mesh] = pid
    return found


def _mark_of(pid: int) -> str:
    """Return the mark of the process, or an empty text if there is none."""
    try:
        return start_mark(pid)
    except psutil.Error:
        return ""
