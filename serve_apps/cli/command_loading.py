"""Command names by file, and lazy loading: a file is imported when one of its commands is used.

Importing all of them imports the whole root, which takes longer than most commands run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from mesh.core.near_names import nearest

#: Message of typer about a value of an option that takes one of several words.
_NO_CHOICE = re.compile(r"(?P<words>'(?P<given>.*)' is not one of (?P<known>'.*'))\.?")
#: Panels of `--help` with their commands, in order.
PANELS = {
    "Start and stop": ("init", "up", "down", "demo"),
    "Run": (
        "submit",
        "run",
        "replay",
        "runs",
        "watch",
        "logs",
        "result",
        "graph",
        "timeline",
        "resume",
        "cancel",
        "signal",
        "delete",
        "schedule",
    ),
    "Why work waits": ("top", "queue", "explain", "code", "leases", "history"),
    "Tenant": ("tenants", "suspend", "usage"),
    "Mesh": ("meshes", "join", "drain", "undrain"),
    "Key": ("keys",),
    "Config": ("validate", "apply", "serve-config", "prepare", "load-scripts"),
    "Upkeep": ("changes", "cache", "dead", "webhooks", "audit", "doctor", "version"),
}
#: Commands by file.
FILES = {
    "lifecycle": ("up", "down", "load-scripts", "demo"),
    "doctor": ("doctor",),
    "keys": ("keys",),
    "applying": ("apply",),
    "deploying": ("init", "prepare", "serve-config"),
    "joining": ("join",),
    "runs": ("submit", "runs", "watch", "result", "cancel", "signal"),
    "deleting": ("delete",),
    "programs": ("run",),
    "replaying": ("replay",),
    "drawing": ("graph", "timeline"),
    "logs": ("logs",),
    "schedules": ("schedule",),
    "waiting": ("queue", "explain", "leases", "history"),
    "codes": ("code",),
    "top": ("top",),
    "federation": ("tenants", "meshes", "webhooks"),
    "reports": ("usage", "changes"),
    "draining": ("drain", "undrain"),
    "stopping": ("suspend", "resume"),
    "cached": ("cache",),
    "dead": ("dead", "audit"),
    "checking": ("validate",),
    "versions": ("version",),
}


def registered(file: str) -> dict[str, Any]:
    """Import a file and return its commands by name, each in its panel."""
    part = typer.Typer(add_completion=False)
    part.callback()(lambda: None)  # A callback makes typer build a group even for a single command.
    import_module(f"serve_apps.cli.commands.{file}").register(part)
    group = typer.main.get_command(part)
    assert isinstance(group, TyperGroup)  # noqa: S101  what a callback makes of it; the type of the function is wider
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    for name, command in group.commands.items():
        command.rich_help_panel = panels[name]  # type: ignore[attr-defined]  # typer's commands and groups have it
    return dict(group.commands)


class _Loaded(MutableMapping[str, Any]):
    """Mapping of all commands by name that imports each command on access."""

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
        return iter(name for names in PANELS.values() for name in names)

    def __len__(self) -> int:
        return sum(map(len, PANELS.values()))


class Commands(TyperGroup):
    """Click group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loaded()

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An error about a value that is none of several words suggests the similar one."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as wrong:
            wrong.message = in_words(wrong.message)
            raise


def in_words(message: str) -> str:
    """Return typer's message about a value in plain words; one like `'a' is not one of 'b', 'c'.` with the similar word."""
    message = message.removeprefix("Value error, ").replace("Input should", "must", 1)
    found = _NO_CHOICE.fullmatch(message)
    if found is None:
        return message
    known = re.findall(r"'(.*?)'", found["known"])
    return f"{found['words']}{nearest(found['given'], known)}"
