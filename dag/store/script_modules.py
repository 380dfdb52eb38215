"""Modules beside the user's script, which no mesh can import."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from functools import cache
from operator import is_
from types import ModuleType

#: Folders of installed packages, also of another environment that this one reads.
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OWN = frozenset({"dag", "federation", "mesh", "serve_apps", "simulator"})  #: This project's packages: workers have them.


class _Last:
    """The last search: a process has thousands of modules, and hardly any is loaded between two submissions."""

    folder_loaded_found: tuple[str, tuple[ModuleType, ...], tuple[ModuleType, ...]] = "", (), ()  #: One value, as threads share it.


def modules_beside_script() -> tuple[ModuleType, ...]:
    """Return the loaded modules from the folder of the script that runs, and below; of a notebook or a prompt, the working folder.

    Installed packages are left out: a mesh has them, or gets them by `runtime_env`.
    """
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    folder = _inside(os.path.dirname(os.path.abspath(script)) if script else os.getcwd())  # noqa: PTH100, PTH109, PTH120  for each module
    loaded = tuple(sys.modules.values())
    known_folder, known, found = _Last.folder_loaded_found
    if folder != known_folder or len(loaded) != len(known) or not all(map(is_, loaded, known)):
        found = _found_in(folder, main)
        _Last.folder_loaded_found = folder, loaded, found
    return found


def _found_in(folder: str, main: ModuleType | None) -> tuple[ModuleType, ...]:
    libraries = _libraries()
    if _is_installed(folder, libraries):
        return ()
    found = []
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_beside = isinstance(file, str) and file.startswith(folder) and not _is_installed(file, libraries)
        if is_beside and module is not main and name == getattr(module, "__name__", None) and name.partition(".")[0] not in _OWN:
            found.append(module)
    return tuple(found)


def _is_installed(path: str, libraries: tuple[str, ...]) -> bool:
    return path.startswith(libraries) or any(folder in path for folder in _PACKAGES)


@cache
def _libraries() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    paths.update(site.getsitepackages(), [site.getusersitepackages()])
    return tuple({_inside(form) for path in paths if path for form in (path, os.path.realpath(path))})


def _inside(folder: str) -> str:
    return folder.rstrip(os.sep) + os.sep
