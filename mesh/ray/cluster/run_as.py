"""The user that runs a Ray cluster's processes. A separate user isolates tenants' code from the rest of the machine.

Only root may start processes of another user.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesh.errors import RuntimeAdapterError

#: Files of such processes are readable and writable by their group, and by nobody else.
UMASK = 0o007
FOLDER_MODE = 0o2770
_LOOK_S_MAX = 60.0
#: Prints the first thing that the user lacks.
_LOOK = """
import importlib.util, os, sys
for name in ("ray", "mesh"):
    found = importlib.util.find_spec(name)
    if found is None or not os.access(found.origin, os.R_OK):
        sys.exit(f"cannot import {name}")
for folder in sys.argv[1:]:
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        sys.exit(f"cannot read and write {folder}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """A user of the operating system."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]  #: All groups of the user.
    home: str

    @classmethod
    def find(cls, name: str | None) -> RunAs:
        """Return the user of that name; None: the user of this process.

        Raises:
            RuntimeAdapterError: There is no such user, or this process may not start processes of another user; the message gives the
            remedy.
        """
        try:
            entry = pwd.getpwuid(os.geteuid()) if name is None else pwd.getpwnam(name)
        except KeyError:
            wanted = f"number {os.geteuid()}" if name is None else name
            raise RuntimeAdapterError(f"this system has no user {wanted}; create it: `useradd --system {name or 'NAME'}`") from None
        if entry.pw_uid != os.geteuid() != 0:
            raise RuntimeAdapterError(f"only root may start processes of the user {name}; start `up` as root, or leave `user` out")
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return cls(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir)

    def process(self) -> dict[str, Any]:
        """Return arguments of `subprocess.Popen` that start a process of this user."""
        if os.geteuid() != 0:
            return {"umask": UMASK}
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups, "umask": UMASK}

    def environment(self) -> dict[str, str]:
        """Return the variables that name the user to programs."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def own(self, path: Path) -> None:
        """Make the user the owner of the file."""
        os.chown(path, self.uid, self.gid)

    def check_reach(self, environment: Mapping[str, str], folders: Iterable[Path]) -> None:
        """Check that the user can run this Python with Ray and this package, and read and write these folders.

        Raises:
            RuntimeAdapterError: The user cannot; the message gives the remedy.
        """
        remedy = "install Python, Ray and this package where every user may read them, not below a home folder"
        command = [sys.executable, "-s", "-c", _LOOK, *map(str, folders)]
        variables = {**environment, **self.environment()}
        try:
            looked = subprocess.run(
                command, cwd="/", env=variables, capture_output=True, text=True, check=False, timeout=_LOOK_S_MAX, **self.process()
            )
        except OSError as refused:
            raise RuntimeAdapterError(f"the user {self.name} cannot run {sys.executable} ({refused.strerror}); {remedy}") from None
        except subprocess.TimeoutExpired:
            problem = f"the user {self.name} could not start Python and look at its folders within {_LOOK_S_MAX:.0f} s"
            raise RuntimeAdapterError(
                f"{problem}; try again when the load on this machine is lower, and check that its disks answer"
            ) from None
        if looked.returncode:
            lacks = (looked.stderr.strip().splitlines() or ["cannot run this Python"])[-1]
            if lacks.startswith("cannot read"):
                remedy = (
                    f"give it to a group of the user, in a place that all may enter: `chgrp GROUP FOLDER && chmod {FOLDER_MODE:o} FOLDER`"
                )
            raise RuntimeAdapterError(f"the user {self.name} {lacks}; {remedy}")


def share_folder(folder: Path, user: RunAs) -> None:
    """Make a folder whose files the user and this process both read and write. An existing folder stays unchanged."""
    if not folder.exists():
        folder.mkdir(parents=True)
        os.chown(folder, -1, user.gid)
        folder.chmod(FOLDER_MODE)  # New files in the folder get the folder's group.
