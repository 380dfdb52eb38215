"""How a process gets into a Ray cluster that somebody else started: with the token that Ray keeps, where there is one.

Ray 2.60 asks for a token in a cluster that was started where one lay, and `ray.init(address="HOST:PORT")` brings none by itself: it
would knock for 20 s in vain. It reads the mode when it is imported, so this module imports no Ray. A cluster that asks for no token
takes one all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: `token` or `disabled`; Ray's own name.
MODE_VARIABLE = "RAY_AUTH_MODE"
#: Where Ray looks for a token, before the file of `token_file`.
TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def token_file(home: Path) -> Path:
    """Where `ray get-auth-token --generate` and `ray.init()` keep the token of this user."""
    return home / ".ray" / "auth_token"


def auth_mode(environment: Mapping[str, str], home: Path) -> str:
    """The mode to enter a cluster with that is not one's own: what somebody has set, else by token where there is one.

    Args:
        environment: Of this process.
        home: Of its user.
    """
    has_token = any(environment.get(name) for name in TOKEN_VARIABLES) or token_file(home).exists()
    return environment.get(MODE_VARIABLE) or ("token" if has_token else "disabled")


def refused_words(address: str, environment: Mapping[str, str], home: Path, refused: Exception) -> str:
    """What somebody can do about a cluster that cannot be entered."""
    has_token = any(environment.get(name) for name in TOKEN_VARIABLES) or token_file(home).exists()
    lacking = "" if has_token else f", and bring its token as {token_file(home)} or by RAY_AUTH_TOKEN_PATH: there is none here"
    return (
        f"the Ray cluster at {address} does not answer, or does not let this process in ({MODE_VARIABLE}={auth_mode(environment, home)}): "
        f"check the address and that this machine is a node of it; if the log says InvalidAuthToken, set {MODE_VARIABLE}=token{lacking}. "
        f"Ray says: {' '.join(str(refused).split())}"
    )
