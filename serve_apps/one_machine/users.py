"""Whose processes the Ray clusters of a stack are: where the file names users, checked before anything is started."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from federation.config.loading import FederationConfig
from mesh.errors import RuntimeDoorError
from mesh.runtime.cluster.node_start import node_environment
from mesh.runtime.cluster.run_as import RunAs, share_folder


def users_of(config: FederationConfig) -> dict[str, RunAs]:
    """The user of each cluster that `up` starts; empty where the file names none.

    Where it names one, all of them share the folder of large values: those without `user` write so that the others can read.

    Raises:
        RuntimeDoorError: A user is missing, or cannot reach what its processes need; the message names the key and what helps.
    """
    own = {name: section.user for name, section in config.clusters.items() if section.address is None}
    if not any(own.values()):
        return {}
    found: dict[str, RunAs] = {}
    for name, user in own.items():
        try:
            found[name] = RunAs.find(user)
            if user is not None:
                _check(config, found[name])
        except RuntimeDoorError as wrong:
            raise RuntimeDoorError(config.told_at(("clusters", name, "user"), str(wrong))) from None
    return found


def _check(config: FederationConfig, user: RunAs) -> None:
    storage = urlsplit(config.storage.url or "")
    folders = [Path(unquote(storage.path))] if storage.scheme == "file" else []
    for folder in folders:
        share_folder(folder, user)
    user.check_reach(node_environment(config.import_paths), folders)
