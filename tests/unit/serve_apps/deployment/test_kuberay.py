"""`RayService` manifests, judged by the part of KubeRay's custom resource that they use."""

from __future__ import annotations

import jsonschema
import pytest
import ray
import yaml
from deployed_federation import written
from ray.serve.schema import ServeDeploySchema

from serve_apps.cli.app import run_command
from serve_apps.configuration.root_arguments import RootArguments
from serve_apps.deployment.kuberay import SECRETS_DIR, service_name

TEXT, NUMBER = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}


def only(required: tuple[str, ...] = (), **properties) -> dict:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def listed(item: dict) -> dict:
    return {"type": "array", "items": item, "minItems": 1}


NAMED = {"type": "object", "additionalProperties": TEXT}
NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 47}
#: Kubernetes: at most 15 characters in the name of a port.
PORT = only(("name", "containerPort"), name={**NAME, "maxLength": 15}, containerPort={"type": "integer", "minimum": 1, "maximum": 65535})
CONTAINER = only(
    ("name", "image"),
    name=NAME,
    image=TEXT,
    ports=listed(PORT),
    env=listed(only(("name", "value"), name=TEXT, value=TEXT)),
    resources=only(requests=NAMED, limits=NAMED),
    volumeMounts=listed(only(("name", "mountPath"), name=NAME, mountPath=TEXT, readOnly={"type": "boolean"})),
)
VOLUME = only(("name", "secret"), name=NAME, secret=only(("secretName",), secretName=NAME))
POD = only(("spec",), spec=only(("containers",), containers=listed(CONTAINER), volumes=listed(VOLUME)))
WORKERS = only(
    ("groupName", "maxReplicas", "minReplicas", "rayStartParams", "template"),
    groupName=NAME,
    replicas=NUMBER,
    minReplicas=NUMBER,
    maxReplicas=NUMBER,
    rayStartParams=NAMED,
    template=POD,
)
#: Fields of `ray.io/v1` and their types, after `ray.io_rayservices.yaml` of KubeRay 1.x. A field that KubeRay does not know is an error.
RAY_SERVICE = only(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayService"},
    metadata=only(("name",), name=NAME, labels=NAMED),
    spec=only(
        ("serveConfigV2", "rayClusterConfig"),
        serveConfigV2=TEXT,
        rayClusterConfig=only(
            ("headGroupSpec",),
            rayVersion=TEXT,
            headGroupSpec=only(("rayStartParams", "template"), rayStartParams=NAMED, template=POD),
            workerGroupSpecs=listed(WORKERS),
        ),
    ),
)


@pytest.fixture
def manifest(tmp_path):
    """Return a function that runs `serve-config --kuberay` and gives the manifest."""

    def run(*options: str, **changed) -> dict:
        out = tmp_path / "service.yaml"
        line = ["serve-config", str(written(tmp_path, **changed)), "--kuberay", "--image", "registry.example/mesh:1", "--out", str(out)]
        assert run_command([*line, "--force", *options]) == 0
        return yaml.safe_load(out.read_text())

    return run


def test_manifest_has_only_fields_that_kuberay_knows(manifest):
    jsonschema.validate(manifest(), RAY_SERVICE)


def test_serve_config_inside_reaches_all_pods(manifest):
    spec = manifest()["spec"]
    schema = ServeDeploySchema.model_validate(yaml.safe_load(spec["serveConfigV2"]))
    assert (schema.http_options.host, schema.proxy_location.value) == ("0.0.0.0", "EveryNode")  # noqa: S104  compared with
    (workers,) = spec["rayClusterConfig"]["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["replicas"], workers["maxReplicas"]) == (2, 2, 2)
    for pod in (spec["rayClusterConfig"]["headGroupSpec"]["template"], workers["template"]):
        (container,) = pod["spec"]["containers"]
        assert {"name": "serve", "containerPort": schema.http_options.port} in container["ports"]


def test_every_pod_mounts_the_secrets_that_replicas_read(manifest):
    spec = manifest("--name", "root")["spec"]
    content = yaml.safe_load(spec["serveConfigV2"])
    assert {RootArguments.model_validate(app["args"]).secrets_dir for app in content["applications"]} == {SECRETS_DIR}
    cluster = spec["rayClusterConfig"]
    for pod in (cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])):
        (volume,), (container,) = pod["spec"]["volumes"], pod["spec"]["containers"]
        assert volume["secret"]["secretName"] == "root"
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": SECRETS_DIR, "readOnly": True}]


def test_version_of_ray_is_the_installed_one(manifest):
    assert manifest()["spec"]["rayClusterConfig"]["rayVersion"] == ray.__version__


@pytest.mark.parametrize(
    ("federation", "name"),
    [("two.teams_2", "schedulemesh-two-teams-2"), ("a" * 80, f"schedulemesh-{'a' * 27}"), ("x-", "schedulemesh-x")],
)
def test_name_of_the_service_is_one_of_kubernetes(federation, name):
    assert service_name(federation) == name
    jsonschema.validate(name, NAME)
