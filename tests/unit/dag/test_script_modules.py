"""Modules beside the user's script travel with the graph, without being asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPER = "FACTOR = 3\n\ndef triple(x):\n    return FACTOR * x\n"
PACKAGE = "from helper import triple\n\ndef nine(x):\n    return triple(triple(x))\n"
LOCKED = "import threading\nLOCK = threading.Lock()\n\ndef held(x):\n    with LOCK:\n        return x\n"
SCRIPT = """
import json, pickle, subprocess, sys, tempfile
import dag
from dag.client.compiling import compile_columns
from dag.store.script_modules import modules_beside_script
import json_lib_of_nobody_else as plain  # beside the script as well
from pack.inner import nine
import locked

columns = compile_columns([dag.bind(nine, 2), dag.bind(locked.held, 1)], beside=modules_beside_script())
sent = [columns.blobs[function.removeprefix("blob:")].hex() for function in columns.calls.functions]
print(json.dumps({"modules": sorted(module.__name__ for module in modules_beside_script()), "functions": sent}))
"""
WORKER = """
import pickle, sys
try:
    print(pickle.loads(bytes.fromhex(sys.argv[1]))(2))
except ImportError as missing:
    print(missing)
"""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the output of a script with modules beside it: their names, and its functions as pickles."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pack").mkdir()
    files = {"helper.py": HELPER, "pack/__init__.py": "", "pack/inner.py": PACKAGE, "locked.py": LOCKED, "json_lib_of_nobody_else.py": ""}
    for name, text in {**files, "script.py": SCRIPT}.items():
        (folder / name).write_text(text)
    return json.loads(_run([str(folder / "script.py")], folder))


def _run(args: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run([sys.executable, *args], cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_loaded_modules_beside_the_script_are_found(sent):
    assert sent["modules"] == ["helper", "json_lib_of_nobody_else", "locked", "pack", "pack.inner"]


def test_a_module_that_is_loaded_later_is_found_as_well(tmp_path):
    for name in ("early", "late"):
        (tmp_path / f"{name}.py").write_text("")
    lines = (
        "import early",
        "from dag.store.script_modules import modules_beside_script as beside",
        "first = len(beside()), len(beside())",
        "import late",
        "print(*first, [module.__name__ for module in beside()])",
    )
    (tmp_path / "script.py").write_text("\n".join(lines))
    assert _run([str(tmp_path / "script.py")], tmp_path).strip() == "1 1 ['early', 'late']"


def test_functions_of_these_modules_run_where_none_is(sent, tmp_path):
    assert _run(["-c", WORKER, sent["functions"][0]], tmp_path).strip() == "18"


def test_a_module_that_cannot_be_pickled_goes_by_name(sent, tmp_path):
    assert "No module named 'locked'" in _run(["-c", WORKER, sent["functions"][1]], tmp_path)


def test_a_program_of_an_installed_package_has_none_beside_it(tmp_path):
    code = "import pytest, sys; sys.modules['__main__'].__file__ = pytest.__file__\n"
    code += "from dag.store.script_modules import modules_beside_script; print(len(modules_beside_script()))"
    assert _run(["-c", code], tmp_path).strip() == "0"
