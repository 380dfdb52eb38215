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
from mesh.runtime.cluster.cluster_token import MODE_VARIABLE, PATH_VARIABLE, TOKEN_VARIABLE, token_environment
from mesh.runtime.cluster.reach import knock

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


def entry_environment(environment: Mapping[str, str], address: str, token_file: str | None) -> Mapping[str, str]:
    """What a process needs in its environment, beside this one, to enter a cluster that is not one's own.

    Args:
        environment: Of this process.
        address: `HOST:PORT` of the cluster.
        token_file: The file of the cluster's token; None: where Ray looks for one, if the cluster asks for it.
    """
    if token_file is not None:
        return token_environment(Path(token_file))
    return {MODE_VARIABLE: auth_mode(environment, address)}


def open_words(address: str) -> tuple[str, ...]:
    """A warning of a cluster that asks nobody for a token; none of one that does."""
    if asks_for_token(address):
        return ()
    asks = f"the Ray cluster at {address} asks for no token: whoever reaches its ports runs code on it"
    return (f"{asks}. Start its nodes with {MODE_VARIABLE}=token (`ray get-auth-token --generate` makes a token)",)


def check_token_file(file: str, named_by: str, *, whose: str = "") -> None:
    """See whether there is a token in the file: a process of Ray's that finds none aborts.

    Raises:
        RuntimeDoorError: It cannot be read, or is empty; the message says what helps.
    """
    try:
        wrong = "" if Path(file).read_text(encoding="utf-8").strip() else "is empty"
    except (OSError, UnicodeDecodeError) as unreadable:
        wrong = f"cannot be read ({unreadable})"
    if wrong:
        raise RuntimeDoorError(f"{whose}the token file {file} {wrong}; `{named_by}` names the file that holds the cluster's token")


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
    has_token = any(environment.get(name) for name in (TOKEN_VARIABLE, PATH_VARIABLE)) or token_file(home).exists()
    lacking = "" if has_token else f", and bring its token as {token_file(home)} or by {PATH_VARIABLE}: there is none here"
    mode = environment.get(MODE_VARIABLE, "unset")
    return (
        f"the Ray cluster at {address} does not answer, or does not let this process in ({MODE_VARIABLE}={mode}): "
        f"check the address and that this machine is a node of it; if the log says InvalidAuthToken, set {MODE_VARIABLE}=token{lacking}. "
        f"Ray says: {' '.join(str(refused).split())}"
    )
