"""Which processes a stack has started for its meshes, noted so that whoever must end one that hangs can find it."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from mesh.runtime.cluster.process import start_mark
from serve_apps.one_machine.state_folder import CHILDREN_FILE, StateFolder


def note(folder: StateFolder, pids: Mapping[str, int]) -> None:
    """These are the processes, by mesh; one that has ended already is left out."""
    marks = {mesh: (pid, _mark_of(pid)) for mesh, pid in pids.items()}
    folder.write(CHILDREN_FILE, {mesh: {"pid": pid, "started": mark} for mesh, (pid, mark) in marks.items() if mark})


def living(folder: StateFolder) -> dict[str, int]:
    """Process ids by mesh, of those that were noted and are the same processes still."""
    found: dict[str, int] = {}
    for mesh, facts in folder.read(CHILDREN_FILE).items():
        pid = facts.get("pid") if isinstance(facts, dict) else None
        if isinstance(pid, int) and facts.get("started") and _mark_of(pid) == facts["started"]:
            found[mesh] = pid
    return found


def _mark_of(pid: int) -> str:
    """Empty where there is no such process."""
    try:
        return start_mark(pid)
    except psutil.Error:
        return ""
