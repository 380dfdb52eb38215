"""`FILE.json` to the spec in it; whatever is wrong with it is told with the file, the place in it, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dag.errors import ApiError, SpecError
from dag.strict_json import read
from mesh.errors import MeshError

_SUFFIX = ".json"


class SpecFileError(MeshError):
    """The file holds no spec."""


def names_spec(target: str) -> bool:
    """Whether it is meant as a file with a spec in it, rather than as Python or a federation file."""
    return target.lower().endswith(_SUFFIX)


def load_spec(path: Path) -> dict[str, Any]:
    """The object in the file; whether it is a right graph, the root says.

    Raises:
        SpecFileError: There is no such file, no JSON in it, or something else than a graph.
    """
    spec = _read(path)
    if not isinstance(spec, dict) or not isinstance(spec.get("params", {}), dict):
        wrong = "`params` is no JSON object" if isinstance(spec, dict) else "it is no JSON object"
        raise SpecFileError(f"{path} holds no spec: {wrong}; {_REMEDY.format(path=path)}")
    if spec.keys().isdisjoint(("spec", "nodes", "outputs")):
        raise SpecFileError(f"{path} holds no spec: it has no `spec`, `nodes` and `outputs`; {_REMEDY.format(path=path)}")
    return spec


@contextmanager
def named(path: Path) -> Iterator[None]:
    """What the root says against a graph, with the file that it is in.

    Raises:
        ApiError: As the root refused.
    """
    try:
        yield
    except ApiError as refused:
        if not refused.problems:
            raise
        raise ApiError(refused.status, f"{path}: {refused}", refused.problems, code=refused.code) from None


_REMEDY = "`schedulemesh validate {path}` tells what a graph of the form dag/1 needs"


def _read(path: Path) -> Any:
    if path.is_dir():
        raise SpecFileError(f"{path} is a folder; give the file in it: FILE.json, or FILE.py:NAME")
    try:
        body = path.read_bytes()
    except OSError as refused:
        raise SpecFileError(f"{path} cannot be read: {refused.strerror}") from None
    if not body.strip():
        raise SpecFileError(f"{path} is empty; {_REMEDY.format(path=path)}")
    try:
        return read(body)
    except SpecError as wrong:
        told = "; ".join(f"{place}: {problem}" if place else problem for place, problem in wrong.problems)
        raise SpecFileError(f"{path}: {told}; `schedulemesh validate {path}` looks at it again") from None
