"""What a running federation took from its file at its start and keeps to its end: all but tenants and rules, which `apply` changes.

Kept in the state folder: numbers and switches as they are, texts as digests, since addresses may hold passwords.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from federation.config.loading import FederationConfig
from mesh.errors import MeshError
from serve_apps.one_machine.state_folder import StateFolder

FILE = "federation.json"
#: What `apply` takes.
APPLIED = ("tenants", "quota")
#: Begins what is kept of a text.
DIGEST = "sha256:"


def keep(folder: StateFolder, config: FederationConfig) -> None:
    """Note what the stack of this folder starts with."""
    folder.write(FILE, {"name": config.federation.name, "parts": _digests(config), "leaves": _leaves(config)})


def running_name(folder: StateFolder) -> str | None:
    """The name of the federation that was started last; None where none was noted."""
    name = folder.read(FILE).get("name")
    return str(name) if name is not None else None


def refuse_another(folder: StateFolder, config: FederationConfig, file: Path) -> None:
    """A folder is one federation's: with the file of another one, all tenants of the first would be gone.

    Raises:
        MeshError: The file has another name than the federation that was started last with this folder.
    """
    running, name = running_name(folder), config.federation.name
    if running is not None and running != name:
        raise MeshError(
            f"{file} describes the federation {name}, and the state folder {folder.path} is that of {running}; --state names another "
            f"folder. To give {running} these tenants on purpose, write `name: {running}` into the file"
        )


def differing(folder: StateFolder, config: FederationConfig) -> tuple[str, ...]:
    """Parts of the file in which it differs from what was started, like `meshes.west (new)`; none where nothing was noted.

    Folders of earlier versions have digests of whole parts alone: of those it is told only that they changed.
    """
    noted = folder.read(FILE)
    kept, leaves = noted.get("parts"), noted.get("leaves")
    if not isinstance(kept, dict):
        return ()
    asked = _digests(config)
    apart = sorted(part for part in kept.keys() | asked.keys() if kept.get(part) != asked.get(part))
    told: list[str] = []
    for part in apart:
        if part in kept and part in asked and isinstance(leaves, dict):
            told += _leaf_changes(part, leaves, _leaves(config))
        else:
            told.append(f"{part} ({'changed' if part in kept and part in asked else 'new' if part in asked else 'gone'})")
    return tuple(told)


def _leaf_changes(part: str, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new or not (key == part or key.startswith(f"{part}.")):
            continue
        if old is None or new is None:
            yield f"{key} ({'new' if old is None else 'gone'})"
        elif DIGEST in old + new:
            yield f"{key} (changed)"
        else:
            yield f"{key}: {old} → {new}"


def _leaves(config: FederationConfig) -> dict[str, str]:
    """Each value by its dotted path; of a text the digest alone."""
    return dict(_walk("", config.model_dump(mode="json", by_alias=True, exclude=set(APPLIED))))


def _walk(path: str, value: object) -> Iterator[tuple[str, str]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is not None:  # An empty one has nothing that could change; what comes into it is told by itself.
        for key, part in entries:
            yield from _walk(f"{path}.{key}" if path else str(key), part)
    else:
        words = json.dumps(value)
        yield path, DIGEST + hashlib.sha256(words.encode()).hexdigest() if isinstance(value, str) else words


def _digests(config: FederationConfig) -> dict[str, str]:
    """By dotted path, two levels deep: an entry of `meshes`, a key of `root`."""
    found: dict[str, str] = {}
    for section, value in config.model_dump(mode="json", by_alias=True, exclude=set(APPLIED)).items():
        parts = {f"{section}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {section: value}
        found.update({path: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for path, part in parts.items()})
    return found
