"""OS users of the stack's Ray clusters, if the file names users; checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from federation.config.loading import FederationConfig
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.node_start import node_environment
from mesh.ray.cluster.run_as import RunAs, share_folder


def users_of(config: FederationConfig) -> dict[str, RunAs]:
    """Return the user of each cluster that `up` starts; empty if the file names none.

    If the file names one, all clusters share the folder of large values: clusters without `user` write files that the others can read.

    Raises:
        RuntimeAdapterError: A user does not exist, or cannot access what its processes need; the message names the key and the remedy.
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
        except RuntimeAdapterError as wrong:
            raise RuntimeAdapterError(config.reported_at(("clusters", name, "user"), str(wrong))) from None
    return found


def _check(config: FederationConfig, user: RunAs) -> None:
    storage = urlsplit(config.storage.url or "")
    folders = [Path(unquote(storage.path))] if storage.scheme == "file" else []
    for folder in folders:
        share_folder(folder, user)
    user.check_reach(node_environment(config.import_paths), folders)
