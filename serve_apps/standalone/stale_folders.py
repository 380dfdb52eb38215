"""Folders of Ray clusters outside the state folder, recorded so that the next stack can remove those of a killed one.

They are elsewhere because Ray's sockets need short paths. A stack that ends in any other way removes them itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from mesh.ray.cluster.own_cluster import FOLDER_PREFIX
from serve_apps.standalone.stack_folder import StackFolder

FILE = "clusters.json"


def note(folder: StackFolder, left: Iterable[Path]) -> None:
    """Record the folders of the running clusters."""
    folder.write(FILE, {"folders": sorted(str(one) for one in left)})


def sweep(folder: StackFolder) -> tuple[Path, ...]:
    """Remove what an earlier stack recorded and left, and return what was removed. Only the owner of the state folder may call this.

    A name that is not a cluster's, a link, or another user's folder is left alone, whatever the file says.
    """
    noted = folder.read(FILE).get("folders")
    found = tuple(Path(str(name)) for name in (noted if isinstance(noted, list) else ()))
    left = tuple(one for one in found if one.name.startswith(FOLDER_PREFIX) and _is_own(one))
    for one in left:
        shutil.rmtree(one, ignore_errors=True)
    note(folder, ())
    return left


def _is_own(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and os.getuid() == path.stat().st_uid
