"""Units of systemd: one for the root with everything that `up` starts, and one for each mesh that joins by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from federation.config.loading import FederationConfig
from federation.config.sections.meshes import MeshLink

ROOT_UNIT = "schedulemesh-root.service"
#: Folders of an installation, as the Filesystem Hierarchy Standard has them.
STATE_DIR, KEYS_DIR = Path("/var/lib/schedulemesh"), Path("/etc/schedulemesh/keys")
#: Ray address of a mesh without a cluster in the file: the head on its own machine.
LOCAL_RAY = "127.0.0.1:6379"
USER = "schedulemesh"
_BARE = re.compile(r"[A-Za-z0-9_@./:=,+-]+")

_UNIT = """\
# Written by `schedulemesh serve-config --systemd` from the federation {federation}.
[Unit]
Description=ScheduleMesh: {about}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
{user}WorkingDirectory={state}
StateDirectory=schedulemesh
StateDirectoryMode=0700
# Optional: settings and secrets for this unit, such as RAY_AUTH_TOKEN_PATH; readable by root only.
EnvironmentFile=-/etc/schedulemesh/{environment}
ExecStart={command}
# The first signal goes to the main process alone, which ends its parts in good order.
KillMode=mixed
TimeoutStopSec=120
SuccessExitStatus=130
Restart=on-failure
RestartSec=5
LimitNOFILE=65536
# No PrivateTmp: Ray's processes meet at sockets in /tmp.
{hardening}
[Install]
WantedBy=multi-user.target
"""


def units(config: FederationConfig, file: Path, *, program: Path, root: str | None = None, ray: str | None = None) -> dict[str, str]:
    """Return the texts of the units by file name.

    Args:
        file: The federation file, absolute.
        program: The program `schedulemesh`, absolute.
        root: Address of the root for the meshes; None: `root.host` and `root.port`.
        ray: Ray address of the meshes that join; None: that of their cluster in the file, else `LOCAL_RAY`.
    """
    has_users = any(section.user is not None for section in config.clusters.values())  # `up` then needs the rights of root.
    command: tuple[str, ...] = (str(program), "up", str(file), "--state-dir", str(STATE_DIR), "--foreground")
    found = {ROOT_UNIT: _unit(config, "root", command, environment="root.env", is_root=has_users)}
    address = root or f"http://{config.root.host}:{config.root.port}"
    for mesh, section in config.meshes.items():
        if section.link is not MeshLink.JOINS:
            continue
        cluster = config.clusters.get(section.cluster)
        command = (
            *(str(program), "join", "--root", address, "--mesh", mesh),
            *("--key-file", str(KEYS_DIR / f"{mesh}.key"), "--config", str(file)),
            *("--ray", ray or (cluster.address if cluster is not None and cluster.address else LOCAL_RAY)),
        )
        found[f"schedulemesh-mesh-{mesh}.service"] = _unit(config, f"mesh {mesh}", command, environment=f"mesh-{mesh}.env")
    return found


def _unit(config: FederationConfig, part: str, command: Iterable[str], *, environment: str, is_root: bool = False) -> str:
    return _UNIT.format(
        federation=_escaped(config.federation.name),
        about=_escaped(f"{part} of the federation {config.federation.name}"),
        user="" if is_root else f"User={USER}\n",
        state=STATE_DIR,
        environment=environment,
        command=" ".join(map(_quoted, command)),
        hardening="" if is_root else "NoNewPrivileges=yes\n",  # `up` starts processes of other users.
    )


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """Return a word of a command as systemd reads it."""
    escaped = _escaped(word).replace("$", "$$")
    return escaped if _BARE.fullmatch(escaped) else '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'
