"""Access of a process to a Ray cluster that somebody else started, with Ray's token if the cluster asks for one.

Ray 2.60 asks for a token in a cluster that was started with one, and `ray.init(address="HOST:PORT")` sends none by itself: it
retries for 20 s in vain. A process that sends a token to a cluster without one gets in, but then asks for the token itself,
and refuses calls from the cluster: its actors die at birth. So this module asks the cluster. Ray reads the mode on import,
so this module does not import Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.cluster_token import MODE_VARIABLE, PATH_VARIABLE, TOKEN_VARIABLE, token_environment
from mesh.ray.cluster.tcp_probe import can_connect

#: Seconds that the cluster may take to answer.
ANSWER_S = 5.0
_REFUSED = 16
#: Makes the first call that Ray's own clients make, which changes nothing. Runs in a process of its own, because gRPC's threads and forks
#: do not go together.
_ASK = f"""
import sys, grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    is_alive = channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive", request_serializer=bytes, response_deserializer=bytes)
    try:
        is_alive(b"", timeout=float(sys.argv[2]))
    except grpc.RpcError as refused:
        sys.exit({_REFUSED} if refused.code() is grpc.StatusCode.UNAUTHENTICATED else 1)
"""
#: Reads the versions that Ray compares when a driver connects. Runs in a process of its own: it imports Ray, and enters no cluster.
_ASK_VERSIONS = """
import json, sys
from ray._raylet import GcsClient
found = json.loads(GcsClient(address=sys.argv[1]).internal_kv_get(b"CLUSTER_METADATA", b"cluster", timeout=float(sys.argv[2])))
print(json.dumps([found["ray_version"], found["python_version"]]))
"""
#: Seconds for the import of Ray and the response.
_VERSIONS_S = 30.0


def token_file(home: Path) -> Path:
    """Return the file in which `ray get-auth-token --generate` and `ray.init()` keep this user's token."""
    return home / ".ray" / "auth_token"


def auth_mode(environment: Mapping[str, str], address: str) -> str:
    """Return the auth mode for a foreign cluster: the mode set in the environment, or else the mode the cluster asks for.

    Args:
        environment: Environment of this process.
        address: `HOST:PORT` of the cluster.
    """
    return environment.get(MODE_VARIABLE) or ("token" if asks_for_token(address) else "disabled")


def asks_for_token(address: str) -> bool:
    """Return whether the cluster refuses callers without a token; False if it does not answer."""
    asked = subprocess.run([sys.executable, "-c", _ASK, address, str(ANSWER_S)], check=False, capture_output=True)
    return asked.returncode == _REFUSED


def cluster_versions(address: str, entry: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the versions of Ray and Python of a cluster; None if the cluster does not say.

    Args:
        entry: Environment of `entry_environment`.
    """
    command, environment = [sys.executable, "-c", _ASK_VERSIONS, address, str(ANSWER_S)], {**os.environ, **entry}
    try:
        asked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_VERSIONS_S, env=environment)
        ray, python = json.loads(asked.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None
    return str(ray), str(python)


def entry_environment(environment: Mapping[str, str], address: str, token_file: str | None) -> Mapping[str, str]:
    """Return the environment variables that a process needs to connect to a foreign cluster.

    Args:
        environment: Environment of this process.
        address: `HOST:PORT` of the cluster.
        token_file: File of the cluster's token; None: Ray's default file, if the cluster asks for a token.
    """
    if token_file is not None:
        return token_environment(Path(token_file))
    return {MODE_VARIABLE: auth_mode(environment, address)}


def open_words(address: str) -> tuple[str, ...]:
    """Return a warning if the cluster asks for no token, or an empty text."""
    if asks_for_token(address):
        return ()
    asks = f"the Ray cluster at {address} asks for no token: anyone who can reach its ports can run code on it"
    return (f"{asks}. Start its nodes with {MODE_VARIABLE}=token (`ray get-auth-token --generate` makes a token)",)


def check_token_file(file: str, named_by: str, *, whose: str = "") -> None:
    """Check that the file holds a token, because Ray's processes abort without one.

    Raises:
        RuntimeAdapterError: The file cannot be read, or is empty; the message says what helps.
    """
    try:
        wrong = "" if Path(file).read_text(encoding="utf-8").strip() else "is empty"
    except (OSError, UnicodeDecodeError) as unreadable:
        wrong = f"cannot be read ({unreadable})"
    if wrong:
        raise RuntimeAdapterError(f"{whose}the token file {file} {wrong}; set `{named_by}` to the file that holds the cluster's token")


def check_answers(address: str, named_by: str, *, whose: str = "") -> None:
    """Check that something listens at the address of a cluster; Ray itself would retry for minutes.

    Args:
        address: `HOST:PORT`.
        named_by: Config key or option that holds the address, for the message.
        whose: Name of the cluster and a colon, if several are checked.

    Raises:
        RuntimeAdapterError: Nothing listens; the message says what helps.
    """
    try:
        can_connect(address, ANSWER_S)
    except (OSError, ValueError) as refused:
        raise RuntimeAdapterError(
            f"{whose}no answer from {address} ({refused}); set `{named_by}` to the address that `ray start --head` prints, "
            "and run this on a node of the cluster"
        ) from None


def refused_words(address: str, environment: Mapping[str, str], home: Path, refused: Exception) -> str:
    """Return an error message with remedies for a cluster that refuses this process."""
    has_token = any(environment.get(name) for name in (TOKEN_VARIABLE, PATH_VARIABLE)) or token_file(home).exists()
    lacking = "" if has_token else f", and put its token into {token_file(home)} or name its file in {PATH_VARIABLE}: there is none here"
    mode = environment.get(MODE_VARIABLE, "unset")
    return (
        f"the Ray cluster at {address} does not answer, or refuses this process ({MODE_VARIABLE}={mode}): "
        f"check the address and that this machine is a node of it; if the log says InvalidAuthToken, set {MODE_VARIABLE}=token{lacking}. "
        f"Ray says: {' '.join(str(refused).split())}"
    )
