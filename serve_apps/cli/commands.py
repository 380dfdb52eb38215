"""Which command stands in which file: a file is loaded when one of its commands is asked for, since all of them together load
the whole root, and that takes longer than most commands do.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

#: By the file, in the order of `--help`.
FILES = {
    "lifecycle": ("up", "down", "load-verbs", "demo", "keys"),
    "applying": ("apply",),
    "joining": ("join",),
    "runs": ("submit", "runs", "watch", "result", "cancel"),
    "waiting": ("queue", "explain", "leases", "story"),
    "federation": ("tenants", "meshes", "drain", "undrain"),
    "stopping": ("hold", "drain-tenant", "release"),
    "dead": ("dead", "audit"),
    "checking": ("validate",),
    "versions": ("version",),
}


def registered(file: str) -> dict[str, Any]:
    """The commands of a file, by name."""
    part = typer.Typer(add_completion=False)
    part.callback()(lambda: None)  # With it a single command is a group as well.
    import_module(f"serve_apps.cli.{file}").register(part)
    group = typer.main.get_command(part)
    assert isinstance(group, TyperGroup)  # noqa: S101  what a callback makes of it; the type of the function is wider
    return dict(group.commands)


class _Loaded(MutableMapping[str, Any]):
    """All commands by name; each is loaded when it is looked at."""

    def __init__(self) -> None:
        self._files = {name: file for file, names in FILES.items() for name in names}
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known and name in self._files:
            self._known |= registered(self._files[name])
        return self._known[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._files, *self._known)))

    def __len__(self) -> int:
        return len({*self._files, *self._known})


class Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loaded()
