"""The project's source, each file read and parsed once, for all lints."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYERS = ("mesh", "federation", "dag", "simulator", "serve_apps")  #: Lowest first.
FILES = tuple(sorted(path.relative_to(ROOT).as_posix() for layer in LAYERS for path in (ROOT / layer).rglob("*.py")))

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Import:
    """Imported name."""

    line: int
    names: tuple[str, ...]  #: Modules it may mean: for `from a import b` both `a.b` and `a`, as `b` may be a module.
    is_late: bool  #: Inside a function.

    @property
    def name(self) -> str:
        """Return the longest of the names."""
        return self.names[0]


@cache
def source(file: str) -> ast.Module:
    """Return the parsed file."""
    gc.disable()  # A parse makes objects by the ten thousand and drops none: garbage collection makes it three times slower.
    try:
        return ast.parse((ROOT / file).read_text(encoding="utf-8"), filename=file)
    finally:
        gc.enable()


def forget() -> None:
    """Drop all parsed files: some 200 MB."""
    imports.cache_clear()
    source.cache_clear()


@cache
def imports(file: str) -> tuple[Import, ...]:
    """Return all imports of the file."""
    return tuple(imports_of(source(file)))


def imports_of(tree: ast.AST, *, is_late: bool = False) -> Iterator[Import]:
    """Return all imports below `tree`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, (alias.name,), is_late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (Import(node.lineno, (f"{module}.{alias.name}", module), is_late) for alias in node.names)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):  # No import stands inside an expression.
            yield from imports_of(node, is_late=is_late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def module_of(file: str) -> str:
    """Return the name by which the file is imported."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def public_definitions(body: Iterable[ast.stmt], above: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield functions and classes with public names, and the public members of classes."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield above + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{above}{node.name}.")


def expect_none(violations: Iterable[str], remedy: str = "") -> None:
    """Fail with all violations, one per line: pytest shows only the first few of a list."""
    found = list(violations)
    if found:
        raise AssertionError("\n".join([f"{len(found)} found{remedy and f'; {remedy}'}", *found]))
