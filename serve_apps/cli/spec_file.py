"""Reading of a spec from `FILE.json`. Each error names the file, the place in the file, and the remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dag.errors import ApiError, SpecError
from dag.spec.json_places import Place, nearest, places_of
from dag.spec.strict_json import read
from mesh.errors import MeshError

_SUFFIX = ".json"


class SpecFileError(MeshError):
    """The file holds no spec."""


def names_spec(target: str) -> bool:
    """Return whether the target is a spec file, not Python or a federation file."""
    return target.lower().endswith(_SUFFIX)


def load_spec(path: Path) -> dict[str, Any]:
    """Read the JSON object in the file. The root validates the graph.

    Raises:
        SpecFileError: The file does not exist, is not JSON, or holds no graph.
    """
    spec = _read(path)
    if not isinstance(spec, dict) or not isinstance(spec.get("params", {}), dict):
        wrong = "`params` is not a JSON object" if isinstance(spec, dict) else "it is not a JSON object"
        raise SpecFileError(f"{path} holds no spec: {wrong}; {_REMEDY.format(path=path)}")
    if spec.keys().isdisjoint(("spec", "nodes", "outputs")):
        raise SpecFileError(f"{path} holds no spec: it has none of `spec`, `nodes` and `outputs`; {_REMEDY.format(path=path)}")
    return spec


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the file to the problems that the root reports for a graph.

    Raises:
        ApiError: The root refused the graph.
    """
    try:
        yield
    except ApiError as refused:
        if not refused.problems:
            raise
        message, _, _ = str(refused).partition("\n")
        described = [f"{path}: {message}", *(f"  {line}" for line in _located(path, refused.problems))]
        raise ApiError(refused.status, "\n".join(described), refused.problems, code=refused.code) from None


def _located(path: Path, problems: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each problem in one line; for a spec file with line and column of its place, or of the nearest part that is there."""
    places: Mapping[str, Place] = {}
    if names_spec(str(path)):
        with contextlib.suppress(OSError, ValueError):
            places = places_of(path.read_text(encoding="utf-8"))
    for place, problem in problems:
        words = f"{place}: {problem}" if place else problem
        yield f"{path}:{':'.join(map(str, nearest(places, place)))}: {words}" if place and places else words


_REMEDY = "`schedulemesh validate {path}` shows what a dag/1 graph needs"


def _read(path: Path) -> Any:
    if path.is_dir():
        raise SpecFileError(f"{path} is a folder; give a file: FILE.json or FILE.py:NAME")
    try:
        body = path.read_bytes()
    except OSError as refused:
        raise SpecFileError(f"{path} cannot be read: {refused.strerror}") from None
    if not body.strip():
        raise SpecFileError(f"{path} is empty; {_REMEDY.format(path=path)}")
    try:
        return read(body)
    except SpecError as wrong:
        described = "; ".join(_located(path, wrong.problems))
        described = described if described.startswith(f"{path}:") else f"{path}: {described}"
        raise SpecFileError(f"{described}; check it again with `schedulemesh validate {path}`") from None
