"""`join`: bring a Ray cluster that runs already into a federation, as one of its meshes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from federation.config.loading import FederationConfig, mesh_record_of
from federation.errors import LinkRefused
from federation.link import LinkTerms
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.http_link import ask_terms
from mesh.errors import AmountError, MeshError
from mesh.ids import FlavorName, MeshId, PoolName
from mesh.resources import ResourceSet
from mesh.runtime.cluster.cluster_token import MODE_VARIABLE
from serve_apps.cli.output import console_for
from serve_apps.configuration.config_file import read_config
from serve_apps.processes.process import configure_logging
from serve_apps.processes.ray_access import auth_mode, check_answers, open_words
from serve_apps.processes.settings import ChildSettings, LinkSettings
from serve_apps.processes.stores import open_link

_POOL = re.compile(r"(?P<pool>[a-z0-9][a-z0-9._-]{0,63})=(?P<flavor>[a-z0-9][a-z0-9._-]{0,63}):(?P<capacity>\S+)")
_ADDRESS = re.compile(r"https?://[^\s/,]+/?")


class JoinProblem(MeshError):
    """What the command was told does not make a mesh; the message says what to write instead."""


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(join)


def join(
    root: Annotated[str, typer.Option("--root", help="Addresses of the root, `https://HOST:PORT`, with commas between several.")],
    key_file: Annotated[Path, typer.Option("--key-file", help="A file with the mesh's key, `smm_…`; nobody else may read it.")],
    mesh: Annotated[str, typer.Option("--mesh", help="The name of the mesh; the key is for this one.")],
    ray: Annotated[str, typer.Option("--ray", help="The Ray cluster, `HOST:PORT`; this machine is a node of it.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="A federation file that has the mesh: its pools, labels and tenants.")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option("--pool", help="Instead: NAME=FLAVOR:RESOURCE=AMOUNT[,…], like general=standard:cpu=8,memory=16GiB.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="With --pool: a label of the mesh, KEY=VALUE.")] = None,
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", help="With --pool: who may use it, with all below; everybody when left out.")
    ] = None,
    node_label: Annotated[
        list[str] | None, typer.Option("--node-label", help="With --pool: only nodes with this Ray label, KEY=VALUE, belong to the mesh.")
    ] = None,
    warm_runners: Annotated[int, typer.Option("--warm-runners", min=0, max=64, help="With --pool: stage runners kept started.")] = 1,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="Certificates that sign those of the root.")] = None,
) -> None:
    """Run a mesh on a Ray cluster that is there already; Ctrl-C leaves in good order."""
    link = LinkSettings(roots=_addresses(root), key=read_key(key_file), ca_file=str(ca_file) if ca_file else None)
    if config is not None:
        offer = _offer_in(read_config(config), mesh)
    else:
        offer = (_offer_of(mesh, pool or [], _pairs(label), tuple(tenant or ("*",))), _pairs(node_label), warm_runners)
    check_answers(ray, "--ray")
    terms = _terms(link, offer[0])
    _warn(mesh, (*terms.warnings, *open_words(ray)))
    console_for(stderr=True).print(f"joining as {mesh}; heartbeat every {terms.heartbeat_ms} ms")
    configure_logging()
    _run(settings_of(link, offer, terms, ray))


def _run(settings: ChildSettings) -> None:
    """Enter the cluster, with a token where it asks for one, and be its mesh until told to stop. Raises RuntimeDoorError."""
    os.environ[MODE_VARIABLE] = auth_mode(os.environ, settings.ray_address)
    from serve_apps import child_process  # noqa: PLC0415  Ray reads its mode at import, and no other command needs its seconds

    child_process.run(settings, _tell_joined)


def _tell_joined(*, mesh: str, cluster: str, pid: int, warnings: tuple[str, ...]) -> None:
    _warn(mesh, warnings)
    words = f"{mesh} is up on the Ray cluster {cluster[:8]}, as process {pid}; Ctrl-C leaves in good order"
    console_for().print(words, soft_wrap=True)


def _warn(mesh: str, warnings: tuple[str, ...]) -> None:
    for words in warnings:
        console_for(stderr=True).print(f"warning: mesh {mesh}: {words}", style="yellow", soft_wrap=True)


#: What a mesh tells of itself, its slice of the cluster as Ray labels of nodes, and how many runners are kept started.
Offer = tuple[MeshRecord, dict[str, str], int]


def settings_of(link: LinkSettings, offer: Offer, terms: LinkTerms, ray_address: str) -> ChildSettings:
    """What the mesh's process is told: its own offer, under the root's terms."""
    record, node_labels, warm_runners = offer
    return ChildSettings(
        store=None,
        link=link,
        ray_address=ray_address,
        heartbeat_ms=terms.heartbeat_ms,
        storage_url=terms.storage_url,
        inline_limit_bytes=terms.inline_limit_bytes,
        record=record,
        node_labels=node_labels,
        warm_runners=warm_runners,
    )


def read_key(file: Path) -> str:
    """The key in the file.

    Raises:
        JoinProblem: It cannot be read, is open to others, or holds no mesh's key.
    """
    try:
        mode, text = file.stat().st_mode, file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise JoinProblem(f"the key cannot be read from {file}: {wrong}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
        raise JoinProblem(f"others may read {file}, which holds a key; `chmod 600 {file}` keeps it to you")
    if not text.startswith("smm_"):
        raise JoinProblem(f"{file} holds no key of a mesh (smm_…); `schedulemesh keys create --mesh NAME` makes one, at the root")
    return text


def _addresses(text: str) -> tuple[str, ...]:
    roots = tuple(part.strip() for part in text.split(",") if part.strip())
    for root in roots:
        if not _ADDRESS.fullmatch(root):
            raise JoinProblem(f"{root!r} is no address of a root; write https://HOST:PORT")
    if not roots:
        raise JoinProblem("--root names no address; write https://HOST:PORT")
    return roots


def _terms(link: LinkSettings, record: MeshRecord) -> LinkTerms:
    """What the root tells before a mesh joins: a wrong key, name or pool is told at once, not by a mesh that never comes up."""
    opened = open_link(link)
    try:
        return ask_terms(opened, record.mesh, record)
    except LinkRefused as refused:
        raise JoinProblem(f"{refused}") from None
    finally:
        opened.close()


def _offer_in(config: FederationConfig, mesh: str) -> Offer:
    record = mesh_record_of(config, mesh, cluster="")
    section = config.meshes[mesh]
    return record, dict(section.node_labels), section.warm_runners


def _offer_of(mesh: str, pools: list[str], labels: Mapping[str, str], tenants: tuple[str, ...]) -> MeshRecord:
    """A record from the command line.

    Raises:
        JoinProblem: No pool, or one that cannot be read.
    """
    if not pools:
        raise JoinProblem(
            "a mesh needs pools: --config FILE that has the mesh, or --pool NAME=FLAVOR:RESOURCE=AMOUNT, like general=standard:cpu=8"
        )
    return MeshRecord(mesh=MeshId(mesh), labels=dict(labels), pools=tuple(map(_pool_of, pools)), cluster="", tenants=tenants)


def _pool_of(text: str) -> PoolRecord:
    match = _POOL.fullmatch(text)
    if match is None:
        raise JoinProblem(f"--pool {text}: no pool; write NAME=FLAVOR:RESOURCE=AMOUNT[,…], like general=standard:cpu=8,memory=16GiB")
    try:
        capacity = ResourceSet.of(_pairs(match["capacity"].split(",")))
    except (AmountError, JoinProblem) as wrong:
        raise JoinProblem(f"--pool {text}: {wrong}") from None
    return PoolRecord(pool=PoolName(match["pool"]), flavor=FlavorName(match["flavor"]), capacity=capacity)


def _pairs(texts: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or []]
    for key, equals, value in pairs:
        if not (key and equals and value):
            raise JoinProblem(f"{key + equals + value!r} is no KEY=VALUE")
    return {key: value for key, _, value in pairs}
