"""Options, configuration file and stores of commands that work on the stack of a state folder. Starts and stops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dag.store.client_access import STATE_VARIABLE
from federation.config.loading import FederationConfig
from federation.configured_meshes import ConfiguredMeshes
from mesh.errors import MeshError
from serve_apps.cli.output import console_for
from serve_apps.configuration.config_file import read_config
from serve_apps.configuration.initial_config import INITIAL_FILE, initial_config
from serve_apps.processes.settings import RootSettings
from serve_apps.processes.stores import Stores, open_stores
from serve_apps.standalone.stack_folder import StackFolder

STATE = Path(".schedulemesh")

StateOption = Annotated[
    Path, typer.Option("--state-dir", envvar=STATE_VARIABLE, show_envvar=True, help="State folder: Redis data, logs, keys.")
]
ConfigArgument = Annotated[Path, typer.Argument(help="Federation file.", metavar="CONFIG")]
#: Default federation file: a checkout has it, an installation does not.
DEFAULT_CONFIG = Path("configs/quickstart.yaml")
ConfigOrDefault = Annotated[
    Path | None, typer.Argument(help=f"Federation file. Default: {DEFAULT_CONFIG}.", metavar="CONFIG", show_default=False)
]


def named_or_default(config: Path | None) -> Path:
    """Return the given file, or the default file.

    Raises:
        MeshError: No file is given, and this folder has no default file.
    """
    if config is None and not DEFAULT_CONFIG.exists():
        described = f"no federation file is given, and {Path.cwd()} has no {DEFAULT_CONFIG}"
        raise MeshError(f"{described}; give one as the command's argument")
    return DEFAULT_CONFIG if config is None else config


def read_config_with_warnings(config: Path, *, about: tuple[str, ...] | None = None) -> FederationConfig:
    """Read and check the file, and print its warnings: only those of `sections`, if given.

    Raises:
        ConfigError: The file cannot be read, or is wrong.
    """
    return _with_warnings(read_config(config), about=about)


def startable(config: Path | None) -> FederationConfig:
    """Return what `up` starts, and print its warnings: the given file, else `INITIAL_FILE` of this folder, else the initial federation.

    Raises:
        ConfigError: The file cannot be read, or is wrong.
    """
    if config is None and not INITIAL_FILE.exists():
        return _with_warnings(initial_config())
    return read_config_with_warnings(config or INITIAL_FILE)


def _with_warnings(checked: FederationConfig, *, about: tuple[str, ...] | None = None) -> FederationConfig:
    for warning in checked.warnings:
        if about is not None and warning.place.partition(".")[0] not in about:
            continue
        console_for(stderr=True).print(f"warning: {warning}", style="yellow", soft_wrap=True)
    return checked


def running_stores(state: Path) -> Stores:
    """Open the stores of the stack that runs with this folder. Raises as `root_settings`."""
    settings = root_settings(state)
    return open_stores(
        settings.redis_url,
        ledger=settings.ledger,
        lease_ttl_ms=settings.lease_ttl_ms,
        lease_grace_ms=settings.lease_grace_ms,
        limits=settings.backlog,
    )


def root_settings(state: Path) -> RootSettings:
    """Return the root's settings: those of the stack that runs with this folder, or those that `prepare` wrote into it.

    Raises:
        MeshError: No stack runs with this folder, and it was not prepared.
    """
    folder = StackFolder(state)
    file = folder.path / "settings" / "root.json"
    if (folder.owner() is None and not folder.is_prepared) or not file.exists():
        raise MeshError(
            f"no stack runs with the state folder {state}; start it with `schedulemesh up`, or name another folder by --state-dir or "
            f"{STATE_VARIABLE}"
        )
    return RootSettings.read(str(file))


def configured_meshes_of_stack(state: Path) -> ConfiguredMeshes:
    """Return the meshes that the federation file of this folder's stack names. Raises as `root_settings`."""
    return root_settings(state).configured_meshes
