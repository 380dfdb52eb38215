"""What every command loads before it does anything."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_loads_no_ray() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import serve_apps.cli.app, sys; print([name for name in sys.modules if name.split('.')[0] == 'ray'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "[]\n"
