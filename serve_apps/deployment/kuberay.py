"""Manifest of a `RayService`, which KubeRay turns into a Ray cluster with the root on its Serve.

Field names are those of the custom resource `ray.io/v1`, https://ray-project.github.io/kuberay/reference/api/.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from federation.config.loading import FederationConfig
from serve_apps.configuration.root_arguments import RootArguments
from serve_apps.deployment.serve_file import serve_config
from serve_apps.root.proxy_responses import VARIABLES

#: Folder of the pods' secrets.
SECRETS_DIR = "/etc/schedulemesh/secrets"
_VOLUME = "schedulemesh-secrets"
#: A head runs Ray's control service and the dashboard, a worker one gateway and perhaps the coordinator.
_RESOURCES = {"cpu": "2", "memory": "4Gi"}
_HEADER = """\
# The root of the federation {name} as a RayService of KubeRay, written by `schedulemesh serve-config --kuberay`.
# Before the first `kubectl apply`: kubectl create secret generic {secret} --from-file=STATE/secrets
# `schedulemesh prepare` writes that folder, and the image holds Ray and ScheduleMesh.
"""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


class _Block(str):
    """Text that YAML shows as a block."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Dumper of the manifest: without anchors, for `kubectl diff` shows none."""

    def ignore_aliases(self, _value: object) -> bool:
        return True


def _block(dumper: yaml.SafeDumper, text: _Block) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(_Block, _block)


def service_name(federation: str) -> str:
    """Return the default name of the `RayService`, in the characters that Kubernetes allows."""
    return f"schedulemesh-{_NOT_IN_NAMES.sub('-', federation.lower()).strip('-')}"[:40].rstrip("-")


def ray_service(
    config: FederationConfig, arguments: RootArguments, *, name: str, image: str, secret: str, ray_version: str
) -> dict[str, Any]:
    """Return the manifest.

    Args:
        name: Name of the `RayService`.
        image: Container image with Ray and ScheduleMesh.
        secret: Name of the Secret with the files of `SECRETS_DIR`.
        ray_version: Version of Ray in the image.
    """
    content = serve_config(config, arguments, host="0.0.0.0", on_every_node=True)  # noqa: S104  the address of a pod is not known before
    port = config.root.port
    head = _pod("ray-head", image, secret, {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "serve": port})
    worker = _pod("ray-worker", image, secret, {"serve": port})
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "schedulemesh", "app.kubernetes.io/component": "root"}},
        "spec": {
            "serveConfigV2": _Block(yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=120)),
            "rayClusterConfig": {
                "rayVersion": ray_version,
                "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"}, "template": head},  # noqa: S104  the same
                "workerGroupSpecs": [
                    {
                        "groupName": "gateways",
                        "replicas": config.root.gateways,
                        "minReplicas": config.root.gateways,
                        "maxReplicas": config.root.gateways,
                        "rayStartParams": {},
                        "template": worker,
                    }
                ],
            },
        },
    }


def ray_service_text(config: FederationConfig, manifest: dict[str, Any], *, secret: str) -> str:
    """Return the manifest's text."""
    return _HEADER.format(name=config.federation.name, secret=secret) + yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120)


def _pod(container: str, image: str, secret: str, ports: dict[str, int]) -> dict[str, Any]:
    return {
        "spec": {
            "containers": [
                {
                    "name": container,
                    "image": image,
                    "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
                    "env": [{"name": name, "value": value} for name, value in VARIABLES.items()],
                    "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)},
                    "volumeMounts": [{"name": _VOLUME, "mountPath": SECRETS_DIR, "readOnly": True}],
                }
            ],
            "volumes": [{"name": _VOLUME, "secret": {"secretName": secret}}],
        }
    }
