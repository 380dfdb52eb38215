"""Settings that a running federation takes from its file only at its start: all but tenants, rules and the settings of meshes that
`apply` changes.

The state folder keeps numbers and switches as values, and texts as digests, because addresses may hold passwords.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from federation.config.loading import FederationConfig
from federation.config.sections.values import format_duration
from mesh.core.resources import format_units
from mesh.errors import MeshError
from serve_apps.standalone.stack_folder import StackFolder

FILE = "federation.json"
#: Sections that `apply` applies.
APPLIED = ("tenants", "quota")
#: Everything that `apply` applies, for pydantic's `exclude`.
_APPLIED: dict[str, Any] = {
    **dict.fromkeys(APPLIED, True),
    "meshes": {"__all__": {"weights": True, "preemption": True, "queues": True, "pools": {"__all__": {"protected": True}}}},
}
#: Prefix of the digest of a text.
DIGEST = "sha256:"


def keep(folder: StackFolder, config: FederationConfig) -> None:
    """Record the configuration that the stack of this folder starts with."""
    folder.write(FILE, {"name": config.federation.name, "parts": _digests(config), "leaves": _leaves(config)})


def running_name(folder: StackFolder) -> str | None:
    """Return the name of the federation that was started last; None if none is recorded."""
    name = folder.read(FILE).get("name")
    return str(name) if name is not None else None


def refuse_another(folder: StackFolder, config: FederationConfig, file: Path | str) -> None:
    """Refuse the file of another federation, because it would remove all tenants of this folder's federation.

    Raises:
        MeshError: The file's name differs from the federation that was started last with this folder.
    """
    running, name = running_name(folder), config.federation.name
    if running is not None and running != name:
        raise MeshError(
            f"{file} describes the federation {name}, but the state folder {folder.path} belongs to {running}; give another folder with "
            f"--state-dir. To give {running} these tenants on purpose, write `name: {running}` into the file"
        )


def differing(folder: StackFolder, config: FederationConfig) -> tuple[str, ...]:
    """Return the parts of the file that differ from what was started, like `meshes.west (new)`; none if nothing is recorded.

    Folders of earlier versions hold digests of whole parts; such parts are reported only as changed.
    """
    noted = folder.read(FILE)
    kept, leaves = noted.get("parts"), noted.get("leaves")
    if not isinstance(kept, dict):
        return ()
    asked = _digests(config)
    apart = sorted(part for part in kept.keys() | asked.keys() if kept.get(part) != asked.get(part))
    changes: list[str] = []
    for part in apart:
        if part in kept and part in asked and isinstance(leaves, dict):
            changes += _leaf_changes(part, leaves, _leaves(config))
        else:
            changes.append(f"{part} ({'changed' if part in kept and part in asked else 'new' if part in asked else 'removed'})")
    return tuple(changes)


def _leaf_changes(part: str, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new or not (key == part or key.startswith(f"{part}.")):
            continue
        if old is None or new is None:
            yield f"{key} ({'new' if old is None else 'removed'})"
        elif DIGEST in old + new:
            yield f"{key} (changed)"
        else:
            yield f"{key}: {old} → {new}"


def _leaves(config: FederationConfig) -> dict[str, str]:
    """Return each value by its dotted path, times and sizes with their unit; a text as its digest."""
    as_written, by_attribute = (config.model_dump(mode="json", by_alias=alias, exclude=_APPLIED) for alias in (True, False))
    return dict(_walk("", "", as_written, by_attribute))


def _walk(path: str, attribute: str, value: Any, by_attribute: Any) -> Iterator[tuple[str, str]]:
    """Yield the values; the attribute's name has the unit, and both forms have the same order."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is not None:  # An empty mapping has nothing that could change; new entries are reported themselves.
        others = by_attribute.items() if isinstance(by_attribute, dict) else enumerate(by_attribute)
        for (key, part), (name, other) in zip(entries, others, strict=True):
            yield from _walk(f"{path}.{key}" if path else str(key), str(name), part, other)
    elif isinstance(value, int) and attribute.endswith("_ms"):
        yield path, format_duration(value)
    elif isinstance(value, int) and attribute.endswith("_bytes"):
        yield path, format_units("memory", value)
    else:
        words = json.dumps(value)
        yield path, DIGEST + hashlib.sha256(words.encode()).hexdigest() if isinstance(value, str) else words


def _digests(config: FederationConfig) -> dict[str, str]:
    """Return digests by dotted path, two levels deep: an entry of `meshes`, a key of `root`."""
    found: dict[str, str] = {}
    for section, value in config.model_dump(mode="json", by_alias=True, exclude=_APPLIED).items():
        parts = {f"{section}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {section: value}
        found.update({path: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for path, part in parts.items()})
    return found
