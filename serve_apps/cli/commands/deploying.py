"""Commands before a start: `init`, `serve-config` for Ray Serve, KubeRay and systemd, `prepare` for Redis."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from federation.config.loading import FederationConfig
from federation.errors import ConfigError
from mesh.errors import MeshError
from serve_apps.cli.output import console_for
from serve_apps.cli.state import STATE, ConfigArgument, StateOption, read_config_with_warnings
from serve_apps.configuration.initial_config import INITIAL_FILE, initial_text_here
from serve_apps.configuration.root_arguments import NO_STORAGE, REDIS_VARIABLE, RootArguments, arguments_of
from serve_apps.deployment.kuberay import SECRETS_DIR, ray_service, ray_service_text, service_name
from serve_apps.deployment.serve_file import serve_config, serve_text
from serve_apps.deployment.systemd import units
from serve_apps.standalone.ledger_setup import prepare as prepare_ledger
from serve_apps.standalone.stack_folder import StackFolder
from serve_apps.standalone.startup_config import refuse_another


def register(app: typer.Typer) -> None:
    app.command()(init)
    app.command("serve-config")(write_serve_config)
    app.command("prepare")(prepare)


def init(
    file: Annotated[Path, typer.Argument(help="File to write; `-` prints it.", metavar="FILE")] = INITIAL_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a commented federation file for this machine: what `up` starts without a file."""
    if str(file) == "-":
        typer.echo(initial_text_here(), nl=False)
        return
    _write_file(file, initial_text_here(), force=force)
    console_for().print(f"written: {file}\nnext: schedulemesh up{'' if file == INITIAL_FILE else f' {file}'}")


def write_serve_config(
    config: ConfigArgument,
    kuberay: Annotated[bool, typer.Option("--kuberay", help="Write a RayService of KubeRay instead.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="Write units of systemd instead, for `up` and for meshes that join.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; with --systemd a folder. Default: standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    secrets_dir: Annotated[
        str | None,
        typer.Option("--secrets-dir", help="Folder with the secrets on the nodes of the cluster. Default: environment variables."),
    ] = None,
    image: Annotated[str | None, typer.Option("--image", help="With --kuberay: container image with Ray and ScheduleMesh.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="With --kuberay: name of the RayService and of its Secret.")] = None,
    root: Annotated[str | None, typer.Option("--root", help="With --systemd: address of the root for the meshes that join.")] = None,
    ray: Annotated[str | None, typer.Option("--ray", help="With --systemd: Ray address of the meshes that join, HOST:PORT.")] = None,
) -> None:
    """Write the config file with which `serve deploy` starts the root on an existing Ray cluster. The file holds no secret."""
    _refuse_strange_options(kuberay=kuberay, systemd=systemd, of_kuberay=(image, name), of_systemd=(root, ray), secrets_dir=secrets_dir)
    checked = read_config_with_warnings(config)
    if systemd:
        _write_all(units(checked, config.resolve(), program=_program(), root=root, ray=ray), out, force=force)
        return
    if checked.storage.url is None:
        raise ConfigError(located=(checked.problem_at(("storage", "url"), NO_STORAGE),))
    arguments = arguments_of(
        config.read_text(encoding="utf-8-sig"), source=str(config), secrets_dir=SECRETS_DIR if kuberay else secrets_dir
    )
    text = _kuberay_text(checked, arguments, image, name) if kuberay else serve_text(checked, serve_config(checked, arguments))
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write_file(out, text, force=force)
        console_for().print(f"written: {out}", soft_wrap=True)
    stderr = console_for(stderr=True)
    stderr.print(f"before the first deployment: {REDIS_VARIABLE}=URL schedulemesh prepare {config}", soft_wrap=True)
    stderr.print(f"meshes to start with `schedulemesh join`: {', '.join(checked.meshes)}", soft_wrap=True)


def prepare(
    config: ConfigArgument,
    url: Annotated[
        str | None,
        typer.Option("--url", envvar=REDIS_VARIABLE, show_envvar=True, help="URL of the Redis server. Prefer the environment variable."),
    ] = None,
    state: StateOption = STATE,
    rebuild_ledger: Annotated[
        bool, typer.Option("--rebuild-ledger", help="Create the ledger again on a Redis that was emptied on purpose.")
    ] = False,
) -> None:
    """Make Redis and the state folder ready for a root that Ray Serve deploys. Repeat it after changes that `apply` does not apply."""
    checked = read_config_with_warnings(config)
    address = url or checked.redis.url
    if not address:
        raise MeshError(f"no Redis server is named; set {REDIS_VARIABLE}, or `redis.url` in {config}")
    folder = StackFolder(state)
    refuse_another(folder, checked, config)
    console = console_for()
    with folder:
        prepare_ledger(
            checked, folder, redis_url=address, rebuild_ledger=rebuild_ledger, say=lambda words: console.print(words, soft_wrap=True)
        )
    console.print(
        f"ready: the root's secrets are in {folder.path / 'secrets'}; commands like `keys create` and `apply` work with {state}",
        soft_wrap=True,
    )


def _refuse_strange_options(
    *, kuberay: bool, systemd: bool, of_kuberay: tuple[str | None, ...], of_systemd: tuple[str | None, ...], secrets_dir: str | None
) -> None:
    """Refuse options of another form. Raises typer.BadParameter."""
    if kuberay and systemd:
        raise typer.BadParameter("give either --kuberay or --systemd")
    if kuberay and not of_kuberay[0]:
        raise typer.BadParameter("--kuberay needs --image: a container image with Ray and ScheduleMesh")
    if not kuberay and any(of_kuberay):
        raise typer.BadParameter("--image and --name need --kuberay")
    if not systemd and any(of_systemd):
        raise typer.BadParameter("--root and --ray need --systemd")
    if secrets_dir is not None and (kuberay or systemd):
        raise typer.BadParameter("--secrets-dir is for Serve's config file: a RayService mounts its Secret, and `up` needs none")


def _kuberay_text(config: FederationConfig, arguments: RootArguments, image: str | None, name: str | None) -> str:
    chosen = name or service_name(config.federation.name)
    manifest = ray_service(config, arguments, name=chosen, image=image or "", secret=chosen, ray_version=version("ray"))
    return ray_service_text(config, manifest, secret=chosen)


def _program() -> Path:
    """Return the program `schedulemesh` of this Python."""
    beside = Path(sys.executable).with_name("schedulemesh")
    return beside if beside.exists() else Path(shutil.which("schedulemesh") or beside)


def _write_all(texts: dict[str, str], folder: Path | None, *, force: bool) -> None:
    for name, text in texts.items():
        if folder is None:
            typer.echo(f"# {name}\n{text}")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            _write_file(folder / name, text, force=force)
            console_for().print(f"written: {folder / name}", soft_wrap=True)


def _write_file(file: Path, text: str, *, force: bool) -> None:
    """Write a new file.

    Args:
        force: Replace the file if it exists.

    Raises:
        MeshError: The file exists, or cannot be written.
    """
    try:
        with file.open("w" if force else "x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise MeshError(f"{file} exists already; give another name, or replace the file with --force") from None
    except OSError as refused:
        raise MeshError(f"{file} cannot be written: {refused.strerror}; give a file in a folder that you can write") from None
