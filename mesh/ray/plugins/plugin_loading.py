"""Loading of plugins from installed packages, Python modules and WebAssembly files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from mesh.plugins import HOOKS, WASM_SUFFIXES, Plugin, PluginError, check_source
from mesh.policies.policy import Policy, highest
from mesh.ray.plugins.wasm import load_wasm

#: Entry point group of installed packages: `[project.entry-points."schedulemesh.policies"]`.
GROUP = "schedulemesh.policies"


def load_plugins(sources: Mapping[str, str], *, folder: Path | None = None) -> tuple[Plugin, ...]:
    """Return the configured plugins and those of installed packages; a configured plugin hides an installed one of the same name.

    Args:
        sources: By name, `module:attribute`, or the path of a `.wasm` or `.wat` file.
        folder: Base of relative paths; None: the current folder.

    Raises:
        PluginError: A plugin cannot be loaded.
    """
    configured = tuple(load_plugin(name, source, folder=folder) for name, source in sources.items())
    installed = tuple(_from_entry_point(entry) for entry in sorted(entry_points(group=GROUP)) if entry.name not in sources)
    return (*configured, *installed)


def installed_names() -> tuple[str, ...]:
    """Return the names of the plugins of installed packages, sorted, without loading them."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load_plugin(name: str, source: str, *, folder: Path | None = None) -> Plugin:
    """Load one plugin.

    Raises:
        PluginError: `source` names no plugin, or its import fails.
    """
    check_source(name, source)
    if source.endswith(WASM_SUFFIXES):
        return load_wasm((folder or Path()) / source, name)
    module, _, attribute = source.partition(":")
    return as_plugin(name, _attribute(name, module, attribute))


def as_plugin(name: str, found: Any) -> Plugin:
    """Convert a user's object to a plugin: a `Plugin`, a `Policy`, a function (its `score`), or an object with some of the hooks.

    Raises:
        PluginError: The object is none of these.
    """
    if isinstance(found, Plugin):
        return Plugin(name=name, score=found.score, priority=found.priority, preemption_policy=found.preemption_policy)
    if isinstance(found, Policy):
        if found.pick is not highest or found.settle is not None:
            raise PluginError(f"plugin {name} is a Policy with a pick of its own; a plugin scores, and the best node is taken")
        return Plugin(name=name, score=found.score)
    if isinstance(found, type):
        found = _made(name, found)
    hooks = {hook: getattr(found, hook) for hook in HOOKS if callable(getattr(found, hook, None))}
    if hooks:
        return Plugin(name=name, **hooks)
    if callable(found):
        return Plugin(name=name, score=found)
    raise PluginError(f"plugin {name} is {type(found).__name__}, and has none of {', '.join(f'{hook}()' for hook in HOOKS)}")


def _from_entry_point(entry: EntryPoint) -> Plugin:
    if entry.value.endswith(WASM_SUFFIXES):
        raise PluginError(f"plugin {entry.name}: an entry point names Python, not {entry.value}; name the file in the configuration")
    module, _, attribute = entry.value.partition(":")
    return as_plugin(entry.name, _attribute(entry.name, module, attribute))


def _attribute(name: str, module: str, attribute: str) -> Any:
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin {name}: {module} does not import: {type(error).__name__}: {error}; is it installed, or on PYTHONPATH?"
        ) from error
    for part in attribute.split(".") if attribute else ():
        if not hasattr(found, part):
            raise PluginError(f"plugin {name}: {module} has no {attribute}")
        found = getattr(found, part)
    return found


def _made(name: str, kind: type) -> Any:
    try:
        return kind()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin {name}: {kind.__name__}() raised {type(error).__name__}: {error}; it is made without arguments"
        ) from error
