"""What commands share that work on the stack of a state folder: its options, its file, its stores. Starts and stops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dag.store.client_access import STATE_VARIABLE
from federation.config.loading import FederationConfig
from federation.roster import Roster
from mesh.errors import MeshError
from serve_apps.cli.output import console_for
from serve_apps.configuration.config_file import read_config
from serve_apps.one_machine.state_folder import StateFolder
from serve_apps.processes.settings import RootSettings
from serve_apps.processes.stores import Stores, open_stores

STATE = Path(".schedulemesh")

StateOption = Annotated[
    Path, typer.Option("--state", envvar=STATE_VARIABLE, show_envvar=True, help="The state folder: Redis' file, logs, keys.")
]
ConfigArgument = Annotated[Path, typer.Argument(help="The federation file.", metavar="CONFIG")]
#: The file that is meant when none is named: a checkout has it, an installation does not.
DEFAULT_CONFIG = Path("configs/quickstart.yaml")
ConfigOrDefault = Annotated[
    Path | None, typer.Argument(help=f"The federation file; {DEFAULT_CONFIG} when left out.", metavar="CONFIG", show_default=False)
]


def named_or_default(config: Path | None) -> Path:
    """The file that was named, or else the default.

    Raises:
        MeshError: No file was named, and this folder has no default.
    """
    if config is None and not DEFAULT_CONFIG.exists():
        told = f"no federation file is named, and there is no {DEFAULT_CONFIG} in {Path.cwd()}"
        raise MeshError(f"{told}; name one as the command's argument")
    return DEFAULT_CONFIG if config is None else config


def read_told(config: Path, *, about: tuple[str, ...] | None = None) -> FederationConfig:
    """The checked file; its warnings are printed, those of these sections alone where some are named.

    Raises:
        ConfigError: It cannot be read, or is wrong.
    """
    checked = read_config(config)
    for warning in checked.warnings:
        if about is not None and warning.place.partition(".")[0] not in about:
            continue
        console_for(stderr=True).print(f"warning: {warning}", style="yellow", soft_wrap=True)
    return checked


def running_stores(state: Path) -> Stores:
    """The stores of the stack that runs with this folder. Raises as `root_settings`."""
    settings = root_settings(state)
    return open_stores(
        settings.redis_url,
        ledger=settings.ledger,
        lease_ttl_ms=settings.lease_ttl_ms,
        lease_grace_ms=settings.lease_grace_ms,
        limits=settings.backlog,
    )


def root_settings(state: Path) -> RootSettings:
    """What the root of the stack that runs with this folder was told.

    Raises:
        MeshError: None does.
    """
    file = StateFolder(state).path / "settings" / "root.json"
    if StateFolder(state).owner() is None or not file.exists():
        raise MeshError(f"nothing runs with the state folder {state}; `schedulemesh up` starts it, --state names another folder")
    return RootSettings.read(str(file))


def roster_of_stack(state: Path) -> Roster:
    """The meshes that the file of the stack of this folder names. Raises as `root_settings`."""
    return root_settings(state).roster
