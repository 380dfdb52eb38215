"""Token of a Ray cluster: the cluster runs code only for clients that present it (Ray's `RAY_AUTH_MODE=token`).

Ray's processes listen on all interfaces, whatever `--node-ip-address` says, so only the token protects a cluster. Ray reads mode and
token from the environment once per process. This module sets all variables together, so no variable of a user weakens a cluster.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: `token` or `disabled`; Ray's own variable.
MODE_VARIABLE = "RAY_AUTH_MODE"
#: Variables that Ray reads: the token itself, then the path of its file.
TOKEN_VARIABLE, PATH_VARIABLE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
#: Makes Ray ask Kubernetes about tokens instead.
_KUBERNETES_VARIABLE = "RAY_ENABLE_K8S_TOKEN_AUTH"


def write_token(file: Path) -> None:
    """Replace the file by one with a new token, readable by its owner alone."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as sink:
        sink.write(secrets.token_hex(32))
    fresh.replace(file)


def token_environment(file: Path) -> Mapping[str, str]:
    """Return the variables for a process of the cluster, or a client of it. They override inherited variables."""
    return {MODE_VARIABLE: "token", PATH_VARIABLE: str(file), TOKEN_VARIABLE: "", _KUBERNETES_VARIABLE: "false"}


def use_token(file: Path) -> None:
    """Make this process and its children present this token to clusters from now on. Call it before `ray.init`.

    Ray keeps the mode and token that it read first. This function makes Ray read them again, for a process that enters several clusters in
    succession.
    """
    os.environ.update(token_environment(file))
    raylet: Any = sys.modules.get("ray._raylet")
    if raylet is not None:  # Mode before token: `ray._private.authentication_test_utils` gives the reason.
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
