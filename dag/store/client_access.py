"""Where a client finds the root, and the key that lets it in."""

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
#: A name or a number of a machine, IPv6 without its brackets included.
_HOST = re.compile(r"[\w.:%~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where to ask, and as whom."""

    address: str  #: `http://host:port`, without a slash at its end.
    api_key: str = field(repr=False)
    tenant: str | None = None  #: Whose runs are submitted when nobody says.
    key_from: str = field(default="", compare=False)  #: Where the key was found, in words; empty: it was given.
    state_folder: Path | None = field(default=None, compare=False)  #: Of the stack on this machine whose root it is; None: not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How address and key can be given where somebody asks for the root."""

    address: str
    key: str  #: Before the variable that names it; empty: there is no other way.
    both: str


IN_PYTHON = Asked(address="address", key="give api_key=…, or ", both="address=… and api_key=…")
IN_TERMINAL = Asked(address="--address", key="", both=f"--address, with {KEY_VARIABLE} set")


def find_access(
    address: str | None, api_key: str | None, *, environment: Mapping[str, str], folder: Path, asked: Asked = IN_PYTHON
) -> Access:
    """Address and key: as given; else from the environment; else from the file of the stack whose state folder the environment names, or
    that runs in the folder or above.

    The key in the file is for the address in the file; it is never sent to another.

    Args:
        asked: From where, so that messages name what there is to give there.
    Raises:
        ApiError: There is no address or no key, or what is given is no address (status 0); the message tells every way to give them.
    """
    if address is not None:
        _check_address(address, asked.address)
    elif environment.get(ADDRESS_VARIABLE):
        _check_address(environment[ADDRESS_VARIABLE], ADDRESS_VARIABLE)
    state = environment.get(STATE_VARIABLE)
    state_folder, published = (Path(state), _facts_in(Path(state))) if state else _published(folder)
    if state and not published and not address and not environment.get(ADDRESS_VARIABLE):
        raise ApiError(
            0, f"nothing runs with the state folder {state}, which {STATE_VARIABLE} names; `schedulemesh up` starts it", code="not_running"
        )
    chosen = (address or environment.get(ADDRESS_VARIABLE) or published.get("address", "")).rstrip("/")
    is_published = bool(chosen) and chosen == published.get("address", "").rstrip("/")
    key = api_key or environment.get(KEY_VARIABLE) or (published.get("api_key", "") if is_published else "")
    if not chosen:
        raise ApiError(0, f"no federation was found: {_WAYS.format(folder=folder)}{asked.both}", code="no_federation")
    if not key:
        words = f"there is no API key for {chosen}: {asked.key}set {KEY_VARIABLE}; `schedulemesh keys create TENANT` makes one"
        raise ApiError(0, words, code="no_key")
    return Access(
        address=chosen,
        api_key=key,
        tenant=published.get("tenant") or None if is_published else None,
        key_from="" if api_key else KEY_VARIABLE if environment.get(KEY_VARIABLE) else CLIENT_FILE,
        state_folder=state_folder if is_published else None,
    )


_WAYS = (
    f"start one with `schedulemesh up CONFIG` in this folder or one above ({{folder}} has no {STATE_FOLDER}/{CLIENT_FILE}), "
    f"or name its state folder by {STATE_VARIABLE}, or set {ADDRESS_VARIABLE} and {KEY_VARIABLE}, or give "
)


def _check_address(given: str, called: str) -> None:
    """Raises ApiError."""
    wrong = _what_is_wrong(given) if isinstance(given, str) else "it is no text"
    if wrong:
        raise ApiError(0, f"{called} {given!r} is no address ({wrong}); write it like http://127.0.0.1:8000", code="invalid_address")


def _what_is_wrong(given: str) -> str:
    """Empty where it is an address."""
    if " " in given or not given.isprintable():  # `urlsplit` would drop some of these, and what is kept is as it was given.
        return "a blank, or another character that nobody sees, is in it"
    try:
        parts = urlsplit(given)
    except ValueError:
        return "the brackets of its IPv6 number are not right"
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    if not _HOST.fullmatch(host) or (":" in host and not _is_number(host)):
        return "it names no host"
    if not _has_port_or_none(parts):
        return "its port is no number from 1 to 65535"
    return "it goes on behind the path" if parts.query or parts.fragment else ""


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
    """The state folder of the nearest running stack, and what it has published; that is empty when there is none, or its file cannot be
    read."""
    folders = [above / STATE_FOLDER for above in (folder, *folder.parents)]
    return next(((state, facts) for state in folders if (facts := _facts_in(state))), (folders[0], {}))


def _facts_in(state: Path) -> dict[str, str]:
    """What the stack of this state folder has published; empty when none runs, or its file cannot be read."""
    try:
        facts = json.loads((state / CLIENT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in facts.items() if isinstance(value, str)} if isinstance(facts, dict) else {}
