"""Loading of the graph that `FILE.py:NAME` names, from the user's own module, in the user's process."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from dag.client.compiling import Outputs, is_output
from mesh.core.near_names import nearest, wrong_call
from mesh.errors import MeshError

_AUTO_CONNECT = "RAY_ENABLE_AUTO_CONNECT"
_NOT_STARTED = "Ray has not been started"
_BIND_INSTEAD = (
    "Ray does not run while a graph is built: bind functions instead of calling them, "
    "like dag.bind(f, 1) for f.remote(1), and return nodes instead of ray.get(…)"
)


class GraphFileError(MeshError):
    """The file has no such graph, or fails to load."""


@dataclass(frozen=True, slots=True)
class GraphFile:
    """Graph, and the module that defines its functions."""

    outputs: Outputs
    module: ModuleType
    file: Path
    params: Mapping[str, Any] = field(default_factory=dict)  #: Values of the graph's own parameters; a function has taken its arguments.


def load_graph(target: str, params: Mapping[str, Any] | None = None) -> GraphFile:
    """Load the graph at `FILE.py:NAME`: a node, a dict or list of nodes, or a function that returns them.

    Args:
        params: Arguments of the function, by name; of other graphs, values of their parameters (`dag.param`).

    Raises:
        GraphFileError: One line with the problem and its place.
    """
    path, name = _path_and_name(target)
    module = _load(path)
    found = getattr(module, name, None)
    if not name or found is None:
        graphs = list(_graphs_in(module))
        example = f"{target!r} names no graph; write FILE.py:NAME, like {path}:{next(iter(graphs), 'graph')}"
        wrong = f"{path} has no {name}{nearest(name, graphs)}" if name else example
        raise GraphFileError(f"{wrong}; graphs in the file: {', '.join(graphs) or 'none'}")
    if callable(found) and not _is_graph(found) and not hasattr(found, "bind") and not isinstance(found, type):
        made = cast("Callable[..., Any]", found)
        _check_takes(f"{path}:{name}", made, params or {})
        given = params or {}
        found, params = _described(path, lambda: made(**given)), None
    if not _is_graph(found):
        raise GraphFileError(
            f"{path}:{name} is {_kind(found)}, not a node, a dict or list of nodes, or a function that returns them{_remedy(found, name)}"
        )
    return GraphFile(outputs=cast("Outputs", found), module=module, file=path, params=params or {})


def _check_takes(where: str, function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Check that the parameters fit the function. Raises GraphFileError."""
    signature = inspect.signature(function)
    try:
        signature.bind(**params)
    except TypeError as wrong:
        raise GraphFileError(f"--param: {where}{wrong_call(signature, (), params, str(wrong))}") from None


def _path_and_name(target: str) -> tuple[Path, str]:
    """Split `FILE.py:NAME`. Raises GraphFileError if FILE is not a Python file."""
    file, colon, name = target.rpartition(":")
    path = Path(file if colon else target)
    is_python = path.suffix.lower() == ".py"
    if not (is_python or colon):
        raise GraphFileError(f"{target!r} names no graph; write FILE.py:NAME, like workflow.py:graph, or FILE.json")
    if path.is_dir():
        raise GraphFileError(f"{path} is a folder, not a file; write FILE.py:NAME, like workflow.py:graph")
    if not path.is_file():
        raise GraphFileError(f"there is no file {path}")
    if not is_python:
        raise GraphFileError(f"{path} is not a Python file; write FILE.py:NAME, like workflow.py:graph, or FILE.json")
    return path, name if colon else ""


def _graphs_in(module: ModuleType) -> Iterator[str]:
    """Yield the names of the module that could be the graph."""
    return (attribute for attribute, value in vars(module).items() if _would_do(value, module))


def _kind(found: object) -> str:
    if hasattr(found, "bind"):
        return "a task that is not bound"
    return f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def _remedy(found: object, name: str) -> str:
    return f"; bind it, like graph = {name}.bind(…), and give that name" if hasattr(found, "bind") else ""


def _load(path: Path) -> ModuleType:
    """Import the file under the name that its package gives it, so that other processes can import it by the same name."""
    parts, folder = [path.stem], path.resolve().parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(parts)
    known = sys.modules.get(name)
    if known is not None and Path(str(getattr(known, "__file__", ""))).resolve() != path.resolve():
        raise GraphFileError(f"{path}: another module is already loaded as {name}; rename the file")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return cast("ModuleType", _described(path, lambda: importlib.import_module(name)))


def _described(path: Path, act: Callable[[], Any]) -> Any:
    """Return the result of `act`. An error of the user's code becomes one line with its place in the user's file."""
    try:
        with _no_ray_of_its_own():
            return act()
    except GraphFileError:
        raise
    except Exception as broken:
        if isinstance(broken, SyntaxError) and broken.filename and Path(broken.filename).resolve() == path.resolve():
            raise GraphFileError(f"{path}:{broken.lineno}: {type(broken).__name__}: {broken.msg}") from broken
        frames = [frame for frame in traceback.extract_tb(broken.__traceback__) if Path(frame.filename).resolve() == path.resolve()]
        place = f"{path}:{frames[-1].lineno}" if frames else str(path)
        if type(broken).__module__ == "ray.exceptions" and _NOT_STARTED in str(broken):
            raise GraphFileError(f"{place}: {_BIND_INSTEAD}") from broken
        words = str(broken) if isinstance(broken, MeshError) else f"{type(broken).__name__}: {broken}"
        raise GraphFileError(f"{place}: {words}") from broken


@contextmanager
def _no_ray_of_its_own() -> Iterator[None]:
    """Make `f.remote()` raise within the block where no Ray runs; Ray would otherwise start itself on this machine.

    Ray reads the variable on import and keeps the value in a module; both are restored.
    """
    before, known = os.environ.get(_AUTO_CONNECT), _ray_hook()
    kept = before != "0" if known is None else known.enable_auto_connect
    os.environ[_AUTO_CONNECT] = "0"
    if known is not None:
        known.enable_auto_connect = False
    try:
        yield
    finally:
        os.environ.pop(_AUTO_CONNECT)
        if before is not None:
            os.environ[_AUTO_CONNECT] = before
        hook = _ray_hook()
        if hook is not None:
            hook.enable_auto_connect = kept


def _ray_hook() -> Any:
    """Return Ray's module that starts Ray on the first call, or None if Ray is not imported."""
    return sys.modules.get("ray._private.auto_init_hook")


def _would_do(value: object, module: ModuleType) -> bool:
    """Return whether the value is a graph, or a function of the module that needs no arguments."""
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return _is_graph(value)
    given = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(one.default is not one.empty or one.kind in given for one in inspect.signature(value).parameters.values())


def _is_graph(value: object) -> bool:
    if is_output(value):
        return True
    listed = list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, (list, tuple)) else []
    return bool(listed) and all(map(is_output, listed))
