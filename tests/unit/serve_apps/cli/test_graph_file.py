"""Loading of `FILE.py:graph`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dag.client.compiling import compile_graph
from dag.client.tasks import Node
from dag.errors import SpecError
from serve_apps.cli.graph_file import GraphFileError, load_graph

SOURCE = """
import dag

@dag.task
def one():
    return 1

node = one.bind()
named = {"first": node, "second": one.bind()}
number = 7

class Kind:
    pass

def graph():
    return [node]

def broken():
    raise RuntimeError("no data")
"""


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """Return a user's file with a folder and module name of its own."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / f"flow_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("name", "kind"),
    [("node", Node), ("named", dict), ("graph", list)],
    ids=["a node", "a dict of nodes", "a function that gives a list of nodes"],
)
def test_a_graph_is(file, name, kind):
    found = load_graph(f"{file}:{name}")
    assert isinstance(found.outputs, kind)
    assert Path(found.module.__file__) == file


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("{file}", "write FILE.py:NAME"),
        ("{file}.gone:node", "there is no file"),
        ("{file}:nodes", "has no nodes; did you mean node?; graphs in the file: node, named, graph, broken"),
        ("{file}:number", "is a int, not a node"),
        ("{file}:one", "bind it"),
        ("{file}:broken", "RuntimeError: no data"),
        ("{file}:", "graphs in the file: node, named, graph, broken"),
        ("{file}:one", "like graph = one.bind(…)"),
        ("{file}:Kind", "is the class Kind, not a node"),
        ("{folder}:node", "is a folder, not a file"),
        ("{notes}:node", "notes.txt is not a Python file; write FILE.py:NAME"),
        ("{notes}", "or FILE.json"),
    ],
    ids=[
        "no name",
        "no file",
        "an unknown name",
        "a number",
        "a task that is not bound",
        "a function that breaks",
        "a colon without a name",
        "a task, with its remedy",
        "a class",
        "a folder",
        "a file of another kind",
        "a file of another kind alone",
    ],
)
def test_invalid_graph_is_reported_in_one_line(file, target, words):
    (file.parent / "folder.py").mkdir()
    (file.parent / "notes.txt").write_text("x")
    with pytest.raises(GraphFileError) as raised:
        load_graph(target.format(file=file, folder=file.parent / "folder.py", notes=file.parent / "notes.txt"))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_breaks_when_it_is_loaded_names_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / "breaks_at_line_two.py"
    path.write_text("x = 1\nx / 0\n")
    with pytest.raises(GraphFileError, match=r"breaks_at_line_two\.py:2: ZeroDivisionError"):
        load_graph(f"{path}:x")


def test_a_file_that_is_no_python_names_its_line_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / "no_python_at_line_two.py"
    path.write_text("x = 1\ny = 2 +\n")
    with pytest.raises(GraphFileError, match=r"no_python_at_line_two\.py:2: SyntaxError: invalid syntax$"):
        load_graph(f"{path}:x")


def test_file_in_a_package_has_its_importable_name(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    package = tmp_path / "flows_of_this_test" / "digits"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "workflow.py").write_text(SOURCE)
    assert load_graph(f"{package / 'workflow.py'}:node").module.__name__ == "flows_of_this_test.digits.workflow"


def test_a_name_that_another_module_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / "json.py"
    path.write_text(SOURCE)
    with pytest.raises(GraphFileError, match="rename the file"):
        load_graph(f"{path}:node")


CALLS_RAY = """
import dag
import ray

@ray.remote
def f(x):
    return x

def called():
    return f.remote(1)

def fetched():
    return dag.bind(f, ray.put(1))

def misused():
    first, second = dag.bind(f, 1)

def bound():
    return dag.bind(f, 1)
"""
#: In its own process: Ray is not imported there yet, so a start would be seen.
LOADS = """
import os, sys
from serve_apps.cli.graph_file import GraphFileError, load_graph
file, name = sys.argv[1:]
if name == "imported":
    import ray
    name = "called"
try:
    print(load_graph(f"{file}:{name}").outputs)
except GraphFileError as refused:
    print(refused)
import ray
from ray._private import auto_init_hook
print(ray.is_initialized(), auto_init_hook.enable_auto_connect, os.environ.get("RAY_ENABLE_AUTO_CONNECT"))
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("called", ":10: Ray does not run while a graph is built", id="a remote call"),
        pytest.param("imported", ":10: Ray does not run while a graph is built", id="after Ray was imported"),
        pytest.param("fetched", "like dag.bind(f, 1) for f.remote(1)", id="a value put into Ray"),
        pytest.param("misused", ":16: <node f> stands for a value", id="a node that is unpacked"),
        pytest.param("bound", "<node f>", id="a graph"),
    ],
)
def test_writing_a_graph_starts_no_ray(tmp_path, name, words):
    path = tmp_path / "calls_ray.py"
    path.write_text(CALLS_RAY)
    command = [sys.executable, "-c", LOADS, str(path), name]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_AUTO_CONNECT"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=250, env=environment)
    lines, after = done.stdout.splitlines()
    assert words in lines
    assert after == "False True None"


@pytest.fixture
def asking(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / f"{tmp_path.name}.py"  # Each test has its own module.
    path.write_text(
        "import dag\nadded = dag.task(sum)\ndef graph(rows, times=2):\n    return added.bind([rows] * times)\nnode = added.bind([1])\n"
    )
    return path


def test_a_function_is_called_with_what_it_is_given(asking):
    assert load_graph(f"{asking}:graph", {"rows": 7, "times": 3}).outputs.args == ([7, 7, 7],)
    assert load_graph(f"{asking}:graph", {"rows": 7}).outputs.args == ([7, 7],)


def test_a_node_takes_them_as_parameters_of_its_graph(asking):
    loaded = load_graph(f"{asking}:node", {"rows": 7})
    assert loaded.params == {"rows": 7}
    with pytest.raises(SpecError, match="/params/rows: no node takes this parameter"):
        compile_graph(loaded.outputs, params=loaded.params, by_value=(loaded.module,))


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        pytest.param(
            "graph",
            {"rows": 1, "row": 1},
            r"^--param: .*:graph has no parameter 'row'; did you mean rows\?$",
            id="more",
        ),
        pytest.param("graph", {}, r"^--param: .*:graph: missing a required argument: 'rows'; its parameters are rows, times$", id="less"),
    ],
)
def test_unknown_graph_parameter_is_refused(asking, name, params, words):
    with pytest.raises(GraphFileError, match=words):
        load_graph(f"{asking}:{name}", params)
