"""The tutorial, walked in an empty folder as it stands: every file saved, every command run, every shown output found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"(?:Save this as `(?P<file>[\w.]+)`:\s*)?^```(?P<kind>\w+)\n(?P<text>[\s\S]*?)^```", re.MULTILINE)
COMMANDS_S_MAX = 280


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment of a user in an empty folder; whatever the walk leaves running is stopped."""
    tools = Path(sys.executable).parent
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULEMESH_", "RAY_"))}
    environment = {**own, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100", "HOME": str(tmp_path)}
    yield environment
    subprocess.run(["schedulemesh", "down"], cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)


def test_the_tutorial_runs_as_it_stands(shell: dict[str, str], tmp_path: Path) -> None:
    output = ""
    kinds = []
    for block in BLOCK.finditer(TUTORIAL.read_text(encoding="utf-8")):
        kinds.append(block["kind"])
        if block["kind"] == "python":
            (tmp_path / block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["kind"] == "sh":
            output = run_in(tmp_path, shell, block["text"])
        else:
            missing = [line for line in block["text"].splitlines() if not re.search(pattern_of(line), output)]
            assert not missing, f"{missing} in:\n{output}"
    assert kinds.count("sh") == kinds.count("text") >= 10


def run_in(folder: Path, environment: dict[str, str], commands: str) -> str:
    """Run the commands by one shell, which stops at the first that fails; return all that they print."""
    ran = subprocess.run(
        ["bash", "-euc", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMANDS_S_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def pattern_of(line: str) -> str:
    """Return the pattern of a shown line; `…` stands for any text, and a space for as many as a table has."""
    return r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in line.split())
