"""The user that a Ray cluster's processes run as, where that is another than who started it: a wall between tenants' code and the rest.

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

#: What such processes write, their group may read and write, and nobody else.
UMASK = 0o007
FOLDER_MODE = 0o2770
_LOOK_S_MAX = 60.0
#: Tells the first thing that its user lacks.
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
    """A user of this system."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]  #: All that the user is a member of.
    home: str

    @classmethod
    def find(cls, name: str | None) -> RunAs:
        """The user of that name; None: the one who asks.

        Raises:
            RuntimeAdapterError: There is none, or this process may start nothing for somebody else; the message says what helps.
        """
        try:
            entry = pwd.getpwuid(os.geteuid()) if name is None else pwd.getpwnam(name)
        except KeyError:
            wanted = f"number {os.geteuid()}" if name is None else name
            raise RuntimeAdapterError(f"this system has no user {wanted}; make one: `useradd --system {name or 'NAME'}`") from None
        if entry.pw_uid != os.geteuid() != 0:
            raise RuntimeAdapterError(f"only root may start processes of the user {name}; start `up` as root, or leave `user` out")
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return cls(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir)

    def process(self) -> dict[str, Any]:
        """What `subprocess.Popen` takes, to start a process of this user."""
        if os.geteuid() != 0:
            return {"umask": UMASK}
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups, "umask": UMASK}

    def environment(self) -> dict[str, str]:
        """Variables by which programs know who they are."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def own(self, path: Path) -> None:
        """Make the user the owner."""
        os.chown(path, self.uid, self.gid)

    def check_reach(self, environment: Mapping[str, str], folders: Iterable[Path]) -> None:
        """See whether the user can run this Python with Ray and this package, and read and write these folders.

        Raises:
            RuntimeAdapterError: It cannot; the message says what helps.
        """
        remedy = "install Python, Ray and this package where every user may read them, and not below a home"
        command = [sys.executable, "-s", "-c", _LOOK, *map(str, folders)]
        variables = {**environment, **self.environment()}
        try:
            looked = subprocess.run(
                command, cwd="/", env=variables, capture_output=True, text=True, check=False, timeout=_LOOK_S_MAX, **self.process()
            )
        except OSError as refused:
            raise RuntimeAdapterError(f"the user {self.name} cannot run {sys.executable} ({refused.strerror}); {remedy}") from None
        except subprocess.TimeoutExpired:
            reported = f"the user {self.name} could not start Python and look at its folders within {_LOOK_S_MAX:.0f} s"
            raise RuntimeAdapterError(f"{reported}; try again when this machine has less to do, and check that its disks answer") from None
        if looked.returncode:
            lacks = (looked.stderr.strip().splitlines() or ["cannot run this Python"])[-1]
            if lacks.startswith("cannot read"):
                remedy = f"let a group of the user's have it, where all may enter: `chgrp GROUP FOLDER && chmod {FOLDER_MODE:o} FOLDER`"
            raise RuntimeAdapterError(f"the user {self.name} {lacks}; {remedy}")


def share_folder(folder: Path, user: RunAs) -> None:
    """Make a folder whose files the user and this process both read and write. One that is there is left as it is."""
    if not folder.exists():
        folder.mkdir(parents=True)
        os.chown(folder, -1, user.gid)
        folder.chmod(FOLDER_MODE)  # The group of what is made in it is the folder's own.
