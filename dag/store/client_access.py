"""Finds the root's address and the API key of a client."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from dag.errors import ApiError

ADDRESS_VARIABLE = "SCHEDULEMESH_ADDRESS"
KEY_VARIABLE = "SCHEDULEMESH_API_KEY"
STATE_VARIABLE = "SCHEDULEMESH_STATE"
STATE_FOLDER = ".schedulemesh"
CLIENT_FILE = "client.json"
#: Pattern of a host name or IP address; IPv6 without its brackets.
_HOST = re.compile(r"[\w.:%~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Address of the root, with the API key and the default tenant."""

    address: str  #: `http://host:port`, without a slash at its end.
    api_key: str = field(repr=False)
    tenant: str | None = None  #: Default tenant of submissions.
    key_from: str = field(default="", compare=False)  #: Source of the key, for messages; empty: given by the caller.
    state_folder: Path | None = field(
        default=None, compare=False
    )  #: State folder of the stack on this machine that runs the root; None: unknown.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Ways in which the caller can give address and key, for messages."""

    address: str
    key: str  #: Text before the name of the environment variable; empty: the variable is the only way.
    both: str
    state_dir: str = ""  #: Option that names the state folder; empty: the environment variable is the only way.


IN_PYTHON = Asked(address="address", key="give api_key=…, or ", both="address=… and api_key=…")
IN_TERMINAL = Asked(address="--address", key="", both=f"--address, with {KEY_VARIABLE} set", state_dir="--state-dir")


def find_access(
    address: str | None,
    api_key: str | None,
    *,
    environment: Mapping[str, str],
    folder: Path,
    state_dir: Path | None = None,
    asked: Asked = IN_PYTHON,
) -> Access:
    """Return the address and the key. Each is the one given, else from the environment, else from the file of a running stack.

    The stack is the one whose state folder `state_dir` or the environment names, or that runs in `folder` or above. The key in its file
    is never sent to another address than the one in the file.

    Args:
        state_dir: State folder that the caller names; it goes before an address of the environment.
        asked: How the caller can give address and key, for messages.

    Raises:
        ApiError: Address or key is missing, or the address is invalid (status 0); the message lists every way to give them.
    """
    others = " or ".join(filter(None, (asked.state_dir, STATE_VARIABLE)))
    of_environment = environment.get(ADDRESS_VARIABLE) if state_dir is None else None
    if address is not None:
        _check_address(address, asked.address)
    elif of_environment:
        _check_address(of_environment, ADDRESS_VARIABLE)
    state = str(state_dir) if state_dir is not None else environment.get(STATE_VARIABLE)
    state_folder, published = (Path(state), _facts_in(Path(state))) if state else _published(folder)
    if state and not published and not address and not of_environment:
        named_by = asked.state_dir if state_dir is not None else STATE_VARIABLE
        described = f"nothing runs with the state folder {state}, which {named_by} names"
        raise ApiError(0, f"{described}; `schedulemesh up` starts it, and {others} names another folder", code="not_running")
    chosen = (address or of_environment or published.get("address", "")).rstrip("/")
    is_published = bool(chosen) and chosen == published.get("address", "").rstrip("/")
    own_key = published.get("api_key", "") if is_published else ""
    # The key of the environment may be of another root than that of a folder which the caller names.
    key = api_key or (own_key if state_dir is not None else "") or environment.get(KEY_VARIABLE) or own_key
    if not chosen:
        raise ApiError(0, f"no federation was found: {_WAYS.format(folder=folder, state=others)}{asked.both}", code="no_federation")
    if not key:
        words = f"there is no API key for {chosen}: {asked.key}set {KEY_VARIABLE}; `schedulemesh keys create TENANT` makes one"
        raise ApiError(0, words, code="no_key")
    return Access(
        address=chosen,
        api_key=key,
        tenant=published.get("tenant") or None if is_published else None,
        key_from="" if api_key else KEY_VARIABLE if key == environment.get(KEY_VARIABLE) else CLIENT_FILE,
        state_folder=state_folder if is_published else None,
    )


_WAYS = (
    f"start one with `schedulemesh up CONFIG` in this folder or one above ({{folder}} has no {STATE_FOLDER}/{CLIENT_FILE}), "
    f"or name its state folder by {{state}}, or set {ADDRESS_VARIABLE} and {KEY_VARIABLE}, or give "
)


def _check_address(given: str, called: str) -> None:
    wrong = _what_is_wrong(given) if isinstance(given, str) else "it is not text"
    if wrong:
        raise ApiError(0, f"{called} {given!r} is not an address ({wrong}); write it like http://127.0.0.1:8000", code="invalid_address")


def _what_is_wrong(given: str) -> str:
    """Return the problem with an address; empty if there is none."""
    if " " in given or not given.isprintable():  # `urlsplit` would drop some of these characters silently.
        return "it contains a space or a non-printable character"
    try:
        parts = urlsplit(given)
    except ValueError:
        return "the brackets of its IPv6 address do not match"
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    if not _HOST.fullmatch(host) or (":" in host and not _is_number(host)):
        return "it names no host"
    if not _has_port_or_none(parts):
        return "its port is not a number from 1 to 65535"
    return "it has a query or a fragment after the path" if parts.query or parts.fragment else ""


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _has_port_or_none(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def _published(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the state folder of the nearest running stack, and its published facts; empty if there is none or the file is unreadable."""
    folders = [above / STATE_FOLDER for above in (folder, *folder.parents)]
    return next(((state, facts) for state in folders if (facts := _facts_in(state))), (folders[0], {}))


def _facts_in(state: Path) -> dict[str, str]:
    """Return the published facts of a stack; empty if none runs or the file is unreadable."""
    try:
        facts = json.loads((state / CLIENT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in facts.items() if isinstance(value, str)} if isinstance(facts, dict) else {}
