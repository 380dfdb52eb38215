"""How a process gets into a Ray cluster that somebody else started: with the token that Ray keeps, where the cluster asks for one.

Ray 2.60 asks for a token in a cluster that was started where one lay, and `ray.init(address="HOST:PORT")` brings none by itself: it
would knock for 20 s in vain. A process that does bring one into a cluster that asks for none gets in, but asks for it itself from then on,
and what the cluster calls back to it is refused: its actors die at birth. So the cluster is asked. Ray reads the mode when it is imported,
so this module imports no Ray.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mesh.errors import RuntimeDoorError
from mesh.runtime.reach import knock

#: `token` or `disabled`; Ray's own name.
MODE_VARIABLE = "RAY_AUTH_MODE"
#: How long the cluster may take to say whether it is there.
ANSWER_S = 5.0
_REFUSED = 16
#: Asks as Ray's own clients do first, which changes nothing. In a process of its own: the threads of gRPC and the forks of a process that
#: starts others do not go together.
_ASK = f"""
import sys, grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    is_alive = channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive", request_serializer=bytes, response_deserializer=bytes)
    try:
        is_alive(b"", timeout=float(sys.argv[2]))
    except grpc.RpcError as refused:
        sys.exit({_REFUSED} if refused.code() is grpc.StatusCode.UNAUTHENTICATED else 1)
"""
#: Where Ray looks for a token, before the file of `token_file`.
TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def token_file(home: Path) -> Path:
    """Where `ray get-auth-token --generate` and `ray.init()` keep the token of this user."""
    return home / ".ray" / "auth_token"


def auth_mode(environment: Mapping[str, str], address: str) -> str:
    """The mode to enter a cluster with that is not one's own: what somebody has set, else what the cluster asks for.

    Args:
        environment: Of this process.
        address: `HOST:PORT` of the cluster.
    """
    return environment.get(MODE_VARIABLE) or ("token" if asks_for_token(address) else "disabled")


def asks_for_token(address: str) -> bool:
    """Does the cluster refuse a caller who shows none? One that does not answer at all asks for nothing."""
    asked = subprocess.run([sys.executable, "-c", _ASK, address, str(ANSWER_S)], check=False, capture_output=True)
    return asked.returncode == _REFUSED


def check_answers(address: str, named_by: str, *, whose: str = "") -> None:
    """See whether anybody listens at the address of a cluster; Ray itself would try for minutes, and over again.

    Args:
        address: `HOST:PORT`.
        named_by: What holds the address, for whoever has to mend it: a key of the file, or an option.
        whose: The cluster's name and a colon, where several are looked at.

    Raises:
        RuntimeDoorError: Nobody does; the message says what helps.
    """
    try:
        knock(address, ANSWER_S)
    except (OSError, ValueError) as refused:
        raise RuntimeDoorError(
            f"{whose}nobody answers at {address} ({refused}); `{named_by}` is the one that `ray start --head` tells, "
            "and this machine has to be a node of the cluster"
        ) from None


def refused_words(address: str, environment: Mapping[str, str], home: Path, refused: Exception) -> str:
    """What somebody can do about a cluster that cannot be entered."""
    has_token = any(environment.get(name) for name in TOKEN_VARIABLES) or token_file(home).exists()
    lacking = "" if has_token else f", and bring its token as {token_file(home)} or by RAY_AUTH_TOKEN_PATH: there is none here"
    mode = environment.get(MODE_VARIABLE, "unset")
    return (
        f"the Ray cluster at {address} does not answer, or does not let this process in ({MODE_VARIABLE}={mode}): "
        f"check the address and that this machine is a node of it; if the log says InvalidAuthToken, set {MODE_VARIABLE}=token{lacking}. "
        f"Ray says: {' '.join(str(refused).split())}"
    )
