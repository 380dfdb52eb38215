"""The token of a Ray cluster, without which it runs nobody's code (Ray's `RAY_AUTH_MODE=token`).

Ray's processes listen on all interfaces, whatever `--node-ip-address` says, so the token is what protects a cluster. Ray takes mode and
token from the environment once per process. This module sets them all together, so that nothing that a user has set weakens a cluster.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: `token` or `disabled`; Ray's own name.
MODE_VARIABLE = "RAY_AUTH_MODE"
#: Where Ray looks for a token: the token itself, then the path of its file.
TOKEN_VARIABLE, PATH_VARIABLE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
#: Has Ray ask Kubernetes about tokens instead.
_KUBERNETES_VARIABLE = "RAY_ENABLE_K8S_TOKEN_AUTH"


def write_token(file: Path) -> None:
    """Replace the file by one with a new token, which its owner alone reads."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as sink:
        sink.write(secrets.token_hex(32))
    fresh.replace(file)


def token_environment(file: Path) -> Mapping[str, str]:
    """Variables for a process of the cluster, or one that enters it. They overrule what the process would inherit."""
    return {MODE_VARIABLE: "token", PATH_VARIABLE: str(file), TOKEN_VARIABLE: "", _KUBERNETES_VARIABLE: "false"}


def use_token(file: Path) -> None:
    """Have this process, and those that it starts, enter clusters with this token from now on; call it before `ray.init`.

    Ray keeps the mode and token that it has read first. A process that enters several clusters one after the other has it read again.
    """
    os.environ.update(token_environment(file))
    raylet: Any = sys.modules.get("ray._raylet")
    if raylet is not None:  # First the mode, then the token, for the reason that `ray._private.authentication_test_utils` gives.
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
