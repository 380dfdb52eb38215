"""Command `join`: run an existing Ray cluster as a mesh of a federation."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from federation.config.loading import FederationConfig, mesh_record_of
from federation.errors import LinkRefused
from federation.link import LinkTerms
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.http_link import ask_terms
from mesh.core.ids import FlavorName, MeshId, PoolName
from mesh.core.near_names import nearest
from mesh.core.resources import ResourceSet
from mesh.errors import AmountError, MeshError
from mesh.ray.cluster.cluster_token import MODE_VARIABLE
from serve_apps.cli.output import INTERRUPTED, console_for
from serve_apps.configuration.config_file import read_config
from serve_apps.processes.process import configure_logging
from serve_apps.processes.ray_access import auth_mode, check_answers, open_words
from serve_apps.processes.settings import ChildSettings, LinkSettings
from serve_apps.processes.stores import open_link

_POOL = re.compile(r"(?P<pool>[a-z0-9][a-z0-9._-]{0,63})=(?P<flavor>[a-z0-9][a-z0-9._-]{0,63}):(?P<capacity>\S+)")
_ADDRESS = re.compile(r"https?://[^\s/,]+/?")


class JoinProblem(MeshError):
    """The options of `join` do not describe a mesh; the message says what to write instead."""


def register(app: typer.Typer) -> None:
    app.command()(join)


def join(
    root: Annotated[str, typer.Option("--root", help="Addresses of the root, `https://HOST:PORT`, separated by commas.")],
    key_file: Annotated[
        Path, typer.Option("--key-file", help="File with the mesh's key, `smm_…`; only its owner may have read permission.")
    ],
    mesh: Annotated[str, typer.Option("--mesh", help="Name of the mesh; the key must belong to this mesh.")],
    ray: Annotated[str, typer.Option("--ray", help="Address of the Ray cluster, `HOST:PORT`; this machine must be one of its nodes.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="Federation file that defines the mesh: its pools, labels and tenants.")
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", help="Instead of --config: NAME=FLAVOR:RESOURCE=AMOUNT[,…], like general=standard:cpu=8,memory=16GiB."),
    ] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="With --pool: label of the mesh, KEY=VALUE.")] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option("--tenant", help="With --pool: tenant that may use the mesh, with all tenants below it. Default: every tenant."),
    ] = None,
    node_label: Annotated[
        list[str] | None, typer.Option("--node-label", help="With --pool: only nodes with this Ray label, KEY=VALUE, belong to the mesh.")
    ] = None,
    warm_runners: Annotated[
        int, typer.Option("--warm-runners", min=0, max=64, help="With --pool: number of stage runners that are kept started.")
    ] = 1,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="With --pool: node policy of a pool, POOL=POLICY, like general=binpack; may name a --plugin."),
    ] = None,
    plugin: Annotated[
        list[str] | None,
        typer.Option("--plugin", help="With --pool: policy of your own, NAME=MODULE:ATTRIBUTE or NAME=FILE.wasm; runs in this process."),
    ] = None,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="CA certificates that sign the root's certificate.")] = None,
) -> None:
    """Run an existing Ray cluster as a mesh. Ctrl-C leaves the federation in good order."""
    link = LinkSettings(roots=_addresses(root), key=read_key(key_file), ca_file=str(ca_file) if ca_file else None)
    if config is not None:
        settings = read_config(config)
        offer = _offer_in(settings, mesh)
        sys.path[:0] = settings.import_paths  # The mesh runs in this process, and imports its plugins from there.
    else:
        record = _offer_of(mesh, pool or [], _pairs(label), tuple(tenant or ("*",)), _pairs(policy))
        offer = (record, _pairs(node_label), warm_runners, _pairs(plugin))
    check_answers(ray, "--ray")
    terms = _terms(link, offer[0])
    _warn(mesh, (*terms.warnings, *open_words(ray)))
    console_for(stderr=True).print(f"joining as {mesh}; heartbeat every {terms.heartbeat_ms} ms")
    configure_logging()
    _run(settings_of(link, offer, terms, ray))


def _run(settings: ChildSettings) -> None:
    """Connect to the Ray cluster, with its token if needed, and serve the mesh until stopped.

    Raises:
        RuntimeAdapterError: The cluster cannot be entered.
        typer.Exit: Ctrl-C stopped the mesh, in good order.
    """
    os.environ[MODE_VARIABLE] = auth_mode(os.environ, settings.ray_address)
    from serve_apps import child_process  # noqa: PLC0415  Ray reads its mode at import, and no other command needs its seconds

    if child_process.run(settings, _print_joined):
        raise typer.Exit(INTERRUPTED)


def _print_joined(*, mesh: str, cluster: str, pid: int, warnings: tuple[str, ...]) -> None:
    _warn(mesh, warnings)
    words = f"{mesh} is up on the Ray cluster {cluster[:8]}, as process {pid}; Ctrl-C leaves in good order"
    console_for().print(words, soft_wrap=True)


def _warn(mesh: str, warnings: tuple[str, ...]) -> None:
    for words in warnings:
        console_for(stderr=True).print(f"warning: mesh {mesh}: {words}", style="yellow", soft_wrap=True)


#: The offer of a mesh, the Ray labels of its nodes, the number of runners that are kept started, and the sources of plugins.
Offer = tuple[MeshRecord, dict[str, str], int, dict[str, str]]


def settings_of(link: LinkSettings, offer: Offer, terms: LinkTerms, ray_address: str) -> ChildSettings:
    """Return the settings of the mesh's process: its own offer and the root's terms."""
    record, node_labels, warm_runners, plugins = offer
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
        plugins=plugins,
    )


def read_key(file: Path) -> str:
    """Read the mesh's key from the file.

    Raises:
        JoinProblem: The file cannot be read, others may read it, or it holds no mesh key.
    """
    try:
        mode, text = file.stat().st_mode, file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise JoinProblem(f"cannot read the key from {file}: {wrong}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
        raise JoinProblem(f"others may read {file}, which holds a key; run `chmod 600 {file}`")
    if not text.startswith("smm_"):
        raise JoinProblem(f"{file} holds no mesh key (smm_…); create one at the root with `schedulemesh keys create --mesh NAME`")
    return text


def _addresses(text: str) -> tuple[str, ...]:
    roots = tuple(part.strip() for part in text.split(",") if part.strip())
    for root in roots:
        if not _ADDRESS.fullmatch(root):
            raise JoinProblem(f"{root!r} is not the address of a root; write https://HOST:PORT")
    if not roots:
        raise JoinProblem("--root is empty; write https://HOST:PORT")
    return roots


def _terms(link: LinkSettings, record: MeshRecord) -> LinkTerms:
    """Fetch the root's terms before the mesh joins, so that a wrong key, name or pool fails at once."""
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
    return record, dict(section.node_labels), section.warm_runners, dict(section.plugins)


def _offer_of(mesh: str, pools: list[str], labels: Mapping[str, str], tenants: tuple[str, ...], policies: Mapping[str, str]) -> MeshRecord:
    """Build the offer of the mesh from the command line.

    Raises:
        JoinProblem: No pool is given, a pool cannot be parsed, or a policy is for an unknown pool.
    """
    if not pools:
        raise JoinProblem(
            "a mesh needs pools: give --config FILE with the mesh, or --pool NAME=FLAVOR:RESOURCE=AMOUNT, like general=standard:cpu=8"
        )
    offered = tuple(map(_pool_of, pools))
    for name in policies.keys() - {pool.pool for pool in offered}:
        known = [pool.pool for pool in offered]
        raise JoinProblem(
            f"--policy {name}={policies[name]}: no --pool is {name!r}{nearest(name, known) or '; pools: ' + ', '.join(known)}"
        )
    offered = tuple(replace(pool, policy=policies.get(pool.pool, pool.policy)) for pool in offered)
    return MeshRecord(mesh=MeshId(mesh), labels=dict(labels), pools=offered, cluster="", tenants=tenants)


def _pool_of(text: str) -> PoolRecord:
    match = _POOL.fullmatch(text)
    if match is None:
        raise JoinProblem(f"--pool {text}: not a pool; write NAME=FLAVOR:RESOURCE=AMOUNT[,…], like general=standard:cpu=8,memory=16GiB")
    try:
        capacity = ResourceSet.of(_pairs(match["capacity"].split(",")))
    except (AmountError, JoinProblem) as wrong:
        raise JoinProblem(f"--pool {text}: {wrong}") from None
    return PoolRecord(pool=PoolName(match["pool"]), flavor=FlavorName(match["flavor"]), capacity=capacity)


def _pairs(texts: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or []]
    for key, equals, value in pairs:
        if not (key and equals and value):
            raise JoinProblem(f"expected KEY=VALUE, got {key + equals + value!r}")
    return {key: value for key, _, value in pairs}
