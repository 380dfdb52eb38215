"""Modules beside the user's script, which no mesh can import."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from types import ModuleType

#: This project's own packages: workers have them.
_OWN = frozenset({"dag", "federation", "mesh", "serve_apps", "simulator"})


def modules_beside_script() -> tuple[ModuleType, ...]:
    """Return the loaded modules from the folder of the script that runs, and below; of a notebook or a prompt, the working folder.

    Installed packages are left out: a mesh has them, or gets them by `runtime_env`.
    """
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    folder = _inside(os.path.dirname(os.path.abspath(script)) if script else os.getcwd())  # noqa: PTH100, PTH109, PTH120  for each module
    installed = _installed()
    if folder.startswith(installed):
        return ()
    found = []
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_beside = isinstance(file, str) and file.startswith(folder) and not file.startswith(installed)
        if is_beside and module is not main and name == getattr(module, "__name__", None) and name.partition(".")[0] not in _OWN:
            found.append(module)
    return tuple(found)


def _installed() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    paths.update(site.getsitepackages(), [site.getusersitepackages()])
    return tuple({_inside(form) for path in paths if path for form in (path, os.path.realpath(path))})


def _inside(folder: str) -> str:
    return folder.rstrip(os.sep) + os.sep
