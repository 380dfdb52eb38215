"""What strangers may use is named and explained: `__all__` is sorted, whole and true, and public things have docstrings."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("mesh", "federation", "dag", "simulator", "serve_apps")
FILES = sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

#: Public names without a docstring of their own, each with its reason: (file, name).
UNEXPLAINED: dict[tuple[str, str], str] = {}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def source(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), filename=file)


def public_definitions(body: list[ast.stmt], above: str = "") -> Iterator[tuple[str, Definition]]:
    """Functions and classes that a name without an underscore leads to; of classes, their members too."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield above + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{above}{node.name}.")


def declared(tree: ast.Module) -> list[str] | None:
    """What `__all__` names; None where there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def is_registration(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and decorator.func.attr in ("get", "post")


def offered(file: str, tree: ast.Module) -> set[str]:
    """Public functions and classes of the file; of a package's front, what it takes from its own modules too.

    What a decorator hands over (`@router.get(…)`) is reached by that way, and by nobody's import.
    """
    names = {name for name, node in public_definitions(tree.body) if "." not in name and not any(map(is_registration, node.decorator_list))}
    if file.endswith("/__init__.py"):
        own = file.partition("/")[0]
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == own]
        names |= {alias.asname or alias.name for node in imports for alias in node.names}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("file", [file for file in FILES if declared(source(file)) is not None])
def test_what_a_module_declares_is_sorted_whole_and_there(file: str):
    names = declared(source(file)) or []
    module = importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    assert names == sorted(set(names))
    assert [name for name in names if not hasattr(module, name)] == []
    assert offered(file, source(file)) <= set(names)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_declares_what_it_offers(package: str):
    file = f"{package}/__init__.py"
    assert declared(source(file)) is not None or not offered(file, source(file))


def test_the_package_for_clients_offers_something():
    assert len(declared(source("dag/__init__.py")) or []) > 1


@pytest.mark.parametrize("file", FILES)
def test_public_things_are_explained(file: str):
    missing = {name for name, node in public_definitions(source(file).body) if not ast.get_docstring(node)}
    assert {name for name in missing if (file, name) not in UNEXPLAINED} == set()


@pytest.mark.parametrize("file", [file for file in FILES if source(file).body])
def test_a_module_tells_what_it_is(file: str):
    assert ast.get_docstring(source(file))


def test_every_exception_is_still_needed():
    named = {(file, name) for file in FILES for name, node in public_definitions(source(file).body) if not ast.get_docstring(node)}
    assert set(UNEXPLAINED) <= named
