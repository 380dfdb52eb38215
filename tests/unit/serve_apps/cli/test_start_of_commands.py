"""Imports of the command line before it acts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest

from serve_apps.cli.command_loading import FILES, registered

#: Slow imports that only a root or a whole stack needs.
HEAVY = {"ray", "fastapi", "redis", "networkx", "opentelemetry", "httpx"}
ROOTS = {"ray", "fastapi"}


def loaded_by(code: str) -> set[str]:
    """Return the packages that a fresh interpreter has loaded after the code."""
    code = f"import sys; {code}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("arguments", [["--version"], ["version"], ["nonsense"]])
def test_call_without_a_command_loads_none(arguments):
    assert not loaded_by(f"from serve_apps.cli.app import run_command; run_command({arguments!r})") & HEAVY


def modules(files: Iterable[str]) -> str:
    return "import " + ", ".join(f"serve_apps.cli.commands.{file}" for file in files)


def test_commands_that_are_no_root_load_none():
    assert not loaded_by(modules(("runs", "waiting", "checking", "federation", "applying", "dead"))) & ROOTS


def test_no_command_file_loads_ray():
    assert "ray" not in loaded_by(modules(FILES))


@pytest.mark.parametrize("file", FILES)
def test_command_file_has_its_commands(file):
    assert set(registered(file)) == set(FILES[file])
